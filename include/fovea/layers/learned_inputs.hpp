// SPDX-License-Identifier: MIT
/// \file
/// What an operator reads beside q, k and v, and where a layer has it from: one `LearnedInputs` for
/// each kind of operator.
#pragma once

#include "fovea/attention/delta_rule.hpp"
#include "fovea/attention/fmm.hpp"
#include "fovea/attention/fsat.hpp"
#include "fovea/attention/indexed.hpp"
#include "fovea/attention/linear.hpp"
#include "fovea/attention/smart_bird.hpp"
#include "fovea/layers/elementwise.hpp"
#include "fovea/layers/linear.hpp"

FOVEA_NAMESPACE_BEGIN

/// The sizes that the heads of a layer have.
struct HeadSizes {
  Index width = 0;      ///< Dm, of the tokens that learned inputs are made of
  Index heads = 1;      ///< of the queries
  Index key_heads = 1;  ///< divides heads
  Index head_width = 0;
  Index sketch_width = 4;  ///< of Smart Bird's sketch
  Index dominant = 4;      ///< M, the indices that FsatLayer predicts for each key and head
};

/// The learned inputs of an operator that reads q, k and v alone and has an lse: softmax attention
/// of every pattern. Another kind derives from it and has its own members instead: `visit(f)` over
/// what it learns; `compute` makes of the source's tokens what the operator reads; `attach` gives
/// that to the operator, and says where it saves; `ask` says which gradients the operator has to
/// give; `finish` takes them to the parameters, and adds to the source's gradient.
template <class T>
class NothingLearned {
 public:
  /// Whether the operator writes and reads lse.
  static constexpr bool kHasLse = true;

  /// What is kept from forward to backward.
  struct Saved {};

  NothingLearned() = default;
  template <class Op>
  NothingLearned(const Op& /*op*/, const HeadSizes& /*sizes*/, Initialiser& /*initialiser*/) {}

  template <class F>
  void visit(F&& /*f*/) {}

  template <class Op, class Kept, class E>
  void compute(const Op& /*op*/, const Tokens<T>& /*source*/, Kept& /*saved*/,
               E&& /*executor*/) const {}

  /// \param inputs, kept Op::Inputs<T> and Op::Saved<T>
  template <class Kept, class I, class S>
  void attach(const Tokens<T>& /*source*/, Kept& /*saved*/, I& /*inputs*/, S& /*kept*/) const {}

  /// \param grads Op::Grads<T>
  template <class Kept, class G>
  void ask(const Tokens<T>& /*source*/, Kept& /*saved*/, G& /*grads*/) const {}

  template <class Kept, class E>
  void finish(const Tokens<T>& /*source*/, Kept& /*saved*/, const View<T>& /*d_source*/,
              E&& /*executor*/) {}
};

/// The learned inputs of an operator. What is none of the kinds below is softmax attention.
template <class Op, class T>
class LearnedInputs : public NothingLearned<T> {
 public:
  using NothingLearned<T>::NothingLearned;
};

/// Linear attention has no lse.
template <class T, class... Maps>
class LearnedInputs<LinearAttention<Maps...>, T> : public NothingLearned<T> {
 public:
  static constexpr bool kHasLse = false;
  using NothingLearned<T>::NothingLearned;
};

/// beta = sigmoid(x W + b), a rate for each token and key head: what the delta rule writes with.
template <class T>
class LearnedRates : public NothingLearned<T> {
 public:
  static constexpr bool kHasLse = false;

  struct Saved {
    Buffer<T> beta;  ///< [B, 1, L, Hk]
    Buffer<T> d_beta;
  };

  LearnedRates() = default;
  template <class Op>
  LearnedRates(const Op& /*op*/, const HeadSizes& sizes, Initialiser& initialiser)
      : rate_(sizes.width, sizes.key_heads, initialiser, {.name = "beta"}) {}

  template <class F>
  void visit(F&& f) {
    rate_.visit(f);
  }

  template <class Op, class E>
  void compute(const Op& /*op*/, const Tokens<T>& source, Saved& saved, E&& executor) const {
    const View<T> beta = saved.beta.resize(source.x.batch(), source.x.rows(), rate_.out());
    rate_.forward(source.x, beta, executor);
    detail::map_activations<T>(beta, beta, as_executor(executor), detail::sigmoid<T>);
  }

  template <class I, class S>
  void attach(const Tokens<T>& /*source*/, Saved& saved, I& inputs, S& /*kept*/) const {
    inputs.beta = of_key_heads(saved.beta.view());
  }

  template <class G>
  void ask(const Tokens<T>& source, Saved& saved, G& grads) const {
    grads.beta = of_key_heads(saved.d_beta.resize(source.x.batch(), source.x.rows(), rate_.out()));
  }

  template <class E>
  void finish(const Tokens<T>& source, Saved& saved, const View<T>& d_source, E&& executor) {
    const View<T> d_beta = saved.d_beta.view();
    const auto slope = [](const detail::Piece<T>& beta, const detail::Piece<T>& d) {
      return detail::Piece<T>(d * beta * (T{1} - beta));
    };
    detail::map_activations<T>(saved.beta.view(), d_beta, d_beta, as_executor(executor), slope);
    typename Linear<T>::Saved nothing;
    rate_.backward(source.x, nothing, d_beta, d_source, executor, Into::add);
  }

