// SPDX-License-Identifier: MIT
/// \file
/// Smart Bird attention in the conformance suite. Each row keeps as many keys as there are, so that
/// the visible ones are a reference mask; a choice among them is tested in
/// sketch_selection_test.cpp and by the drawn calls (fuzz/drawn_edges.cpp).
#include <algorithm>

#include "attention/cases.hpp"
#include "attention/list_case.hpp"
#include "support/fill.hpp"
#include "support/tensor.hpp"

namespace fovea_test {
namespace {

constexpr Index kSketchWidth = 3;

/// The sketch of some rows: any numbers.
template <class T>
Tensor<T> sketch(Index batch, Index rows, std::uint64_t seed) {
  Tensor<T> made({batch, 1, rows, kSketchWidth});
  made.fill(gaussian(seed));
  return made;
}

/// The inputs of one call with a sketch, and the operator that keeps all of its keys.
template <class T>
struct SketchedCall {
  SketchedCall(const AllInputs<T>& in, fovea::SmartBirdOptions options)
      : q(sketch<T>(in.q.batch(), in.q.rows(), 1)),
        k(sketch<T>(in.k.batch(), in.k.rows(), 2)),
        inputs(in) {
    inputs.sketch_q = q.view();
    inputs.sketch_k = k.view();
    options.keys_per_row = std::max(Index{1}, in.k.rows());
    op = fovea::SmartBirdAttention(options);
  }

  Tensor<T> q, k;
  AllInputs<T> inputs;
  fovea::SmartBirdAttention op;
};

template <class T>
Case<T> smart_bird_case(const std::string& name, const fovea::SmartBirdOptions& chosen,
                        const ReferenceMask& reference_mask) {
  Case<T> made = list_case<T>(name, fovea::SmartBirdAttention(chosen), reference_mask);
  made.forward = [chosen](const AllInputs<T>& in, const View<T>& out, const AllSaved<T>& saved,
                          AnyExecutor* executor) {
    const SketchedCall<T> call(in, chosen);
    on_executor(executor, [&](auto&& on) { call.op.forward(call.inputs, out, saved, on); });
  };
  made.backward = [chosen](const AllInputs<T>& in, const View<const T>& out,
                           const AllSaved<T>& saved, const View<const T>& d_out,
                           const AllGrads<T>& grads, AnyExecutor* executor) {
    const SketchedCall<T> call(in, chosen);
    on_executor(executor,
                [&](auto&& on) { call.op.backward(call.inputs, out, saved, d_out, grads, on); });
  };
  made.decoder = [chosen](const fovea::DecoderShape& shape) {
    constexpr Index more_than_any_test_appends = 5000;
    fovea::SmartBirdOptions all = chosen;
    all.keys_per_row = more_than_any_test_appends;
    const fovea::SmartBirdAttention op(all);
    return any_decoder<fovea::SmartBirdAttention, T>(
        op.template decoder<T>(
            bench::decoder_shape_for<fovea::SmartBirdAttention>(shape, kSketchWidth)),
        [](const AllInputs<T>& in, const auto& f) {
          const Tensor<T> q = sketch<T>(in.q.batch(), in.q.rows(), 1);
          const Tensor<T> k = sketch<T>(in.k.batch(), in.k.rows(), 2);
          AllInputs<T> with = in;
          with.sketch_q = q.view();
          if (!in.k.empty()) with.sketch_k = k.view();
          f(with);
        });
  };
  const auto on_shape = [chosen](const AttentionShape& shape, const auto& f) {
    fovea::SmartBirdOptions all = chosen;
    all.keys_per_row = std::max(Index{1}, shape.keys);
    return f(fovea::SmartBirdAttention(all),
             bench::shape_for<fovea::SmartBirdAttention>(shape, kSketchWidth));
  };
  made.workspace_bytes = [on_shape](const AttentionShape& shape, Index workers) {
    return on_shape(shape, [&](const auto& op, const auto& sketched) {
      return op.template workspace_bytes<T>(sketched, workers);
    });
  };
  made.backward_workspace_bytes = [on_shape](const AttentionShape& shape, Index workers) {
    return on_shape(shape, [&](const auto& op, const auto& sketched) {
      return op.template backward_workspace_bytes<T>(sketched, workers);
    });
  };
  made.attended_pairs = [reference_mask](const AttentionShape& s) {
    Index pairs = 0;
    for (Index i = 0; i < s.queries; ++i) {
      for (Index j = 0; j < s.keys; ++j)
        pairs += reference_mask(Pair{0, 0, i, j, s.queries, s.keys}) ? 1 : 0;
    }
    return pairs;
  };
  return made;
}

}  // namespace

template <class T>
std::vector<Case<T>> smart_bird_cases() {
  return {
      smart_bird_case<T>("smart_bird", {}, all_pairs),
      smart_bird_case<T>(
          "smart_bird_causal",
          {.policy = fovea::SamplingPolicy::inverse_log, .causal = true, .scale = 0.4},
          band(kAllKeys, 0)),
      smart_bird_case<T>("smart_bird_key_length",
                         {.causal = true, .alignment = fovea::CausalAlignment::key_length},
                         band(kAllKeys, 0, fovea::CausalAlignment::key_length)),
      smart_bird_case<T>("smart_bird_top_left",
                         {.policy = fovea::SamplingPolicy::top_k,
                          .causal = true,
                          .alignment = fovea::CausalAlignment::top_left},
                         band(kAllKeys, 0, fovea::CausalAlignment::top_left)),
  };
}
template std::vector<Case<float>> smart_bird_cases();
template std::vector<Case<double>> smart_bird_cases();

}  // namespace fovea_test
