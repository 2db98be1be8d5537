// SPDX-License-Identifier: MIT
/// \file
/// Dot products of a few vectors with stored rows, whose columns are contiguous: rows are in the
/// lanes, transposed in registers by pieces. Each product is a sum of reduction blocks, the same
/// sequence of operations as in a register block.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/simd/pairs.inl.hpp"
#include "fovea/simd/rows_to_lanes.inl.hpp"
#include "fovea/simd/softmax_constants.hpp"
#endif

/// Whether 16-bit numbers are transposed one by one, not as pairs, which take longer to split.
template <Storage S>
inline constexpr bool kTransposesShorts = kVecBytes < 64 && S == Storage::float16;

/// The vectors of rows whose products with R vectors are computed together. A single sum of short
/// registers, or of bfloat16, which has the most products for each load, would wait for the one
/// before it. More would be read in an order that the hardware prefetcher does not follow.
template <int R, Storage S>
inline constexpr int kDotVectors =
    (R == 1 && (kVecBytes < 64 || S == Storage::bfloat16)) || kTransposesShorts<S> ? 2 : 1;
template <int R, Storage S, class T>
inline constexpr Index kDotRows = Index{kDotVectors<R, S>} * kLanes<T>;

/// The products of R vectors with kDotRows rows.
template <int R, Storage S, class T>
using DotBlock = RegisterBlock<R, kDotVectors<R, S>, T>;

/// Up to R vectors of operands; the last one is repeated for those that are missing.
template <int R, class X>
struct DotOperands {
  const X* at[R];

  FOVEA_INLINE DotOperands(const X* first, Index row, Index count) {
    FOVEA_UNROLL
    for (int r = 0; r < R; ++r) at[r] = first + smaller(r, count - 1) * row;
  }
};

/// Adds the products of column c, or pair of columns c, of which `y` holds vector n of rows.
template <int R, int V, class X, class T, class Operand>
FOVEA_INLINE void add_dot_column(RegisterBlock<R, V, T>& sum, const DotOperands<R, X>& x, Index c,
                                 int n, Operand y) {
  FOVEA_UNROLL
  for (int r = 0; r < R; ++r) sum.at[r][n] = add_product(set1_operand(x.at[r][c]), y, sum.at[r][n]);
}

/// A register of float16 numbers as two vectors.
FOVEA_INLINE void from_float16(Pieces<std::uint16_t> numbers, Vec<float> (&half)[2]) {
  ShortVec shorts[2];
  __builtin_memcpy(shorts, &numbers, sizeof(shorts));
  half[0] = from_float16(shorts[0]);
  half[1] = from_float16(shorts[1]);
}

/// The first and the second of the two 16-bit numbers in each lane.
template <Storage S, int... Lane>
FOVEA_INLINE void split_pairs(Pieces<float> pairs, Vec<float> (&half)[2],
                              std::integer_sequence<int, Lane...> /*numbers*/) {
  if constexpr (S == Storage::bfloat16) {
    split_bfloat16(bits(Vec<float>{pairs.raw}), half[0], half[1]);
  } else {
    using Shorts = Pieces<std::uint16_t>;
    constexpr int w = kLanes<float>;
    const auto all = reinterpret_cast<Shorts::Raw>(pairs.raw);
    from_float16(Shorts{__builtin_shufflevector(all, all, (Lane % w * 2 + Lane / w)...)}, half);
  }
}

/// The pieces of a row that are loaded at a time. Measured on Zen 4: two are up to 1.05 times as
/// fast for one vector and native rows, and 1.07 to 1.1 for several and float16; others 0.94 to 1.
template <int R, Storage S>
inline constexpr int kPiecesAtOnce = kVecBytes == 64 &&
                                             (R == 1 ? S == Storage::native : S == Storage::float16)
                                         ? 2
                                         : 1;

