// SPDX-License-Identifier: MIT
/// \file
/// Inputs of an operator besides q, k and v that a layer learns or computes. There is one
/// `LearnedInputs` per kind of operator.
#pragma once

#include "fovea/attention/delta_rule.hpp"
#include "fovea/attention/fmm.hpp"
#include "fovea/attention/performer.hpp"
#include "fovea/attention/smart_bird.hpp"
#include "fovea/layers/elementwise.hpp"
#include "fovea/layers/linear.hpp"

FOVEA_NAMESPACE_BEGIN

/// The sizes of the heads of a layer.
struct HeadSizes {
  Index width = 0;                  ///< Dm, the channels of the source tokens
  Index heads = 1;                  ///< H, the number of query heads
  Index key_heads = 1;              ///< Hk, the number of key heads, which divides heads
  Index head_width = 0;             ///< D, the width of a head
  Index sketch_width = 4;           ///< d, the width of Smart Bird's sketch
  Index dominant = 4;               ///< M, the indices FsatLayer predicts per key and head
  Index features = 64;              ///< R, Performer's random features
  Index sorted_blocks = 64;         ///< the maximum blocks of a sequence, for Sinkhorn
  Index length = 0;                 ///< the maximum sequence length, for Linformer
  Index projected = 0;              ///< P, the rows of Linformer's projections
  bool bias = false;                ///< whether the projections have a bias
  bool global_projections = false;  ///< whether Longformer's global rows have their own projections
};

/// The learned inputs of an operator that reads only q, k and v, as softmax attention of any
/// pattern. Specialisations derive from this and replace the members that differ.
template <class T>
class NoLearnedInputs {
 public:
  /// State saved for backward: none.
  struct Saved {};

  /// No learned inputs.
  NoLearnedInputs() = default;
  /// Creates the learned inputs of an operator in a layer of these sizes.
  template <class Op>
  NoLearnedInputs(const Op& /*op*/, const HeadSizes& /*sizes*/, Initialiser& /*initialiser*/) {}

  /// Lists nothing.
  template <class Self, class F>
  static void each_part(Self& /*self*/, F&& /*f*/) {}

  /// Throws if the learned inputs do not support a decoder.
  void check_decoder() const {}

  /// Computes the operator's inputs from the source tokens.
  template <class Op, class Kept, class E>
  void compute(const Op& /*op*/, const Tokens<T>& /*source*/, Kept& /*saved*/,
               E&& /*executor*/) const {}

  /// Sets them in the operator's `Inputs`, and buffers for what it saves in its `Saved`.
  template <class Kept, class In, class S>
  void attach(const Tokens<T>& /*source*/, Kept& /*saved*/, In& /*inputs*/, S& /*kept*/) const {}

  /// Requests gradients in the operator's `Grads`.
  template <class Kept, class G>
  void request_grads(const Tokens<T>& /*source*/, Kept& /*saved*/, G& /*grads*/) const {}

  /// Propagates these gradients to the parameters and, if given, adds to d_source.
  template <class Kept, class E>
  void finish(const Tokens<T>& /*source*/, Kept& /*saved*/, const View<T>& /*d_source*/,
              E&& /*executor*/) {}
};

/// The learned inputs of an operator. Operators without a specialisation learn nothing here.
template <class Op, class T>
class LearnedInputs : public NoLearnedInputs<T> {
 public:
  using NoLearnedInputs<T>::NoLearnedInputs;
};

/// The layer holds Performer attention's projection, drawn by `draw_projection`. It has a gradient;
/// to keep it fixed, exclude it from training. To change the features, draw it again.
template <class T>
class LearnedInputs<PerformerAttention, T> : public NoLearnedInputs<T> {
 public:
  Parameter<T> projection;  ///< [R, D] the projection of all heads

  /// A buffer for a gradient.
  struct Saved {
    Buffer<T> d_projection;  ///< [1, 1, R, D]
  };

  /// Empty; assign one before use.
  LearnedInputs() = default;
  /// Draws a projection of `sizes.features` random features.
  LearnedInputs(const PerformerAttention& /*op*/, const HeadSizes& sizes, Initialiser& initialiser)
      : projection("projection", sizes.features, sizes.head_width) {
    initialiser.features(projection);
  }

  /// Lists the projection.
  template <class Self, class F>
  static void each_part(Self& self, F&& f) {
    f(self.projection);
  }

  /// Passes the projection to the operator.
  template <class S>
  void attach(const Tokens<T>& /*source*/, Saved& /*saved*/, PerformerInputs<T>& inputs,
              S& /*kept*/) const {
    inputs.projection = View<const T>(projection.value.data(), shape());
  }

