// SPDX-License-Identifier: MIT
/// \file
/// The steps that both passes of Nystroem attention share.
#pragma once

#include <algorithm>
#include <optional>

#include "fovea/attention/nystroem/landmarks.hpp"
#include "fovea/attention/nystroem/products.hpp"

FOVEA_NAMESPACE_BEGIN

/// The landmarks of one call: their means, and the softmaxes over keys and over landmarks.
template <class T>
class NystroemSteps : public NystroemProducts<T> {
  using Products = NystroemProducts<T>;

 public:
  using Products::scale;
  using Products::shape;

  /// \param inputs, options checked   \param memory the call's
  /// \param saved its landmark tensors contain W; they are written or, if `is_saved`, read
  template <class Memory>
  NystroemSteps(const NystroemInputs<T>& inputs, const NystroemOptions& options,
                const NystroemSaved<T>& saved, bool is_saved, Memory&& memory)
      : Products(shape_of(inputs), inputs.key_lengths, options, saved, memory),
        inputs_(inputs),
        is_saved_(is_saved) {}

  /// The inputs of the last softmax.
  SoftmaxInputs<T> last_inputs() { return Products::last_inputs(inputs_.q); }
  /// The inputs of the softmax of ql over all keys.
  SoftmaxInputs<T> key_inputs() { return Products::key_inputs(inputs_.k, inputs_.v); }

  /// Allocates the memory of `compute`. \param kernel_lse lse of A, written; empty: not computed
  void reserve(const View<T>& kernel_lse, const ExecutorRef& executor) {
    if (!is_saved_) {
      over_keys_.emplace(key_inputs(), scale, this->landmark_values(), this->landmark_lse());
      over_keys_->reserve(executor);
    }
    Products::reserve(kernel_lse, executor);
  }

  /// Computes the means, W, A and U. \pre reserve(executor) was called once
  void compute(const ExecutorRef& executor) {
    find_means(executor);
    if (over_keys_) over_keys_->compute(executor);
    Products::compute(executor);
  }

 private:
  /// Computes the means of the segments; 0 for a sequence without tokens.
  void find_means(const ExecutorRef& executor) {
    constexpr Index of_task = 16;
    const Index parts = (this->landmarks() + of_task - 1) / of_task;
    const Index heads = shape.query_heads + shape.key_heads;
    const Index group = detail::group_size(shape.query_heads, shape.key_heads);
    for_each_task(executor, shape.batch * heads * parts, [&](Index task, Index) {
      const Index b = task / parts / heads;
      const Index h = task / parts % heads;
      const Index first = task % parts * of_task;
      for (Index n = first; n < (std::min)(first + of_task, this->landmarks()); ++n) {
        if (h < shape.query_heads) {
          mean(inputs_.q, b, h, this->queries(b), n, this->q_means_of(b, h));
          continue;
        }
        const Index key_head = h - shape.query_heads;
        T* const to = this->k_means_of(b, key_head * group);
        mean(inputs_.k, b, key_head, this->keys(b), n, to);
        for (Index other = 1; other < group; ++other) {
          std::copy_n(to + n * shape.width, shape.width,
                      this->k_means_of(b, key_head * group + other) + n * shape.width);
        }
      }
    });
  }
  /// Computes mean n of a head.
  void mean(const View<const T>& x, Index b, Index h, Index rows, Index n, T* means) {
    const Index count = rows / this->landmarks();
    T chain[kMostChain];
    for (Index c = 0; c < shape.width; c += kMostChain) {
      const Index width = (std::min)(kMostChain, shape.width - c);
      Matrix<const T> segment = detail::head_matrix(x, b, h, n * count);
      if (count > 0) segment.data += c * segment.column;
      detail::segment_mean(segment, count, width, means + n * shape.width + c, chain);
    }
  }

  static constexpr Index kMostChain = 256;  // columns that are summed at once

  NystroemInputs<T> inputs_;
  bool is_saved_;
  std::optional<DenseForward<T>> over_keys_;  // empty if it was saved
};

FOVEA_NAMESPACE_END
