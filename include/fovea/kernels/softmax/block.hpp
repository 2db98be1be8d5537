// SPDX-License-Identifier: MIT
/// \file
/// What the softmax kernel reads and writes. Its body is softmax_block.inl.hpp, compiled once per
/// instruction-set level; table.hpp chooses the level.
#pragma once

#include "fovea/core/key_run.hpp"
#include "fovea/kernels/softmax/score_map.hpp"
#include "fovea/simd/softmax_constants.hpp"

FOVEA_NAMESPACE_BEGIN

/// Keys of one tile: scores, weights and one partial sum of values are made tile by tile. Tiles
/// begin at absolute multiples of it, so that a row has the same chain of operations alone, in a
/// block and in a longer sequence.
inline constexpr Index kKeyTile = 128;

/// Keys of one segment, at absolute multiples too: a segment has its own running softmax, merged
/// into the row's total at its end. It bounds the length of the chains of roundings (and lets the
/// keys of one row be shared out over threads with the same bits).
inline constexpr Index kKeySegment = 2048;

/// Where the keys stand: the one at position p in row p / stride * width + p % stride - first -
/// base of k and v. By default row = position; otherwise they hold, of every `stride` keys, the
/// `width` ones from key `first` on, and the steps of runs are multiples of the stride.
struct KeyRows {
  Index base = 0;
  Index stride = 1;
  Index width = 1;
  Index first = 0;

  constexpr Index row(Index position) const {
    return position / stride * width + position % stride - first - base;
  }
  /// Rows from one key of a run to the next.
  constexpr Index step(Index run_step) const { return run_step / stride * width; }
};

/// The running softmax of query rows between two stages: calls whose runs follow each other as if
/// they stood in one list, each call with its own blocks of rows. Every stage but the last
/// suspends, every one but the first resumes.
template <class T>
struct CarriedSoftmax {
  Matrix<T> acc;      // [Nq, Dv] weighted sums of values; may be out, if that holds T
  T* rows = nullptr;  // [Nq, 3] largest logit, sum of weights, 1 if the row has seen a key, else 0
  bool resumes = false;
  bool suspends = false;  // then nothing is written to out and lse, and the sink waits

  constexpr bool is_used() const { return resumes || suspends; }
};

/// One block of queries of one head against the keys that it sees.
/// \tparam S the storage of q, k, v and out
template <class T, Storage S = Storage::native>
struct SoftmaxBlockArgs {
  StoredMatrix<S> q;    // [Nq, D]
  StoredMatrix<S> k;    // [keys, D], in the rows that key_rows says
  StoredMatrix<S> v;    // [keys, Dv]
  OutputMatrix<S> out;  // [Nq, Dv]
  Matrix<T> lse;        // [Nq, 1], or no data
  /// [Nq], or null. If it is given, the call is of a backward pass: lse is read, and its low parts
  /// are all that is written. \pre value_width is 0, and block.most_keys is kUnboundedKeys
  T* lse_low = nullptr;
  Index width = 0;          // D
  Index value_width = 0;    // Dv
  T scale = 0;              // of the logits
  const T* sink = nullptr;  // a logit without a value, or none
  ScoreMap<T> map;
  Index first_position = 0;  // of query row 0
  KeyRows key_rows;
  Index key_end = 0;  // keys at and beyond it are invisible
  CarriedSoftmax<T> carry;
  QueryBlock block;
  /// Rows from the block's first one to that of the block that is probably next, whose memory is
  /// asked for in advance; 0: not known.
  Index next_block = 0;
  T* scratch = nullptr;  // softmax_block_scratch(...) elements, aligned to 64 bytes
};

/// Elements of scratch for a block of at most \p rows queries: O(rows (D + Dv)), whatever the
/// number of keys. The same at every level.
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
