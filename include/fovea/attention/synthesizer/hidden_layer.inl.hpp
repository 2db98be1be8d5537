// SPDX-License-Identifier: MIT
/// \file
/// Included by hidden_layer.hpp, where it is documented.
#pragma once

#include <algorithm>

#include "fovea/attention/call/head_matrix.hpp"
#include "fovea/attention/synthesizer/hidden_layer.hpp"
#include "fovea/kernels/layers/table.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// The batch index of weights that sequence b reads.
template <class T>
Index weight_batch(const View<T>& x, Index b) {
  return x.batch() == 1 ? 0 : b;
}

template <class T>
Index HiddenLayer<T>::most_tasks() const {
  const Index parts = (rows_ + kRows - 1) / kRows;
  return (std::max)({batch_, in_.w1.batch(), Index{1}}) * (std::max<Index>)(in_.w1.heads(), 1) *
         (std::max<Index>)(parts, 1);
}

template <class T>
void HiddenLayer<T>::compute(const ExecutorRef& executor) {
  const Index parts = (rows_ + kRows - 1) / kRows;
  const Index heads = in_.w1.heads();
  for_each_task(executor, batch_ * heads * parts, [&](Index task, Index worker) {
    const Index first = task % parts * kRows;
    hide(task / parts / heads, task / parts % heads, first, (std::min)(kRows, rows_ - first),
         worker);
  });
}

template <class T>
void HiddenLayer<T>::finish(const View<T>& d_queries, const DenseSynthesizerGrads<T>& grads,
                            const ExecutorRef& executor) {
  finish_tokens(d_queries, grads.x, executor);
  if (grads.w1.empty() && grads.b1.empty()) return;
  for_each_task(executor, in_.w1.batch() * in_.w1.heads(), [&](Index task, Index worker) {
    sum_first_weights(d_queries, grads, task / in_.w1.heads(), task % in_.w1.heads(), worker);
  });
}

template <class T>
void HiddenLayer<T>::finish_tokens(const View<T>& d_queries, const View<T>& d_x,
                                   const ExecutorRef& executor) {
  const Index parts = (rows_ + kRows - 1) / kRows;
  const Index heads = in_.w1.heads();
  if (!d_queries.empty()) {
    for_each_task(executor, batch_ * heads * parts, [&](Index task, Index) {
      const Index first = task % parts * kRows;
      clear_hidden(d_queries, task / parts / heads, task / parts % heads, first,
                   (std::min)(kRows, rows_ - first));
    });
  }
  if (d_x.empty()) return;
  for_each_task(executor, batch_ * d_x.heads() * parts, [&](Index task, Index worker) {
    add_to_tokens(d_queries, d_x, task / parts / d_x.heads(), task / parts % d_x.heads(),
                  task % parts * kRows, worker);
  });
}

template <class T>
void HiddenLayer<T>::add_to_first_weights(const View<T>& d_queries, bool has_weights, Index b,
                                          Index h, const Range& rows, T* sums, Index worker) {
  const WorkerScratch own = slot(worker);
  for (Index first = rows.begin; first < rows.end; first += kRows) {
    const Index count = (std::min)(kRows, rows.end - first);
    const Matrix<const T> x = tokens(b, h, first, count, own);
    const T* const d_hidden = &d_queries(b, h, first, 0);
    if (has_weights) {
      ProductKernels<T>{}.multiply({.a = {x.data, 1, x.row},
                                    .b = {d_hidden, row_of(hidden_), 1},
                                    .to = sums,
                                    .to_row = weight_row(),
                                    .rows = width_,
                                    .columns = hidden_,
                                    .steps = count,
                                    .add = true});
    }
    LayerKernels<T>{}.add_rows(
        {d_hidden, row_of(hidden_), count, hidden_, sums + width_ * weight_row()});
  }
}

template <class T>
void HiddenLayer<T>::write_first_weights(const T* sums, const DenseSynthesizerGrads<T>& grads,
                                         Index part, Index h) const {
  for (Index m = 0; m < hidden_; ++m) {
    for (Index d = 0; d < width_ && !grads.w1.empty(); ++d) {
      grads.w1(part, h, d, m) = sums[d * weight_row() + m];
    }
    if (!grads.b1.empty()) grads.b1(part, h, 0, m) = sums[width_ * weight_row() + m];
  }
}

