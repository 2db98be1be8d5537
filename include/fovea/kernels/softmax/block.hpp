// SPDX-License-Identifier: MIT
/// \file
/// Arguments of the softmax kernel. Its body is block.inl.hpp, compiled once per instruction-set
/// level; table.hpp selects the level.
#pragma once

#include "fovea/core/key_run.hpp"
#include "fovea/kernels/softmax/score_map.hpp"
#include "fovea/simd/padding.hpp"
#include "fovea/simd/softmax_constants.hpp"

FOVEA_NAMESPACE_BEGIN

/// The number of keys of a tile. Scores, weights and one partial sum of values are computed tile by
/// tile. Tiles begin at multiples of it, counted from position 0, so that a row has the same
/// sequence of operations alone, in a block and in a longer sequence.
inline constexpr Index kKeyTile = 128;

/// The number of keys of a segment. Segments, too, begin at multiples of it. A segment has its own
/// running softmax, which is merged into the row's total at its end. That bounds chains of
/// roundings, and lets threads share the keys of a row without changing bits.
inline constexpr Index kKeySegment = 2048;

/// The layout of keys in k and v: the key at position p is row p / stride * width + p % stride -
/// first - base. By default the row is the position. Otherwise k and v hold `width` of every
/// `stride` keys, from key `first` on, and the steps of runs are multiples of the stride.
struct KeyRows {
  Index base = 0;    ///< rows of earlier keys not held in k and v
  Index stride = 1;  ///< keys of which `width` are held
  Index width = 1;   ///< held keys of every `stride`
  Index first = 0;   ///< the first of these keys, below `stride`

  /// The row of the held key at a position.
  constexpr Index row(Index position) const {
    return position / stride * width + position % stride - first - base;
  }
  /// The row stride of a run's keys.
  constexpr Index step(Index run_step) const { return run_step / stride * width; }
};

/// The running softmax of query rows between two passes. Passes are calls whose runs continue each
/// other as in one list, each call with its own blocks of rows. Every pass but the last suspends,
/// and every pass but the first resumes.
template <class T>
struct CarriedSoftmax {
  /// [Nq, Dv] weighted sums of values. It may be `out`, if that holds numbers of T.
  Matrix<T> acc;
  /// [Nq, 3]: the largest logit, the sum of weights, and 1 if the row has seen a key, else 0.
  T* rows = nullptr;
  bool resumes = false;  ///< whether the rows continue from `acc` and `rows`
  /// Whether the rows are left in `acc` and `rows`. Then `out` and `lse` are not written, and the
  /// last pass applies the sink.
  bool suspends = false;

  /// Whether there are several passes.
  constexpr bool is_used() const { return resumes || suspends; }
};

/// Rows at least this many bytes apart (two pages) are packed before repeated reads, since they map
/// to few cache sets.
inline constexpr Index kFarApart = 8192;

/// Keys and values of neighbouring residue classes, packed together by the first of their blocks:
/// each page with rows of one class holds rows of the others (strided packing).
template <class T>
struct PackedResidues {
  T* data = nullptr;       ///< packed_classes(...) elements; null: keys are read in place
  Index count = 0;         ///< number of classes
  Index keys = 0;          ///< keys of a class, at most
  Index first = 0;         ///< position of the first key of class 0
  Index step = 1;          ///< distance of the keys of a class, more than `count`
  Index own = 0;           ///< the class of the block
  bool is_packed = false;  ///< whether an earlier block has packed them

  /// The packed row of the key of the block's class at a position.
  constexpr Index row(Index position) const { return own * keys + (position - first - own) / step; }
};

/// Elements for the keys and values of `count` classes.
constexpr Index packed_classes(Index count, Index keys, Index width, Index value_width) {
  return count * keys * (padded_size(width) + padded_size(value_width));
}

/// One block of queries of one query head, and its visible keys.
/// \tparam S how q, k, v and out are stored
template <class T, Storage S = Storage::native>
struct SoftmaxBlockArgs {
  StoredMatrix<S> q;    ///< [Nq, D]
  StoredMatrix<S> k;    ///< [keys, D], in the rows of key_rows
  StoredMatrix<S> v;    ///< [keys, Dv], in the same rows
  OutputMatrix<S> out;  ///< [Nq, Dv], written
  Matrix<T> lse;        ///< [Nq, 1], written; null data: not requested
  /// [Nq], or null. If given, the call belongs to a backward pass: lse is read, and only its low
  /// parts are written.
  /// \pre value_width is 0 and block.most_keys is kUnboundedKeys, if given
  T* lse_low = nullptr;
  Index width = 0;          ///< D
  Index value_width = 0;    ///< Dv
  T scale = 0;              ///< factor of the logits
  const T* sink = nullptr;  ///< one logit without a value; null: no sink
  ScoreMap<T> map;          ///< options of logits and weights
  /// Whether rows with few keys are summed like others; 16-bit rows always are.
  bool in_tiles = false;
  Index first_position = 0;   ///< position of query row 0
  KeyRows key_rows;           ///< the layout of the keys in k and v
  PackedResidues<T> classes;  ///< their packed copies
  Index key_end = 0;          ///< keys from this position on are invisible
  CarriedSoftmax<T> carry;    ///< the running softmax between passes
  QueryBlock block;           ///< the query rows, and their runs of keys
  /// The distance in rows from the block to the probably next one, which is prefetched; 0 if
  /// unknown.
  Index next_block = 0;
  T* scratch = nullptr;  ///< softmax_block_scratch(...) elements, aligned to 64 bytes
};

/// Elements of scratch for a block of at most \p rows queries: O(rows (D + Dv)), for any number of
/// keys. It is the same at every level.
constexpr Index softmax_block_scratch(Index rows, Index width, Index value_width) {
  constexpr Index most_queries = 32;  // of a sub-block, at any level
  constexpr Index most_lanes = 16;
  const auto padded = [](Index n, Index to) { return (n + to - 1) / to * to; };
  const Index queries = padded(rows, most_queries);
  const Index d = padded(width, most_lanes);
  const Index dv = padded(value_width, most_lanes);
  const Index tile = kKeyTile * (most_queries + d + dv) + kReductionBlock * most_queries;
  const Index tiles = queries * (d + 2 * dv + 5) + tile;
  const Index band = kBandKeys * (most_lanes + 1) * most_lanes + d;
  return tiles > band ? tiles : band;
}

FOVEA_NAMESPACE_END
