// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of the near field of FMM attention across ranks.
#pragma once

#include <exception>
#include <optional>

#include "fovea/attention/call/scratch_tensor.hpp"
#include "fovea/attention/fmm/near_field.hpp"
#include "fovea/distributed/messages/pass.hpp"
#include "fovea/distributed/softmax/backward_pass.hpp"
#include "fovea/distributed/softmax/forward_pass.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// One backward pass of a near field, whose output is recomputed if it was not saved. It writes
/// gradients, and the far field adds to them.
template <class T>
class NearFieldBackward final : public RankPass {
 public:
  /// Allocates all memory.
  /// \param inputs, saved, d_out, grads this rank's   \param weights of the near field; they must
  /// outlive this object
  /// \param is_saved whether `saved` holds the near field, on all ranks
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  NearFieldBackward(const LocalAttention& near_field, const LinearFamilyInputs<T>& inputs,
                    const FmmSaved<T>& saved, bool is_saved, const View<const T>& d_out,
                    const FarWeights<T>& weights, const LinearFamilyGrads<T>& grads,
                    const Sharding& rows, const ExecutorRef& executor)
      : weights_(weights),
        d_out_(d_out),
        own_out_(is_saved ? Shape{} : d_out.shape(), SystemMemory()),
        own_lse_(is_saved ? Shape{} : lse_shape(d_out), SystemMemory()),
        weighted_(weights.are_given() ? d_out.shape() : Shape{}, SystemMemory()),
        out_(is_saved ? View<T>(saved.near_out) : own_out_.view()) {
    const SoftmaxInputs<T> own = NearBlocks<T>::only_rows(inputs);
    const View<T> lse = is_saved ? View<T>(saved.near_lse) : own_lse_.view();
    if (!is_saved) {
      forward_.emplace(near_field, ScoreModifierArgs<T>{}, own, out_, SoftmaxSaved<T>{lse}, rows);
      forward_->reserve(executor);
    }
    backward_.emplace(near_field, ScoreModifierArgs<T>{}, own, View<const T>(out_),
                      SoftmaxSaved<T>{lse},
                      weights.are_given() ? View<const T>(weighted_.view()) : d_out,
                      SoftmaxGrads<T>{grads.q, grads.k, grads.v}, rows);
    backward_->reserve(executor);
  }

  /// The output of the near field. \pre run was called, or it was saved
  const View<T>& out() const { return out_; }

  /// Writes the gradients.
  std::exception_ptr run(const ExecutorRef& executor) override {
    std::exception_ptr error;
    if (forward_) error = forward_->run(executor);
    weigh();
    const std::exception_ptr later = backward_->run(executor);
    return error ? error : later;
  }

 private:
  static Shape lse_shape(const View<const T>& d_out) {
    Shape shape = d_out.shape();
    shape[3] = 1;
    return shape;
  }

  /// Multiplies d_out by the weights of the near field.
  void weigh() {
    if (!weights_.are_given()) return;
    const View<T> to = weighted_.view();
    for (Index b = 0; b < to.batch(); ++b) {
      for (Index h = 0; h < to.heads(); ++h) {
        const T* const weight = weights_.near_field(h);
        for (Index n = 0; n < to.rows(); ++n) {
          for (Index c = 0; c < to.width(); ++c) to(b, h, n, c) = weight[c] * d_out_(b, h, n, c);
        }
      }
    }
  }

  const FarWeights<T>& weights_;
  View<const T> d_out_;
  ScratchTensor<T> own_out_;   // empty if it was saved
  ScratchTensor<T> own_lse_;   // likewise
  ScratchTensor<T> weighted_;  // empty if all weights are 1
  View<T> out_;
  std::optional<SoftmaxForwardPass<T>> forward_;
  std::optional<SoftmaxBackwardPass<T>> backward_;
};

}  // namespace distributed

FOVEA_NAMESPACE_END
