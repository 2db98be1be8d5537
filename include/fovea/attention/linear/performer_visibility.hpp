// SPDX-License-Identifier: MIT
/// \file
/// Which keys the rows of Performer attention see.
#pragma once

#include <algorithm>

#include "fovea/attention/call/sequences.hpp"
#include "fovea/patterns/pattern.hpp"

FOVEA_NAMESPACE_BEGIN

/// Whether an operator's rows see all keys, and the alignment of queries with keys.
struct PerformerVisibility {
  bool causal = false;  ///< whether a row sees no key after its own position
  CausalAlignment alignment = CausalAlignment::bottom_right;  ///< alignment of queries and keys

  /// The number of tokens of a sequence that rows can see.
  Index seen(const Sequence& s) const {
    if (s.queries == 0) return 0;
    return causal ? std::clamp(s.first_position + s.queries, Index{0}, s.key_end) : s.key_end;
  }
};

FOVEA_NAMESPACE_END
