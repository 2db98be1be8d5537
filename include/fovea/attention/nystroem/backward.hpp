// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of Nystroem attention: the steps of the forward pass in the opposite order.
#pragma once

#include "fovea/attention/nystroem/steps.hpp"

FOVEA_NAMESPACE_BEGIN

/// One backward pass.
template <class T>
class NystroemBackward {
 public:
  /// \param executor that of the call   \param saved lse, and what else was saved
  template <class E>
  NystroemBackward(const NystroemInputs<T>& inputs, const NystroemOptions& options,
                   const View<const T>& out, const NystroemSaved<T>& saved,
                   const View<const T>& d_out, const NystroemGrads<T>& grads, E&& executor)
      : steps_(inputs, options, used(saved), is_saved(saved), memory_of(executor)),
        grads_(grads),
        d_k_means_(means_shape(), memory_of(executor)),
        d_k_means_of_kernel_(means_shape(), memory_of(executor)),
        d_q_means_(means_shape(), memory_of(executor)),
        d_q_means_of_kernel_(means_shape(), memory_of(executor)),
        d_products_(steps_.rows_of(steps_.shape.value_width), memory_of(executor)),
        d_values_(steps_.rows_of(steps_.shape.value_width), memory_of(executor)),
        kernel_lse_(steps_.rows_of(1), memory_of(executor)),
        d_kernel_(steps_.rows_of(options.landmarks), memory_of(executor)),
        d_norms_({1, 1, steps_.head_count(), 1}, memory_of(executor)),
        scratch_(memory_of(executor).take(worker_count(executor, steps_.head_count()),
                                          scratch_bytes(steps_.shape, options))),
        last_(steps_.last_inputs(), steps_.scale, out, saved.lse, d_out,
              {grads.q, d_k_means_.view(), d_products_.view()}),
        over_landmarks_(steps_.kernel_inputs(), steps_.scale, View<const T>(steps_.kernel()),
                        kernel_lse_.view(), View<const T>(d_kernel_.view()),
                        {d_q_means_of_kernel_.view(), d_k_means_of_kernel_.view(), {}}),
        over_keys_(steps_.key_inputs(), steps_.scale, View<const T>(steps_.landmark_values()),
                   steps_.landmark_lse(), View<const T>(d_values_.view()),
                   {d_q_means_.view(), grads.k, grads.v}) {}

  /// Bytes of scratch memory with that many workers, if nothing but lse was saved.
  static Index workspace_bytes(const AttentionShape& s, const NystroemOptions& options,
                               Index workers) {
    const Index m = options.landmarks;
    const Index rows = s.batch * s.query_heads * m;
    const Index elements =
        rows * (4 * s.width + 2 * s.value_width + m + 1) + s.batch * s.query_heads;
    return NystroemSteps<T>::workspace_bytes(s, options, workers) + elements * Index{sizeof(T)} +
           workers * scratch_bytes(s, options) +
           DenseForward<T>::workspace_bytes(key_shape(s, m), workers) +
           DenseForward<T>::workspace_bytes(kernel_shape(s, m), workers) +
           DenseBackward<T>::workspace_bytes(last_shape(s, m), workers) +
           DenseBackward<T>::workspace_bytes(kernel_shape(s, m), workers) +
           DenseBackward<T>::workspace_bytes(key_shape(s, m), workers);
  }

  /// The sizes of the softmax of the queries over landmarks.
  static AttentionShape last_shape(AttentionShape s, Index m) {
    s.keys = m;
    s.key_heads = s.query_heads;
    return s;
  }
  /// The sizes of the softmax of landmarks over landmarks.
  static AttentionShape kernel_shape(AttentionShape s, Index m) {
    s = last_shape(s, m);
    s.queries = s.value_width = m;
    return s;
  }
  /// The sizes of the softmax of landmarks over keys.
  static AttentionShape key_shape(AttentionShape s, Index m) {
    s.queries = m;
    return s;
  }

  /// Writes the gradients.
  /// \throws std::bad_alloc before anything is written
  template <class E>
  void run(E&& executor) {
    steps_.reserve(kernel_lse_.view(), executor);
    last_.take_scratch(executor);
    over_landmarks_.take_scratch(executor);
    over_keys_.take_scratch(executor);
    steps_.compute(executor);
    last_.look_at_lse(executor);
    over_landmarks_.look_at_lse(executor);
    over_keys_.look_at_lse(executor);
    last_.compute(executor);
    differentiate_products(executor);
    over_landmarks_.compute(executor);
    over_keys_.compute(executor);
    add_means(executor);
  }

