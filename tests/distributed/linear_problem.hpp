// SPDX-License-Identifier: MIT
/// \file
/// Problems for tests of linear, delta-rule and FMM attention over ranks: the tensors of a whole
/// sequence or of a rank's rows, and the operators.
#pragma once

#include <string>
#include <vector>

#include "fovea/attention/delta_rule.hpp"
#include "fovea/attention/fmm.hpp"
#include "fovea/attention/linear.hpp"
#include "support/ranks.hpp"

namespace fovea_test {

/// All tensors of a call.
template <class T>
struct LinearProblem {
  LinearProblem(Index batch, Index query_heads, Index key_heads, Index rows, Index value_width = 7)
      : q({batch, query_heads, rows, 5}),
        k({batch, key_heads, rows, 5}),
        v({batch, key_heads, rows, value_width}),
        beta({batch, key_heads, rows, 1}),
        out({batch, query_heads, rows, value_width}),
        near_out(out.shape()),
        near_lse({batch, query_heads, rows, 1}),
        d_out(out.shape()),
        d_q(q.shape()),
        d_k(k.shape()),
        d_v(v.shape()),
        d_beta(beta.shape()) {
    d_out.fill(gaussian(5));
    q.fill(gaussian(1));
    k.fill(gaussian(2));
    v.fill(gaussian(3));
    beta.fill([](Index b, Index h, Index n, Index) { return uniform(hash(4, b, h, n, 0)); });
  }
  LinearProblem(const LinearProblem& whole, const Sharding& rows)
      : q(own_part(whole.q, rows, {.order = {0, 2, 1, 3}, .gap = 3})),
        k(own_part(whole.k, rows)),
        v(own_part(whole.v, rows)),
        beta(own_part(whole.beta, rows)),
        out(own_part(whole.out, rows)),
        near_out(own_part(whole.near_out, rows)),
        near_lse(own_part(whole.near_lse, rows)),
        d_out(own_part(whole.d_out, rows, {.order = {2, 0, 1, 3}, .gap = 1})),
        d_q(own_part(whole.d_q, rows)),
        d_k(own_part(whole.d_k, rows, {.order = {0, 2, 1, 3}, .gap = 2})),
        d_v(own_part(whole.d_v, rows)),
        d_beta(own_part(whole.d_beta, rows)),
        lengths(whole.lengths) {
    for (const Tensor<T>* x : {&out, &near_out, &near_lse, &d_q, &d_k, &d_v, &d_beta}) {
      x->fill(constant(77));
    }
  }

  template <class Op>
  fovea::InputsOf<Op, T> inputs(const Op& /*op*/) const {
    fovea::InputsOf<Op, T> in;
    in.q = q.view();
    in.k = k.view();
    in.v = v.view();
    in.key_lengths = lengths;
    if constexpr (Op::kHasBeta) in.beta = beta.view();
    return in;
  }
  template <class Op>
  fovea::SavedOf<Op, T> saved(const Op& /*op*/) const {
    fovea::SavedOf<Op, T> all;
    if constexpr (Op::kHasNear) {
      all.near_out = near_out.view();
      all.near_lse = near_lse.view();
    }
    return all;
  }

  template <class Op>
  fovea::GradsOf<Op, T> grads(const Op& /*op*/) const {
    fovea::GradsOf<Op, T> all;
    all.q = d_q.view();
    all.k = d_k.view();
    all.v = d_v.view();
    if constexpr (Op::kHasBeta) all.beta = d_beta.view();
    return all;
  }

  Tensor<T> q, k, v, beta, out, near_out, near_lse;
  Tensor<T> d_out, d_q, d_k, d_v, d_beta;
  std::vector<Index> lengths;
};

/// Calls f(name, op) for operators with far fields of every kind.
template <class F>
void for_each_far_field_operator(const F& f) {
  using fovea::Band;
  using fovea::EluPlusOne;
  f("linear", fovea::LinearAttention<EluPlusOne>());
  f("causal", fovea::LinearAttention<EluPlusOne>({.causal = true}));
  f("two maps, joined", fovea::LinearAttention<EluPlusOne, fovea::EluMinusPlusOne>(
                            {.causal = true, .combine = fovea::CombineMaps::joint}));
  f("two maps, mean", fovea::LinearAttention<EluPlusOne, fovea::EluMinusPlusOne>(
                          {.combine = fovea::CombineMaps::mean}));
  f("delta rule", fovea::DeltaRuleAttention<EluPlusOne>());
  f("FMM", fovea::FmmOneKernel({.band = Band::half_width(5)}));
  f("FMM, causal", fovea::FmmOneKernel({.band = {.left = 40}, .causal = true}));
  f("FMM with a delta rule", fovea::FmmTwoKernelsFastWeight({.band = {.left = 9}, .causal = true}));
}

}  // namespace fovea_test
