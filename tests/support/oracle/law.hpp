// SPDX-License-Identifier: MIT
/// \file
/// What a pattern shows, as oracles read it: a law over rows and keys, written from MATHS.md.
#pragma once

#include <functional>

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

  /// The row's position: queries end where keys end (MATHS.md, section 1).
  Index i() const { return row + keys - queries; }
};

/// Whether a row sees a key, key lengths, mask and bias apart.
using Law = std::function<bool(const Pair&)>;

}  // namespace fovea_test
