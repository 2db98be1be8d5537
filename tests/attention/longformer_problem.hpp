// SPDX-License-Identifier: MIT
/// \file
/// Calls of Longformer attention with separate projections for global rows: inputs, outputs and
/// expected results.
#pragma once

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "attention/gradients.hpp"
#include "attention/longformer_mask.hpp"
#include "attention/operator_call.hpp"

namespace fovea_test {

using fovea::LongformerAttention;
using fovea::LongformerInputs;
using fovea::LongformerOptions;

/// The six tensors, and the two calls of softmax attention that they amount to.
template <class T>
struct LongformerProblem {
  using Scalar = T;

  LongformerProblem(const AttentionShape& shape, const LongformerOptions& o,
                    std::vector<Index> lengths = {}, const Layout& layout = {})
      : options(o),
        key_lengths(std::move(lengths)),
        q({shape.batch, shape.query_heads, shape.queries, shape.width}, layout),
        k({shape.batch, shape.key_heads, shape.keys, shape.width}, layout),
        v({shape.batch, shape.key_heads, shape.keys, shape.value_width}, layout),
        global_q(q.shape(), layout),
        global_k(k.shape(), layout),
        global_v(v.shape(), layout),
        d_out({shape.batch, shape.query_heads, shape.queries, shape.value_width}) {
    std::uint64_t seed = 1;
    for (Tensor<T>* x : {&q, &k, &v, &global_q, &global_k, &global_v, &d_out}) {
      x->fill(gaussian(seed++));
    }
  }

  LongformerInputs<T> inputs() const {
    return {.q = q.view(),
            .k = k.view(),
            .v = v.view(),
            .key_lengths = key_lengths,
            .cu_seqlens_q = cu_seqlens,
            .global_q = global_q.view(),
            .global_k = global_k.view(),
            .global_v = global_v.view()};
  }

  /// The keys that rows of one kind see.
  OracleOperator<T> oracle(bool of_global) const {
    const ReferenceMask reference_mask = [o = options, of_global,
                                          of_all = longformer_mask(options)](const Pair& p) {
      return is_global(o, p.position(o.alignment)) == of_global && of_all(p);
    };
    const LongformerAttention op(options);
    return OracleOperator<T>::of(op.softmax_options(), reference_mask, q.shape()[3]);
  }
  AllInputs<T> all_inputs(bool of_global) const {
    if (of_global) {
      return {global_q.view(), global_k.view(), global_v.view(), key_lengths, cu_seqlens};
    }
    return {q.view(), k.view(), v.view(), key_lengths, cu_seqlens};
  }

  Shape saved_shape(const LongformerAttention& /*op*/, const std::string& /*lse*/) const {
    return {q.shape()[0], q.shape()[1], q.shape()[2], 1};
  }
  CallResult<T> run(AnyExecutor* executor = nullptr, const Layout& layout = {}) const {
    return run_call(LongformerAttention(options), *this, executor, layout);
  }

  LongformerOptions options;
  std::vector<Index> key_lengths;
  std::vector<Index> cu_seqlens = {};
  Tensor<T> q, k, v, global_q, global_k, global_v, d_out;
};

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

/// Returns judge(result, name), which compares results of the call with its oracle. \param name in
/// the table of worst errors
template <class T>
auto longformer_judge(const LongformerProblem<T>& of) {
  const View<const T> d_out = of.d_out.view();
  const auto rows = softmax_oracle(of.all_inputs(false), of.oracle(false));
  const auto global = softmax_oracle(of.all_inputs(true), of.oracle(true));
  const auto row_grads = softmax_grad_oracle(of.all_inputs(false), of.oracle(false), d_out);
  const auto global_grads = softmax_grad_oracle(of.all_inputs(true), of.oracle(true), d_out);
  return judge_of<T>({{"out", either(rows.out, global.out), kOutBound},
                      {"lse", either(rows.lse, global.lse), kLseBound},
                      {"d_q", row_grads.q, kGradBound},
                      {"d_k", row_grads.k, kGradBound},
                      {"d_v", row_grads.v, kValueGradBound},
                      {"d_global_q", global_grads.q, kGradBound},
                      {"d_global_k", global_grads.k, kGradBound},
                      {"d_global_v", global_grads.v, kValueGradBound}});
}

}  // namespace fovea_test
