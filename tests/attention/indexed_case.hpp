// SPDX-License-Identifier: MIT
/// \file
/// Cases of attention over lists of keys: each call makes the lists of a reference mask.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "attention/list_case.hpp"

namespace fovea_test {

/// The lists of a reference mask, ascending, one place longer than the longest of them.
class ListsOfMask {
 public:
  template <class T>
  ListsOfMask(const AllInputs<T>& in, const ReferenceMask& reference_mask) {
    const Shape& q = in.q.shape();
    // One vector for all rows: tests make each allocation fail in turn.
    std::vector<Index> keys;
    std::vector<std::array<std::size_t, 2>> of_row(as_size(q[0] * q[1] * q[2]));
    std::size_t most = 0;
    for (const OracleSequence& s : oracle_sequences(in)) {
      for (Index h = 0; h < q[1]; ++h) {
        for (Index i = 0; i < s.queries; ++i) {
          const std::size_t begin = keys.size();
          for (Index j = 0; j < s.keys; ++j) {
            if (reference_mask(s.pair(h, i, j))) keys.push_back(j);
          }
          of_row[as_size((s.batch * q[1] + h) * q[2] + s.first_query + i)] = {begin, keys.size()};
          most = std::max(most, keys.size() - begin);
        }
      }
    }
    shape_ = {q[0], q[1], q[2], static_cast<Index>(most) + 1};
    entries_.assign(of_row.size() * (most + 1), -1);
    for (std::size_t row = 0; row < of_row.size(); ++row) {
      const auto [begin, end] = of_row[row];
      std::copy(keys.data() + begin, keys.data() + end, entries_.data() + row * (most + 1));
    }
  }

  View<const Index> view() const { return {entries_.data(), shape_}; }

 private:
  std::vector<Index> entries_;
  Shape shape_{};
};

/// \param listed which keys the lists hold   \param reference_mask which of them a row sees
template <class T>
Case<T> indexed_case(const std::string& name, const fovea::IndexedAttention& op,
                     const ReferenceMask& listed, const ReferenceMask& reference_mask) {
  Case<T> made = list_case<T>(name, op, reference_mask);
  made.by_head = true;
  made.forward = [listed, forward = made.forward](const AllInputs<T>& in, const View<T>& out,
                                                  const AllSaved<T>& saved, AnyExecutor* executor) {
    const ListsOfMask lists(in, listed);
    AllInputs<T> with = in;
    with.indices = lists.view();
    forward(with, out, saved, executor);
  };
  made.backward = [listed, backward = made.backward](
                      const AllInputs<T>& in, const View<const T>& out, const AllSaved<T>& saved,
                      const View<const T>& d_out, const AllGrads<T>& grads, AnyExecutor* executor) {
    const ListsOfMask lists(in, listed);
    AllInputs<T> with = in;
    with.indices = lists.view();
    backward(with, out, saved, d_out, grads, executor);
  };
  return made;
}

}  // namespace fovea_test
