// SPDX-License-Identifier: MIT
/// \file
/// Transposed lists of keys: for each key the rows that list it. Gradients of keys are sums over
/// these rows, in a fixed order and without atomics.
#pragma once

#include <algorithm>

#include "fovea/kernels/indexed/rows.hpp"

FOVEA_NAMESPACE_BEGIN

/// The memory for RowLists.
struct RowListMemory {
  Index* begin = nullptr;   ///< [keys + 1]
  Index* rows = nullptr;    ///< [Nq K], or the number of entries
  Index* places = nullptr;  ///< [Nq K], or the number of entries
};

/// Sorts the visible entries of `rows` lists by their keys: a counting sort, so that entries of one
/// key stay in the order of their rows. Cost: O(rows K + keys).
inline RowLists transpose_lists(const KeyLists& lists, Index rows, Index keys,
                                const RowListMemory& to) noexcept {
  const auto for_each_entry = [&](auto&& f) {
    for (Index r = 0; r < rows; ++r) {
      const Index seen = lists.visible(r);
      const Index* const list = lists.of(r);
      for (Index n = 0; n < seen; ++n) f(list[n * lists.step], r, n);
    }
  };
  std::fill_n(to.begin, keys + 1, Index{0});
  for_each_entry([&](Index key, Index, Index) { ++to.begin[key + 1]; });
  for (Index key = 0; key < keys; ++key) to.begin[key + 1] += to.begin[key];
  for_each_entry([&](Index key, Index r, Index n) {
    const Index entry = to.begin[key]++;
    to.rows[entry] = r;
    to.places[entry] = lists.place(r) + n;
  });
  // Each key's begin was advanced to its end, which is the next key's begin.
  std::copy_backward(to.begin, to.begin + keys, to.begin + keys + 1);
  to.begin[0] = 0;
  return {to.begin, to.rows, to.places};
}

FOVEA_NAMESPACE_END
