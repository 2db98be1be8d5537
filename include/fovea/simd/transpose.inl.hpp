// SPDX-License-Identifier: MIT
/// \file
/// Transposes lanes x lanes elements in registers. Included by foreach_level.hpp.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/simd/vec.inl.hpp"
#endif

/// The perfect shuffle of two registers: a0 b0 a1 b1 ..., its low or its high half.
template <bool High, class T>
FOVEA_INLINE Vec<T> interleave(Vec<T> a, Vec<T> b) {
  constexpr int w = kLanes<T>;
  constexpr int h = High ? w / 2 : 0;
  if constexpr (w == 2) {
    return {__builtin_shufflevector(a.raw, b.raw, h, w + h)};
  } else if constexpr (w == 4) {
    return {__builtin_shufflevector(a.raw, b.raw, h, w + h, h + 1, w + h + 1)};
  } else if constexpr (w == 8) {
    return {__builtin_shufflevector(a.raw, b.raw, h, w + h, h + 1, w + h + 1, h + 2, w + h + 2,
                                    h + 3, w + h + 3)};
  } else {
    return {__builtin_shufflevector(a.raw, b.raw, h, w + h, h + 1, w + h + 1, h + 2, w + h + 2,
                                    h + 3, w + h + 3, h + 4, w + h + 4, h + 5, w + h + 5, h + 6,
                                    w + h + 6, h + 7, w + h + 7)};
  }
}

/// One step of a transposition: the perfect shuffle of the first half of the rows with the second.
template <class T>
FOVEA_INLINE void shuffle_halves(Vec<T> (&rows)[kLanes<T>]) {
  constexpr int w = kLanes<T>;
  Vec<T> shuffled[w];
  FOVEA_UNROLL
  for (int i = 0; i < w / 2; ++i) {
    shuffled[2 * i] = interleave<false>(rows[i], rows[i + w / 2]);
    shuffled[2 * i + 1] = interleave<true>(rows[i], rows[i + w / 2]);
  }
  FOVEA_UNROLL
  for (int i = 0; i < w; ++i) rows[i] = shuffled[i];
}

/// Transposes lanes x lanes elements in log2(lanes) steps.
template <class T>
FOVEA_INLINE void transpose(Vec<T> (&rows)[kLanes<T>]) {
  shuffle_halves(rows);
  if constexpr (kLanes<T> >= 4) shuffle_halves(rows);
  if constexpr (kLanes<T> >= 8) shuffle_halves(rows);
  if constexpr (kLanes<T> >= 16) shuffle_halves(rows);
}
