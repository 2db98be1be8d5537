// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of the near field of FMM attention across ranks, and the gradients of the
/// logits of its blend.
#pragma once

#include <cstddef>
#include <exception>
#include <optional>
#include <vector>

#include "fovea/attention/call/scratch_tensor.hpp"
#include "fovea/attention/fmm/blend.hpp"
#include "fovea/attention/fmm/near_field.hpp"
#include "fovea/core/rounded.hpp"
#include "fovea/distributed/messages/pass.hpp"
#include "fovea/distributed/segments/range_sums.hpp"
#include "fovea/distributed/sharding.hpp"
#include "fovea/distributed/softmax/backward_pass.hpp"
#include "fovea/distributed/softmax/forward_pass.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The gradients of the logits of one backward pass.
template <class T>
class BlendGradients {
 public:
  /// Allocates all memory. \param d_out of this rank's rows
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  BlendGradients(const FmmBlend<T>& blend, const View<const T>& d_out, const Sharding& rows)
      : blend_(blend),
        d_out_(d_out),
        near_(rows.ranks(), rows.layout(), d_out.heads(), d_out.width(), d_out.batch()) {
    if (!blend.is_same_for_columns()) {
      far_.emplace(rows.ranks(), rows.layout(), d_out.heads(), d_out.width(), d_out.batch());
    }
  }

  /// Sums the products of the near field. All messages are exchanged even if computing throws.
  /// \param out the near field of this rank's rows   \returns the exception that computing threw,
  /// or null
  std::exception_ptr add_near(const View<T>& out, const ExecutorRef& executor) {
    return add(near_, out, executor);
  }
  /// Likewise for the unweighted far field. \pre columns have separate weights
  std::exception_ptr add_far(const View<T>& out, const ExecutorRef& executor) {
    return add(*far_, out, executor);
  }

  /// Writes the gradients.
  /// \param far_field [Hq] the sums over batch and rows of <weight d_out, far>; not read if
  /// `add_far` was called
  void write(const std::vector<double>& far_field, const LinearFamilyGrads<T>& grads) {
    const Index width = d_out_.width();
    const auto columns = static_cast<std::size_t>(d_out_.heads() * width);
    std::vector<double> of_near(columns);
    std::vector<double> of_far(columns);
    for (Index h = 0; h < d_out_.heads(); ++h) {
      const auto first = static_cast<std::size_t>(h * width);
      for (Index c = 0; c < width; ++c) {
        const auto [w1, w2] = blend_.at(h, c);
        of_near[first + static_cast<std::size_t>(c)] = near_.of(h)[c] * w1;
        if (!far_) continue;
        of_far[first + static_cast<std::size_t>(c)] = far_->of(h)[c] * (w2 * blend_.share());
      }
      // The sums include the weights w2 / normaliser.
      if (width == 0 || far_) continue;
      of_far[first] = far_field[static_cast<std::size_t>(h)] * blend_.normaliser(h, 0);
    }
    blend_.write_gradients(of_near, of_far, grads);
  }

 private:
  using Sums = RangeSums<double>;  // [heads, Dv]

  std::exception_ptr add(Sums& to, const View<T>& out, const ExecutorRef& executor) {
    return to.run(
        [&](const ScanStep& scan_step, Index h, double* sums, Index /*worker*/) {
          const Index end = scan_step.first + scan_step.rows.end - scan_step.rows.begin;
          for (Index n = scan_step.first; n < end; ++n) {
            for (Index c = 0; c < out.width(); ++c) {
              sums[c] += rounded(static_cast<double>(d_out_(scan_step.round, h, n, c)) *
                                 static_cast<double>(out(scan_step.round, h, n, c)));
            }
          }
        },
        executor);
  }

  FmmBlend<T> blend_;
  View<const T> d_out_;
  Sums near_;
  std::optional<Sums> far_;  // if columns have separate weights
};

/// One backward pass of a near field, whose output is recomputed if it was not saved. It writes
/// gradients, and the far field adds to them.
template <class T>
class NearFieldBackward final : public RankPass {
 public:
  /// Allocates all memory.
  /// \param call of the operator with the near field   \param is_saved whether all ranks saved it
  /// \param weights of the near field; they must outlive this object
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  template <class Call>
  NearFieldBackward(const Call& call, bool is_saved, const FarWeights<T>& weights,
                    const ExecutorRef& executor)
      : weights_(weights),
        d_out_(call.d_out),
        own_out_(is_saved ? Shape{} : d_out_.shape(), SystemMemory()),
        own_lse_(is_saved ? Shape{} : lse_shape(d_out_), SystemMemory()),
        weighted_(weights.are_given() ? d_out_.shape() : Shape{}, SystemMemory()),
        out_(is_saved ? View<T>(call.saved.near_out) : own_out_.view()) {
    const LocalAttention near_field = call.op.near_field();
    const SoftmaxInputs<T> own = NearBlocks<T>::only_rows(call.inputs);
    const SoftmaxSaved<T> saved{is_saved ? View<T>(call.saved.near_lse) : own_lse_.view()};
    if (!is_saved) {
      forward_.emplace(near_field, ScoreModifierArgs<T>{}, own, out_, saved, call.rows);
      forward_->reserve(executor);
    }
    backward_.emplace(near_field, ScoreModifierArgs<T>{}, own, View<const T>(out_), saved,
                      weights.are_given() ? View<const T>(weighted_.view()) : d_out_,
                      SoftmaxGrads<T>{call.grads.q, call.grads.k, call.grads.v}, call.rows);
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
