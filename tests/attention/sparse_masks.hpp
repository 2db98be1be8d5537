// SPDX-License-Identifier: MIT
/// \file
/// What heads of the Sparse Transformer see, written from MATHS.md, section 3.
#pragma once

#include "support/index.hpp"

namespace fovea_test {

/// The number of the block of l that contains a position, which may be negative.
inline Index block_of(Index i, Index l) { return i >= 0 ? i / l : -((l - 1 - i) / l); }

inline bool strided_first(Index i, Index j, Index l) { return i - l <= j && j <= i; }
inline bool strided_second(Index i, Index j, Index l) { return j <= i && (i - j) % l == 0; }
inline bool fixed_first(Index i, Index j, Index l) {
  return j <= i && block_of(i, l) == block_of(j, l);
}
/// \param s sub-block, from the end of a block
inline bool fixed_second(Index i, Index j, Index l, Index c, Index s = 0) {
  const Index column = j % l;
  return j <= i && l - (s + 1) * c <= column && column < l - s * c;
}

}  // namespace fovea_test
