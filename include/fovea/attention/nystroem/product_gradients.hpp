// SPDX-License-Identifier: MIT
/// \file
/// The gradients of the products of Nystroem attention's landmarks.
#pragma once

#include <algorithm>

#include "fovea/attention/nystroem/products.hpp"

FOVEA_NAMESPACE_BEGIN

/// The gradients of one call: from those of U and kl, which the last softmax's backward pass
/// writes, to those of W, and from that of ql, which the softmax over keys writes, to those of
/// rows.
template <class T>
class NystroemProductGradients {
 public:
  /// \param products must outlive this object   \param executor the call's
  NystroemProductGradients(NystroemProducts<T>& products, const NystroemOptions& options,
                           const ExecutorRef& executor)
      : products_(products),
        d_k_means_(means_shape(), memory_of(executor)),
        d_k_means_of_kernel_(means_shape(), memory_of(executor)),
        d_q_means_(means_shape(), memory_of(executor)),
        d_q_means_of_kernel_(means_shape(), memory_of(executor)),
        d_products_(products.rows_of(products.shape.value_width), memory_of(executor)),
        d_values_(products.rows_of(products.shape.value_width), memory_of(executor)),
        kernel_lse_(products.rows_of(1), memory_of(executor)),
        d_kernel_(products.rows_of(options.landmarks), memory_of(executor)),
        d_norms_({1, 1, products.head_count(), 1}, memory_of(executor)),
        scratch_(memory_of(executor).take(worker_count(executor, products.head_count()),
                                          scratch_bytes(products.shape, options))),
        over_landmarks_(products.kernel_inputs(), products.scale, View<const T>(products.kernel()),
                        kernel_lse_.view(), View<const T>(d_kernel_.view()),
                        {d_q_means_of_kernel_.view(), d_k_means_of_kernel_.view(), {}}) {}
  NystroemProductGradients(const NystroemProductGradients&) = delete;
  NystroemProductGradients& operator=(const NystroemProductGradients&) = delete;

  /// The gradient of kl through the last softmax, which its backward pass writes.
  View<T> d_k_means() { return d_k_means_.view(); }
  /// The gradient of U, likewise.
  View<T> d_products() { return d_products_.view(); }
  /// The gradient of ql through W, which the backward pass of the softmax over keys writes.
  View<T> d_q_means() { return d_q_means_.view(); }
  /// The gradient of W, which `compute` writes.
  View<const T> d_values() { return View<const T>(d_values_.view()); }
  /// The lse of A, which the forward pass writes.
  View<T> kernel_lse() { return kernel_lse_.view(); }

  /// Allocates the memory that does not depend on lse. \throws std::bad_alloc
  void take_scratch(const ExecutorRef& executor) { over_landmarks_.take_scratch(executor); }
  /// Allocates the rest. \pre the forward pass was computed   \throws std::bad_alloc
  void look_at_lse(const ExecutorRef& executor) { over_landmarks_.look_at_lse(executor); }
  /// Computes the gradients of W and A, and of the means through A. \pre that of U is written
  void compute(const ExecutorRef& executor) {
    differentiate_products(executor);
    over_landmarks_.compute(executor);
  }

  /// The number of rows that are averaged for landmark n of a head. Key heads are numbered after
  /// the query heads.
  Index rows_of_mean(Index b, Index h) const {
    return (is_query(h) ? products_.queries(b) : products_.keys(b)) / products_.landmarks();
  }
  /// Computes the gradient of each of these rows through their mean. To be called once for each
  /// landmark.
  /// \pre rows_of_mean(b, h) > 0, and the gradients of all means are written
  void find_row_gradient(Index b, Index h, Index n) {
    const Index width = products_.shape.width;
    ScratchTensor<T>& first = is_query(h) ? d_q_means_ : d_k_means_;
    ScratchTensor<T>& second = is_query(h) ? d_q_means_of_kernel_ : d_k_means_of_kernel_;
    const Index group = is_query(h) ? 1 : this->group();
    T* const total = first.head(b, first_head(h)) + n * width;
    for (Index g = 0; g < group; ++g) {
      const T* const one = first.head(b, first_head(h) + g) + n * width;
      const T* const other = second.head(b, first_head(h) + g) + n * width;
      for (Index c = 0; c < width; ++c) {
        const T sum = one[c] + other[c];
        total[c] = g == 0 ? sum : total[c] + sum;
      }
    }
    for (Index c = 0; c < width; ++c) total[c] /= static_cast<T>(rows_of_mean(b, h));
  }
  /// The result of find_row_gradient, [D]. \pre find_row_gradient(b, h, n) was called
  const T* row_gradient(Index b, Index h, Index n) {
    ScratchTensor<T>& first = is_query(h) ? d_q_means_ : d_k_means_;
    return first.head(b, first_head(h)) + n * products_.shape.width;
  }

