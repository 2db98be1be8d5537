// SPDX-License-Identifier: MIT
/// \file
/// The dominant indices of FSAT attention, predicted from the hidden state cross (FSAT, eq. 9).
/// They are the learned inputs of FsatLayer.
#pragma once

#include <cmath>

#include "fovea/attention/fsat.hpp"
#include "fovea/layers/learned_inputs.hpp"

FOVEA_NAMESPACE_BEGIN

/// Ibar = sigmoid(C W_I + b_I) Lmax (FSAT, eq. 9). Pass `as_heads(dominant, 0, H, M)` as
/// FsatInputs::dominant. It costs 2 Dm H M flops per token.
/// \param hidden [B, 1, L, Dm] C, with dense rows
/// \param weight [Dm, H M] W_I \param bias [1, H M] b_I
/// \param max_length Lmax
/// \param dominant [B, 1, L, H M] is written, with dense rows
/// \throws std::invalid_argument if a shape or layout is wrong
template <class T, class E = Serial>
void predict_dominant(const View<const T>& hidden, const RowMatrix<T>& weight,
                      const RowMatrix<T>& bias, Index max_length, const View<T>& dominant,
                      E&& executor = {}) {
  check_activations("predict_dominant", "hidden", hidden, weight.rows());
  check_alike("predict_dominant", "dominant", dominant, weight.cols(), hidden);
  check_written("predict_dominant", "dominant", dominant, "hidden", hidden);
  check_size("predict_dominant", "max_length", max_length);
  if (bias.size() != weight.cols()) {
    refuse("predict_dominant", "the size of bias", std::to_string(bias.size()),
           std::to_string(weight.cols()) + ", the columns of weight");
  }
  auto&& threads = as_executor(executor);
  detail::multiply_rows(hidden, weight, bias, dominant, threads);
  detail::map_activations<&LayerKernels<T>::sigmoid, T>(dominant, {}, dominant, threads,
                                                        static_cast<T>(max_length));
}

/// predict_dominant with learned weights, for the M slots of each key and head. b_I is initialised
/// so that a key with C = 0 has indices evenly distributed over [0, Lmax): slot m of head h is at
/// (h M + m + 1/2) / (H M) of that interval. So each part of the sequence is predicted from the
/// first step on.
template <class T>
class PredictedDominant : public NoLearnedInputs<T> {
 public:
  /// State saved for backward, and a buffer for a gradient.
  struct Saved {
    Buffer<T> dominant;    ///< [B, 1, L, H M] Ibar
    Buffer<T> d_dominant;  ///< [B, 1, L, H M] the gradient of Ibar
  };

  /// Empty; assign one before use.
  PredictedDominant() = default;

  /// Draws W_I. \throws std::invalid_argument if M or max_length is below 1
  PredictedDominant(const FsatAttention& op, const HeadSizes& sizes, Initialiser& initialiser)
      : heads_(sizes.heads), slots_(sizes.dominant) {
    check_size("FsatLayer", "dominant", slots_);
    check_size("FsatLayer", "max_length", op.options.max_length);
    most_ = op.options.max_length;
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
    predict_dominant(source.x, index_.weight.value, index_.bias.value, most_, dominant, executor);
  }

  /// Passes Ibar to the operator.
  /// \throws std::invalid_argument if the tokens have dominant indices, too
  void attach(const Tokens<T>& source, Saved& saved, FsatInputs<T>& inputs,
              FsatSaved<T>& /*kept*/) const {
    if (!source.dominant.empty()) {
      refuse_given("FsatLayer", "dominant", "the layer predicts it");
    }
    inputs.dominant = as_heads(saved.dominant.view(), 0, heads_, slots_);
  }

  /// Requests from the operator the gradient of Ibar.
  void request_grads(const Tokens<T>& source, Saved& saved, FsatGrads<T>& grads) const {
    const View<T> d = saved.d_dominant.resize(source.x.batch(), source.x.rows(), index_.out());
    grads.dominant = as_heads(d, 0, heads_, slots_);
  }

  /// Adds to the gradients of W_I and b_I and, if given, to d_source.
  template <class E>
  void finish(const Tokens<T>& source, Saved& saved, const View<T>& d_source, E&& executor) {
    const View<T> d = saved.d_dominant.view();
    detail::map_activations<&LayerKernels<T>::sigmoid_grad, T>(
        saved.dominant.view(), d, d, as_executor(executor), static_cast<T>(most_));
    typename Linear<T>::Saved nothing;
    index_.backward(source.x, nothing, d, d_source, executor, OutputMode::add);
  }

 private:
  Index heads_ = 1;
  Index slots_ = 4;
  Index most_ = 1;
  Linear<T> index_;
};

FOVEA_NAMESPACE_END
