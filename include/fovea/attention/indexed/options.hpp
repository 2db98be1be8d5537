// SPDX-License-Identifier: MIT
/// \file
/// The options of attention over lists of keys.
#pragma once

#include <optional>

#include "fovea/attention/call/logit_scale.hpp"
#include "fovea/patterns/pattern.hpp"

FOVEA_NAMESPACE_BEGIN

/// Options of IndexedAttention.
struct IndexedOptions {
  /// Scale of the logits; the default is 1/sqrt(D).
  std::optional<double> scale = {};
  /// If true, row i sees no key after its own position, even if its list has some.
  bool causal = false;
  /// Position of query row 0; by default the queries end where the rows of k end.
  CausalAlignment alignment = CausalAlignment::bottom_right;

  /// The scale of the logits for queries of D = width: the option, or 1/sqrt(D).
  template <class T>
  T scale_of(Index width) const {
    return detail::logit_scale<T>(scale, width);
  }
};

FOVEA_NAMESPACE_END
