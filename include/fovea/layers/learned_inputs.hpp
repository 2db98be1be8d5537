// SPDX-License-Identifier: MIT
/// \file
/// What an operator reads beside q, k and v, and where a layer has that from. There is one
/// `LearnedInputs` for each kind of operator.
#pragma once

#include "fovea/attention/delta_rule.hpp"
#include "fovea/attention/fmm.hpp"
#include "fovea/attention/fsat.hpp"
#include "fovea/attention/indexed.hpp"
#include "fovea/attention/linear.hpp"
#include "fovea/attention/performer.hpp"
#include "fovea/attention/smart_bird.hpp"
#include "fovea/layers/elementwise.hpp"
#include "fovea/layers/linear.hpp"

FOVEA_NAMESPACE_BEGIN

/// The sizes of the heads of a layer.
struct HeadSizes {
  Index width = 0;           ///< Dm, the channels of the tokens that learned inputs are made of
  Index heads = 1;           ///< H, the number of query heads
  Index key_heads = 1;       ///< Hk, the number of key heads, which divides heads
  Index head_width = 0;      ///< D, the width of a head
  Index sketch_width = 4;    ///< d, the width of Smart Bird's sketch
  Index dominant = 4;        ///< M, how many indices FsatLayer predicts for each key and head
  Index features = 64;       ///< R, the random features of Performer attention
  Index sorted_blocks = 64;  ///< the most blocks of a sequence of Sinkhorn attention
  Index length = 0;          ///< the most tokens of a sequence, for Linformer's projections
  Index projected = 0;       ///< P, the rows of Linformer's projections
  bool bias = false;         ///< whether the projections have a bias
  bool global_projections = false;  ///< whether Longformer's global rows have projections
};

/// The learned inputs of an operator that reads q, k and v alone and has an lse, as softmax
/// attention of every pattern does. Those of another kind of operator derive from this, and replace
/// the members that differ.
template <class T>
class NothingLearned {
 public:
  /// Whether the operator writes and reads lse.
  static constexpr bool kHasLse = true;

  /// What is kept from forward to backward: nothing.
  struct Saved {};

  /// Nothing to learn.
  NothingLearned() = default;
  /// The learned inputs of an operator in a layer of these sizes. The initialiser draws them.
  template <class Op>
  NothingLearned(const Op& /*op*/, const HeadSizes& /*sizes*/, Initialiser& /*initialiser*/) {}

  /// Lists what is learned: nothing.
  template <class Self, class F>
  static void each_part(Self& /*self*/, F&& /*f*/) {}

  /// Refuses a decoder if what is learned has no place in one.
  void check_decoder() const {}

  /// Makes of the tokens of the source what the operator reads.
  template <class Op, class Kept, class E>
  void compute(const Op& /*op*/, const Tokens<T>& /*source*/, Kept& /*saved*/,
               E&& /*executor*/) const {}

  /// Puts that into the operator's `Inputs`, and room for what it saves into its `Saved`.
  template <class Kept, class In, class S>
  void attach(const Tokens<T>& /*source*/, Kept& /*saved*/, In& /*inputs*/, S& /*kept*/) const {}

  /// Says in the operator's `Grads` which gradients it has to give.
  template <class Kept, class G>
  void ask(const Tokens<T>& /*source*/, Kept& /*saved*/, G& /*grads*/) const {}

  /// Takes these gradients on to the parameters, and adds to d_source, if it is given.
  template <class Kept, class E>
  void finish(const Tokens<T>& /*source*/, Kept& /*saved*/, const View<T>& /*d_source*/,
              E&& /*executor*/) {}
};

/// The learned inputs of an operator. An operator that is none of the kinds below learns nothing
/// here and has an lse, as softmax attention.
template <class Op, class T>
class LearnedInputs : public NothingLearned<T> {
 public:
  using NothingLearned<T>::NothingLearned;
};

/// Linear attention learns nothing beside q, k and v, and has no lse.
template <class T, class... Maps>
class LearnedInputs<LinearAttention<Maps...>, T> : public NothingLearned<T> {
 public:
  /// The operator neither writes nor reads lse.
  static constexpr bool kHasLse = false;
  using NothingLearned<T>::NothingLearned;
};

