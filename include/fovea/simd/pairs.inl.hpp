// SPDX-License-Identifier: MIT
/// \file
/// Matrices of bfloat16 numbers in pairs, for `dot_pairs`: the first number of a pair is in the
/// lower half of an integer. Columns are paired where a product sums over columns, rows where it
/// sums over rows. A missing partner is 0.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/simd/register_block.inl.hpp"
#include "fovea/simd/stored_rows.inl.hpp"
#include "fovea/simd/transpose.inl.hpp"
#endif

/// Whether matrices stored in S are multiplied in pairs.
template <Storage S>
inline constexpr bool kMultipliesPairs = Arch::kHasFastPairs ? S == Storage::bfloat16 : false;

/// The operands of their products, as they are kept in scratch.
template <Storage S, class T>
using OperandOf = std::conditional_t<kMultipliesPairs<S>, Int<T>, T>;

/// Scratch as operands.
template <Storage S, class T>
FOVEA_INLINE OperandOf<S, T>* operands(T* scratch) {
  return reinterpret_cast<OperandOf<S, T>*>(scratch);
}

/// The steps of a product over `width` columns.
template <Storage S, class T>
FOVEA_INLINE Index operand_steps(Index width) {
  constexpr Index terms = kTerms<OperandOf<S, T>>;
  return (width + terms - 1) / terms;
}

/// Pairs of bfloat16 numbers that floats hold exactly.
FOVEA_INLINE IntVec<float> exact_pairs(Vec<float> first, Vec<float> second) {
  const IntVec<float> low = (bits(first) >> 16) & set1_int<float>(0xffff);
  return low | (bits(second) & set1_int<float>(~0xffff));
}

/// The masks of two numbers as one of their pair.
FOVEA_INLINE IntVec<float> mask_pairs(IntVec<float> first, IntVec<float> second) {
  return exact_pairs(from_bits<float>(first), from_bits<float>(second));
}

/// to[i, n] = columns 2 n and 2 n + 1 of row i, 0 beyond `width` up to a multiple of the lanes.
template <Storage S, class X>
FOVEA_NOINLINE void pack_column_pairs(const StoredMatrix<S>& rows, Index count, Index width, X* to,
                                      Index to_row) {
  constexpr Index w = kLanes<float>;
  for (Index i = 0; i < count; ++i) {
    for (Index c = 0; c < width; c += w) {
      store_short(to + i * to_row + c / 2,
                  load_short_columns<S>(rows.data, i * rows.row, rows.column, c, width));
    }
  }
}

/// to[n, i] = columns 2 n and 2 n + 1 of row i for i < count, else 0, for i < filled.
/// \param to [(width + 1) / 2 rounded up to lanes, to_row]
template <Storage S, class X>
FOVEA_NOINLINE void column_pairs_to_lanes(const StoredMatrix<S>& rows, Index count, Index width,
                                          X* to, Index to_row, Index filled) {
  constexpr Index w = kLanes<float>;
  alignas(kVecBytes) X packed[w * w] = {};
  for (Index first = 0; first < filled; first += w) {
    const Index real = clamped(count - first, 0, w);
    for (Index c = 0; c < width; c += 2 * w) {
      const Index columns = smaller(2 * w, width - c);
      const Index at = (first < count ? first * rows.row : 0) + c * rows.column;
      const StoredMatrix<S> part{short_element(rows.data, at), rows.row, rows.column};
      if (real < w || columns <= w) {
        for (X& pair : packed) pair = 0;
      }
      pack_column_pairs(part, real, columns, packed, w);
      Vec<float> tile[w];
      FOVEA_UNROLL
      for (int i = 0; i < w; ++i) tile[i] = from_bits<float>(load_int<float>(packed + i * w));
      transpose(tile);
      FOVEA_UNROLL
      for (int i = 0; i < w; ++i) {
        store_int<float>(to + (c / 2 + i) * to_row + first, bits(tile[i]));
      }
    }
  }
}

/// `lanes` columns of row i from c on; 0 if it is not one of [0, count).
template <Storage S>
FOVEA_INLINE Vec<float> load_row(const StoredMatrix<S>& rows, Index i, Index count, Index c,
                                 Index width) {
  if (i < 0 || i >= count) return zero<float>();
  return load_columns<S, float>(rows.data, i * rows.row, rows.column, c, width);
}

/// The pairs of rows i and i + 1.
template <Storage S>
FOVEA_INLINE IntVec<float> load_row_pairs(const StoredMatrix<S>& rows, Index i, Index count,
                                          Index c, Index width) {
  return exact_pairs(load_row(rows, i, count, c, width), load_row(rows, i + 1, count, c, width));
}

/// to[p] = the pairs of rows 2 p - odd and the next one, for all p that have a row in [0, count).
/// \param odd 1 if row 0 is the second of a pair, else 0
template <Storage S, class X>
FOVEA_NOINLINE void pack_row_pairs(const StoredMatrix<S>& rows, Index odd, Index count, Index width,
                                   X* to, Index to_row) {
  for (Index p = 0; 2 * p - odd < count; ++p) {
    for (Index c = 0; c < width; c += kLanes<float>) {
      store_int<float>(to + p * to_row + c, load_row_pairs(rows, 2 * p - odd, count, c, width));
    }
  }
}

/// Whether all numbers of rows [0, rows) of pairs are finite.
template <class X>
FOVEA_NOINLINE bool all_pairs_finite(const X* pairs, Index row, Index rows, Index width) {
  Vec<float> poison[2] = {zero<float>(), zero<float>()};
  for (Index i = 0; i < rows; ++i) {
    for (Index c = 0; c < width; c += kLanes<float>) {
      Vec<float> first, second;
      split_bfloat16(load_int<float>(pairs + i * row + c), first, second);
      poison[0] = poison[0] + (first - first);
      poison[1] = poison[1] + (second - second);
    }
  }
  return !any<float>(~(poison[0] + poison[1] == zero<float>()));
}
