// SPDX-License-Identifier: MIT
/// \file
/// Arguments of the kernels for few query rows (the decode path). Their bodies are row.inl.hpp and
/// merge.inl.hpp, compiled once per instruction-set level; table.hpp selects the level.
#pragma once

#include "fovea/kernels/softmax/block.hpp"
#include "fovea/simd/padding.hpp"

FOVEA_NAMESPACE_BEGIN

/// The maximum number of query rows per call.
inline constexpr Index kMostRows = 64;

/// A segment of the keys of a run. Point n of a run's strided range is the key first % step +
/// step * n; the segment holds the keys at the points [segment, segment + 1) * kKeySegment.
struct RunSegment {
  Index run = 0;      ///< number of the run in its block
  Index segment = 0;  ///< number of the segment, counted from point 0
};

/// Some rows of the query heads that share a key head and a pattern, and some segments of their
/// visible keys. Row r is row r % block.count of head r / block.count.
template <class T, Storage S = Storage::native>
struct SoftmaxRowArgs {
  /// [head_count] the query heads. Their k, v, key_rows, key_end and widths are the same, and their
  /// blocks are not read.
  const SoftmaxBlockArgs<T, S>* heads = nullptr;
  /// Number of query heads; head_count * block.count is at most kMostRows.
  Index head_count = 1;
  QueryBlock block;                      ///< the rows of each head, and all runs
  const RunSegment* segments = nullptr;  ///< [segment_count]
  Index segment_count = 0;               ///< number of segments
  /// [segment_count, softmax_row_part(...)] the running softmax of each segment, written.
  T* parts = nullptr;
  T* scratch = nullptr;  ///< softmax_row_scratch(...) elements
};

/// The rows of one query head, merged in order from the running softmaxes of their segments. As in
/// a block, the head's carry may precede them, and may receive the result.
template <class T, Storage S = Storage::native>
struct SoftmaxMergeArgs {
  const SoftmaxBlockArgs<T, S>* head = nullptr;  ///< the query head; its block is not read
  QueryBlock block;                              ///< the rows
  Index head_index = 0;                          ///< the head's number among the parts'
  Index head_count = 1;                          ///< number of heads of the parts
  const T* parts = nullptr;                      ///< [part_count, softmax_row_part(...)]
  Index part_count = 0;                          ///< number of segments
  T* scratch = nullptr;                          ///< softmax_merge_scratch(...) elements
};

/// Elements of the running softmax of some rows: their maxima, their sums, their weighted sums of
/// values, and whether they saw any key.
constexpr Index softmax_row_part(Index rows, Index value_width) {
  return 3 * padded_size(rows) + rows * padded_size(value_width);
}

/// The number of rows whose weights are stored at a time.
inline constexpr Index kRowsAtOnce = 16;

/// Elements of scratch for SoftmaxRowArgs: the queries, the keys and the values of a tile, its
/// weights, and which of its pairs are visible.
constexpr Index softmax_row_scratch(Index rows, Index width, Index value_width) {
  constexpr Index most_keys_transposed = 64;
  return (rows + most_keys_transposed) * padded_size(width) +
         kReductionBlock * padded_size(value_width) + 2 * kRowsAtOnce * kKeyTile;
}

/// Elements of scratch for SoftmaxMergeArgs.
constexpr Index softmax_merge_scratch(Index value_width) { return padded_size(value_width); }

FOVEA_NAMESPACE_END