template <class T>
Matrix<const T> HiddenLayer<T>::tokens(Index b, Index h, Index first, Index count,
                                       const WorkerScratch& own) const {
  const Index head = token_head(h);
  if (column_stride(in_.x) == 1) {
    return {head_row(in_.x, b, head, first), row_stride(in_.x), 1};
  }
  copy_rows(head_matrix(in_.x, b, head, first), count, width_,
            Matrix<T>{own.tokens, padded_size(width_), 1});
  return {own.tokens, padded_size(width_), 1};
}

template <class T>
void HiddenLayer<T>::hide(Index b, Index h, Index first, Index count, Index worker) {
  const WorkerScratch own = slot(worker);
  const Index weights = weight_batch(in_.w1, b);
  copy_rows(head_matrix(in_.w1, weights, h, 0), width_, hidden_,
            Matrix<T>{own.weights, weight_row(), 1});
  for (Index m = 0; m < hidden_; ++m) {
    own.biases[m] = in_.b1.empty() ? T{0} : in_.b1(weights, h, 0, m);
  }
  const Index row = row_of(hidden_);
  T* const to = &queries()(b, h, first, 0);
  ProductKernels<T>{}.multiply({.a = tokens(b, h, first, count, own),
                                .b = {own.weights, weight_row(), 1},
                                .to = to,
                                .to_row = row,
                                .rows = count,
                                .columns = hidden_,
                                .steps = width_,
                                .bias = own.biases});
  LayerKernels<T>{}.relu(
      {.x = to, .x_row = row, .to = to, .to_row = row, .rows = count, .width = hidden_});
  for (Index n = 0; n < count; ++n) to[n * row + hidden_] = 1;
}

template <class T>
void HiddenLayer<T>::clear_hidden(const View<T>& d_queries, Index b, Index h, Index first,
                                  Index count) {
  const View<T> hidden = queries();
  const Index row = row_of(hidden_);
  const T* const from = &hidden(b, h, first, 0);
  T* const to = &d_queries(b, h, first, 0);
  for (Index n = 0; n < count; ++n) {
    for (Index m = 0; m < hidden_; ++m) {
      to[n * row + m] = from[n * row + m] == 0 ? T{0} : to[n * row + m];
    }
  }
}

template <class T>
void HiddenLayer<T>::add_to_tokens(const View<T>& d_queries, const View<T>& d_x, Index b,
                                   Index x_head, Index first, Index worker) {
  const WorkerScratch own = slot(worker);
  const Index row = padded_size(width_);
  const Index count = (std::min)(kRows, rows_ - first);
  const Index begin = in_.x.heads() == 1 ? 0 : x_head;
  const Index end = in_.x.heads() == 1 ? in_.w1.heads() : x_head + 1;
  if (begin == end) std::fill_n(own.tokens, count * row, T{0});
  for (Index h = begin; h < end; ++h) {
    copy_rows(head_matrix(in_.w1, weight_batch(in_.w1, b), h, 0), width_, hidden_,
              Matrix<T>{own.weights, weight_row(), 1});
    ProductKernels<T>{}.multiply({.a = {&d_queries(b, h, first, 0), row_of(hidden_), 1},
                                  .b = {own.weights, 1, weight_row()},
                                  .to = own.tokens,
                                  .to_row = row,
                                  .rows = count,
                                  .columns = width_,
                                  .steps = hidden_,
                                  .add = h > begin});
  }
  copy_rows(Matrix<T>{own.tokens, row, 1}, count, width_, head_matrix(d_x, b, x_head, first));
}

template <class T>
void HiddenLayer<T>::sum_first_weights(const View<T>& d_queries,
                                       const DenseSynthesizerGrads<T>& grads, Index part, Index h,
                                       Index worker) {
  const WorkerScratch own = slot(worker);
  const bool is_shared = in_.w1.batch() == 1;
  const Index begin = is_shared ? 0 : part;
  const Index end = is_shared ? batch_ : part + 1;
  std::fill_n(own.weights, first_weights_elements(), T{0});
  for (Index b = begin; b < end; ++b) {
    add_to_first_weights(d_queries, !grads.w1.empty(), b, h, {0, rows_}, own.weights, worker);
  }
  write_first_weights(own.weights, grads, part, h);
}

FOVEA_FLOAT_AND_DOUBLE_PASSES(HiddenLayer)

}  // namespace detail

FOVEA_NAMESPACE_END