/// Performer attention has its projection from the layer, drawn by `draw_projection`. It has a
/// gradient: a program that wants to keep it leaves it out of what it trains, and one that wants
/// other features draws it again.
template <class T>
class LearnedInputs<PerformerAttention, T> : public NothingLearned<T> {
 public:
  /// The operator neither writes nor reads lse.
  static constexpr bool kHasLse = false;

  Parameter<T> projection;  ///< [R, D] the projection of all heads

  /// Room for a gradient.
  struct Saved {
    Buffer<T> d_projection;  ///< [1, 1, R, D]
  };

  /// A projection without sizes, which has yet to be assigned to.
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

  /// Gives the projection to the operator.
  template <class S>
  void attach(const Tokens<T>& /*source*/, Saved& /*saved*/, PerformerInputs<T>& inputs,
              S& /*kept*/) const {
    inputs.projection = View<const T>(projection.value.data(), shape());
  }

  /// Asks the operator for the gradient of the projection.
  void ask(const Tokens<T>& /*source*/, Saved& saved, PerformerGrads<T>& grads) const {
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

/// beta = sigmoid(x W + b), a rate for each token and key head, with which the delta rule writes.
template <class T>
class LearnedRates : public NothingLearned<T> {
 public:
  /// The operator neither writes nor reads lse.
  static constexpr bool kHasLse = false;

  /// What is kept from forward to backward, and room for a gradient.
  struct Saved {
    Buffer<T> beta;    ///< [B, 1, L, Hk] the rates
    Buffer<T> d_beta;  ///< [B, 1, L, Hk] the gradient of the rates
  };

  /// Rates without sizes, which have yet to be assigned to.
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

  /// Gives the rates to the operator.
  template <class In, class S>
  void attach(const Tokens<T>& /*source*/, Saved& saved, In& inputs, S& /*kept*/) const {
    inputs.beta = of_key_heads(saved.beta.view());
  }

  /// Asks the operator for the gradient of the rates.
  template <class G>
  void ask(const Tokens<T>& source, Saved& saved, G& grads) const {
    grads.beta = of_key_heads(saved.d_beta.resize(source.x.batch(), source.x.rows(), rate_.out()));
  }

  /// Adds to the gradients of W and b and, if it is given, to d_source.
  template <class E>
  void finish(const Tokens<T>& source, Saved& saved, const View<T>& d_source, E&& executor) {
    const View<T> d_beta = saved.d_beta.view();
    detail::map_activations<&LayerKernels<T>::sigmoid_grad, T>(saved.beta.view(), d_beta, d_beta,
                                                               as_executor(executor));
    typename Linear<T>::Saved nothing;
    rate_.backward(source.x, nothing, d_beta, d_source, executor, Into::add);
  }

 private:
  /// Views [B, 1, L, Hk] as [B, Hk, L, 1].
  static View<T> of_key_heads(const View<T>& x) {
    return {x.data(), {x.batch(), x.width(), x.rows(), 1}, {x.strides()[0], 1, x.width(), 1}};
  }

  Linear<T> rate_;
};

/// The delta rule learns its rates.
template <class Map, class T>
class LearnedInputs<DeltaRuleAttention<Map>, T> : public LearnedRates<T> {
 public:
  using LearnedRates<T>::LearnedRates;
};

namespace detail {

/// What FMM attention learns beside its logits: the rates, if a term is a delta rule.
template <class T, bool HasBeta>
struct FmmBase {
  using type = NothingLearned<T>;
};
template <class T>
struct FmmBase<T, true> {
  using type = LearnedRates<T>;
};

}  // namespace detail

/// FMM attention learns the logits of its near and far field, one for each head, which begin as 0.
/// If one of its terms is a delta rule, it also learns the rates.
template <class T, class... Terms>
class LearnedInputs<FmmAttention<Terms...>, T>
    : public detail::FmmBase<T, FmmAttention<Terms...>::kHasBeta>::type {
  using Base = typename detail::FmmBase<T, FmmAttention<Terms...>::kHasBeta>::type;

 public:
  /// The operator neither writes nor reads lse.
  static constexpr bool kHasLse = false;

  Parameter<T> near_logits;  ///< [1, H] the logits of the near field
  Parameter<T> far_logits;   ///< [1, H] the logits of the far field

  /// What is kept from forward to backward, and room for gradients.
  struct Saved : Base::Saved {
    Buffer<T> d_near;  ///< [1, H, 1, 1] the gradient of the near logits
    Buffer<T> d_far;   ///< [1, H, 1, 1] the gradient of the far logits
  };

  /// Logits without sizes, which have yet to be assigned to.
  LearnedInputs() = default;
  /// Logits of 0 for each head, and rates if the operator has them.
  LearnedInputs(const FmmAttention<Terms...>& op, const HeadSizes& sizes, Initialiser& initialiser)
      : Base(op, sizes, initialiser),
        near_logits("near_logits", 1, sizes.heads),
        far_logits("far_logits", 1, sizes.heads) {}

  /// Lists the rates' parts, if there are rates, and both logits.
  template <class Self, class F>
  static void each_part(Self& self, F&& f) {
    Base::each_part(self, f);
    f(self.near_logits);
    f(self.far_logits);
  }

  /// Gives the logits, and the rates, to the operator.
  template <class In, class S>
  void attach(const Tokens<T>& source, Saved& saved, In& inputs, S& kept) const {
    Base::attach(source, saved, inputs, kept);
    inputs.near_logits = View<const T>(near_logits.value.data(), shape());
    inputs.far_logits = View<const T>(far_logits.value.data(), shape());
  }

  /// Asks the operator for the gradients of the logits and the rates.
  template <class G>
  void ask(const Tokens<T>& source, Saved& saved, G& grads) const {
    Base::ask(source, saved, grads);
    grads.near_logits = saved.d_near.resize(shape());
    grads.far_logits = saved.d_far.resize(shape());
  }

  /// Adds to the gradients of all that is learned and, for the rates, to d_source.
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

/// Smart Bird has its sketch from the layer: its queries x W_sq and its keys x W_sk, where W_sq and
/// W_sk stand side by side in one matrix [Dm, 2 d]. The operator's choice of keys has no gradient,
/// so the gradient of this matrix stays 0. To train the sketch, a program needs another loss for it
/// (Wu et al. 2021, section 3.1). The chosen keys are kept for the backward pass.
template <class T>
class LearnedInputs<SmartBirdAttention, T> : public NothingLearned<T> {
 public:
  /// What is kept from forward to backward.
  struct Saved {
    Buffer<T> sketch;       ///< [B, 1, L, 2 d] queries and keys of the sketch, side by side
    Buffer<Index> indices;  ///< [B, H, L, K] the chosen keys
  };

  /// A sketch without sizes, which has yet to be assigned to.
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

  /// Computes the sketch of the source's tokens, and makes room for the chosen keys.
  template <class E>
  void compute(const SmartBirdAttention& op, const Tokens<T>& source, Saved& saved,
               E&& executor) const {
    const Index batch = source.x.batch();
    const Index rows = source.x.rows();
    sketch_.forward(source.x, saved.sketch.resize(batch, rows, sketch_.out()), executor);
    // A row has as many keys as the operator's options say; the operator refuses a negative number.
    saved.indices.resize({batch, heads_, rows, (std::max<Index>)(0, op.options.keys_per_row)});
  }

  /// Gives the sketch to the operator, and says where it keeps the chosen keys.
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

/// IndexedAttention learns nothing here: its lists of keys come with the tokens.
template <class T>
class LearnedInputs<IndexedAttention, T> : public NothingLearned<T> {
 public:
  using NothingLearned<T>::NothingLearned;

  /// Gives the lists of the tokens to the operator.
  void attach(const Tokens<T>& source, typename NothingLearned<T>::Saved& /*saved*/,
              IndexedInputs<T>& inputs, IndexedSaved<T>& /*kept*/) const {
    inputs.indices = source.indices;
  }
};

/// FsatAttention learns nothing here: its dominant indices come with the tokens, and there is no
/// gradient of them.
template <class T>
class LearnedInputs<FsatAttention, T> : public NothingLearned<T> {
 public:
  using NothingLearned<T>::NothingLearned;

  /// Gives the dominant indices of the tokens to the operator.
  void attach(const Tokens<T>& source, typename NothingLearned<T>::Saved& /*saved*/,
              FsatInputs<T>& inputs, FsatSaved<T>& /*kept*/) const {
    inputs.dominant = source.dominant;
  }
};

FOVEA_NAMESPACE_END