  /// Requests from the operator the gradient of the projection.
  void request_grads(const Tokens<T>& /*source*/, Saved& saved, PerformerGrads<T>& grads) const {
    grads.projection = saved.d_projection.resize(shape());
  }

  /// Adds to the gradient of the projection.
  template <class E>
  void finish(const Tokens<T>& /*source*/, Saved& saved, const View<T>& /*d_source*/,
              E&& /*executor*/) {
    for (Index r = 0; r < projection.value.rows(); ++r) {
      for (Index c = 0; c < projection.value.cols(); ++c) {
        projection.gradient_sum()(r, c) += saved.d_projection.view()(0, 0, r, c);
      }
    }
  }

 private:
  Shape shape() const { return {1, 1, projection.value.rows(), projection.value.cols()}; }
};

/// beta = sigmoid(x W + b), the delta rule's write rate per token and key head.
template <class T>
class LearnedRates : public NoLearnedInputs<T> {
 public:
  /// State saved for backward, and a buffer for a gradient.
  struct Saved {
    Buffer<T> beta;    ///< [B, 1, L, Hk] the rates
    Buffer<T> d_beta;  ///< [B, 1, L, Hk] the gradient of the rates
  };

  /// Empty; assign one before use.
  LearnedRates() = default;
  /// Draws W for Hk rates of tokens with Dm channels.
  template <class Op>
  LearnedRates(const Op& /*op*/, const HeadSizes& sizes, Initialiser& initialiser)
      : rate_(sizes.width, sizes.key_heads, initialiser, {.name = "beta"}) {}

  /// Lists W and b.
  template <class Self, class F>
  static void each_part(Self& self, F&& f) {
    f(self.rate_);
  }

  /// Computes the rates of the source's tokens.
  template <class Op, class E>
  void compute(const Op& /*op*/, const Tokens<T>& source, Saved& saved, E&& executor) const {
    const View<T> beta = saved.beta.resize(source.x.batch(), source.x.rows(), rate_.out());
    rate_.forward(source.x, beta, executor);
    detail::map_activations<&LayerKernels<T>::sigmoid, T>(beta, {}, beta, as_executor(executor));
  }

  /// Passes the rates to the operator.
  template <class In, class S>
  void attach(const Tokens<T>& /*source*/, Saved& saved, In& inputs, S& /*kept*/) const {
    inputs.beta = of_key_heads(saved.beta.view());
  }

  /// Requests from the operator the gradient of the rates.
  template <class G>
  void request_grads(const Tokens<T>& source, Saved& saved, G& grads) const {
    grads.beta = of_key_heads(saved.d_beta.resize(source.x.batch(), source.x.rows(), rate_.out()));
  }

  /// Adds to the gradients of W and b and, if given, to d_source.
  template <class E>
  void finish(const Tokens<T>& source, Saved& saved, const View<T>& d_source, E&& executor) {
    const View<T> d_beta = saved.d_beta.view();
    detail::map_activations<&LayerKernels<T>::sigmoid_grad, T>(saved.beta.view(), d_beta, d_beta,
                                                               as_executor(executor));
    typename Linear<T>::Saved nothing;
    rate_.backward(source.x, nothing, d_beta, d_source, executor, OutputMode::add);
  }

 private:
  /// Views [B, 1, L, Hk] as [B, Hk, L, 1].
  static View<T> of_key_heads(const View<T>& x) {
    return {x.data(), {x.batch(), x.width(), x.rows(), 1}, {x.strides()[0], 1, x.width(), 1}};
  }

  Linear<T> rate_;
};

/// The learned inputs of the delta rule: its rates.
template <class Map, class T>
class LearnedInputs<DeltaRuleAttention<Map>, T> : public LearnedRates<T> {
 public:
  using LearnedRates<T>::LearnedRates;
};

namespace detail {

/// What FMM attention learns besides its logits: rates, if a term is a delta rule.
template <class T, bool HasBeta>
struct FmmBase {
  using type = NoLearnedInputs<T>;
};
template <class T>
struct FmmBase<T, true> {
  using type = LearnedRates<T>;
};

}  // namespace detail

