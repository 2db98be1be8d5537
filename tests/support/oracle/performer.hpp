// SPDX-License-Identifier: MIT
/// \file
/// Performer attention as defined in MATHS.md, section 7, without feature vectors: a softmax over
/// all pairs (j, r) of a visible key and a feature, whose logits are the sums of the map's for q_i
/// and k_j. With B the largest sum of the magnitudes that such a logit is computed from, the gauge
/// of an output is (1 + B) sum_jr p_jr |v_j|, and those of gradients are analogous; they account
/// for underflow of weights.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "support/oracle/linear.hpp"
#include "support/oracle/softmax_grad.hpp"

namespace fovea_test {

/// The weights of one row.
template <class T>
struct OraclePerformerRow {
  using W = Wide<T>;
  std::vector<W> p;  // [keys, R], of sum 1
  W largest = 0;     // B

  OraclePerformerRow(const bench::AllInputs<T>& in, const OracleLinearPlace& at) {
    const Index features = in.projection.rows();
    const Index width = in.q.width();
    const W root = std::sqrt(std::sqrt(static_cast<W>(std::max(Index{1}, width))));
    W most = -std::numeric_limits<W>::infinity();
    for (const Index j : at.keys) {
      for (Index r = 0; r < features; ++r) {
        W logit = 0;
        W size = 0;
        for (Index c = 0; c < width; ++c) {
          const W w = in.projection(0, 0, r, c);
          const W q = W{in.q(at.batch, at.head, at.query, c)} / root;
          const W k = W{in.k(at.batch, at.key_head, j, c)} / root;
          logit += w * q + w * k - k * k / 2;
          size += std::abs(w * q) + std::abs(w * k) + k * k / 2;
        }
        p.push_back(logit);
        most = std::max(most, logit);
        // The weight of -inf is 0, without an error, whatever it was computed from.
        if (logit != -std::numeric_limits<W>::infinity()) largest = std::max(largest, size);
      }
    }
    W sum = 0;
    for (W& x : p) {
      x = std::exp(x - most);
      sum += x;
    }
    for (W& x : p) x /= sum;
  }

  /// The weight of key n of the row, all features together.
  W of_key(std::size_t n, std::size_t features) const {
    W sum = 0;
    for (std::size_t r = 0; r < features; ++r) sum += p[n * features + r];
    return sum;
  }
};

/// [B, Hq, Nq, Dv].
template <class T>
Reference<T> performer_oracle(const bench::AllInputs<T>& in, const ReferenceMask& reference_mask) {
  using W = Wide<T>;
  const Index width = in.v.width();
  Reference<T> out = zero_reference<T>({in.q.batch(), in.q.heads(), in.q.rows(), width});
  for_each_linear_row(in, reference_mask, [&](const OracleLinearPlace& at) {
    const OraclePerformerRow<T> row(in, at);
    const std::size_t first = place_of(out.shape, at.batch, at.head, at.query, 0);
    for (Index c = 0; c < width; ++c) {
      const std::size_t i = first + as_size(c);
      for (std::size_t n = 0; n < at.keys.size(); ++n) {
        const W v = in.v(at.batch, at.key_head, at.keys[n], c);
        const W weight = row.of_key(n, as_size(in.projection.rows()));
        out.value[i] += weight * v;
        out.gauge[i] += weight * std::abs(v) * (1 + row.largest);
      }
      // An infinite value times a weight, or times a part of one that underflows.
      if (!std::isfinite(out.value[i])) out.relax(i, Demand::not_finite);
    }
  });
  return out;
}

namespace detail {

/// The gradients that one row gives.
template <class T, class D>
void add_performer_row(const bench::AllInputs<T>& in, const OracleLinearPlace& at,
                       const View<D>& d_out, ExpectedGrads<T>& to) {
  using W = Wide<T>;
  const OraclePerformerRow<T> row(in, at);
  const Index features = in.projection.rows();
  const W condition = 1 + row.largest;
  const W root = std::sqrt(std::sqrt(static_cast<W>(std::max(Index{1}, in.q.width()))));
  std::vector<Sum<T>> products;  // <d_out, v>
  Sum<T> delta;                  // <d_out, out>
  for (std::size_t n = 0; n < at.keys.size(); ++n) {
    const W weight = row.of_key(n, as_size(features));
    Sum<T> sum;
    for (Index c = 0; c < in.v.width(); ++c) {
      const W d = d_out(at.batch, at.head, at.query, c);
      sum.add(d * W{in.v(at.batch, at.key_head, at.keys[n], c)});
      add(to.v, {at.batch, at.key_head, at.keys[n], c}, weight * d,
          weight * std::abs(d) * condition);
    }
    products.push_back(sum);
    delta.value += weight * sum.value;
    delta.magnitude += weight * sum.magnitude;
  }
  for (std::size_t n = 0; n < at.keys.size(); ++n) {
    for (Index r = 0; r < features; ++r) {
      const W p = row.p[n * as_size(features) + as_size(r)];
      const W d = p * (products[n].value - delta.value) / root;
      const W size = (p + kFaint<T>)*(products[n].magnitude + delta.magnitude) / root * condition;
      for (Index c = 0; c < in.q.width(); ++c) {
        const W w = in.projection(0, 0, r, c);
        const W q = in.q(at.batch, at.head, at.query, c);
        const W k = in.k(at.batch, at.key_head, at.keys[n], c);
        add(to.q, {at.batch, at.head, at.query, c}, d * w, size * std::abs(w));
        add(to.k, {at.batch, at.key_head, at.keys[n], c}, d * (w - k / root),
            size * (std::abs(w) + std::abs(k / root)));
        add(to.projection, {0, 0, r, c}, d * (q + k), size * (std::abs(q) + std::abs(k)));
      }
    }
  }
}

}  // namespace detail

/// The gradients of sum d_out out. \param d_out [B, Hq, Nq, Dv], of T or wider
template <class T, class D>
ExpectedGrads<T> performer_grad_oracle(const bench::AllInputs<T>& in,
                                       const ReferenceMask& reference_mask, const View<D>& d_out) {
  ExpectedGrads<T> grads{zero_reference<T>(in.q.shape()), zero_reference<T>(in.k.shape()),
                         zero_reference<T>(in.v.shape())};
  grads.projection = zero_reference<T>(in.projection.shape());
  for_each_linear_row(in, reference_mask, [&](const OracleLinearPlace& at) {
    detail::add_performer_row(in, at, d_out, grads);
  });
  for (Reference<T>* x : {&grads.q, &grads.k, &grads.v, &grads.projection}) detail::drop_noise(*x);
  return grads;
}

}  // namespace fovea_test