/// Adds the products of kDotRows rows in columns [c, end), which are whole pieces, P at a time.
/// \param rows column c of the first row \param row bytes between rows
/// \param ahead rows to prefetch meanwhile
template <int P, int R, Storage S, class X, class T>
FOVEA_INLINE void add_dots(DotBlock<R, S, T>& sum, const char* rows, Index row, Index c, Index end,
                           const DotOperands<R, X>& x, RowPrefetcher<0>& ahead) {
  constexpr Index step = P * kPieceBytes / kStoredBytes<S, T>;
  using Element = std::conditional_t<kTransposesShorts<S>, std::uint16_t, T>;
  constexpr int tiles = kDotRows<R, S, T> / Pieces<Element>::kLanes;
  constexpr int elements = P * Pieces<Element>::kCount;
  for (; c < end; c += step, rows += P * kPieceBytes) {
    ahead.prefetch_lines(kDotRows<R, S, T> * kPieceBytes / 64 + 1);
    FOVEA_UNROLL
    for (int n = 0; n < tiles; ++n) {
      Pieces<Element> tile[elements];
      load_transposed(rows + n * kLanes<T> * row, row, tile);
      if constexpr (P == 2) ahead.prefetch_lines(kLanes<T> * kPieceBytes / 64);
      FOVEA_UNROLL
      for (int i = 0; i < elements; ++i) {
        [[maybe_unused]] Vec<T> half[2];
        if constexpr (S == Storage::native) {
          add_dot_column(sum, x, c + i, n, Vec<T>{tile[i].raw});
        } else if constexpr (kTerms<X> == 2) {
          add_dot_column(sum, x, c / 2 + i, n, bits(Vec<T>{tile[i].raw}));
        } else if constexpr (kTransposesShorts<S>) {
          from_float16(tile[i], half);
          add_dot_column(sum, x, c + i, 0, half[0]);
          add_dot_column(sum, x, c + i, 1, half[1]);
        } else {
          split_pairs<S>(tile[i], half, std::make_integer_sequence<int, 2 * kLanes<T>>());
          add_dot_column(sum, x, c + Index{2} * i, n, half[0]);
          add_dot_column(sum, x, c + Index{2} * i + 1, n, half[1]);
        }
      }
    }
  }
}

/// The same for fewer rows, strided columns or a partial piece.
/// \param rows column 0 of the rows
template <int R, Storage S, class X, class T>
FOVEA_NOINLINE void add_edge_dots(DotBlock<R, S, T>& sum, const StoredMatrix<S>& rows, Index count,
                                  Index c, Index end, const DotOperands<R, X>& x) {
  constexpr Index w = kLanes<T>;
  constexpr Index all = kDotRows<R, S, T>;
  alignas(kVecBytes) X lanes[w * all];
  for (; c < end; c += w * kTerms<X>) {
    const Index columns = smaller(w * kTerms<X>, end - c);
    const auto* from = static_cast<const char*>(rows.data) + c * rows.column * kStoredBytes<S, T>;
    const StoredMatrix<S> part{from, rows.row, rows.column};
    if constexpr (kTerms<X> == 2) {
      column_pairs_to_lanes(part, count, columns, lanes, all, all);
    } else {
      rows_to_lanes(part, count, columns, T(1), lanes, all, all);
    }
    for (Index i = 0; i < (columns + kTerms<X> - 1) / kTerms<X>; ++i) {
      FOVEA_UNROLL
      for (int n = 0; n < kDotVectors<R, S>; ++n) {
        add_dot_column(sum, x, c / kTerms<X> + i, n, load_operand(lanes + i * all + n * w));
      }
    }
  }
}

/// Computes the products of vectors with up to kDotRows rows, or adds them to `total`.
/// \param x vectors of `width` elements, or of pairs of them
/// \param ahead rows to prefetch meanwhile
/// \param total lanes beyond `count` are unspecified
template <int R, Storage S, class X, class T>
FOVEA_INLINE void find_dots(const StoredMatrix<S>& rows, Index count, Index width,
                            const DotOperands<R, X>& x, RowPrefetcher<0> ahead, bool adds,
                            RegisterBlock<R, kDotVectors<R, S>, T>& total) {
  constexpr Index bytes = kStoredBytes<S, T>;
  constexpr Index piece = kPieceBytes / bytes;
  constexpr int at_once = kPiecesAtOnce<R, S>;
  const auto* const first = static_cast<const char*>(rows.data);
  const Index row = rows.row * bytes;
  const bool are_pieces = count == kDotRows<R, S, T> && rows.column == 1;
  for (Index c = 0; c < width; c += kReductionBlock, adds = true) {
    const Index end = smaller(c + kReductionBlock, width);
    const Index pieces_end = are_pieces ? end - (end - c) % piece : c;
    DotBlock<R, S, T> sum;
    sum.clear();
    Index next = c;
    if constexpr (at_once > 1) {
      next = pieces_end - (pieces_end - c) % (at_once * piece);
      add_dots<at_once, R, S, X, T>(sum, first + c * bytes, row, c, next, x, ahead);
    }
    add_dots<1, R, S, X, T>(sum, first + next * bytes, row, next, pieces_end, x, ahead);
    if (pieces_end < end) add_edge_dots<R, S, X, T>(sum, rows, count, pieces_end, end, x);
    FOVEA_UNROLL
    for (int r = 0; r < R; ++r) {
      FOVEA_UNROLL
      for (int n = 0; n < kDotVectors<R, S>; ++n) {
        total.at[r][n] = adds ? total.at[r][n] + sum.at[r][n] : sum.at[r][n];
      }
    }
  }
}
