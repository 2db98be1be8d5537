// SPDX-License-Identifier: MIT
/// \file
/// The gradients of softmax attention (MATHS.md, section 8) by plain loops over the rows of
/// softmax_row.hpp, with the gauges of tests/README.md, "How results are judged", where
/// |dP| and |Delta| are the sums of magnitudes that they are computed from. Held to central
/// differences of softmax.hpp by softmax_grad_test.cpp.
#pragma once

#include <cmath>
#include <limits>
#include <vector>

#include "support/oracle/softmax.hpp"

namespace fovea_test {

/// The expected results of a backward pass; empty for inputs that are not given.
template <class T>
struct ExpectedGrads {
  Reference<T> q, k, v;
  Reference<T> bias = {};         // in the shape of bias: the sum over what it was broadcast to
  Reference<T> sink = {};         // [1, Hq, 1, 1]
  Reference<T> beta = {};         // [B, Hk, Nk, 1]
  Reference<T> near_logits = {};  // in the shape of near_logits
  Reference<T> far_logits = {};   // in the shape of far_logits
  Reference<T> projection = {};   // [1, 1, R, D]
};

namespace detail {

/// Takes 0 for sums that only the roundings of Wide have kept from it.
template <class T>
void drop_noise(Reference<T>& x) {
  for (std::size_t i = 0; i < x.value.size(); ++i) {
    const Wide<T> noise = 64 * std::numeric_limits<Wide<T>>::epsilon() * x.gauge[i];
    if (std::abs(x.value[i]) <= noise) x.value[i] = 0;
  }
}

template <class T>
void add(Reference<T>& to, const Shape& at, Wide<T> value, Wide<T> gauge) {
  const std::size_t place = place_of(to.shape, at[0], at[1], at[2], at[3]);
  to.value[place] += value;
  to.gauge[place] += gauge;
}

/// A sum of products, and the sum of their magnitudes.
template <class T>
struct Sum {
  Wide<T> value = 0;
  Wide<T> magnitude = 0;

  void add(Wide<T> term) {
    value += term;
    magnitude += std::abs(term);
  }
};

/// The weights of one row backwards.
template <class T>
struct OracleRowGrad {
  using W = Wide<T>;
  std::vector<Sum<T>> dp;  // of the weights, dropout included: kept <d_out, v>
  Sum<T> delta;            // sum p dP

  template <class D>
  OracleRowGrad(const bench::AllInputs<T>& in, const View<D>& d_out, const OracleRow<T>& row) {
    for (std::size_t n = 0; n < row.keys.size(); ++n) {
      Sum<T> sum;
      for (Index c = 0; c < in.v.width(); ++c) {
        sum.add(row.kept[n] * W{d_out(row.batch, row.head, row.query, c)} *
                W{in.v(row.batch, row.key_head, row.keys[n], c)});
      }
      dp.push_back(sum);
      delta.value += row.p[n] * sum.value;
      delta.magnitude += row.size[n] * sum.magnitude;
    }
  }
};

template <class T, class D>
void add_row(const bench::AllInputs<T>& in, Wide<T> scale, const View<D>& d_out,
             const OracleRow<T>& row, ExpectedGrads<T>& to) {
  using W = Wide<T>;
  const OracleRowGrad<T> grad(in, d_out, row);
  const W condition = 1 + row.largest;
  const Index b = row.batch;
  const auto add_scaled = [&](Reference<T>& x, const Shape& at, W factor, W size, W other) {
    add(x, at, factor * other, size * std::abs(other) * condition);
  };
  for (std::size_t n = 0; n < row.keys.size(); ++n) {
    const Index j = row.keys[n];
    const W ds = row.p[n] * (grad.dp[n].value - grad.delta.value);
    const W ds_size = row.size[n] * (grad.dp[n].magnitude + grad.delta.magnitude);
    const W dz = scale * ds * row.through[n];
    const W dz_size = std::abs(scale) * ds_size;
    for (Index c = 0; c < in.q.width(); ++c) {
      add_scaled(to.q, {b, row.head, row.query, c}, dz, dz_size, in.k(b, row.key_head, j, c));
      add_scaled(to.k, {b, row.key_head, j, c}, dz, dz_size, in.q(b, row.head, row.query, c));
    }
    const W weight = row.p[n] * row.kept[n];
    for (Index c = 0; c < in.v.width(); ++c) {
      add_scaled(to.v, {b, row.key_head, j, c}, weight, row.size[n] * row.kept[n],
                 d_out(b, row.head, row.query, c));
    }
    if (!in.bias.empty()) {
      add(to.bias, broadcast_index(in.bias, {b, row.head, row.query, j}), ds, ds_size * condition);
    }
  }
  if (!in.sink.empty()) {
    add(to.sink, {0, row.head, 0, 0}, -row.sink * grad.delta.value,
        (row.sink + kFaint<T>)*grad.delta.magnitude * condition);
  }
}

}  // namespace detail

/// The gradients of sum d_out out. \param d_out [B, Hq, Nq, Dv], of T or wider
template <class T, class D>
ExpectedGrads<T> softmax_grad_oracle(const bench::AllInputs<T>& in, const OracleOperator<T>& op,
                                     const View<D>& d_out) {
  ExpectedGrads<T> grads{zero_reference<T>(in.q.shape()), zero_reference<T>(in.k.shape()),
                         zero_reference<T>(in.v.shape()), zero_reference<T>(in.bias.shape()),
                         zero_reference<T>({1, static_cast<Index>(in.sink.size()), 1, 1})};
  for_each_oracle_row(
      in, op, [&](const OracleRow<T>& row) { detail::add_row(in, op.scale, d_out, row, grads); });
  // A constant added to all logits of a row changes no weight: a bias that is the same for all keys
  // has a gradient of 0, and so have queries whose keys are equal.
  for (Reference<T>* x : {&grads.q, &grads.k, &grads.bias}) detail::drop_noise(*x);
  return grads;
}

}  // namespace fovea_test
