// SPDX-License-Identifier: MIT
/// \file
/// The hidden layer of the dense Synthesizer, relu(x W1 + b1), with its gradients.
#pragma once

#include "fovea/attention/synthesizer/key_columns.hpp"
#include "fovea/attention/synthesizer/tensors.hpp"
#include "fovea/core/executor_ref.hpp"
#include "fovea/core/workspace.hpp"
#include "fovea/kernels/layers/layers.hpp"
#include "fovea/kernels/unit.hpp"
#include "fovea/patterns/pattern.hpp"
#include "fovea/simd/matrix.hpp"
#include "fovea/simd/padding.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// The queries of one call of the dense Synthesizer. A query is a row's hidden layer followed by 1,
/// and key j is column j of W2 followed by b2[j] (KeyColumns), so that their product is the logit.
template <class T>
class HiddenLayer {
 public:
  /// Rows of a task: a multiple of register blocks and of reduction blocks.
  static constexpr Index kRows = kProductRows;

  /// \param inputs checked; their tensors must outlive this object
  explicit HiddenLayer(const DenseSynthesizerInputs<T>& inputs)
      : in_(inputs),
        batch_(inputs.x.batch()),
        rows_(inputs.x.rows()),
        width_(inputs.w1.rows()),
        hidden_(inputs.w1.width()) {}

  /// Elements of a row of queries: M + 1, padded.
  static Index row_of(Index hidden) { return KeyColumns<T>::row_of(hidden); }

  /// Allocates the memory. \throws std::bad_alloc
  void take(Index workers, ExecutorRef::Memory memory) {
    queries_ = memory.take(batch_ * in_.w1.heads() * rows_, row_of(hidden_) * Index{sizeof(T)});
    scratch_ = memory.take(workers, worker_elements() * Index{sizeof(T)});
  }

  /// Bytes of this memory.
  Index memory_bytes() const { return queries_.size_bytes() + scratch_.size_bytes(); }

  /// The largest number of tasks of any part.
  Index most_tasks() const;
  /// The multiply-adds for the queries.
  double products() const {
    return static_cast<double>(batch_ * in_.w1.heads() * rows_) *
           static_cast<double>(width_ * hidden_);
  }

  /// The computed queries, [B, Hq, N, M + 1].
  View<T> queries() {
    return KeyColumns<T>::rows_of(queries_, {batch_, in_.w1.heads(), rows_, hidden_ + 1});
  }

  /// Computes the queries.
  void compute(const ExecutorRef& executor);

  /// Computes the gradients of x, W1 and b1 from that of the queries, which is overwritten.
  /// \param d_queries [B, Hq, N, M + 1], or empty
  void finish(const View<T>& d_queries, const DenseSynthesizerGrads<T>& grads,
              const ExecutorRef& executor);

  /// The first part: the gradient of tokens. Multiplies the gradient of the queries by the
  /// derivative of relu. \param d_x empty if not requested
  void finish_tokens(const View<T>& d_queries, const View<T>& d_x, const ExecutorRef& executor);

  /// Elements of a sum for the gradients of W1 and b1 of a head.
  Index first_weights_elements() const { return (width_ + 1) * weight_row(); }

  /// Adds some rows of a sequence's head to such a sum.
  /// \param d_queries as finish_tokens left it   \param rows begin at a multiple of kReductionBlock
  /// \param has_weights whether the gradient of W1 is requested
  void add_to_first_weights(const View<T>& d_queries, bool has_weights, Index b, Index h,
                            const Range& rows, T* sums, Index worker);

  /// Writes such a sum to the requested gradients of W1 and b1. \param part index in their batch
  void write_first_weights(const T* sums, const DenseSynthesizerGrads<T>& grads, Index part,
                           Index h) const;

 private:
  /// The layout of one worker's scratch.
  struct WorkerScratch {
    T* weights;  // [D, M]
    T* biases;   // [M], after the weights
    T* tokens;   // [kRows, D]
  };
  Index worker_elements() const {
    return (width_ + 1) * weight_row() + kRows * padded_size(width_);
  }
  WorkerScratch slot(Index worker) {
    T* const at = scratch_.data<T>() + worker * worker_elements();
    T* const biases = at + width_ * weight_row();
    return {at, biases, biases + weight_row()};
  }
  Index weight_row() const { return padded_size(hidden_); }

  Index token_head(Index h) const { return in_.x.heads() == 1 ? 0 : h; }

  /// Some rows of x of a head as dense rows: in place, or copied to the slot.
  Matrix<const T> tokens(Index b, Index h, Index first, Index count,
                         const WorkerScratch& own) const;

  /// Computes relu(x W1 + b1) and 1 for some rows of a head.
  void hide(Index b, Index h, Index first, Index count, Index worker);

  /// Sets the gradients to 0 where relu is 0.
  void clear_hidden(const View<T>& d_queries, Index b, Index h, Index first, Index count);

  /// Computes the gradient of some rows of x: the sum over the heads that read them.
  void add_to_tokens(const View<T>& d_queries, const View<T>& d_x, Index b, Index x_head,
                     Index first, Index worker);

  /// Computes the gradients of W1 and b1 of a head: the sums over rows, and over the sequences that
  /// read them, in order.
  void sum_first_weights(const View<T>& d_queries, const DenseSynthesizerGrads<T>& grads,
                         Index part, Index h, Index worker);

  DenseSynthesizerInputs<T> in_;
  Index batch_;
  Index rows_;
  Index width_;   // D
  Index hidden_;  // M
  Workspace queries_;
  Workspace scratch_;  // [workers]
};

}  // namespace detail

FOVEA_NAMESPACE_END

#if FOVEA_HAS_PASS_BODIES
#include "fovea/attention/synthesizer/hidden_layer.inl.hpp"
#endif