/// FMM attention learns the logits of its near and far field, one per head, initially 0. If one of
/// its terms is a delta rule, it also learns the rates.
template <class T, class... Terms>
class LearnedInputs<FmmAttention<Terms...>, T>
    : public detail::FmmBase<T, FmmAttention<Terms...>::kHasBeta>::type {
  using Base = typename detail::FmmBase<T, FmmAttention<Terms...>::kHasBeta>::type;

 public:
  Parameter<T> near_logits;  ///< [1, H] the logits of the near field
  Parameter<T> far_logits;   ///< [1, H] the logits of the far field

  /// State saved for backward, and buffers for gradients.
  struct Saved : Base::Saved {
    Buffer<T> d_near;  ///< [1, H, 1, 1] the gradient of the near logits
    Buffer<T> d_far;   ///< [1, H, 1, 1] the gradient of the far logits
  };

  /// Empty; assign one before use.
  LearnedInputs() = default;
  /// Sets all logits to 0, and draws rates if the operator has them.
  LearnedInputs(const FmmAttention<Terms...>& op, const HeadSizes& sizes, Initialiser& initialiser)
      : Base(op, sizes, initialiser),
        near_logits("near_logits", 1, sizes.heads),
        far_logits("far_logits", 1, sizes.heads) {}

  /// Lists the rates' parts, if any, and both logits.
  template <class Self, class F>
  static void each_part(Self& self, F&& f) {
    Base::each_part(self, f);
    f(self.near_logits);
    f(self.far_logits);
  }

  /// Passes the logits, and the rates, to the operator.
  template <class In, class S>
  void attach(const Tokens<T>& source, Saved& saved, In& inputs, S& kept) const {
    Base::attach(source, saved, inputs, kept);
    inputs.near_logits = View<const T>(near_logits.value.data(), shape());
    inputs.far_logits = View<const T>(far_logits.value.data(), shape());
  }

  /// Requests from the operator the gradients of the logits and the rates.
  template <class G>
  void request_grads(const Tokens<T>& source, Saved& saved, G& grads) const {
    Base::request_grads(source, saved, grads);
    grads.near_logits = saved.d_near.resize(shape());
    grads.far_logits = saved.d_far.resize(shape());
  }

  /// Adds to all parameter gradients and, for the rates, to d_source.
  template <class E>
  void finish(const Tokens<T>& source, Saved& saved, const View<T>& d_source, E&& executor) {
    Base::finish(source, saved, d_source, executor);
    for (Index h = 0; h < near_logits.value.cols(); ++h) {
      near_logits.gradient_sum()(0, h) += saved.d_near.view()(0, h, 0, 0);
      far_logits.gradient_sum()(0, h) += saved.d_far.view()(0, h, 0, 0);
    }
  }

 private:
  Shape shape() const { return {1, near_logits.value.cols(), 1, 1}; }
};

/// The layer computes Smart Bird's sketch: queries x W_sq and keys x W_sk, where W_sq and W_sk are
/// concatenated in one matrix [Dm, 2 d]. The operator's choice of keys has no gradient, so this
/// matrix's gradient stays 0; training the sketch needs a separate loss (Wu et al. 2021, section
/// 3.1). The chosen keys are saved for the backward pass.
template <class T>
class LearnedInputs<SmartBirdAttention, T> : public NoLearnedInputs<T> {
 public:
  /// State saved for backward.
  struct Saved {
    Buffer<T> sketch;       ///< [B, 1, L, 2 d] the sketch's queries and keys, concatenated
    Buffer<Index> indices;  ///< [B, H, L, K] the chosen keys
  };

  /// Empty; assign one before use.
  LearnedInputs() = default;
  /// Draws the matrix of the sketch.
  LearnedInputs(const SmartBirdAttention& /*op*/, const HeadSizes& sizes, Initialiser& initialiser)
      : heads_(sizes.heads),
        sketch_(sizes.width, 2 * sizes.sketch_width, initialiser,
                {.bias = false, .outputs_of_one = sizes.sketch_width, .name = "sketch"}) {}

  /// Lists the matrix of the sketch.
  template <class Self, class F>
  static void each_part(Self& self, F&& f) {
    f(self.sketch_);
  }

  /// Computes the sketch of the source tokens, and a buffer for the chosen keys.
  template <class E>
  void compute(const SmartBirdAttention& op, const Tokens<T>& source, Saved& saved,
               E&& executor) const {
    const Index batch = source.x.batch();
    const Index rows = source.x.rows();
    sketch_.forward(source.x, saved.sketch.resize(batch, rows, sketch_.out()), executor);
    // The operator rejects a negative number of keys per row.
    saved.indices.resize({batch, heads_, rows, (std::max<Index>)(0, op.options.keys_per_row)});
  }

  /// Passes the operator the sketch, and a buffer for the chosen keys.
  void attach(const Tokens<T>& /*source*/, Saved& saved, SmartBirdInputs<T>& inputs,
              SmartBirdSaved<T>& kept) const {
    const View<T> sketch = saved.sketch.view();
    const Index width = sketch_.out() / 2;
    const Shape shape = {sketch.batch(), 1, sketch.rows(), width};
    inputs.sketch_q = View<const T>(sketch.data(), shape, sketch.strides());
    inputs.sketch_k = View<const T>(sketch.data() + width, shape, sketch.strides());
    kept.indices = saved.indices.view();
  }

 private:
  Index heads_ = 1;
  Linear<T> sketch_;
};

FOVEA_NAMESPACE_END
