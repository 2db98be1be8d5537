// SPDX-License-Identifier: MIT
/// \file
/// The checks of lists of keys. Every call looks at every entry of every row.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "fovea/attention/call/check.hpp"
#include "fovea/attention/call/sequences.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// Whether a list ascends strictly within [0, keys), with -1 behind its last key.
/// \param list [length], with `step` elements from one entry to the next
inline bool is_key_list(const Index* list, Index step, Index length, Index keys) {
  while (length > 0 && list[(length - 1) * step] == -1) --length;
  if (length == 0) return true;
  bool ascends = list[0] >= 0 && list[(length - 1) * step] < keys;
  for (Index n = 1; n < length; ++n) {
    ascends = bool(ascends & (list[(n - 1) * step] < list[n * step]));
  }
  return ascends;
}

/// Refuses the first wrong entry of a row of a head.
/// \param at batch entry, head and row
inline void refuse_entry(const char* op, const View<const Index>& indices, const Shape& at,
                         Index keys) {
  const auto& [b, h, i, unused] = at;
  Index before = -1;
  bool ended = false;
  for (Index n = 0; n < indices.width(); ++n) {
    const Index j = indices(b, h, i, n);
    const char* const ascends = ": the keys of a row must ascend, and none may come twice";
    std::string expected;
    if (j < -1 || j >= keys) {
      expected = "a key from 0 to " + std::to_string(keys - 1) + ", or -1 behind the last one";
    } else if (ended && j != -1) {
      expected = "-1, as before it: nothing stands behind the last key";
    } else if (j != -1 && j <= before) {
      expected = "more than " + std::to_string(before) + ascends;
    }
    if (!expected.empty()) {
      refuse(op,
             "indices[" + std::to_string(b) + ", " + std::to_string(h) + ", " + std::to_string(i) +
                 ", " + std::to_string(n) + "]",
             std::to_string(j), expected);
    }
    ended = j == -1;
    before = j;
  }
}

}  // namespace detail

/// Checks the lists of keys: [B, Hq, Nq, K], each row strictly ascending in [0, keys of its
/// sequence), with -1 behind its last key. Cost: O(B Hq Nq K).
/// \pre check_inputs and check_packing passed
/// \throws std::invalid_argument whose message names the first wrong entry
template <class T>
void check_indices(const char* op, const IndexedInputs<T>& inputs) {
  const View<const Index>& indices = inputs.indices;
  const Shape& q = inputs.q.shape();
  if (indices.is_none()) {
    if (q[0] * q[1] * q[2] == 0) return;
    refuse(op, "indices", "missing", "[B, Hq, Nq, K], the keys of each row");
  }
  constexpr std::array<const char*, 3> whose = {"the batch of q", "the heads of q",
                                                "the rows of q"};
  for (std::size_t d = 0; d < 3; ++d) {
    detail::check_extent(op, "indices", indices.shape(), d, q[d], whose[d]);
  }
  if (indices.width() == 0) return;
  const Sequences<T> sequences(inputs);
  for (Index n = 0; n < sequences.count(); ++n) {
    const Sequence s = sequences[n];
    for (Index h = 0; h < q[1]; ++h) {
      for (Index i = s.first_query; i < s.first_query + s.queries; ++i) {
        const Index* const list = &indices(s.batch, h, i, 0);
        if (detail::is_key_list(list, indices.strides()[3], indices.width(), s.keys)) continue;
        detail::refuse_entry(op, indices, {s.batch, h, i, 0}, s.keys);
      }
    }
  }
}

/// Sorts the rows of lists [B, H, N, K] in place, into the form that IndexedAttention reads:
/// ascending, with -1 behind the last key. Before that -1 may stand anywhere. A key that comes
/// twice stays, and the operator refuses it. Cost: O(B H N K log K) comparisons.
/// \throws std::invalid_argument if elements share memory; std::bad_alloc
inline void sort_indices(const View<Index>& indices) {
  if (!has_distinct_elements(indices)) {
    refuse("sort_indices", "the layout of indices", "strides " + to_string(indices.strides()),
           "strides that give each element its own place");
  }
  const auto before = [](Index a, Index b) {  // -1 comes last
    return static_cast<std::size_t>(a) < static_cast<std::size_t>(b);
  };
  std::vector<Index> row(static_cast<std::size_t>(indices.width()));
  for (Index b = 0; b < indices.batch(); ++b) {
    for (Index h = 0; h < indices.heads(); ++h) {
      for (Index n = 0; n < indices.rows(); ++n) {
        for (std::size_t i = 0; i < row.size(); ++i) row[i] = indices(b, h, n, Index(i));
        std::sort(row.begin(), row.end(), before);
        for (std::size_t i = 0; i < row.size(); ++i) indices(b, h, n, Index(i)) = row[i];
      }
    }
  }
}

FOVEA_NAMESPACE_END
