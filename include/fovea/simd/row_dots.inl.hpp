// SPDX-License-Identifier: MIT
/// \file
/// Dot products of a few vectors with stored rows, whose columns are contiguous: rows are in the
/// lanes, transposed in registers by pieces. Each product is a sum of reduction blocks, the same
/// sequence of operations as in a register block.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/simd/register_block.inl.hpp"
#include "fovea/simd/rows_to_lanes.inl.hpp"
#include "fovea/simd/softmax_constants.hpp"
#endif

/// The rows whose products are computed together. More would be read in an order that the hardware
/// prefetcher does not follow.
template <Storage S>
inline constexpr int kDotVectors = S == Storage::float16 ? 2 : 1;
template <Storage S, class T>
inline constexpr Index kDotRows = Index{kDotVectors<S>} * kLanes<T>;

/// The products of R vectors with kDotRows rows.
template <int R, Storage S, class T>
using DotBlock = RegisterBlock<R, kDotVectors<S>, T>;

/// Up to R vectors; the last one is repeated for those that are missing.
template <int R, class T>
struct DotOperands {
  const T* at[R];

  FOVEA_INLINE DotOperands(const T* first, Index row, Index count) {
    FOVEA_UNROLL
    for (int r = 0; r < R; ++r) at[r] = first + smaller(r, count - 1) * row;
  }
};

/// Adds the products of column c, of which `y` holds vector n of rows.
template <int R, Storage S, class T>
FOVEA_INLINE void add_dot_column(DotBlock<R, S, T>& sum, const DotOperands<R, T>& x, Index c, int n,
                                 Vec<T> y) {
  FOVEA_UNROLL
  for (int r = 0; r < R; ++r) sum.at[r][n] = fma(set1(x.at[r][c]), y, sum.at[r][n]);
}

/// Adds the products of kDotRows rows in columns [c, end), which are whole pieces.
/// \param rows column c of the first row \param row bytes between rows
/// \param ahead rows to prefetch meanwhile
template <int R, Storage S, class T>
FOVEA_INLINE void add_dots(DotBlock<R, S, T>& sum, const char* rows, Index row, Index c, Index end,
                           const DotOperands<R, T>& x, RowPrefetcher<0>& ahead) {
  constexpr Index step = kPieceBytes / kStoredBytes<S, T>;
  using Element = std::conditional_t<S == Storage::float16, std::uint16_t, T>;
  for (; c < end; c += step, rows += kPieceBytes) {
    ahead.prefetch_lines(kDotRows<S, T> * kPieceBytes / 64 + 1);
    Pieces<Element> tile[Pieces<Element>::kCount];
    load_transposed(rows, row, tile);
    FOVEA_UNROLL
    for (int i = 0; i < Pieces<Element>::kCount; ++i) {
      if constexpr (S == Storage::float16) {
        ShortVec half[2];
        __builtin_memcpy(half, &tile[i], sizeof(half));
        add_dot_column<R, S>(sum, x, c + i, 0, from_float16(half[0]));
        add_dot_column<R, S>(sum, x, c + i, 1, from_float16(half[1]));
      } else {
        const Vec<T> y{tile[i].raw};
        if constexpr (S == Storage::native) add_dot_column<R, S>(sum, x, c + i, 0, y);
        if constexpr (S == Storage::bfloat16) {  // two columns, transposed as one element
          const IntVec<T> upper = set1_int<T>(static_cast<Int<T>>(~0xffff));
          add_dot_column<R, S>(sum, x, c + 2 * i, 0, from_bits<T>(bits(y) << 16));
          add_dot_column<R, S>(sum, x, c + 2 * i + 1, 0, from_bits<T>(bits(y) & upper));
        }
      }
    }
  }
}

/// The same for fewer rows, strided columns or a partial piece.
/// \param rows column 0 of the rows
template <int R, Storage S, class T>
FOVEA_NOINLINE void add_edge_dots(DotBlock<R, S, T>& sum, const StoredMatrix<S>& rows, Index count,
                                  Index c, Index end, const DotOperands<R, T>& x) {
  constexpr Index w = kLanes<T>;
  alignas(kVecBytes) T lanes[w * kDotRows<S, T>];
  for (; c < end; c += w) {
    const Index columns = smaller(w, end - c);
    const auto* from = static_cast<const char*>(rows.data) + c * rows.column * kStoredBytes<S, T>;
    rows_to_lanes<S>(from, rows.row, rows.column, count, columns, T(1), lanes, kDotRows<S, T>,
                     kDotRows<S, T>);
    for (Index i = 0; i < columns; ++i) {
      FOVEA_UNROLL
      for (int n = 0; n < kDotVectors<S>; ++n) {
        add_dot_column<R, S>(sum, x, c + i, n, load(lanes + i * kDotRows<S, T> + n * w));
      }
    }
  }
}

/// Computes the products of vectors with up to kDotRows rows, or adds them to `total`.
/// \param x vectors of `width` elements
/// \param ahead rows to prefetch meanwhile
/// \param total lanes beyond `count` are unspecified
template <int R, Storage S, class T>
FOVEA_INLINE void find_dots(const StoredMatrix<S>& rows, Index count, Index width,
                            const DotOperands<R, T>& x, RowPrefetcher<0> ahead, bool adds,
                            DotBlock<R, S, T>& total) {
  constexpr Index bytes = kStoredBytes<S, T>;
  constexpr Index piece = kPieceBytes / bytes;
  const bool are_pieces = count == kDotRows<S, T> && rows.column == 1;
  for (Index c = 0; c < width; c += kReductionBlock, adds = true) {
    const Index end = smaller(c + kReductionBlock, width);
    const Index pieces_end = are_pieces ? end - (end - c) % piece : c;
    DotBlock<R, S, T> sum;
    sum.clear();
    add_dots<R, S>(sum, static_cast<const char*>(rows.data) + c * bytes, rows.row * bytes, c,
                   pieces_end, x, ahead);
    if (pieces_end < end) add_edge_dots<R>(sum, rows, count, pieces_end, end, x);
    FOVEA_UNROLL
    for (int r = 0; r < R; ++r) {
      FOVEA_UNROLL
      for (int n = 0; n < kDotVectors<S>; ++n) {
        total.at[r][n] = adds ? total.at[r][n] + sum.at[r][n] : sum.at[r][n];
      }
    }
  }
}
