// SPDX-License-Identifier: MIT
/// \file
/// Problems of the three forms of the Synthesizer, which tests of all of them are written with.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "fovea/attention/dense_synthesizer.hpp"
#include "fovea/attention/factorised_synthesizer.hpp"
#include "fovea/attention/random_synthesizer.hpp"
#include "support/executors.hpp"
#include "support/fill.hpp"
#include "support/oracle/synthesizer.hpp"
#include "support/tensor.hpp"

namespace fovea_test {

/// The sizes of a problem.
struct SynthesizerSizes {
  Index batch = 1;
  Index heads = 1;
  Index key_heads = 1;
  Index rows = 0;
  Index width = 3;        // r, D
  Index value_width = 5;  // Dv
  Index hidden = 4;       // M
  Index columns = 0;      // Nmax beyond N
  bool is_shared = true;  // whether the weights are those of all sequences
  bool has_biases = true;
  bool has_token_heads = true;  // whether each head has its own tokens

  Index weights() const { return is_shared ? 1 : batch; }
};

/// Tensors by name, drawn; all but v are weights or tokens.
template <class T>
class NamedTensors {
 public:
  void add(const std::string& name, const Shape& shape, const Layout& layout, std::uint64_t seed,
           double factor = 1) {
    Tensor<T> made(shape, layout);
    made.fill([&, fill = gaussian(seed)](Index b, Index h, Index n, Index d) {
      return factor * fill(b, h, n, d);
    });
    all_.emplace_back(name, std::move(made));
  }
  /// A tensor of NaN in the shape of each of another.
  NamedTensors blank(const Layout& layout) const {
    return made(
        [&](const std::string&, const Tensor<T>& x) { return Tensor<T>(x.shape(), layout); });
  }
  /// make(name, tensor) of each of them.
  template <class F>
  NamedTensors made(const F& make) const {
    NamedTensors others;
    for (const auto& [name, x] : all_) others.all_.emplace_back(name, make(name, x));
    return others;
  }
  View<T> operator[](const std::string& name) const {
    for (const auto& [own, x] : all_) {
      if (own == name) return x.view();
    }
    return {};
  }
  const std::vector<std::pair<std::string, Tensor<T>>>& all() const { return all_; }
  Index changed_gaps() const {
    Index changed = 0;
    for (const auto& [name, x] : all_) changed += x.changed_gaps();
    return changed;
  }

