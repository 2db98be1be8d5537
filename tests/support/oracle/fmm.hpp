// SPDX-License-Identifier: MIT
/// \file
/// FMM attention as MATHS.md, section 4 writes it (FMMformer, eqs. 4, 10 and 12): softmax attention
/// over a band plus linear attention or the delta rule, blended by sigmoids of two logits; and its
/// gradients. Gauges: the sum of those of the parts, with the weights.
#pragma once

#include <cmath>
#include <vector>

#include "support/oracle/delta_rule.hpp"
#include "support/oracle/linear_grad.hpp"
#include "support/tensor.hpp"

namespace fovea_test {

/// FMM attention's parameters for the oracles.
template <class T>
struct OracleFmm {
  OracleOperator<T> near_field;
  OracleLinear<T> linear;              // maps may be none
  std::vector<OracleDelta<T>> deltas;  // terms by the delta rule
  bool normalise_rows = false;
  Wide<T> share = 1;  // what the sum of all terms is multiplied by
};

namespace detail {

/// Element by element.
template <class T>
void add_to(Reference<T>& to, const Reference<T>& x) {
  for (std::size_t i = 0; i < x.value.size(); ++i) {
    to.value[i] += x.value[i];
    to.gauge[i] += x.gauge[i];
    if (x.demand_of(i) != Demand::ratio) to.relax(i, x.demand_of(i));
  }
}

/// The far field, all terms.
template <class T>
Reference<T> far_oracle(const bench::AllInputs<T>& in, const OracleFmm<T>& op) {
  Reference<T> far_field = linear_oracle(in, op.linear);
  for (const OracleDelta<T>& delta : op.deltas) add_to(far_field, delta_oracle(in, delta));
  for (Wide<T>& x : far_field.value) x *= op.share;
  for (Wide<T>& x : far_field.gauge) x *= op.share;
  return far_field;
}

template <class W>
W sigmoid(W x) {
  return 1 / (1 + std::exp(-x));
}

/// The weights of near and far field for a head and column.
template <class T>
struct OracleBlend {
  using W = Wide<T>;
  W near_field = 1;
  W far_field = 1;
  W terms = 1;    // r
  W divisor = 1;  // near + r far if rows are normalised
  bool divides = false;

  OracleBlend(const bench::AllInputs<T>& in, const OracleFmm<T>& op, Index h, Index c)
      : terms(op.share *
              static_cast<W>((op.linear.is_joint ? 1 : op.linear.maps.size()) + op.deltas.size())),
        divides(op.normalise_rows) {
    const Shape at = {0, h, 0, c};
    if (!in.near_logits.empty()) near_field = sigmoid(W{broadcast_at(in.near_logits, at)});
    if (!in.far_logits.empty()) far_field = sigmoid(W{broadcast_at(in.far_logits, at)});
    if (divides) divisor = near_field + terms * far_field;
  }
};

}  // namespace detail

/// [B, Hq, Nq, Dv].
template <class T>
Reference<T> fmm_oracle(const bench::AllInputs<T>& in, const OracleFmm<T>& op) {
  const Reference<T> near_field = softmax_oracle(in, op.near_field).out;
  Reference<T> out = detail::far_oracle(in, op);
  for_each_index(out.shape, [&](Index b, Index h, Index n, Index c) {
    const std::size_t i = place_of(out.shape, b, h, n, c);
    const detail::OracleBlend<T> blend(in, op, h, c);
    out.value[i] =
        (blend.near_field * near_field.value[i] + blend.far_field * out.value[i]) / blend.divisor;
    out.gauge[i] =
        (blend.near_field * near_field.gauge[i] + blend.far_field * out.gauge[i]) / blend.divisor;
  });
  return out;
}

namespace detail {

/// The gradients of the blend logits.
template <class T, class D>
void add_logit_grads(const bench::AllInputs<T>& in, const OracleFmm<T>& op, const View<D>& d_out,
                     ExpectedGrads<T>& to) {
  using W = Wide<T>;
  const Reference<T> near_field = softmax_oracle(in, op.near_field).out;
  const Reference<T> far_field = far_oracle(in, op);
  for_each_index(near_field.shape, [&](Index b, Index h, Index n, Index c) {
    const std::size_t i = place_of(near_field.shape, b, h, n, c);
    const OracleBlend<T> w(in, op, h, c);
    const W d = d_out(b, h, n, c);
    const W out =
        w.divides
            ? (w.near_field * near_field.value[i] + w.far_field * far_field.value[i]) / w.divisor
            : 0;
    const W size =
        w.divides
            ? (w.near_field * near_field.gauge[i] + w.far_field * far_field.gauge[i]) / w.divisor
            : 0;
    const auto add_logit = [&](const View<const T>& logits, Reference<T>& grad, W weight, W part,
                               W part_size) {
      if (logits.empty()) return;
      const Shape at = broadcast_index(logits, {0, h, 0, c});
      const W slope = weight * (1 - weight) / w.divisor * d;
      add(grad, at, slope * part, std::abs(slope) * part_size);
      if (far_field.demand_of(i) != Demand::ratio || in.q.width() == 0) {
        grad.relax(place_of(grad.shape, at[0], at[1], at[2], at[3]), Demand::nothing);
      }
    };
    add_logit(in.near_logits, to.near_logits, w.near_field, near_field.value[i] - out,
              near_field.gauge[i] + size);
    add_logit(in.far_logits, to.far_logits, w.far_field, far_field.value[i] - w.terms * out,
              far_field.gauge[i] + w.terms * size);
  });
}

}  // namespace detail

/// The gradients of sum d_out out. \param d_out [B, Hq, Nq, Dv]
template <class T>
ExpectedGrads<T> fmm_grad_oracle(const bench::AllInputs<T>& in, const OracleFmm<T>& op,
                                 const View<const T>& d_out) {
  using W = Wide<T>;
  const Tensor<W> d_near(d_out.shape());
  const Tensor<W> d_far(d_out.shape());
  for_each_index(d_out.shape(), [&](Index b, Index h, Index n, Index c) {
    const detail::OracleBlend<T> blend(in, op, h, c);
    const W d = d_out(b, h, n, c);
    d_near(b, h, n, c) = blend.near_field / blend.divisor * d;
    d_far(b, h, n, c) = op.share * blend.far_field / blend.divisor * d;
  });
  ExpectedGrads<T> grads = softmax_grad_oracle(in, op.near_field, d_near.view());
  const auto add = [&](const ExpectedGrads<T>& more) {
    detail::add_to(grads.q, more.q);
    detail::add_to(grads.k, more.k);
    detail::add_to(grads.v, more.v);
    detail::add_to(grads.beta, more.beta);
  };
  grads.beta = zero_reference<T>(in.beta.shape());
  grads.near_logits = zero_reference<T>(in.near_logits.shape());
  grads.far_logits = zero_reference<T>(in.far_logits.shape());
  add(linear_grad_oracle(in, op.linear, d_far.view()));
  for (const OracleDelta<T>& delta : op.deltas) {
    add(delta_grad_oracle(in, delta, d_far.view()));
  }
  detail::add_logit_grads(in, op, d_out, grads);
  for (Reference<T>* x :
       {&grads.q, &grads.k, &grads.v, &grads.beta, &grads.near_logits, &grads.far_logits}) {
    detail::drop_noise(*x);
  }
  return grads;
}

}  // namespace fovea_test
