// SPDX-License-Identifier: MIT
/// \file
/// The gradients of linear attention by plain loops over the rows of linear.hpp. Their gauges sum
/// the magnitudes of the terms of the exact derivative, those by numerator and denominator apart,
/// or kappa times the derivative where that is more. Held to central differences of linear.hpp by
/// tests/attention/oracle_test.cpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "support/oracle/linear.hpp"
#include "support/oracle/softmax_grad.hpp"

namespace fovea_test {
namespace detail {

/// Adds what one row gives through one map.
template <class T, class D>
class LinearRowGrad {
 public:
  using W = Wide<T>;

  LinearRowGrad(const bench::AllInputs<T>& in, const OracleLinear<T>& op,
                const OracleFarMap<T>& map, const OracleLinearPlace& at, const View<D>& d_out,
                ExpectedGrads<T>& to)
      : in_(in),
        map_(map),
        at_(at),
        row_(oracle_linear_row(op, map, at)),
        lost_(lost_of_products<T>(row_.q)),
        tau_(op.tau),
        joint_(joint_roundings(map)),
        to_(to) {
    for (Index c = 0; c < in.v.width(); ++c) {
      const W d = op.share * d_out(at.batch, at.head, at.query, c);
      const OracleTerm<T> term = oracle_term(in, at, row_, c);
      d_out_.push_back(d);
      delta_.value += d * term.value;
      delta_.magnitude += std::abs(d) * term.gauge;
    }
  }

  void add() {
    // Without features a sum of none of them is 0, or 0 times infinity.
    if (row_.is_open || row_.is_faint || row_.q.empty()) relax();
    if (row_.is_zeroed) return;
    std::vector<Sum<T>> by_q(row_.q.size());
    for (std::size_t n = 0; n < at_.keys.size(); ++n) add_key(n, by_q);
    const W* const slopes = map_.q.slopes_of_row(at_.batch, at_.head, at_.query);
    for (std::size_t d = 0; d < by_q.size(); ++d) {
      const Index column = static_cast<Index>(d) % in_.q.width();
      add_by_feature(to_.q, {at_.batch, at_.head, at_.query, column}, slopes[d], by_q[d].value,
                     by_q[d].magnitude);
    }
    if (row_.slope_is_open) relax_features();
  }

 private:
  void add_key(std::size_t n, std::vector<Sum<T>>& by_q) {
    const Index j = at_.keys[n];
    Sum<T> by_weight;  // <d_out, v_j>
    for (Index c = 0; c < in_.v.width(); ++c) {
      const W d = d_out_[as_size(c)];
      by_weight.add(d * W{in_.v(at_.batch, at_.key_head, j, c)});
      const W value = d * row_.w[n] / row_.den;
      const W size = std::abs(d / row_.den) * row_.size[n];
      detail::add(to_.v, {at_.batch, at_.key_head, j, c}, value,
                  joint_ * std::max(size, row_.kappa * std::abs(value)));
    }
    const W* const slopes = map_.k.slopes_of_row(at_.batch, at_.key_head, j);
    for (std::size_t d = 0; d < row_.q.size(); ++d) {
      const W slope = row_.slope(d, tau_);
      const W both = (by_weight.value - slope * delta_.value) / row_.den;
      const W size =
          (by_weight.magnitude + std::abs(slope) * delta_.magnitude) / std::abs(row_.den);
      const W k = row_.k[n * row_.q.size() + d];
      by_q[d].value += k * both;
      by_q[d].magnitude += (std::abs(k) + kFaint<T>)*size;
      const Index column = static_cast<Index>(d) % in_.k.width();
      add_by_feature(to_.k, {at_.batch, at_.key_head, j, column}, slopes[d], row_.q[d] * both,
                     (std::abs(row_.q[d]) + lost_) * size);
    }
  }

  /// From the gradient by a feature phi(x) to that by x. \param slope of phi at x
  void add_by_feature(Reference<T>& to, const Shape& at, W slope, W by_feature, W size) {
    detail::add(
        to, at, slope * by_feature,
        joint_ * (std::abs(slope) + kFaint<T>)*std::max(size, row_.kappa * std::abs(by_feature)));
  }

  void relax_row(Reference<T>& x, Index head, Index n) {
    for (Index c = 0; c < x.shape[3]; ++c) {
      x.relax(place_of(x.shape, at_.batch, head, n, c), Demand::nothing);
    }
  }
  void relax_features() {
    relax_row(to_.q, at_.head, at_.query);
    for (const Index j : at_.keys) relax_row(to_.k, at_.key_head, j);
  }
  void relax() {
    relax_features();
    for (const Index j : at_.keys) relax_row(to_.v, at_.key_head, j);
  }

  const bench::AllInputs<T>& in_;
  const OracleFarMap<T>& map_;
  const OracleLinearPlace& at_;
  OracleLinearRow<T> row_;
  W lost_;
  W tau_;
  W joint_;
  ExpectedGrads<T>& to_;
  std::vector<W> d_out_;  // [Dv]
  Sum<T> delta_;          // <d_out, the map's term>
};

}  // namespace detail

/// The gradients of sum d_out out. \param d_out [B, Hq, Nq, Dv], of T or wider
template <class T, class D>
ExpectedGrads<T> linear_grad_oracle(const bench::AllInputs<T>& in, const OracleLinear<T>& op,
                                    const View<D>& d_out) {
  ExpectedGrads<T> grads{zero_reference<T>(in.q.shape()), zero_reference<T>(in.k.shape()),
                         zero_reference<T>(in.v.shape())};
  const std::vector<OracleFarMap<T>> maps = oracle_far_maps(in, op);
  for_each_linear_row(in, op.reference_mask, [&](const OracleLinearPlace& at) {
    for (const OracleFarMap<T>& map : maps) {
      detail::LinearRowGrad<T, D>(in, op, map, at, d_out, grads).add();
    }
  });
  for (Reference<T>* x : {&grads.q, &grads.k, &grads.v}) detail::drop_noise(*x);
  return grads;
}

}  // namespace fovea_test