 private:
  std::vector<std::pair<std::string, Tensor<T>>> all_;
};

template <class T>
struct RandomForm {
  using Scalar = T;
  using Op = fovea::RandomSynthesizerAttention;
  static NamedTensors<T> draw(const SynthesizerSizes& s, const Layout& layout) {
    NamedTensors<T> made;
    made.add("r", {s.weights(), s.heads, s.rows, s.rows}, layout, 1, 2);
    made.add("v", {s.batch, s.key_heads, s.rows, s.value_width}, layout, 2);
    return made;
  }
  static fovea::RandomSynthesizerInputs<T> inputs(const NamedTensors<T>& of) {
    return {of["r"], of["v"]};
  }
  static fovea::RandomSynthesizerGrads<T> grads(const NamedTensors<T>& of) {
    return {of["r"], of["v"]};
  }
  static std::vector<Reference<T>> references(const RandomGrads<T>& of) { return {of.r, of.v}; }
  static Op::Shape shape(const SynthesizerSizes& s) {
    return {s.batch, s.heads, s.key_heads, s.rows, s.rows, 0, s.value_width};
  }
  static fovea::DecoderShape decoder_shape(const SynthesizerSizes& s) {
    return {s.batch, s.heads, s.key_heads, 0, s.value_width};
  }
  static Op::Tokens<T> tokens(const NamedTensors<T>& of, Index first, Index count) {
    return {fovea::detail::part_of(of["v"], 2, first, count)};
  }
  static void keep_rows(fovea::RandomSynthesizerInputs<T>& /*in*/, Index /*first*/,
                        Index /*count*/) {}
};

template <class T>
struct FactorisedForm {
  using Scalar = T;
  using Op = fovea::FactorisedSynthesizerAttention;
  static NamedTensors<T> draw(const SynthesizerSizes& s, const Layout& layout) {
    NamedTensors<T> made;
    made.add("r1", {s.weights(), s.heads, s.rows, s.width}, layout, 1);
    made.add("r2", {s.weights(), s.key_heads, s.rows, s.width}, layout, 3);
    made.add("v", {s.batch, s.key_heads, s.rows, s.value_width}, layout, 2);
    return made;
  }
  static fovea::FactorisedSynthesizerInputs<T> inputs(const NamedTensors<T>& of) {
    return {of["r1"], of["r2"], of["v"]};
  }
  static fovea::FactorisedSynthesizerGrads<T> grads(const NamedTensors<T>& of) {
    return {of["r1"], of["r2"], of["v"]};
  }
  static std::vector<Reference<T>> references(const FactorisedGrads<T>& of) {
    return {of.r1, of.r2, of.v};
  }
  static Op::Shape shape(const SynthesizerSizes& s) {
    return {s.batch, s.heads, s.key_heads, s.rows, s.rows, s.width, s.value_width};
  }
  static fovea::DecoderShape decoder_shape(const SynthesizerSizes& s) {
    return {s.batch, s.heads, s.key_heads, s.width, s.value_width};
  }
  static Op::Tokens<T> tokens(const NamedTensors<T>& of, Index first, Index count) {
    return {of["r2"], fovea::detail::part_of(of["v"], 2, first, count)};
  }
  static void keep_rows(fovea::FactorisedSynthesizerInputs<T>& /*in*/, Index /*first*/,
                        Index /*count*/) {}
};

template <class T>
struct DenseForm {
  using Scalar = T;
  using Op = fovea::DenseSynthesizerAttention;
  static NamedTensors<T> draw(const SynthesizerSizes& s, const Layout& layout) {
    NamedTensors<T> made;
    made.add("x", {s.batch, s.has_token_heads ? s.heads : 1, s.rows, s.width}, layout, 4);
    made.add("w1", {s.weights(), s.heads, s.width, s.hidden}, layout, 5, 0.7);
    if (s.has_biases) made.add("b1", {s.weights(), s.heads, 1, s.hidden}, layout, 6, 0.5);
    made.add("w2", {s.weights(), s.key_heads, s.hidden, s.rows + s.columns}, layout, 7, 0.7);
    if (s.has_biases) {
      made.add("b2", {s.weights(), s.key_heads, 1, s.rows + s.columns}, layout, 8, 0.5);
    }
    made.add("v", {s.batch, s.key_heads, s.rows, s.value_width}, layout, 2);
    return made;
  }
  static fovea::DenseSynthesizerInputs<T> inputs(const NamedTensors<T>& of) {
    return {of["x"], of["w1"], of["b1"], of["w2"], of["b2"], of["v"]};
  }
  static fovea::DenseSynthesizerGrads<T> grads(const NamedTensors<T>& of) {
    return {of["x"], of["w1"], of["b1"], of["w2"], of["b2"], of["v"]};
  }
  static std::vector<Reference<T>> references(const DenseGrads<T>& of) {
    std::vector<Reference<T>> all = {of.x, of.w1};
    const bool has_biases = size_of(of.b1.shape) != 0 || size_of(of.b2.shape) != 0;
    if (has_biases) all.push_back(of.b1);
    all.push_back(of.w2);
    if (has_biases) all.push_back(of.b2);
    all.push_back(of.v);
    return all;
  }
  static Op::Shape shape(const SynthesizerSizes& s) {
    return {s.batch, s.heads, s.key_heads, s.rows, s.rows, s.width, s.value_width, s.hidden};
  }
  static fovea::DecoderShape decoder_shape(const SynthesizerSizes& s) {
    return {s.batch, s.heads, s.key_heads, s.hidden, s.value_width};
  }
  static Op::Tokens<T> tokens(const NamedTensors<T>& of, Index first, Index count) {
    return {of["w2"], of["b2"], fovea::detail::part_of(of["v"], 2, first, count)};
  }
  static void keep_rows(fovea::DenseSynthesizerInputs<T>& in, Index first, Index count) {
    in.x = fovea::detail::part_of(in.x, 2, first, count);
  }
};

/// The outputs of both passes.
template <class T>
struct SynthesizerResult {
  Shape shape;
  std::vector<T> out, lse;
  std::vector<std::vector<T>> grads;  // in the order of the form's tensors
};

template <class Form>
struct SynthesizerProblem {
  using T = typename Form::Scalar;

