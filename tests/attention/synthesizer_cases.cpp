// SPDX-License-Identifier: MIT
/// \file
/// The Synthesizer in the conformance suite: the bias of a problem is R, its q and k are R1 and R2,
/// for each sequence. (The dense form has other inputs; synthesizer_test.cpp tests it.)
#include "attention/cases.hpp"
#include "fovea/attention/factorised_synthesizer.hpp"
#include "fovea/attention/random_synthesizer.hpp"
#include "support/oracle/synthesizer.hpp"

namespace fovea_test {
namespace {

/// The random form as a call of the suite: q and k are not read, and have gradients of 0.
template <class T>
struct RandomOfSuite {
  using Op = fovea::RandomSynthesizerAttention;

  static fovea::RandomSynthesizerInputs<T> inputs(const AllInputs<T>& in) {
    return {in.bias, in.v, in.key_lengths};
  }
  static fovea::RandomSynthesizerGrads<T> grads(const AllGrads<T>& of) { return {of.bias, of.v}; }
  static void finish(const AllGrads<T>& of) {
    for (const View<T>& x : {of.q, of.k}) {
      for_each_index(x.shape(), [&](Index b, Index h, Index n, Index d) { x(b, h, n, d) = 0; });
    }
  }
  static ExpectedGrads<T> expected(const AllInputs<T>& in, bool causal,
                                   const View<const T>& d_out) {
    const auto grads = synthesizer_grads(inputs(in), causal, d_out);
    return {zero_reference<T>(in.q.shape()), zero_reference<T>(in.k.shape()), grads.v, grads.r};
  }
};

/// The factorised form.
template <class T>
struct FactorisedOfSuite {
  using Op = fovea::FactorisedSynthesizerAttention;

  static fovea::FactorisedSynthesizerInputs<T> inputs(const AllInputs<T>& in) {
    return {in.q, in.k, in.v, in.key_lengths};
  }
  static fovea::FactorisedSynthesizerGrads<T> grads(const AllGrads<T>& of) {
    return {of.q, of.k, of.v};
  }
  static void finish(const AllGrads<T>& /*of*/) {}
  static ExpectedGrads<T> expected(const AllInputs<T>& in, bool causal,
                                   const View<const T>& d_out) {
    const auto grads = synthesizer_grads(inputs(in), causal, d_out);
    return {grads.r1, grads.r2, grads.v};
  }
};

template <class T, class Form>
Case<T> synthesizer_case(const std::string& name, bool causal, const Extras& extras = {}) {
  const typename Form::Op op({.causal = causal});
  Case<T> made;
  made.name = name;
  made.extras = extras;
  made.options.scale = 1;
  made.visible = causal ? band(kAllKeys, 0) : all_pairs;
  made.is_square = true;
  made.packs = false;
  made.sums_sequences = std::is_same_v<Form, FactorisedOfSuite<T>>;
  made.has_given_logits = !made.sums_sequences;
  made.has_decoder = false;  // it is given weights whole, and not rows of them
  made.forward = [op](const AllInputs<T>& in, const View<T>& out, const AllSaved<T>& saved,
                      AnyExecutor* executor) {
    on_executor(executor, [&](auto&& on) { op.forward(Form::inputs(in), out, saved, on); });
  };
  made.backward = [op](const AllInputs<T>& in, const View<const T>& out, const AllSaved<T>& saved,
                       const View<const T>& d_out, const AllGrads<T>& grads,
                       AnyExecutor* executor) {
    on_executor(executor, [&](auto&& on) {
      op.backward(Form::inputs(in), out, saved, d_out, Form::grads(grads), on);
    });
    Form::finish(grads);
  };
  made.workspace_bytes = [op](const AttentionShape& shape, Index workers) {
    return op.template workspace_bytes<T>(shape, workers);
  };
  made.backward_workspace_bytes = [op](const AttentionShape& shape, Index workers) {
    return op.template backward_workspace_bytes<T>(shape, workers);
  };
  made.attended_pairs = [op](const AttentionShape& shape) { return op.attended_pairs(shape, 0); };
  made.oracle = [causal](const AllInputs<T>& in) {
    return synthesizer_oracle<T>(Form::inputs(in), causal);
  };
  made.grad_oracle = [causal](const AllInputs<T>& in, const View<const T>& d_out) {
    return Form::expected(in, causal, d_out);
  };
  return made;
}

}  // namespace

template <class T>
std::vector<Case<T>> synthesizer_cases() {
  return {
      synthesizer_case<T, RandomOfSuite<T>>("random_synthesizer", false, {.bias = "hqk"}),
      synthesizer_case<T, RandomOfSuite<T>>("random_synthesizer_causal", true, {.bias = "bhqk"}),
      synthesizer_case<T, FactorisedOfSuite<T>>("factorised_synthesizer", false),
      synthesizer_case<T, FactorisedOfSuite<T>>("factorised_synthesizer_causal", true),
  };
}
template std::vector<Case<float>> synthesizer_cases();
template std::vector<Case<double>> synthesizer_cases();

}  // namespace fovea_test
