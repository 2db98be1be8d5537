// SPDX-License-Identifier: MIT
/// \file
/// Cases of attention over lists of keys: each call makes the lists of a reference mask.
#pragma once

#include <algorithm>
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
    std::vector<std::vector<Index>> rows(as_size(q[0] * q[1] * q[2]));
    for (const OracleSequence& s : oracle_sequences(in)) {
      for (Index h = 0; h < q[1]; ++h) {
        for (Index i = 0; i < s.queries; ++i) {
          std::vector<Index>& row = rows[as_size((s.batch * q[1] + h) * q[2] + s.first_query + i)];
          for (Index j = 0; j < s.keys; ++j) {
            if (reference_mask(s.pair(h, i, j))) row.push_back(j);
          }
        }
      }
    }
    std::size_t most = 0;
    for (const std::vector<Index>& row : rows) most = std::max(most, row.size());
    for (std::vector<Index>& row : rows) {
      row.resize(most + 1, -1);
      entries_.insert(entries_.end(), row.begin(), row.end());
    }
    shape_ = {q[0], q[1], q[2], static_cast<Index>(most) + 1};
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
