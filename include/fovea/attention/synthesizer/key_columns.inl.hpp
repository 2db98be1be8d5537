// SPDX-License-Identifier: MIT
/// \file
/// Included by key_columns.hpp, where it is documented.
#pragma once

#include <algorithm>

#include "fovea/attention/call/head_matrix.hpp"
#include "fovea/attention/synthesizer/key_columns.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

template <class T>
void KeyColumns<T>::put(std::span<const Range> positions, const ExecutorRef& executor) {
  const View<T> to = rows_of(memory_, shape_);
  if (to.data() == nullptr) return;
  const Index hidden = shape_[3] - 1;
  const Index row = row_of(hidden);
  Index before = 0;  // keys of the preceding ranges
  for (const Range& range : positions) {
    const Index parts = (range.end - range.begin + kRows - 1) / kRows;
    for_each_task(executor, shape_[0] * shape_[1] * parts, [&](Index task, Index) {
      const Index b = task / parts / shape_[1];
      const Index h = task / parts % shape_[1];
      const Index first = range.begin + task % parts * kRows;
      const Index count = (std::min)(kRows, range.end - first);
      const Matrix<const T> w = head_matrix(w2_, b, h, 0);
      T* const keys = &to(b, h, before + first - range.begin, 0);
      for (Index m = 0; m < hidden; ++m) {
        const T* const column = w.data + m * w.row + first * w.column;
        for (Index j = 0; j < count; ++j) keys[j * row + m] = column[j * w.column];
      }
      for (Index j = 0; j < count; ++j) {
        keys[j * row + hidden] = b2_.empty() ? T{0} : b2_(b, h, 0, first + j);
      }
    });
    before += range.end - range.begin;
  }
}

template <class T>
void KeyColumns<T>::finish(const View<T>& d_keys, const DenseSynthesizerGrads<T>& grads,
                           const ExecutorRef& executor) {
  if (!grads.w2.empty()) write(d_keys, grads.w2, true, executor);
  if (!grads.b2.empty()) write(d_keys, grads.b2, false, executor);
}

template <class T>
void KeyColumns<T>::write(const View<T>& d_keys, const View<T>& to, bool is_weight,
                          const ExecutorRef& executor) {
  const Index hidden = d_keys.width() - 1;
  const Index parts = (to.width() + kRows - 1) / kRows;
  for_each_task(executor, to.batch() * to.heads() * parts, [&](Index task, Index) {
    const Index part = task / parts / to.heads();
    const Index h = task / parts % to.heads();
    const Index first = task % parts * kRows;
    const Index begin = to.batch() == 1 ? 0 : part;
    const Index end = to.batch() == 1 ? d_keys.batch() : part + 1;
    for (Index j = first; j < (std::min)(to.width(), first + kRows); ++j) {
      for (Index m = 0; m < to.rows(); ++m) {
        T sum = 0;
        for (Index b = begin; b < end && j < d_keys.rows(); ++b) {
          sum += d_keys(b, h, j, is_weight ? m : hidden);
        }
        to(part, h, m, j) = sum;
      }
    }
  });
}

FOVEA_FLOAT_AND_DOUBLE_PASSES(KeyColumns)

}  // namespace detail

FOVEA_NAMESPACE_END
