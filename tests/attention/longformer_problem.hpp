// SPDX-License-Identifier: MIT
/// \file
/// Calls of Longformer attention with separate projections for global rows, for tests: what they
/// read, and the two calls of softmax attention that they amount to.
#pragma once

#include <cmath>
#include <vector>

#include "attention/call_problem.hpp"
#include "attention/gradients.hpp"
#include "attention/longformer_mask.hpp"

namespace fovea_test {

using fovea::LongformerAttention;
using fovea::LongformerOptions;

/// Of two references, of which one is 0, or an lse of nothing, wherever the other is not.
template <class T>
Reference<T> either(const Reference<T>& a, const Reference<T>& b) {
  Reference<T> made = a;
  for (std::size_t i = 0; i < a.value.size(); ++i) {
    if (a.gauge[i] != 0 && std::isfinite(a.value[i])) continue;
    made.value[i] = b.value[i];
    made.gauge[i] = b.gauge[i];
  }
  return made;
}

template <>
struct CallForm<LongformerAttention> {
  static constexpr const char* name = "longformer_projections";
  static inline const std::vector<TensorAxes> inputs = {{"q", "bHqd"},        {"k", "bhkd"},
                                                        {"v", "bhkv"},        {"global_q", "bHqd"},
                                                        {"global_k", "bhkd"}, {"global_v", "bhkv"}};
  static inline const std::vector<TensorAxes> saved = {};
  static constexpr const char* hidden = "k";
  static constexpr bool is_cut = false;

  static void complete(const LongformerAttention& /*op*/, Extents& /*e*/) {}

  template <class T>
  static std::vector<ExpectedTensor<T>> expected(const CallProblem<LongformerAttention, T>& p) {
    const LongformerOptions& o = p.op.options;
    // The keys that rows of one kind see.
    const auto oracle = [&](bool of_global) {
      const ReferenceMask rows = [o, of_global, of_all = longformer_mask(o)](const Pair& pair) {
        return is_global(o, pair.position(o.alignment)) == of_global && of_all(pair);
      };
      return OracleOperator<T>::of(p.op.softmax_options(), rows, p.extents.at('d'));
    };
    const AllInputs<T> in = p.all_inputs();
    AllInputs<T> global = in;
    global.q = p.view("global_q");
    global.k = p.view("global_k");
    global.v = p.view("global_v");
    const View<const T> d_out = p.d_out.view();
    const auto of_rows = softmax_oracle(in, oracle(false));
    const auto of_global = softmax_oracle(global, oracle(true));
    const auto grads = softmax_grad_oracle(in, oracle(false), d_out);
    const auto global_grads = softmax_grad_oracle(global, oracle(true), d_out);
    return {{"out", either(of_rows.out, of_global.out), kOutBound},
            {"lse", either(of_rows.lse, of_global.lse), kLseBound},
            {"d_q", grads.q, kGradBound},
            {"d_k", grads.k, kGradBound},
            {"d_v", grads.v, kValueGradBound},
            {"d_global_q", global_grads.q, kGradBound},
            {"d_global_k", global_grads.k, kGradBound},
            {"d_global_v", global_grads.v, kValueGradBound}};
  }
};

template <class T>
using LongformerProblem = CallProblem<LongformerAttention, T>;

template <>
struct CallCases<LongformerAttention> {
  using Cases = std::vector<CallCase<LongformerAttention>>;
  static constexpr double tolerance = 1e-8;

  static std::vector<LongformerOptions> options() {
    return {{.left = 9, .right = 5, .first_global = 3},
            {.left = 9, .right = 5, .first_global = 2, .global = {7, 8, 40}},
            {.left = 9, .global = {0, 5, 44}, .causal = true},
            {.left = 3, .right = 2},
            {.left = 3, .right = 2, .first_global = 1000}};
  }

  static Cases conforming() {
    Cases all;
    for (const LongformerOptions& o : options()) {
      const LongformerAttention op(o);
      all.push_back({op, {2, 4, 2, 45, 45, 6, 5}});
      all.push_back({op, {2, 4, 2, 130, 130, 6, 5}});
      all.push_back({op, {3, 2, 2, 70, 70, 6, 5}, {}, {70, 46, 3}});
      all.push_back({op, {1, 2, 1, 3, 45, 6, 5}});
      all.push_back({op, {1, 2, 1, 40, 60, 6, 5}});
    }
    all.push_back({LongformerAttention({.left = 5, .right = 5, .first_global = 2, .global = {9}}),
                   {1, 2, 1, 120, 120, 6, 5},
                   {},
                   {},
                   {0, 50, 50, 51, 120}});
    return all;
  }
  static Cases large() {
    return {{LongformerAttention({.left = 30, .right = 9, .first_global = 2, .global = {70, 200}}),
             {2, 4, 2, 260, 260, 9, 6},
             {},
             {260, 201}}};
  }
  static Cases batches() {
    return {{LongformerAttention({.left = 9, .right = 5, .first_global = 2, .global = {7, 40}}),
             {2, 4, 2, 60, 60, 6, 5}},
            {LongformerAttention({.left = 9, .right = 5, .first_global = 3}),
             {2, 2, 2, 70, 70, 6, 5},
             {},
             {70, 50}}};
  }
  static Cases small() {
    return {{LongformerAttention({.left = 1, .right = 1, .first_global = 1, .global = {4}}),
             {2, 2, 1, 7, 7, 2, 2},
             {},
             {7, 5}}};
  }
};

}  // namespace fovea_test
