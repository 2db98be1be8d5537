// SPDX-License-Identifier: MIT
/// \file
/// Transposes elements in registers: lanes x lanes, or within pieces. Included by
/// foreach_level.hpp.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/simd/vec_operations.inl.hpp"
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

/// Bytes of a piece of a register: within pieces, shuffles are fast at every level, and loads put
/// pieces of several rows into a register.
inline constexpr int kPieceBytes = 16;

/// A register of elements E, of which a piece holds kCount.
template <class E>
struct Pieces {
  using Raw __attribute__((vector_size(kVecBytes))) = E;
  static constexpr int kCount = kPieceBytes / static_cast<int>(sizeof(E));
  static constexpr int kLanes = kVecBytes / static_cast<int>(sizeof(E));
  Raw raw;
};

/// The perfect shuffle of each two pieces: a0 b0 a1 b1 ..., its low or its high half.
template <bool High, class E, int... Lane>
FOVEA_INLINE Pieces<E> interleave(Pieces<E> a, Pieces<E> b,
                                  std::integer_sequence<int, Lane...> /*lanes*/) {
  constexpr int n = Pieces<E>::kCount;
  constexpr int from = High ? n / 2 : 0;
  return {__builtin_shufflevector(
      a.raw, b.raw, (Lane / n * n + from + Lane % n / 2 + Lane % 2 * Pieces<E>::kLanes)...)};
}

/// Transposes within pieces: piece p of tile[i] holds element i of the p-th piece of each register.
template <class E>
FOVEA_INLINE void transpose(Pieces<E> (&tile)[Pieces<E>::kCount]) {
  constexpr int n = Pieces<E>::kCount;
  constexpr auto lanes = std::make_integer_sequence<int, Pieces<E>::kLanes>();
  FOVEA_UNROLL
  for (int step = 1; step < n; step *= 2) {
    Pieces<E> shuffled[n];
    FOVEA_UNROLL
    for (int i = 0; i < n / 2; ++i) {
      shuffled[2 * i] = interleave<false>(tile[i], tile[i + n / 2], lanes);
      shuffled[2 * i + 1] = interleave<true>(tile[i], tile[i + n / 2], lanes);
    }
    FOVEA_UNROLL
    for (int i = 0; i < n; ++i) tile[i] = shuffled[i];
  }
}

/// Loads 16 bytes from each of as many rows as registers have elements E, and transposes them:
/// element i of row r becomes lane r of tile[i].
/// \param row bytes between rows
template <class E>
FOVEA_INLINE void load_transposed(const char* rows, Index row,
                                  Pieces<E> (&tile)[Pieces<E>::kCount]) {
  constexpr int n = Pieces<E>::kCount;
  FOVEA_UNROLL
  for (int i = 0; i < n; ++i, rows += row) {
    tile[i] = {reinterpret_cast<typename Pieces<E>::Raw>(load_pieces(rows, n * row).raw)};
  }
  transpose(tile);
}

/// The even or the odd pieces of two registers of four pieces.
template <bool Odd, class E, int... Lane>
FOVEA_INLINE Pieces<E> every_second(Pieces<E> a, Pieces<E> b,
                                    std::integer_sequence<int, Lane...> /*lanes*/) {
  constexpr int n = Pieces<E>::kCount;
  return {__builtin_shufflevector(a.raw, b.raw, (Lane / n * 2 * n + Odd * n + Lane % n)...)};
}

/// The same with 32 bytes from each row, for registers of 64 bytes: as many shuffles for each
/// element, but half as many loads.
template <class E>
FOVEA_INLINE void load_transposed(const char* rows, Index row,
                                  Pieces<E> (&tile)[2 * Pieces<E>::kCount]) {
  constexpr int n = Pieces<E>::kCount;
  constexpr auto lanes = std::make_integer_sequence<int, Pieces<E>::kLanes>();
  Pieces<E> half[2][n];
  FOVEA_UNROLL
  for (int h = 0; h < 2; ++h, rows += n * row) {
    FOVEA_UNROLL
    for (int i = 0; i < n; ++i, rows += row) {
      half[h][i] = {reinterpret_cast<typename Pieces<E>::Raw>(load_halves(rows, n * row).raw)};
    }
    transpose(half[h]);
  }
  FOVEA_UNROLL
  for (int i = 0; i < n; ++i) {
    tile[i] = every_second<false>(half[0][i], half[1][i], lanes);
    tile[n + i] = every_second<true>(half[0][i], half[1][i], lanes);
  }
}