 private:
  static bool is_saved(const NystroemSaved<T>& saved) {
    return !saved.landmark_lse.is_none() && !saved.landmark_values.is_none();
  }
  /// What is saved and read: both tensors of the landmarks, or neither.
  static NystroemSaved<T> used(const NystroemSaved<T>& saved) {
    return is_saved(saved) ? saved : NystroemSaved<T>{};
  }
  static Index scratch_bytes(const AttentionShape& s, const NystroemOptions& options) {
    const PseudoInverse<T> inverse(options.landmarks, options.iterations);
    return (inverse.backward_scratch_elements() + padded_size(s.width) +
            padded_size(options.landmarks * s.value_width)) *
           Index{sizeof(T)};
  }
  Shape means_shape() const { return steps_.rows_of(steps_.shape.width); }

  /// The gradient of U to those of W and of A.
  template <class E>
  void differentiate_products(E&& executor) {
    const Index slot = scratch_.size_bytes() / Index{sizeof(T)} /
                       (std::max<Index>)(1, worker_count(executor, steps_.head_count()));
    T* const d_norms = d_norms_.view().data();
    for_each_task(executor, steps_.head_count(), [&](Index head, Index worker) {
      d_norms[head] = differentiate_head(head, scratch_.template data<T>() + worker * slot);
    });
    for (Index head = 0; head < steps_.head_count(); ++head) {
      const Index of = steps_.norm_head(head);
      const Index column = steps_.norm(head).column;
      T* const d_kernel = steps_.head_data(d_kernel_, of);
      for (Index i = 0; i < steps_.landmarks(); ++i) {
        d_kernel[i * steps_.landmarks() + column] += d_norms[head];
      }
    }
  }

  /// The same of one head; returns the gradient of the norm that divides A.
  T differentiate_head(Index head, T* scratch) {
    const Index m = steps_.landmarks();
    const Index width = steps_.shape.value_width;
    const PseudoInverse<T>& inverse = steps_.inverse;
    const T* const a = steps_.kernel_of(head);
    const T norm = steps_.norm(head).value;
    const auto chain = inverse.keep(a, norm, scratch);
    const T* const d_products = steps_.head_data(d_products_, head);
    const ProductKernels<T> kernels;
    kernels.multiply({.a = {chain.z, 1, m},
                      .b = stored(Matrix<const T>{d_products, width, 1}),
                      .to = steps_.head_data(d_values_, head),
                      .to_row = width,
                      .rows = m,
                      .columns = width,
                      .steps = m});
    T* const w = scratch + inverse.backward_scratch_elements();  // W, dense
    const View<T> values = steps_.landmark_values();
    for (Index i = 0; i < m; ++i) {
      for (Index c = 0; c < width; ++c) {
        w[i * width + c] =
            values(head / steps_.shape.query_heads, head % steps_.shape.query_heads, i, c);
      }
    }
    kernels.multiply({.a = {d_products, width, 1},
                      .b = stored(Matrix<const T>{w, 1, width}),
                      .to = chain.d_z,
                      .to_row = m,
                      .rows = m,
                      .columns = m,
                      .steps = width});
    return inverse.differentiate(a, norm, scratch, steps_.head_data(d_kernel_, head));
  }

  /// Adds the gradients of the landmarks to those of the rows that they are means of.
  template <class E>
  void add_means(E&& executor) {
    const AttentionShape& s = steps_.shape;
    const Index heads = s.query_heads + s.key_heads;
    for_each_task(executor, s.batch * heads * steps_.landmarks(), [&](Index task, Index) {
      const Index n = task % steps_.landmarks();
      const Index b = task / steps_.landmarks() / heads;
      const Index h = task / steps_.landmarks() % heads;
      if (h < s.query_heads) {
        add_mean(grads_.q, b, h, 1, steps_.queries(b), n, d_q_means_, d_q_means_of_kernel_);
      } else {
        const Index group = detail::group_size(s.query_heads, s.key_heads);
        add_mean(grads_.k, b, h - s.query_heads, group, steps_.keys(b), n, d_k_means_,
                 d_k_means_of_kernel_);
      }
    });
  }

  /// \param group the number of query heads whose landmarks are means of the same rows
  void add_mean(const View<T>& to, Index b, Index h, Index group, Index rows, Index n,
                ScratchTensor<T>& first, ScratchTensor<T>& second) {
    const Index count = rows / steps_.landmarks();
    if (to.is_none() || count == 0) return;
    const Index width = steps_.shape.width;
    T* const total = first.head(b, h * group) + n * width;
    for (Index g = 0; g < group; ++g) {
      const T* const one = first.head(b, h * group + g) + n * width;
      const T* const other = second.head(b, h * group + g) + n * width;
      for (Index c = 0; c < width; ++c) {
        const T sum = one[c] + other[c];
        total[c] = g == 0 ? sum : total[c] + sum;
      }
    }
    for (Index c = 0; c < width; ++c) total[c] /= static_cast<T>(count);
    detail::add_to_segment(detail::head_matrix(to, b, h, n * count), count, width, total);
  }

  NystroemSteps<T> steps_;
  NystroemGrads<T> grads_;
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
  DenseBackward<T> last_;
  DenseBackward<T> over_landmarks_;
  DenseBackward<T> over_keys_;
};

FOVEA_NAMESPACE_END
