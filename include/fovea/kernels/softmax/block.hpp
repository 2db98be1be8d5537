// SPDX-License-Identifier: MIT
/// \file
/// What the softmax kernel reads and writes. Its body is block.inl.hpp, compiled once for each
/// instruction-set level; table.hpp chooses the level.
#pragma once

#include "fovea/core/key_run.hpp"
#include "fovea/kernels/softmax/score_map.hpp"
#include "fovea/simd/padding.hpp"
#include "fovea/simd/softmax_constants.hpp"

FOVEA_NAMESPACE_BEGIN

/// The number of keys of a tile. Scores, weights and one partial sum of values are made tile by
/// tile. Tiles begin at multiples of it, counted from position 0, so that a row has the same chain
/// of operations alone, in a block and in a longer sequence.
inline constexpr Index kKeyTile = 128;

/// The number of keys of a segment. Segments, too, begin at multiples of it. A segment has its own
/// running softmax, which is merged into the row's total at its end. That bounds the length of
/// chains of roundings, and lets threads share the keys of one row with the same bits.
inline constexpr Index kKeySegment = 2048;

/// Where the keys stand in k and v: the key at position p is row p / stride * width + p % stride -
/// first - base. By default the row is the position. Otherwise k and v hold, of every `stride`
/// keys, `width` keys from key `first` on, and the steps of runs are multiples of the stride.
struct KeyRows {
  Index base = 0;    ///< rows of earlier keys that k and v do not hold
  Index stride = 1;  ///< keys of which `width` are held
  Index width = 1;   ///< keys that are held of every `stride`
  Index first = 0;   ///< the first of these keys, below `stride`

  /// The row of the key at a position that is held.
  constexpr Index row(Index position) const {
    return position / stride * width + position % stride - first - base;
  }
  /// The number of rows from one key of a run to the next.
  constexpr Index step(Index run_step) const { return run_step / stride * width; }
};

/// The running softmax of query rows between two stages. Stages are calls whose runs follow each
/// other as if they stood in one list, each call with its own blocks of rows. Every stage but the
/// last suspends, and every stage but the first resumes.
template <class T>
struct CarriedSoftmax {
  /// [Nq, Dv] weighted sums of values. It may be `out`, if that holds numbers of T.
  Matrix<T> acc;
  /// [Nq, 3]: the largest logit, the sum of weights, and 1 if the row has seen a key, otherwise 0.
  T* rows = nullptr;
  bool resumes = false;  ///< whether the rows go on from `acc` and `rows`
  /// Whether the rows are left in `acc` and `rows`. Then `out` and `lse` are not written, and the
  /// sink is left to the last stage.
  bool suspends = false;

  /// Whether there are several stages.
  constexpr bool is_used() const { return resumes || suspends; }
};

/// Rows that lie at least so many bytes apart, two pages, are packed before they are read again and
/// again: they meet in few sets of a cache.
inline constexpr Index kFarApart = 8192;

/// Keys and values of neighbouring residue classes, which the first one of as many blocks packs:
/// each page that holds rows of one of these classes holds rows of the others.
template <class T>
struct PackedClasses {
  T* data = nullptr;       ///< packed_classes(...) elements; null: keys are read where they stand
  Index count = 0;         ///< number of classes
  Index keys = 0;          ///< keys of a class, at most
  Index first = 0;         ///< position of the first key of class 0
  Index step = 1;          ///< distance of the keys of a class, more than `count`
  Index own = 0;           ///< the class of the block
  bool is_packed = false;  ///< whether a block before has packed them

  /// The packed row of the key of the block's class at a position.
  constexpr Index row(Index position) const { return own * keys + (position - first - own) / step; }
};

/// Elements of memory for the keys and values of so many classes.
constexpr Index packed_classes(Index count, Index keys, Index width, Index value_width) {
  return count * keys * (padded_size(width) + padded_size(value_width));
}

/// One block of queries of one query head, and the keys that it sees.
/// \tparam S how q, k, v and out are stored
template <class T, Storage S = Storage::native>
struct SoftmaxBlockArgs {
  StoredMatrix<S> q;    ///< [Nq, D]
  StoredMatrix<S> k;    ///< [keys, D], in the rows that key_rows says
  StoredMatrix<S> v;    ///< [keys, Dv], in the same rows
  OutputMatrix<S> out;  ///< [Nq, Dv], written
  Matrix<T> lse;        ///< [Nq, 1], written; null data: not wanted
  /// [Nq], or null. If it is given, the call belongs to a backward pass: lse is read, and its low
  /// parts are all that is written.
  /// \pre value_width is 0 and block.most_keys is kUnboundedKeys, if it is given
  T* lse_low = nullptr;
  Index width = 0;          ///< D
  Index value_width = 0;    ///< Dv
  T scale = 0;              ///< factor of the logits
  const T* sink = nullptr;  ///< one logit without a value; null: no sink
  ScoreMap<T> map;          ///< what happens to logits and weights
  /// Whether a row that sees few keys is summed as any other, which rows of 16 bits always are.
  bool in_tiles = false;
  Index first_position = 0;  ///< position of query row 0
  KeyRows key_rows;          ///< where the keys stand in k and v
  PackedClasses<T> classes;  ///< where they are packed
  Index key_end = 0;         ///< keys from this position on are invisible
  CarriedSoftmax<T> carry;   ///< the running softmax between stages
  QueryBlock block;          ///< the query rows, and their runs of keys
  /// The number of rows from the first row of the block to that of the block that is probably next,
  /// whose memory is asked for in advance; 0 if that is not known.
  Index next_block = 0;
  T* scratch = nullptr;  ///< softmax_block_scratch(...) elements, aligned to 64 bytes
};

/// Elements of scratch for a block of at most \p rows queries: O(rows (D + Dv)), whatever the
/// number of keys. It is the same at every level.
constexpr Index softmax_block_scratch(Index rows, Index width, Index value_width) {
  constexpr Index most_queries = 32;  // of a sub-block, at any level
  constexpr Index most_lanes = 16;
  const auto padded = [](Index n, Index to) { return (n + to - 1) / to * to; };
  const Index queries = padded(rows, most_queries);
  const Index d = padded(width, most_lanes);
  const Index dv = padded(value_width, most_lanes);
  const Index tile = kKeyTile * (most_queries + d + dv) + kChain * most_queries;
  const Index tiles = queries * (d + 2 * dv + 5) + tile;
  const Index band = kBandKeys * (most_lanes + 1) * most_lanes + d;
  return tiles > band ? tiles : band;
}

FOVEA_NAMESPACE_END
