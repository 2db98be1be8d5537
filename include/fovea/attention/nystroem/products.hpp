// SPDX-License-Identifier: MIT
/// \file
/// Landmarks, means of segments of rows, and the products that both passes of Nystroem attention
/// compute from them and from the values that they attend to, with their memory.
#pragma once

#include <algorithm>
#include <optional>

#include "fovea/attention/call/head_matrix.hpp"
#include "fovea/attention/call/logit_scale.hpp"
#include "fovea/attention/call/scratch_tensor.hpp"
#include "fovea/attention/nystroem/pseudo_inverse.hpp"
#include "fovea/attention/nystroem/tensors.hpp"
#include "fovea/attention/softmax/dense.hpp"
#include "fovea/core/index_span.hpp"
#include "fovea/kernels/layers/table.hpp"
#include "fovea/simd/softmax_constants.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// to += the sum of `count` rows, in their order.
template <class T>
void add_segment(const Matrix<const T>& x, Index count, Index width, T* to) {
  if (x.column == 1) {
    LayerKernels<T>{}.add_rows({x.data, x.row, count, width, to});
    return;
  }
  for (Index i = 0; i < count; ++i) {
    for (Index c = 0; c < width; ++c) to[c] += x.data[i * x.row + c * x.column];
  }
}

/// Writes the mean of `count` rows, which are summed in reduction blocks.
/// \param to [width]   \param chain [width] scratch
template <class T>
void segment_mean(Matrix<const T> x, Index count, Index width, T* to, T* chain) {
  std::fill_n(to, width, T{0});
  for (Index i = 0; i < count; i += kReductionBlock) {
    std::fill_n(chain, width, T{0});
    const Index rows = (std::min)(kReductionBlock, count - i);
    add_segment(x, rows, width, chain);
    x.data += rows == kReductionBlock ? kReductionBlock * x.row : 0;
    for (Index c = 0; c < width; ++c) to[c] += chain[c];
  }
  if (count == 0) return;
  for (Index c = 0; c < width; ++c) to[c] /= static_cast<T>(count);
}

/// Adds the same row to `count` rows. \param row [width]
template <class T>
void add_to_segment(const Matrix<T>& x, Index count, Index width, const T* row) {
  if (x.column == 1) {
    constexpr T one = 1;
    ProductKernels<T>{}.multiply({.a = {&one, 0, 1},
                                  .b = {row, width, 1},
                                  .to = x.data,
                                  .to_row = x.row,
                                  .rows = count,
                                  .columns = width,
                                  .steps = 1,
                                  .add = true});
    return;
  }
  for (Index i = 0; i < count; ++i) {
    for (Index c = 0; c < width; ++c) {
      T& at = x.data[i * x.row + c * x.column];
      at = at + (T{0} + row[c]);  // so that zeros have the signs that the kernel gives
    }
  }
}

}  // namespace detail

/// The landmarks of one call: their means ql and kl, A = softmax(ql kl^T), W = softmax(ql k^T) v
/// and U = Z W. Every query head has its own landmarks of keys, as copies where heads share a key
/// head. The caller writes the means and W.
template <class T>
class NystroemProducts {
 public:
  /// \param of the sizes of the call   \param lengths its key lengths, or empty
  /// \param options checked   \param saved its landmark tensors contain W
  /// \param memory the call's
  template <class Memory>
  NystroemProducts(const AttentionShape& of, IndexSpan lengths, const NystroemOptions& options,
                   const NystroemSaved<T>& saved, Memory&& memory)
      : shape(of),
        scale(detail::logit_scale<T>(options.scale, shape.width)),
        inverse(options.landmarks, options.iterations),
        lengths_(lengths),
        options_(options),
        q_means_(rows_of(shape.width), memory),
        k_means_(rows_of(shape.width), memory),
        own_lse_(saved.landmark_lse.empty() ? rows_of(1) : Shape{}, memory),
        own_values_(saved.landmark_values.empty() ? rows_of(shape.value_width) : Shape{}, memory),
        kernel_(rows_of(options.landmarks), memory),
        products_(rows_of(shape.value_width), memory),
        norms_({1, 1, head_count(), 1}, memory),
        identity_({1, 1, options.landmarks, options.landmarks}, memory),
        hidden_(lengths.empty() && !memory.only_counts() ? Shape{}
                                                         : Shape{shape.batch, 1, shape.queries, 1},
                memory),
        lse_(own_lse_.view().empty() ? View<T>(saved.landmark_lse) : own_lse_.view()),
        values_(own_values_.view().empty() ? View<T>(saved.landmark_values) : own_values_.view()) {}

