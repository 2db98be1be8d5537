// SPDX-License-Identifier: MIT
/// \file
/// The dominant indices of FSAT attention, predicted from the hidden state cross (FSAT, eq. 9).
/// They are the learned inputs of FsatLayer.
#pragma once

#include <cmath>

#include "fovea/layers/learned_inputs.hpp"

FOVEA_NAMESPACE_BEGIN

/// Ibar = sigmoid(C W_I + b_I) Lmax, for the M slots of each key and head. W_I [Dm, H M] is drawn
/// as every matrix is. b_I begins with values for which a key whose C is 0 has indices that are
/// spread evenly over [0, Lmax): slot m of head h is at (h M + m + 1/2) / (H M) of that interval.
/// So there are keys that predict each part of the sequence from the first step on.
template <class T>
class PredictedDominant : public NothingLearned<T> {
 public:
  /// What is kept from forward to backward, and room for a gradient.
  struct Saved {
    Buffer<T> dominant;    ///< [B, 1, L, H M] Ibar
    Buffer<T> d_dominant;  ///< [B, 1, L, H M] the gradient of Ibar
  };

  /// Predictions without sizes, which have yet to be assigned to.
  PredictedDominant() = default;

  /// Draws W_I. \throws std::invalid_argument if M or max_length is below 1
  PredictedDominant(const FsatAttention& op, const HeadSizes& sizes, Initialiser& initialiser)
      : heads_(sizes.heads), slots_(sizes.dominant) {
    check_size("FsatLayer", "dominant", slots_);
    check_size("FsatLayer", "max_length", op.options.max_length);
    most_ = static_cast<T>(op.options.max_length);
    index_ = Linear<T>(sizes.width, heads_ * slots_, initialiser, {.name = "dominant"});
    for (Index c = 0; c < heads_ * slots_; ++c) {
      const double at = (static_cast<double>(c) + 0.5) / static_cast<double>(heads_ * slots_);
      index_.bias.value(0, c) = static_cast<T>(std::log(at / (1 - at)));
    }
  }

  /// Lists W_I and b_I.
  template <class Self, class F>
  static void each_part(Self& self, F&& f) {
    f(self.index_);
  }

  /// Computes Ibar from C, the channels of the source.
  template <class E>
  void compute(const FsatAttention& /*op*/, const Tokens<T>& source, Saved& saved,
               E&& executor) const {
    const View<T> dominant = saved.dominant.resize(source.x.batch(), source.x.rows(), index_.out());
    index_.forward(source.x, dominant, executor);
    detail::map_activations<&LayerKernels<T>::sigmoid, T>(dominant, {}, dominant,
                                                          as_executor(executor), most_);
  }

  /// Gives Ibar to the operator.
  void attach(const Tokens<T>& /*source*/, Saved& saved, FsatInputs<T>& inputs,
              FsatSaved<T>& /*kept*/) const {
    inputs.dominant = as_heads(saved.dominant.view(), 0, heads_, slots_);
  }

  /// Asks the operator for the gradient of Ibar.
  void ask(const Tokens<T>& source, Saved& saved, FsatGrads<T>& grads) const {
    const View<T> d = saved.d_dominant.resize(source.x.batch(), source.x.rows(), index_.out());
    grads.dominant = as_heads(d, 0, heads_, slots_);
  }

  /// Adds to the gradients of W_I and b_I and, if it is given, to d_source.
  template <class E>
  void finish(const Tokens<T>& source, Saved& saved, const View<T>& d_source, E&& executor) {
    const View<T> d = saved.d_dominant.view();
    detail::map_activations<&LayerKernels<T>::sigmoid_grad, T>(saved.dominant.view(), d, d,
                                                               as_executor(executor), most_);
    typename Linear<T>::Saved nothing;
    index_.backward(source.x, nothing, d, d_source, executor, Into::add);
  }

 private:
  Index heads_ = 1;
  Index slots_ = 4;
  T most_ = 1;
  Linear<T> index_;
};

FOVEA_NAMESPACE_END
