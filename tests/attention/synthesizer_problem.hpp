// SPDX-License-Identifier: MIT
/// \file
/// Problems of the three forms of the Synthesizer, which tests of all of them are written with.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "attention/operator_call.hpp"
#include "fovea/attention/dense_synthesizer.hpp"
#include "fovea/attention/factorised_synthesizer.hpp"
#include "fovea/attention/random_synthesizer.hpp"
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

/// Normal numbers in the tensors of a form, by name.
template <class T>
class DrawnTensors : public Named<Tensor<T>> {
 public:
  explicit DrawnTensors(const Layout& layout) : layout_(layout) {}

  void draw(const std::string& name, const Shape& shape, std::uint64_t seed, double factor = 1) {
    Tensor<T> made(shape, layout_);
    made.fill(gaussian(seed, factor));
    this->add(name, std::move(made));
  }
  /// Empty if there is none of that name.
  View<T> view(const std::string& name) const {
    const Tensor<T>* const x = this->find(name);
    return x == nullptr ? View<T>() : x->view();
  }

 private:
  Layout layout_;
};

template <class T>
struct RandomForm {
  using Scalar = T;
  using Op = fovea::RandomSynthesizerAttention;
  static DrawnTensors<T> draw(const SynthesizerSizes& s, const Layout& layout) {
    DrawnTensors<T> made(layout);
    made.draw("r", {s.weights(), s.heads, s.rows, s.rows}, 1, 2);
    made.draw("v", {s.batch, s.key_heads, s.rows, s.value_width}, 2);
    return made;
  }
  static std::vector<ExpectedTensor<T>> expected(const RandomGrads<T>& of) {
    return {{"d_r", of.r, 32}, {"d_v", of.v, 32}};
  }
  static Op::Shape shape(const SynthesizerSizes& s) {
    return {s.batch, s.heads, s.key_heads, s.rows, s.rows, 0, s.value_width};
  }
  static fovea::DecoderShape decoder_shape(const SynthesizerSizes& s) {
    return {s.batch, s.heads, s.key_heads, 0, s.value_width};
  }
  static Op::Tokens<T> tokens(const DrawnTensors<T>& of, Index first, Index count) {
    return {fovea::detail::part_of(of.view("v"), 2, first, count)};
  }
  static void keep_rows(fovea::RandomSynthesizerInputs<T>& /*in*/, Index /*first*/,
                        Index /*count*/) {}
};

template <class T>
struct FactorisedForm {
  using Scalar = T;
  using Op = fovea::FactorisedSynthesizerAttention;
  static DrawnTensors<T> draw(const SynthesizerSizes& s, const Layout& layout) {
    DrawnTensors<T> made(layout);
    made.draw("r1", {s.weights(), s.heads, s.rows, s.width}, 1);
    made.draw("r2", {s.weights(), s.key_heads, s.rows, s.width}, 3);
    made.draw("v", {s.batch, s.key_heads, s.rows, s.value_width}, 2);
    return made;
  }
  static std::vector<ExpectedTensor<T>> expected(const FactorisedGrads<T>& of) {
    return {{"d_r1", of.r1, 32}, {"d_r2", of.r2, 32}, {"d_v", of.v, 32}};
  }
  static Op::Shape shape(const SynthesizerSizes& s) {
    return {s.batch, s.heads, s.key_heads, s.rows, s.rows, s.width, s.value_width};
  }
  static fovea::DecoderShape decoder_shape(const SynthesizerSizes& s) {
    return {s.batch, s.heads, s.key_heads, s.width, s.value_width};
  }
  static Op::Tokens<T> tokens(const DrawnTensors<T>& of, Index first, Index count) {
    return {of.view("r2"), fovea::detail::part_of(of.view("v"), 2, first, count)};
  }
  static void keep_rows(fovea::FactorisedSynthesizerInputs<T>& /*in*/, Index /*first*/,
                        Index /*count*/) {}
};

template <class T>
struct DenseForm {
  using Scalar = T;
  using Op = fovea::DenseSynthesizerAttention;
  static DrawnTensors<T> draw(const SynthesizerSizes& s, const Layout& layout) {
    DrawnTensors<T> made(layout);
    made.draw("x", {s.batch, s.has_token_heads ? s.heads : 1, s.rows, s.width}, 4);
    made.draw("w1", {s.weights(), s.heads, s.width, s.hidden}, 5, 0.7);
    if (s.has_biases) made.draw("b1", {s.weights(), s.heads, 1, s.hidden}, 6, 0.5);
    made.draw("w2", {s.weights(), s.key_heads, s.hidden, s.rows + s.columns}, 7, 0.7);
    if (s.has_biases) {
      made.draw("b2", {s.weights(), s.key_heads, 1, s.rows + s.columns}, 8, 0.5);
    }
    made.draw("v", {s.batch, s.key_heads, s.rows, s.value_width}, 2);
    return made;
  }
  static std::vector<ExpectedTensor<T>> expected(const DenseGrads<T>& of) {
    return {{"d_x", of.x, 32},   {"d_w1", of.w1, 32}, {"d_b1", of.b1, 32},
            {"d_w2", of.w2, 32}, {"d_b2", of.b2, 32}, {"d_v", of.v, 32}};
  }
  static Op::Shape shape(const SynthesizerSizes& s) {
    return {s.batch, s.heads, s.key_heads, s.rows, s.rows, s.width, s.value_width, s.hidden};
  }
  static fovea::DecoderShape decoder_shape(const SynthesizerSizes& s) {
    return {s.batch, s.heads, s.key_heads, s.hidden, s.value_width};
  }
  static Op::Tokens<T> tokens(const DrawnTensors<T>& of, Index first, Index count) {
    return {of.view("w2"), of.view("b2"), fovea::detail::part_of(of.view("v"), 2, first, count)};
  }
  static void keep_rows(fovea::DenseSynthesizerInputs<T>& in, Index first, Index count) {
    in.x = fovea::detail::part_of(in.x, 2, first, count);
  }
};

template <class Form>
struct SynthesizerProblem {
  using Scalar = typename Form::Scalar;
  using T = Scalar;
  using Op = typename Form::Op;

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
  Shape saved_shape(const Op& /*op*/, const std::string& /*lse*/) const {
    return {sizes.batch, sizes.heads, sizes.rows, 1};
  }
  auto inputs() const {
    auto in = made_of_tensors<fovea::InputsOf<Op, T>>(
        [&](const char* name, auto& member) { member = tensors.view(name); });
    in.key_lengths = key_lengths;
    return in;
  }
  Op op() const { return Op({.causal = causal}); }

  /// Both passes.
  CallResult<T> run(AnyExecutor* executor = nullptr, const Layout& layout = {}) const {
    return run_call(op(), *this, executor, layout);
  }

  SynthesizerSizes sizes;
  bool causal;
  std::vector<Index> key_lengths;
  DrawnTensors<T> tensors;
  Tensor<T> d_out;
};

/// Returns judge(result, name), which compares results of the call with its oracle. \param name in
/// the table of worst errors
template <class Form>
auto synthesizer_judge(const SynthesizerProblem<Form>& problem) {
  using T = typename Form::Scalar;
  const auto in = problem.inputs();
  const auto made = synthesizer_oracle<T>(in, problem.causal);
  auto all = Form::expected(synthesizer_grads(in, problem.causal, problem.d_out.view()));
  all.push_back({"out", made.out, 16});
  all.push_back({"lse", made.lse, 8});
  return judge_of<T>(std::move(all));
}

}  // namespace fovea_test
