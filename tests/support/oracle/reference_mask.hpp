// SPDX-License-Identifier: MIT
/// \file
/// What a pattern shows, as oracles read it: a reference mask over rows and keys, written from
/// MATHS.md.
#pragma once

#include <functional>
#include <optional>

#include "fovea/patterns/pattern.hpp"
#include "support/index.hpp"

namespace fovea_test {

/// A query row and a key of one sequence, and what their positions follow from.
struct Pair {
  Index b;  ///< the number of the sequence: the batch entry, or the place in the packing
  Index h;
  Index row;
  Index j;
  Index queries;
  Index keys;
  Index length = keys;              ///< the keys that are visible
  std::optional<Index> first = {};  ///< the position of row 0, where the inputs give it

  /// The row's position (MATHS.md, section 1).
  Index position(fovea::CausalAlignment alignment) const {
    using enum fovea::CausalAlignment;
    if (first) return row + *first;
    if (alignment == top_left) return row;
    return row + (alignment == key_length ? length : keys) - queries;
  }
  /// The same by default: queries end where keys end.
  Index i() const { return position(fovea::CausalAlignment::bottom_right); }
};

/// Whether a row sees a key, key lengths, mask and bias apart.
using ReferenceMask = std::function<bool(const Pair&)>;

}  // namespace fovea_test
