// SPDX-License-Identifier: MIT
/// \file
/// The checks of lists of keys: every entry of every row, in every call.
#pragma once

#include <array>
#include <string>

#include "fovea/attention/call/check.hpp"
#include "fovea/attention/call/sequences.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// Whether a list ascends strictly within [0, keys), with -1 after its last key.
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

/// Refuses the first wrong entry of a row.
/// \param at batch entry, head and row
inline void refuse_entry(const char* op, const View<const Index>& indices, const Shape& at,
                         Index keys) {
  const auto& [b, h, i, unused] = at;
  Index before = -1;
  bool ended = false;
  for (Index n = 0; n < indices.width(); ++n) {
    const Index j = indices(b, h, i, n);
    const char* const ascends = ": the keys of a row must ascend, without repetition";
    std::string expected;
    if (j < -1 || j >= keys) {
      expected =
          range_text<Index>(0, keys - 1) + ", the keys of the sequence, or -1 after the last one";
    } else if (ended && j != -1) {
      expected = "-1, as before it: -1 ends the list";
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

namespace detail {

/// Checks the extents of lists of keys, [B, Hq, Nq, K], which are required if there are rows.
/// \pre check_inputs and check_packing passed
/// \throws std::invalid_argument
template <class T>
void check_index_extents(const char* op, const View<const T>& q, const View<const Index>& indices) {
  const Shape& shape = q.shape();
  if (indices.empty()) {
    if (shape[0] * shape[1] * shape[2] == 0) return;
    refuse_missing(op, "indices", "[B, Hq, Nq, K], the keys of each row");
  }
  constexpr std::array<const char*, 3> whose = {"the batch of q", "the heads of q",
                                                "the rows of q"};
  for (std::size_t d = 0; d < 3; ++d) {
    check_extent(op, "indices", indices.shape(), d, shape[d], whose[d]);
  }
}

/// Checks the lists of the rows [first, end) of all heads.
/// \param keys that they may name
/// \throws std::invalid_argument naming the first wrong entry
inline void check_lists(const char* op, const View<const Index>& indices, Index batch, Index first,
                        Index end, Index keys) {
  if (indices.width() == 0) return;
  for (Index h = 0; h < indices.heads(); ++h) {
    for (Index i = first; i < end; ++i) {
      const Index* const list = &indices(batch, h, i, 0);
      if (is_key_list(list, indices.strides()[3], indices.width(), keys)) continue;
      refuse_entry(op, indices, {batch, h, i, 0}, keys);
    }
  }
}

}  // namespace detail

/// Checks the lists of keys: [B, Hq, Nq, K], each row strictly ascending in [0, keys of its
/// sequence), with -1 after its last key. Cost: O(B Hq Nq K).
/// \pre check_inputs and check_packing passed
/// \throws std::invalid_argument naming the first wrong entry
template <class T>
void check_indices(const char* op, const IndexedInputs<T>& inputs) {
  detail::check_index_extents(op, inputs.q, inputs.indices);
  const Sequences<T> sequences(inputs);
  for (Index n = 0; n < sequences.count(); ++n) {
    const Sequence s = sequences[n];
    detail::check_lists(op, inputs.indices, s.batch, s.first_query, s.first_query + s.queries,
                        s.keys);
  }
}

/// The same for some rows of one sequence, which may name any of its keys.
/// \param q [B, Hq, Nq, D]   \param keys of the sequence
/// \throws std::invalid_argument naming the first wrong entry
template <class T>
void check_indices(const char* op, const View<const T>& q, const View<const Index>& indices,
                   Index keys) {
  detail::check_index_extents(op, q, indices);
  for (Index b = 0; b < indices.batch(); ++b) {
    detail::check_lists(op, indices, b, 0, indices.rows(), keys);
  }
}

FOVEA_NAMESPACE_END