  explicit SynthesizerProblem(const SynthesizerSizes& s, bool is_causal = false,
                              std::vector<Index> lengths = {}, const Layout& layout = {})
      : sizes(s),
        causal(is_causal),
        key_lengths(std::move(lengths)),
        tensors(Form::draw(s, layout)),
        d_out(shape_of_out()) {
    d_out.fill(gaussian(9));
  }

  Shape shape_of_out() const { return {sizes.batch, sizes.heads, sizes.rows, sizes.value_width}; }
  auto inputs() const {
    auto in = Form::inputs(tensors);
    in.key_lengths = key_lengths;
    return in;
  }
  typename Form::Op op() const { return typename Form::Op({.causal = causal}); }

  /// Both passes into NaN.
  template <class E = fovea::Serial>
  SynthesizerResult<T> run(E&& executor = {}, const Layout& layout = {}) const {
    const Shape shape = shape_of_out();
    const Tensor<T> out(shape, layout);
    const Tensor<T> lse({shape[0], shape[1], shape[2], 1}, layout);
    const NamedTensors<T> to = tensors.blank(layout);
    const fovea::SoftmaxSaved<T> saved{lse.view()};
    op().forward(inputs(), out.view(), saved, executor);
    op().backward(inputs(), out.view(), saved, d_out.view(), Form::grads(to), executor);
    EXPECT_EQ(out.changed_gaps() + lse.changed_gaps() + to.changed_gaps(), 0);
    SynthesizerResult<T> made{shape, out.values(), lse.values(), {}};
    for (const auto& [name, x] : to.all()) made.grads.push_back(x.values());
    return made;
  }

  SynthesizerSizes sizes;
  bool causal;
  std::vector<Index> key_lengths;
  NamedTensors<T> tensors;
  Tensor<T> d_out;
};

/// Returns judge(result, name), which compares results of the call with its oracle. \param name in
/// the table of worst errors
template <class Form>
auto synthesizer_judge(const SynthesizerProblem<Form>& problem) {
  using T = typename Form::Scalar;
  std::vector<std::string> names;
  for (const auto& [name, x] : problem.tensors.all()) names.push_back(name);
  const auto in = problem.inputs();
  return [names, expected = synthesizer_oracle<T>(in, problem.causal),
          grads = Form::references(synthesizer_grads(in, problem.causal, problem.d_out.view()))](
             const SynthesizerResult<T>& got, const std::string& name) {
    EXPECT_TRUE(within_ratio(got.out, expected.out, 16, {name, "out"})) << "out";
    EXPECT_TRUE(within_ratio(got.lse, expected.lse, 8, {name, "lse"})) << "lse";
    for (std::size_t n = 0; n < grads.size(); ++n) {
      EXPECT_TRUE(within_ratio(got.grads[n], grads[n], 32, {name, "d_" + names[n]}))
          << "gradient of " << names[n];
    }
  };
}

template <class T>
testing::AssertionResult same_bits(const SynthesizerResult<T>& a, const SynthesizerResult<T>& b) {
  if (auto same = same_bits(a.out, b.out, a.shape); !same) return same << " (out)";
  if (auto same = same_bits(a.lse, b.lse); !same) return same << " (lse)";
  for (std::size_t n = 0; n < a.grads.size(); ++n) {
    if (auto same = same_bits(a.grads[n], b.grads[n]); !same)
      return same << " (gradient " << n << ")";
  }
  return testing::AssertionSuccess();
}

}  // namespace fovea_test