 private:
  /// [B, 1, L, Hk] as [B, Hk, L, 1].
  static View<T> of_key_heads(const View<T>& x) {
    return {x.data(), {x.batch(), x.width(), x.rows(), 1}, {x.strides()[0], 1, x.width(), 1}};
  }

  Linear<T> rate_;
};

template <class Map, class T>
class LearnedInputs<DeltaRuleAttention<Map>, T> : public LearnedRates<T> {
 public:
  using LearnedRates<T>::LearnedRates;
};

namespace detail {

template <class T, bool HasBeta>
struct FmmBase {
  using type = NothingLearned<T>;
};
template <class T>
struct FmmBase<T, true> {
  using type = LearnedRates<T>;
};

}  // namespace detail

/// FMM attention: the logits of near and far field, one for each head, from 0; beta, if one of its
/// terms is a delta rule.
template <class T, class... Terms>
class LearnedInputs<FmmAttention<Terms...>, T>
    : public detail::FmmBase<T, FmmAttention<Terms...>::kHasBeta>::type {
  using Base = typename detail::FmmBase<T, FmmAttention<Terms...>::kHasBeta>::type;

 public:
  static constexpr bool kHasLse = false;

  Parameter<T> near_logits;  ///< [1, H]
  Parameter<T> far_logits;   ///< [1, H]

  struct Saved : Base::Saved {
    Buffer<T> d_near;  ///< [1, H, 1, 1]
    Buffer<T> d_far;
  };

  LearnedInputs() = default;
  LearnedInputs(const FmmAttention<Terms...>& op, const HeadSizes& sizes, Initialiser& initialiser)
      : Base(op, sizes, initialiser),
        near_logits("near_logits", 1, sizes.heads),
        far_logits("far_logits", 1, sizes.heads) {}

  template <class F>
  void visit(F&& f) {
    Base::visit(f);
    f(near_logits);
    f(far_logits);
  }

  template <class I, class S>
  void attach(const Tokens<T>& source, Saved& saved, I& inputs, S& kept) const {
    Base::attach(source, saved, inputs, kept);
    inputs.near_logits = View<const T>(near_logits.value.data(), shape());
    inputs.far_logits = View<const T>(far_logits.value.data(), shape());
  }

  template <class G>
  void ask(const Tokens<T>& source, Saved& saved, G& grads) const {
    Base::ask(source, saved, grads);
    grads.near_logits = saved.d_near.resize(shape());
    grads.far_logits = saved.d_far.resize(shape());
  }

  template <class E>
  void finish(const Tokens<T>& source, Saved& saved, const View<T>& d_source, E&& executor) {
    Base::finish(source, saved, d_source, executor);
    for (Index h = 0; h < near_logits.value.cols(); ++h) {
      near_logits.gradient(0, h) += saved.d_near.view()(0, h, 0, 0);
      far_logits.gradient(0, h) += saved.d_far.view()(0, h, 0, 0);
    }
  }

 private:
  Shape shape() const { return {1, near_logits.value.cols(), 1, 1}; }
};

/// Smart Bird: the sketch's queries x W_sq and keys x W_sk, side by side in one matrix [Dm, 2 d].
/// The operator's choice of keys has no gradient, so that of the matrix stays 0: who trains the
/// sketch does it by a loss of its own (Wu et al. 2021, section 3.1). The chosen keys are kept for
/// the backward pass.
template <class T>
class LearnedInputs<SmartBirdAttention, T> : public NothingLearned<T> {
 public:
  struct Saved {
    Buffer<T> sketch;       ///< [B, 1, L, 2 d]
    Buffer<Index> indices;  ///< [B, H, L, K]
  };

  LearnedInputs() = default;
  LearnedInputs(const SmartBirdAttention& /*op*/, const HeadSizes& sizes, Initialiser& initialiser)
      : heads_(sizes.heads),
        sketch_(sizes.width, 2 * sizes.sketch_width, initialiser,
                {.bias = false, .outputs_of_one = sizes.sketch_width, .name = "sketch"}) {}

  template <class F>
  void visit(F&& f) {
    sketch_.visit(f);
  }

  template <class E>
  void compute(const SmartBirdAttention& op, const Tokens<T>& source, Saved& saved,
               E&& executor) const {
    const Index batch = source.x.batch();
    const Index rows = source.x.rows();
    sketch_.forward(source.x, saved.sketch.resize(batch, rows, sketch_.out()), executor);
    // A row of the operator's own options; it refuses those that are none.
    saved.indices.resize({batch, heads_, rows, (std::max<Index>)(0, op.options.keys_per_row)});
  }

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

/// Lists that come with the tokens.
template <class T>
class LearnedInputs<IndexedAttention, T> : public NothingLearned<T> {
 public:
  using NothingLearned<T>::NothingLearned;

  void attach(const Tokens<T>& source, typename NothingLearned<T>::Saved& /*saved*/,
              IndexedInputs<T>& inputs, IndexedSaved<T>& /*kept*/) const {
    inputs.indices = source.indices;
  }
};

/// Dominant indices that come with the tokens; their gradient goes nowhere.
template <class T>
class LearnedInputs<FsatAttention, T> : public NothingLearned<T> {
 public:
  using NothingLearned<T>::NothingLearned;

  void attach(const Tokens<T>& source, typename NothingLearned<T>::Saved& /*saved*/,
              FsatInputs<T>& inputs, FsatSaved<T>& /*kept*/) const {
    inputs.dominant = source.dominant;
  }
};

FOVEA_NAMESPACE_END
