// SPDX-License-Identifier: MIT
/// \file
/// The order of list entries by keys. Gradients of keys are sums over the rows that list them, in a
/// fixed order and without atomics.
#pragma once

#include <algorithm>
#include <array>
#include <utility>

#include "fovea/kernels/indexed/rows.hpp"

FOVEA_NAMESPACE_BEGIN

/// The places of the entries of one query head in the order of their keys, and of rows within a
/// key: a counting sort. Threads share the rows in consecutive pieces; places do not depend on the
/// pieces.
struct EntryPlaces {
  Index* begin = nullptr;  ///< [pieces * keys + 1]
  Index keys = 0;          ///< number of keys
  Index pieces = 0;        ///< number of pieces, at least 1

  /// Counts a piece's visible entries of each key, in the rows [first, first + count). Cost:
  /// O(count K + keys).
  void count_entries(const KeyLists& lists, Index piece, Index first, Index count) const noexcept {
    Index* const counts = next(piece);
    std::fill_n(counts, keys, Index{0});
    for (Index r = first; r < first + count; ++r) {
      const Index seen = lists.visible(r);
      const Index* const list = lists.of(r);
      for (Index n = 0; n < seen; ++n) ++counts[list[n * lists.step]];
    }
  }

  /// Turns the counts of all pieces into places. Cost: O(pieces keys).
  void place_entries() const noexcept {
    constexpr Index block = 256;  // keys, whose counts fit the L1 cache
    begin[0] = 0;
    Index sum = 0;
    for (Index first = 0; first < keys; first += block) {
      const Index count = (std::min)(block, keys - first);
      std::array<Index, block> places{};
      Index* const place = places.data();
      for (Index piece = 0; piece < pieces; ++piece) {
        const Index* const counts = next(piece) + first;
        for (Index n = 0; n < count; ++n) place[n] += counts[n];
      }
      for (Index n = 0; n < count; ++n) place[n] = std::exchange(sum, sum + place[n]);
      for (Index piece = 0; piece < pieces; ++piece) {
        Index* const counts = next(piece) + first;
        for (Index n = 0; n < count; ++n) place[n] += std::exchange(counts[n], place[n]);
      }
    }
  }

  /// For each key the place of a piece's next entry: [keys]. Once the entries of all pieces have
  /// been written, key j has the places [begin[j], begin[j + 1]).
  Index* next(Index piece) const noexcept { return begin + 1 + (pieces - 1 - piece) * keys; }
};

FOVEA_NAMESPACE_END
