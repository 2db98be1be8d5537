// SPDX-License-Identifier: MIT
/// \file
/// Which keys a row of Longformer attention sees.
#pragma once

#include <algorithm>

#include "attention/reference_masks.hpp"
#include "fovea/attention/longformer.hpp"

namespace fovea_test {

inline bool is_global(const fovea::LongformerOptions& options, Index i) {
  return (0 <= i && i < options.first_global) || std::ranges::count(options.global, i) > 0;
}

inline ReferenceMask longformer_mask(const fovea::LongformerOptions& options) {
  return [o = options](const Pair& p) {
    const Index i = p.position(o.alignment);
    if (o.causal && p.j > i) return false;
    return (i - o.left <= p.j && p.j <= i + o.right) || is_global(o, i) || is_global(o, p.j);
  };
}

}  // namespace fovea_test
