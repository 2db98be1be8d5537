// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of Nystroem attention: the steps of the forward pass in the opposite order.
#pragma once

#include "fovea/attention/nystroem/product_gradients.hpp"
#include "fovea/attention/nystroem/steps.hpp"

FOVEA_NAMESPACE_BEGIN

/// One backward pass.
template <class T>
class NystroemBackward {
 public:
  /// \param executor the call's   \param saved lse, and what else was saved
  NystroemBackward(const NystroemInputs<T>& inputs, const NystroemOptions& options,
                   const View<const T>& out, const NystroemSaved<T>& saved,
                   const View<const T>& d_out, const NystroemGrads<T>& grads,
                   const ExecutorRef& executor)
      : steps_(inputs, options, saved.of_landmarks(), saved.has_landmarks(), memory_of(executor)),
        grads_(grads),
        gradients_(steps_, options, executor),
        last_(steps_.last_inputs(), steps_.scale, out, saved.lse, d_out,
              {grads.q, gradients_.d_k_means(), gradients_.d_products()}),
        over_keys_(steps_.key_inputs(), steps_.scale, View<const T>(steps_.landmark_values()),
                   steps_.landmark_lse(), gradients_.d_values(),
                   {gradients_.d_q_means(), grads.k, grads.v}) {}

  /// Bytes of scratch memory with that many workers, if nothing but lse was saved.
  static Index workspace_bytes(const AttentionShape& s, const NystroemOptions& options,
                               Index workers) {
    const Index m = options.landmarks;
    return NystroemSteps<T>::workspace_bytes(s, options, workers) +
           NystroemProductGradients<T>::workspace_bytes(s, options, workers) +
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
  void run(const ExecutorRef& executor) {
    steps_.reserve(gradients_.kernel_lse(), executor);
    last_.take_scratch(executor);
    gradients_.take_scratch(executor);
    over_keys_.take_scratch(executor);
    steps_.compute(executor);
    last_.look_at_lse(executor);
    gradients_.look_at_lse(executor);
    over_keys_.look_at_lse(executor);
    last_.compute(executor);
    gradients_.compute(executor);
    over_keys_.compute(executor);
    add_means(executor);
  }

 private:
  /// Adds the gradients of the landmarks to those of the averaged rows.
  void add_means(const ExecutorRef& executor) {
    const AttentionShape& s = steps_.shape;
    const Index heads = s.query_heads + s.key_heads;
    for_each_task(executor, s.batch * heads * steps_.landmarks(), [&](Index task, Index) {
      const Index n = task % steps_.landmarks();
      const Index b = task / steps_.landmarks() / heads;
      const Index h = task / steps_.landmarks() % heads;
      const View<T>& to = h < s.query_heads ? grads_.q : grads_.k;
      const Index count = gradients_.rows_of_mean(b, h);
      if (to.empty() || count == 0) return;
      gradients_.find_row_gradient(b, h, n);
      detail::add_to_segment(
          detail::head_matrix(to, b, h < s.query_heads ? h : h - s.query_heads, n * count), count,
          s.width, gradients_.row_gradient(b, h, n));
    });
  }

  NystroemSteps<T> steps_;
  NystroemGrads<T> grads_;
  NystroemProductGradients<T> gradients_;
  DenseBackward<T> last_;
  DenseBackward<T> over_keys_;
};

FOVEA_NAMESPACE_END
