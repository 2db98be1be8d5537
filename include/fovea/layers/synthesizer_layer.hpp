// SPDX-License-Identifier: MIT
/// \file
/// A layer of the Synthesizer (Tay et al. 2021): heads whose logits are learned by position, or
/// computed from each token alone.
#pragma once

#include <algorithm>
#include <string>

#include "fovea/attention/dense_synthesizer.hpp"
#include "fovea/attention/factorised_synthesizer.hpp"
#include "fovea/attention/random_synthesizer.hpp"
#include "fovea/layers/attend.hpp"
#include "fovea/layers/elementwise.hpp"
#include "fovea/layers/head_matrices.hpp"
#include "fovea/layers/linear.hpp"

FOVEA_NAMESPACE_BEGIN

/// Options of SynthesizerLayer.
struct SynthesizerLayerOptions {
  Index width = 0;       ///< Dm, the channels of a token
  Index heads = 1;       ///< H
  Index head_width = 0;  ///< D, the width of a value; 0: Dm / H, which must be an integer
  Index length = 0;      ///< Nmax, the longest sequence
  Index factor = 8;      ///< r, of the factorised form
  Index hidden = 0;      ///< M, of the dense form; 0: D
  bool bias = true;      ///< whether the maps, and the network of the dense form, have biases
  SynthesizerOptions attention = {};  ///< options of the operator
};

/// The weights of a form `Op`, and their gradients.
template <class Op, class T>
class SynthesizerWeights;

/// R.
template <class T>
class SynthesizerWeights<RandomSynthesizerAttention, T> {
 public:
  /// State saved for backward, and buffers for gradients.
  struct Saved {
    detail::RowsByPosition<T> r;  ///< [1, H, L, N], of the N tokens of the sequence
  };

  SynthesizerWeights() = default;
  /// Draws R.
  SynthesizerWeights(const SynthesizerLayerOptions& o, Initialiser& initialiser)
      : r_("r", o.heads, o.length, o.length, initialiser, o.length, o.length) {}

  /// Lists R.
  template <class Self, class F>
  static void each_part(Self& self, F&& f) {
    f(self.r_.parameter);
  }
  /// Finds the rows of the tokens.
  template <class E>
  void compute(const Tokens<T>& tokens, Saved& saved, E&& executor) const {
    r_.find_rows(tokens.x.rows(), detail::rows_of_sequence(tokens.x, executor), saved.r, executor);
  }
  /// Sets the operator's inputs for L positions.
  void attach(const Tokens<T>& tokens, const Saved& saved, RandomSynthesizerInputs<T>& to) const {
    to.r = r_.rows(tokens.x.rows(), tokens.x.rows(), saved.r);
  }
  /// Requests the gradients. \param of the operator's inputs
  void request_grads(const RandomSynthesizerInputs<T>& of, Saved& saved,
                     RandomSynthesizerGrads<T>& to) const {
    to.r = saved.r.gradient.resize(of.r.shape());
  }
  /// Adds them to the parameters' gradients.
  template <class E>
  void finish(Saved& saved, const View<T>& /*d_x*/, E&& executor) {
    r_.add_rows(saved.r, executor);
  }

 private:
  detail::HeadMatrices<T> r_;
};

/// R1 and R2.
template <class T>
class SynthesizerWeights<FactorisedSynthesizerAttention, T> {
 public:
  /// State saved for backward, and buffers for gradients.
  struct Saved {
    detail::RowsByPosition<T> r1;  ///< [1, H, L, r]
    detail::RowsByPosition<T> r2;  ///< [1, H, L, r]
  };

  SynthesizerWeights() = default;
  /// Draws R1 and R2. \throws std::invalid_argument if r is below 1
  SynthesizerWeights(const SynthesizerLayerOptions& o, Initialiser& initialiser)
      : r1_("r1", o.heads, o.length, o.factor, initialiser, o.length, o.factor),
        r2_("r2", o.heads, o.length, o.factor, initialiser, o.length, o.factor) {
    check_size("SynthesizerLayer", "factor", o.factor);
  }