 private:
  static Index scratch_bytes(const AttentionShape& s, const NystroemOptions& options) {
    const PseudoInverse<T> inverse(options.landmarks, options.iterations);
    return (inverse.backward_scratch_elements() + padded_size(s.width) +
            padded_size(options.landmarks * s.value_width)) *
           Index{sizeof(T)};
  }
  Shape means_shape() const { return products_.rows_of(products_.shape.width); }

  bool is_query(Index h) const { return h < products_.shape.query_heads; }
  /// The number of query heads with the same landmarks of keys.
  Index group() const {
    return detail::group_size(products_.shape.query_heads, products_.shape.key_heads);
  }
  /// The first query head whose landmarks are means of a head's rows.
  Index first_head(Index h) const {
    return is_query(h) ? h : (h - products_.shape.query_heads) * group();
  }

  /// Computes the gradients of W and A from that of U.
  void differentiate_products(const ExecutorRef& executor) {
    const Index slot = scratch_.size_bytes() / Index{sizeof(T)} /
                       (std::max<Index>)(1, worker_count(executor, products_.head_count()));
    T* const d_norms = d_norms_.view().data();
    for_each_task(executor, products_.head_count(), [&](Index head, Index worker) {
      d_norms[head] = differentiate_head(head, scratch_.template data<T>() + worker * slot);
    });
    for (Index head = 0; head < products_.head_count(); ++head) {
      const Index of = products_.norm_head(head);
      const Index column = products_.norm(head).column;
      T* const d_kernel = products_.head_data(d_kernel_, of);
      for (Index i = 0; i < products_.landmarks(); ++i) {
        d_kernel[i * products_.landmarks() + column] += d_norms[head];
      }
    }
  }

  /// The same for one head; returns the gradient of the norm that divides A.
  T differentiate_head(Index head, T* scratch) {
    const Index m = products_.landmarks();
    const Index width = products_.shape.value_width;
    const PseudoInverse<T>& inverse = products_.inverse;
    const T* const a = products_.kernel_of(head);
    const T norm = products_.norm(head).value;
    const auto chain = inverse.keep(a, norm, scratch);
    const T* const d_products = products_.head_data(d_products_, head);
    const ProductKernels<T> kernels;
    kernels.multiply({.a = {chain.z, 1, m},
                      .b = stored(Matrix<const T>{d_products, width, 1}),
                      .to = products_.head_data(d_values_, head),
                      .to_row = width,
                      .rows = m,
                      .columns = width,
                      .steps = m});
    T* const w = scratch + inverse.backward_scratch_elements();  // W, dense
    const Index heads = products_.shape.query_heads;
    detail::copy_rows(
        detail::head_matrix(products_.landmark_values(), head / heads, head % heads, 0), m, width,
        Matrix<T>{w, width, 1});
    kernels.multiply({.a = {d_products, width, 1},
                      .b = stored(Matrix<const T>{w, 1, width}),
                      .to = chain.d_z,
                      .to_row = m,
                      .rows = m,
                      .columns = m,
                      .steps = width});
    return inverse.differentiate(a, norm, scratch, products_.head_data(d_kernel_, head));
  }

  NystroemProducts<T>& products_;
  ScratchTensor<T> d_k_means_;            // [B, Hq, m, D] through the last softmax
  ScratchTensor<T> d_k_means_of_kernel_;  // [B, Hq, m, D] through A
  ScratchTensor<T> d_q_means_;            // [B, Hq, m, D] through W
  ScratchTensor<T> d_q_means_of_kernel_;  // [B, Hq, m, D] through A
  ScratchTensor<T> d_products_;           // [B, Hq, m, Dv] of U
  ScratchTensor<T> d_values_;             // [B, Hq, m, Dv] of W
  ScratchTensor<T> kernel_lse_;           // [B, Hq, m, 1] of A
  ScratchTensor<T> d_kernel_;             // [B, Hq, m, m] of A
  ScratchTensor<T> d_norms_;              // [1, 1, B Hq, 1]
  Workspace scratch_;                     // [workers]
  DenseBackward<T> over_landmarks_;
};

FOVEA_NAMESPACE_END
