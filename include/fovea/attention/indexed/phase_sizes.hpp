// SPDX-License-Identifier: MIT
/// \file
/// Attention over lists of keys in phases: when it is used, and how much is computed at once.
#pragma once

#include <algorithm>

#include "fovea/attention/call/shapes.hpp"
#include "fovea/core/cache_size.hpp"
#include "fovea/kernels/indexed/phases.hpp"

FOVEA_NAMESPACE_BEGIN

/// The blocking of a sequence in phases: which keys, values and rows are processed at once.
/// \tparam T the type of the tensors and of the arithmetic
template <class T>
struct PhaseSizes {
  /// Rows of a task.
  static constexpr Index kRows = 256;
  /// The most keys of a sequence: a cache line of each key's value is copied at once. (With twice
  /// as many, phases gained nothing.)
  static constexpr Index kMostKeys = Index{1} << 17;

  /// The least number of reads of each key that justifies its copy.
  static constexpr Index kLeastReads = 4;

  /// Whether to use phases: a head's keys and values take at least 1 MiB, more than many
  /// second-level caches, are read often, and have rows of at most 2 KiB, so short that each read
  /// needs an address translation. Lists must not be so long that a task's take all the memory. (On
  /// a machine with 512 KB of L2 cache, phases took 0.65 to 0.8 of the time of rows for heads of 1
  /// MB, and 0.4 to 0.5 for heads of 32 MB; with four reads of each key 0.8.)
  /// \param length K, the entries of a list
  static bool are_worth_it(const AttentionShape& shape, Index length) {
    constexpr Index least_bytes = Index{1} << 20;
    constexpr Index most_width = (Index{2} << 10) / Index{sizeof(T)};
    const auto in_range = [](Index width) { return width > 0 && width <= most_width; };
    if (!in_range(shape.width) || !in_range(shape.value_width) || length == 0) return false;
    if (shape.batch == 0 || shape.key_heads == 0 || shape.queries == 0) return false;
    if (indexed_entries_row<T>(length) > kMostEntries / kRows) return false;
    const Index row = (shape.width + shape.value_width) * Index{sizeof(T)};
    const Index group = detail::group_size(shape.query_heads, shape.key_heads);
    return shape.keys >= least_bytes / row &&
           group * shape.queries >= kLeastReads * shape.keys / length;
  }

  /// The sizes for a sequence.
  /// \param length K, the entries of a list
  PhaseSizes(const AttentionShape& shape, Index length)
      : keys((std::min)(shape.keys, kMostKeys)),
        key_row(padded_size(shape.width)),
        block((std::min)(keys, kCopy / key_row)) {
    const Index lines = (shape.value_width + kLine - 1) / kLine;
    slice = (std::min)(lines, most_lines(keys)) * kLine;
    slices = (shape.value_width + slice - 1) / slice;
    slices_at_once = std::clamp<Index>(kCopy / (keys * slice), 1, slices);
    copy = (std::min)(kCopy, keys * (std::max)(key_row, slices * slice));
    entries_row = indexed_entries_row<T>(length);
    parts = (shape.queries + kRows - 1) / kRows;
    pieces = detail::group_size(shape.query_heads, shape.key_heads) * parts;
    pieces_at_once = (std::min)(pieces, kMostEntries / (kRows * entries_row));
  }

  /// Elements passed between phases for the rows of a key head that are processed at once. (A key
  /// index takes as much as an element.)
  Index entries() const { return padded_size(pieces_at_once * kRows * (2 * entries_row + 3)); }

  /// The key heads processed at once. Few rows of one head would leave threads idle; but several
  /// take no more memory than a large one may.
  Index heads_at_once(const AttentionShape& shape, Index workers) const {
    const Index wanted = (2 * workers + pieces - 1) / pieces;
    const Index most =
        (std::min)(kCopy / copy, kMostEntries / (pieces_at_once * kRows * entries_row));
    return std::clamp<Index>((std::min)(wanted, most), 1, shape.key_heads);
  }

  Index keys;            ///< keys of the sequence
  Index key_row;         ///< elements of a key's copy
  Index block;           ///< keys that are copied at once
  Index slice;           ///< columns of values that are summed at once
  Index slices;          ///< slices of a value
  Index slices_at_once;  ///< slices that are copied at once
  Index copy;            ///< elements of the copy of a key head
  Index entries_row;     ///< entries stored for a row
  Index parts;           ///< tasks of a query head
  Index pieces;          ///< tasks of a key head
  Index pieces_at_once;  ///< tasks whose entries fit the memory

 private:
  static constexpr Index kLine = 64 / Index{sizeof(T)};
  /// Elements copied at once: enough that passes over the rows are few, and few enough to fit the
  /// last-level cache.
  static constexpr Index kCopy = (Index{8} << 20) / Index{sizeof(T)};
  static_assert(kMostKeys * kLine <= kCopy);
  /// Cache lines of a slice. Every slice needs a pass over the lists, so slices are large if half
  /// of the L2 cache can hold them, and small otherwise.
  static Index most_lines(Index keys) {
    if (keys * 4 * 64 <= second_cache_bytes() / 2) return 4;
    return keys * 2 * kLine <= kCopy ? 2 : 1;
  }
  /// Entries stored at once.
  static constexpr Index kMostEntries = Index{5} << 19;
};

FOVEA_NAMESPACE_END