  /// Lists R1 and R2.
  template <class Self, class F>
  static void each_part(Self& self, F&& f) {
    f(self.r1_.parameter);
    f(self.r2_.parameter);
  }
  /// Finds the rows of the tokens.
  template <class E>
  void compute(const Tokens<T>& tokens, Saved& saved, E&& executor) const {
    r1_.find_rows(tokens.x.rows(), factor(), saved.r1, executor);
    r2_.find_rows(tokens.x.rows(), factor(), saved.r2, executor);
  }
  /// Sets the operator's inputs for L positions.
  void attach(const Tokens<T>& tokens, const Saved& saved,
              FactorisedSynthesizerInputs<T>& to) const {
    to.r1 = r1_.rows(tokens.x.rows(), factor(), saved.r1);
    to.r2 = r2_.rows(tokens.x.rows(), factor(), saved.r2);
  }
  /// Requests the gradients. \param of the operator's inputs
  void request_grads(const FactorisedSynthesizerInputs<T>& of, Saved& saved,
                     FactorisedSynthesizerGrads<T>& to) const {
    to.r1 = saved.r1.gradient.resize(of.r1.shape());
    to.r2 = saved.r2.gradient.resize(of.r2.shape());
  }
  /// Adds them to the parameters' gradients.
  template <class E>
  void finish(Saved& saved, const View<T>& /*d_x*/, E&& executor) {
    r1_.add_rows(saved.r1, executor);
    r2_.add_rows(saved.r2, executor);
  }

 private:
  Index factor() const { return r1_.parameter.value.cols(); }

  detail::HeadMatrices<T> r1_;
  detail::HeadMatrices<T> r2_;
};

/// W1, b1, W2 and b2. Each head reads the whole token.
template <class T>
class SynthesizerWeights<DenseSynthesizerAttention, T> {
 public:
  /// Buffers for gradients.
  struct Saved {
    Buffer<T> d_x;   ///< [B, 1, L, Dm]
    Buffer<T> d_w1;  ///< [1, H, Dm, M]
    Buffer<T> d_b1;  ///< [1, H, 1, M]
    Buffer<T> d_w2;  ///< [1, H, M, Nmax]
    Buffer<T> d_b2;  ///< [1, H, 1, Nmax]
  };

  SynthesizerWeights() = default;
  /// Draws W1 and W2; the biases are 0. \throws std::invalid_argument if M is below 1
  SynthesizerWeights(const SynthesizerLayerOptions& o, Initialiser& initialiser)
      : w1_("w1", o.heads, o.width, o.hidden, initialiser, o.width, o.hidden),
        w2_("w2", o.heads, o.hidden, o.length, initialiser, o.hidden, o.length),
        b1_("b1", o.heads, 1, o.bias ? o.hidden : 0, none_, 1, 1),
        b2_("b2", o.heads, 1, o.bias ? o.length : 0, none_, 1, 1) {
    check_size("SynthesizerLayer", "hidden", o.hidden);
  }

  /// Lists W1 and W2, and b1 and b2 if there are biases.
  template <class Self, class F>
  static void each_part(Self& self, F&& f) {
    f(self.w1_.parameter);
    if (self.has_biases()) f(self.b1_.parameter);
    f(self.w2_.parameter);
    if (self.has_biases()) f(self.b2_.parameter);
  }
  /// Every rank reads all weights.
  template <class E>
  void compute(const Tokens<T>& /*tokens*/, Saved& /*saved*/, E&& /*executor*/) const {}
  /// Sets the operator's inputs.
  void attach(const Tokens<T>& tokens, const Saved& /*saved*/,
              DenseSynthesizerInputs<T>& to) const {
    to.x = tokens.x;
    to.w1 = w1_.view(width(), hidden());
    to.w2 = w2_.view(hidden(), length());
    if (!has_biases()) return;
    to.b1 = b1_.view(1, hidden());
    to.b2 = b2_.view(1, length());
  }
  /// Requests the gradients; those of the weights are sums over all tokens of the sequence.
  /// \param of the operator's inputs
  void request_grads(const DenseSynthesizerInputs<T>& of, Saved& saved,
                     DenseSynthesizerGrads<T>& to) const {
    to.x = saved.d_x.resize(of.x.shape());
    to.w1 = saved.d_w1.resize({1, w1_.heads, width(), hidden()});
    to.w2 = saved.d_w2.resize({1, w1_.heads, hidden(), length()});
    if (!has_biases()) return;
    to.b1 = saved.d_b1.resize({1, w1_.heads, 1, hidden()});
    to.b2 = saved.d_b2.resize({1, w1_.heads, 1, length()});
  }
  /// Adds them to the parameters' gradients, and the tokens' gradient to d_x if given.
  template <class E>
  void finish(Saved& saved, const View<T>& d_x, E&& executor) {
    w1_.add(saved.d_w1.view());
    w2_.add(saved.d_w2.view());
    if (has_biases()) {
      b1_.add(saved.d_b1.view());
      b2_.add(saved.d_b2.view());
    }
    if (!d_x.empty()) detail::add_activations<T>(saved.d_x.view(), d_x, d_x, executor);
  }

