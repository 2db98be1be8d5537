// SPDX-License-Identifier: MIT
/// \file
/// Calls of Longformer attention with separate projections for global rows: inputs, outputs and
/// expected results.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "attention/gradients.hpp"
#include "attention/longformer_mask.hpp"

namespace fovea_test {

using fovea::LongformerAttention;
using fovea::LongformerInputs;
using fovea::LongformerOptions;

/// The six tensors, and the two calls of softmax attention that they amount to.
template <class T>
struct LongformerProblem {
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

  struct Result {
    std::vector<T> out, lse;
    std::vector<std::vector<T>> grads;  // q, k, v, global_q, global_k, global_v

    /// Calls f(name, numbers) for each.
    template <class F>
    void for_each(F&& f) const {
      f("out", out), f("lse", lse);
      f("d_q", grads[0]), f("d_k", grads[1]), f("d_v", grads[2]);
      f("d_global_q", grads[3]), f("d_global_k", grads[4]), f("d_global_v", grads[5]);
    }
  };

  template <class E = fovea::Serial>
  Result run(E&& executor = {}, const Layout& layout = {}) const {
    const Tensor<T> out(d_out.shape(), layout);
    const Tensor<T> lse({d_out.shape()[0], d_out.shape()[1], d_out.shape()[2], 1}, layout);
    const Tensor<T> to[] = {Tensor<T>(q.shape(), layout), Tensor<T>(k.shape(), layout),
                            Tensor<T>(v.shape(), layout), Tensor<T>(q.shape(), layout),
                            Tensor<T>(k.shape(), layout), Tensor<T>(v.shape(), layout)};
    const LongformerAttention op(options);
    op.forward(inputs(), out.view(), {lse.view()}, executor);
    op.backward(inputs(), out.view(), {lse.view()}, d_out.view(),
                {.q = to[0].view(),
                 .k = to[1].view(),
                 .v = to[2].view(),
                 .global_q = to[3].view(),
                 .global_k = to[4].view(),
                 .global_v = to[5].view()},
                executor);
    Result made{out.values(), lse.values(), {}};
    for (const Tensor<T>& x : to) {
      made.grads.push_back(x.values());
      EXPECT_EQ(x.changed_gaps(), 0);
    }
    return made;
  }

  LongformerOptions options;
  std::vector<Index> key_lengths;
  std::vector<Index> cu_seqlens = {};
  Tensor<T> q, k, v, global_q, global_k, global_v, d_out;
};

/// The sum of two references, of which one is 0 wherever the other is not.
template <class T>
Reference<T> either(const Reference<T>& a, const Reference<T>& b) {
  Reference<T> made = a;
  for (std::size_t i = 0; i < a.value.size(); ++i) {
    const bool first = a.gauge[i] != 0;
    made.value[i] = first ? a.value[i] : b.value[i];
    made.gauge[i] = first ? a.gauge[i] : b.gauge[i];
  }
  return made;
}

/// Returns judge(result, name), which compares results of the call with its oracle. \param name in
/// the table of worst errors
template <class T>
auto longformer_judge(const LongformerProblem<T>& of) {
  const View<const T> d_out = of.d_out.view();
  return [rows = softmax_oracle(of.all_inputs(false), of.oracle(false)),
          global = softmax_oracle(of.all_inputs(true), of.oracle(true)),
          row_grads = softmax_grad_oracle(of.all_inputs(false), of.oracle(false), d_out),
          global_grads = softmax_grad_oracle(of.all_inputs(true), of.oracle(true), d_out)](
             const typename LongformerProblem<T>::Result& got, const std::string& name) {
    EXPECT_TRUE(within_ratio(got.out, either(rows.out, global.out), kOutBound, {name, "out"}));
    for (std::size_t i = 0; i < got.lse.size(); ++i) {
      const bool own = std::isfinite(rows.lse.value[i]);
      EXPECT_LE(error_ratio(got.lse[i], own ? rows.lse : global.lse, i), kLseBound) << i;
    }
    const auto judge = [&](const char* result, std::size_t n, const Reference<T>& expected,
                           double bound) {
      EXPECT_TRUE(within_ratio(got.grads[n], expected, bound, {name, result})) << result;
    };
    judge("d_q", 0, row_grads.q, kGradBound);
    judge("d_k", 1, row_grads.k, kGradBound);
    judge("d_v", 2, row_grads.v, kValueGradBound);
    judge("d_global_q", 3, global_grads.q, kGradBound);
    judge("d_global_k", 4, global_grads.k, kGradBound);
    judge("d_global_v", 5, global_grads.v, kValueGradBound);
  };
}

}  // namespace fovea_test