  NystroemProducts(const NystroemProducts&) = delete;
  NystroemProducts& operator=(const NystroemProducts&) = delete;

  AttentionShape shape;      ///< of the call
  T scale;                   ///< of all logits
  PseudoInverse<T> inverse;  ///< the iteration

  /// ql, the landmarks of the queries.
  View<T> q_means() { return q_means_.view(); }
  /// kl, the landmarks of the keys.
  View<T> k_means() { return k_means_.view(); }
  /// ql of one head, [m, D].
  T* q_means_of(Index b, Index h) { return q_means_.head(b, h); }
  /// kl of one query head, [m, D].
  T* k_means_of(Index b, Index h) { return k_means_.head(b, h); }
  /// A, the softmax of landmarks over landmarks.
  View<T> kernel() { return kernel_.view(); }
  /// W, the output of the landmarks' attention to the keys.
  View<T> landmark_values() const { return values_; }
  /// The lse of W.
  View<T> landmark_lse() const { return lse_; }
  /// U = Z W.
  View<T> products() { return products_.view(); }
  /// The identity, as the values of every head.
  View<const T> identity() {
    const Index m = options_.landmarks;
    return {identity_.view().data(), rows_of(m), {0, 0, m, 1}};
  }

  /// The number of query heads of all sequences.
  Index head_count() const { return shape.batch * shape.query_heads; }
  /// m
  Index landmarks() const { return options_.landmarks; }
  /// The number of queries of a sequence.
  Index queries(Index b) const { return lengths_.value_or(b, shape.queries); }
  /// The number of keys of a sequence.
  Index keys(Index b) const { return lengths_.value_or(b, shape.keys); }

  /// The inputs of the last softmax, over kl and U. Queries beyond a key length see nothing.
  SoftmaxInputs<T> last_inputs(const View<const T>& q) {
    SoftmaxInputs<T> in{.q = q, .k = k_means(), .v = products()};
    in.mask = View<const bool>(hidden_.view());
    return in;
  }
  /// The inputs of the softmax of ql over all keys, for W.
  SoftmaxInputs<T> key_inputs(const View<const T>& k, const View<const T>& v) {
    return {.q = q_means(), .k = k, .v = v, .key_lengths = lengths_};
  }
  /// The inputs of the softmax of ql over kl, for A.
  SoftmaxInputs<T> kernel_inputs() { return {.q = q_means(), .k = k_means(), .v = identity()}; }

  /// Allocates the memory of `compute`. \param kernel_lse lse of A, written; empty: not computed
  void reserve(const View<T>& kernel_lse, const ExecutorRef& executor) {
    over_landmarks_.emplace(kernel_inputs(), scale, kernel(), kernel_lse);
    over_landmarks_->reserve(executor);
    scratch_ = memory_of(executor).take(worker_count(executor, head_count()),
                                        inverse.scratch_elements() * Index{sizeof(T)});
  }

  /// Computes A and U. \pre reserve(executor) was called once, and the means and W are written
  void compute(const ExecutorRef& executor) {
    prepare_constants();
    over_landmarks_->compute(executor);
    find_norms(executor);
    const Index m = landmarks();
    for_each_task(executor, head_count(), [&](Index head, Index worker) {
      T* const room = scratch_.template data<T>() + worker * inverse.scratch_elements();
      const T* const z = inverse.run(kernel_of(head), norm(head).value, room);
      multiply_rows(z, head, values_, head_data(products_, head), m);
    });
  }