 private:
  Index width() const { return w1_.parameter.value.rows() / w1_.heads; }
  Index hidden() const { return w1_.parameter.value.cols(); }
  Index length() const { return w2_.parameter.value.cols(); }
  bool has_biases() const { return b1_.parameter.value.size() != 0; }

  Initialiser none_ = Initialiser::zeros();
  detail::HeadMatrices<T> w1_;
  detail::HeadMatrices<T> w2_;
  detail::HeadMatrices<T> b1_;
  detail::HeadMatrices<T> b2_;
};

/// y = heads(x) Wo + bo for x and y [B, 1, L, Dm], L at most Nmax, where head h is the attention of
/// `Op` over the columns of h of x Wv + bv. Op is RandomSynthesizerAttention,
/// FactorisedSynthesizerAttention or DenseSynthesizerAttention. The first L of Nmax positions of
/// the weights are used. In the dense form every head reads the whole token. Key lengths hide keys,
/// but the rows beyond them are also computed.
///
/// The layer saves 2 H D numbers for each token, and uses as many for gradients, and as many as
/// there are weights by position. In distributed calls it also saves the rows of R, R1 and R2 for
/// this rank's tokens. The bits are the same for any number of threads.
template <class Op, class T = float>
class SynthesizerLayer : public LayerCalls<SynthesizerLayer<Op, T>, T, Tokens<T>> {
 public:
  /// State saved for backward, and buffers for gradients.
  struct Saved {
    Buffer<T> value;                                    ///< [B, 1, L, H D]
    Buffer<T> d_value;                                  ///< [B, 1, L, H D]
    Buffer<T> heads;                                    ///< [B, 1, L, H D] the outputs of the heads
    Buffer<T> d_heads;                                  ///< [B, 1, L, H D]
    Buffer<T> lse;                                      ///< [B, H, L, 1]
    typename SynthesizerWeights<Op, T>::Saved weights;  ///< of the weights
  };

  /// An empty layer; assign one before use.
  SynthesizerLayer() = default;

  /// Draws the weights. \throws std::invalid_argument if a size is below 1, or the heads do not
  /// divide the width although head_width is 0
  SynthesizerLayer(const SynthesizerLayerOptions& options, Initialiser& initialiser)
      : options_(completed(options)),
        op_(options_.attention),
        value_(options_.width, columns(), initialiser, {.bias = options_.bias, .name = "value"}),
        weights_(options_, initialiser),
        out_(columns(), options_.width, initialiser, {.bias = options_.bias, .name = "out"}) {}

  /// The options, with all sizes.
  const SynthesizerLayerOptions& options() const { return options_; }

  /// Lists the maps, and the weights between them.
  template <class Self, class F>
  static void each_part(Self& self, F&& f) {
    f(self.value_);
    SynthesizerWeights<Op, T>::each_part(self.weights_, f);
    f(self.out_);
  }

