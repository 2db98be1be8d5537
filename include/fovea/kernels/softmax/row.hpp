// SPDX-License-Identifier: MIT
/// \file
/// What the kernels of few query rows read and write. Their bodies are in softmax_row.inl.hpp and
/// softmax_merge.inl.hpp, compiled once per instruction-set level; table.hpp chooses the level.
#pragma once

#include "fovea/kernels/softmax/block.hpp"

FOVEA_NAMESPACE_BEGIN

/// Query rows that one call takes at most.
inline constexpr Index kMostRows = 64;

/// The keys of run `run` at its lattice points [segment, segment + 1) * kKeySegment: the keys
/// first % step + step * n of a run are its points n.
struct RunSegment {
  Index run = 0;
  Index segment = 0;
};

/// Some rows of the query heads that share a key head and a pattern, against some segments of what
/// they see. Row r is row r % block.count of head r / block.count.
template <class T, Storage S = Storage::native>
struct SoftmaxRowArgs {
  /// [head_count] k, v, key_rows, key_end and widths are the same; their blocks are not read
  const SoftmaxBlockArgs<T, S>* heads = nullptr;
  Index head_count = 1;                  // head_count * block.count <= kMostRows
  QueryBlock block;                      // the rows, and all runs
  const RunSegment* segments = nullptr;  // [segment_count]
  Index segment_count = 0;
  T* parts =
      nullptr;  // [segment_count, softmax_row_part(...)]: the running softmax of each segment
  T* scratch = nullptr;  // softmax_row_scratch(...) elements
};

/// What the segments left of the rows of one head, to be merged in their order.
template <class T, Storage S = Storage::native>
struct SoftmaxMergeArgs {
  const SoftmaxBlockArgs<T, S>* head = nullptr;  // its block is not read
  QueryBlock block;                              // the rows
  Index head_index = 0;                          // among the heads of the parts
  Index head_count = 1;                          // the same
  const T* parts = nullptr;                      // [part_count, softmax_row_part(...)]
  Index part_count = 0;
  T* scratch = nullptr;  // softmax_merge_scratch(...) elements
};

namespace detail {

/// Columns, or rows, up to whole registers of any level.
constexpr Index whole_registers(Index n) { return (n + 15) / 16 * 16; }

}  // namespace detail

/// Elements of the running softmax of some rows: their maxima, sums and weighted sums of values,
/// and whether they saw a key.
constexpr Index softmax_row_part(Index rows, Index value_width) {
  return 3 * detail::whole_registers(rows) + rows * detail::whole_registers(value_width);
}

/// Elements of scratch of one call: the queries, and the weights and visibility of one tile.
constexpr Index softmax_row_scratch(Index rows, Index width) {
  constexpr Index most_rows_at_once = 8;
  return rows * detail::whole_registers(width) + 2 * most_rows_at_once * kKeyTile;
}

constexpr Index softmax_merge_scratch(Index value_width) {
  return detail::whole_registers(value_width);
}

FOVEA_NAMESPACE_END