  /// A of a head.
  const T* kernel_of(Index head) { return head_data(kernel_, head); }
  /// The divisor of A^T.
  typename PseudoInverse<T>::Norm norm(Index head) {
    return options_.first_scale == NystroemScale::batch_max ? norms()[norm_head_] : norms()[head];
  }
  /// The head whose norm is the divisor: `head` itself, unless all heads share one.
  Index norm_head(Index head) const {
    return options_.first_scale == NystroemScale::batch_max ? norm_head_ : head;
  }

  /// to = a W, where a is [m, m].
  void multiply_rows(const T* a, Index head, const View<T>& w, T* to, Index m) const {
    const Matrix<T> rows =
        detail::head_matrix(w, head / shape.query_heads, head % shape.query_heads, 0);
    const Index width = shape.value_width;
    if (rows.column == 1) {
      ProductKernels<T>{}.multiply({.a = {a, m, 1},
                                    .b = stored(Matrix<const T>{rows.data, rows.row, 1}),
                                    .to = to,
                                    .to_row = width,
                                    .rows = m,
                                    .columns = width,
                                    .steps = m});
      return;
    }
    for (Index c = 0; c < width; ++c) {
      ProductKernels<T>{}.multiply(
          {.a = {a, m, 1},
           .b = stored(Matrix<const T>{rows.data + c * rows.column, rows.row, 1}),
           .to = to + c,
           .to_row = width,
           .rows = m,
           .columns = 1,
           .steps = m});
    }
  }

  /// The elements of a head of a scratch tensor [B, Hq, ...].
  T* head_data(ScratchTensor<T>& x, Index head) const {
    return x.head(head / shape.query_heads, head % shape.query_heads);
  }
  /// [B, Hq, m, columns]
  Shape rows_of(Index columns) const {
    return {shape.batch, shape.query_heads, inverse_size(), columns};
  }

 private:
  using Norm = typename PseudoInverse<T>::Norm;

  Index inverse_size() const { return options_.landmarks; }
  Norm* norms() { return norms_.view().data(); }

  /// Writes the identity, and which queries are beyond their length.
  void prepare_constants() {
    const View<T> identity = identity_.view();
    for (Index i = 0; i < landmarks(); ++i) {
      for (Index j = 0; j < landmarks(); ++j) identity(0, 0, i, j) = i == j ? T{1} : T{0};
    }
    if (lengths_.empty()) return;
    for (Index b = 0; b < shape.batch; ++b) {
      bool* const row = hidden_.head(b, 0);
      std::fill_n(row, queries(b), true);
      std::fill_n(row + queries(b), shape.queries - queries(b), false);
    }
  }

  /// The norms of all heads, and which one is used if they share one.
  void find_norms(const ExecutorRef& executor) {
    for_each_task(executor, head_count(),
                  [&](Index head, Index) { norms()[head] = inverse.norm(kernel_of(head)); });
    norm_head_ = 0;
    if (options_.first_scale != NystroemScale::batch_max) return;
    Norm largest;
    for (Index head = 0; head < head_count(); ++head) {
      if (queries(head / shape.query_heads) == 0) continue;
      if (largest.take(norms()[head])) norm_head_ = head;
    }
  }

  IndexSpan lengths_;
  NystroemOptions options_;
  ScratchTensor<T> q_means_;     // [B, Hq, m, D]
  ScratchTensor<T> k_means_;     // [B, Hq, m, D]
  ScratchTensor<T> own_lse_;     // [B, Hq, m, 1], unless it is saved
  ScratchTensor<T> own_values_;  // [B, Hq, m, Dv], likewise
  ScratchTensor<T> kernel_;      // [B, Hq, m, m]
  ScratchTensor<T> products_;    // [B, Hq, m, Dv]
  ScratchTensor<Norm> norms_;    // [1, 1, B Hq, 1]
  ScratchTensor<T> identity_;    // [1, 1, m, m]
  // [B, 1, Nq, 1] whether a query is a token; only with lengths, but counted without them
  ScratchTensor<bool> hidden_;
  View<T> lse_;
  View<T> values_;
  Index norm_head_ = 0;
  std::optional<DenseForward<T>> over_landmarks_;
  Workspace scratch_;  // [workers]
};

FOVEA_NAMESPACE_END