  using LayerCalls<SynthesizerLayer, T, Tokens<T>>::forward;
  /// Computes y, and saves what `backward` needs.
  /// \throws std::invalid_argument if a shape or layout is wrong, L is beyond Nmax, or there are
  /// packed sequences, a bias or a mask
  /// \throws std::bad_alloc if allocation fails
  template <class E = Serial>
  void forward(const Tokens<T>& tokens, const View<T>& y, Saved& saved, E&& executor = {}) const {
    check_forward(name(), tokens.x, options_.width, y, options_.width);
    check_tokens(tokens, detail::rows_of_sequence(tokens.x, executor));
    const View<T> value = saved.value.resize(y.batch(), y.rows(), columns());
    const View<T> heads = saved.heads.resize(y.batch(), y.rows(), columns());
    const View<T> lse = saved.lse.resize({y.batch(), options_.heads, y.rows(), 1});
    value_.forward(tokens.x, value, executor);
    weights_.compute(tokens, saved.weights, executor);
    detail::attend<Op, T>(op_, inputs(tokens, saved), by_head(heads), SoftmaxSaved<T>{lse},
                          executor);
    out_.forward(heads, y, executor);
  }

  /// Adds to the gradients of the parameters. If given, d_x is written.
  /// \throws as `forward`
  template <class E = Serial>
  void backward(const Tokens<T>& tokens, Saved& saved, const View<const T>& d_y, const View<T>& d_x,
                E&& executor = {}) {
    check_backward(name(), tokens.x, options_.width, d_y, options_.width, d_x);
    check_tokens(tokens, detail::rows_of_sequence(tokens.x, executor));
    check_saved(name(), saved.value.view(), tokens.x, columns());
    const View<T> d_value = saved.d_value.resize(saved.value.view().shape());
    const View<T> d_heads = saved.d_heads.resize(saved.value.view().shape());
    const InputsOf<Op, T> from = inputs(tokens, saved);
    GradsOf<Op, T> grads;
    grads.v = by_head(d_value);
    weights_.request_grads(from, saved.weights, grads);
    typename Linear<T>::Saved nothing;
    out_.backward(saved.heads.view(), nothing, d_y, d_heads, executor);
    detail::attend_backward<Op, T>(op_, from, by_head(saved.heads.view()),
                                   SoftmaxSaved<T>{saved.lse.view()}, by_head(d_heads), grads,
                                   executor);
    value_.backward(tokens.x, nothing, d_value, d_x, executor);
    weights_.finish(saved.weights, d_x, as_executor(executor));
  }

 private:
  static constexpr const char* name() { return "SynthesizerLayer"; }

  static SynthesizerLayerOptions completed(SynthesizerLayerOptions o) {
    check_size(name(), "width", o.width);
    check_size(name(), "heads", o.heads);
    check_size(name(), "length", o.length);
    if (o.head_width == 0 && o.width % o.heads != 0) {
      refuse(name(), "heads", std::to_string(o.heads),
             "a divisor of the width " + std::to_string(o.width) + ", or a head_width");
    }
    if (o.head_width == 0) o.head_width = o.width / o.heads;
    check_size(name(), "head_width", o.head_width);
    if (o.hidden == 0) o.hidden = o.head_width;
    return o;
  }

  Index columns() const { return options_.heads * options_.head_width; }

  View<T> by_head(const View<T>& x) const {
    return as_heads(x, 0, options_.heads, options_.head_width);
  }

  InputsOf<Op, T> inputs(const Tokens<T>& tokens, Saved& saved) const {
    InputsOf<Op, T> made;
    made.v = by_head(saved.value.view());
    made.key_lengths = tokens.key_lengths;
    weights_.attach(tokens, saved.weights, made);
    return made;
  }

  /// \param rows of the sequence, of which x may be a part
  void check_tokens(const Tokens<T>& tokens, Index rows) const {
    check_lengths(name(), tokens, rows);
    if (rows > options_.length) {
      refuse(name(), "x has " + std::to_string(rows) + " rows",
             "expected at most " + std::to_string(options_.length) + ", the length of the layer");
    }
    check_no_terms(name(), tokens, "the layer does not read it");
  }

  SynthesizerLayerOptions options_;
  Op op_;
  Linear<T> value_;
  SynthesizerWeights<Op, T> weights_;
  Linear<T> out_;
};

FOVEA_NAMESPACE_END
