// SPDX-License-Identifier: MIT
/// \file
/// Linformer attention as MATHS.md, section 7 writes it, by plain loops: softmax(scale q (E k)^T)
/// (F v), where rows of k and v beyond the key length count as 0. The gauges are those of softmax
/// attention with the magnitudes |E||k| and |F||v| for keys and values.
#pragma once

#include <cmath>
#include <optional>
#include <vector>

#include "support/oracle/softmax_grad.hpp"

namespace fovea_test {

/// The expected results of both passes of Linformer attention.
template <class T>
struct ExpectedLinformer {
  Reference<T> out, lse, q, k, v, key_projection, value_projection;
};

namespace detail {

/// X = E x for one head, and |E||x|: [P, width].
template <class T>
struct OracleProjected {
  std::vector<Sum<T>> at;
  Index width;

  OracleProjected(const View<const T>& e, const View<const T>& x, Index b, Index h, Index length)
      : at(as_size(e.rows() * x.width())), width(x.width()) {
    for (Index p = 0; p < e.rows(); ++p) {
      for (Index j = 0; j < length; ++j) {
        for (Index c = 0; c < width; ++c) {
          at[as_size(p * width + c)].add(Wide<T>{e(0, e.heads() == 1 ? 0 : h, p, j)} *
                                         Wide<T>{x(b, h, j, c)});
        }
      }
    }
  }
  const Sum<T>& operator()(Index p, Index c) const { return at[as_size(p * width + c)]; }
};

/// Adds what X passes back: dx = E^T dX and dE = dX x^T.
template <class T>
void add_projection(const View<const T>& e, const View<const T>& x, Index b, Index h, Index length,
                    const std::vector<Sum<T>>& d_projected, Reference<T>& d_x, Reference<T>& d_e) {
  const Index of = e.heads() == 1 ? 0 : h;
  for (Index p = 0; p < e.rows(); ++p) {
    for (Index j = 0; j < length; ++j) {
      for (Index c = 0; c < x.width(); ++c) {
        const Sum<T>& d = d_projected[as_size(p * x.width() + c)];
        const Wide<T> weight = e(0, of, p, j);
        const Wide<T> token = x(b, h, j, c);
        add(d_x, {b, h, j, c}, weight * d.value, std::abs(weight) * d.magnitude);
        add(d_e, {0, of, p, j}, d.value * token, d.magnitude * std::abs(token));
      }
    }
  }
}

}  // namespace detail

/// \param d_out of the output; if empty, there are no gradients
template <class T>
ExpectedLinformer<T> linformer_oracle(const bench::AllInputs<T>& in, std::optional<double> scale,
                                      const View<const T>& d_out = {}) {
  using W = Wide<T>;
  using detail::Sum;
  const Index rows = in.key_projection.rows();
  const Index width = in.q.width();
  const Index value_width = in.v.width();
  const W factor = scale ? W{*scale} : 1 / std::sqrt(width == 0 ? W{1} : static_cast<W>(width));
  const Shape q = in.q.shape();
  ExpectedLinformer<T> to{zero_reference<T>({q[0], q[1], q[2], value_width}),
                          zero_reference<T>({q[0], q[1], q[2], 1}),
                          zero_reference<T>(q),
                          zero_reference<T>(in.k.shape()),
                          zero_reference<T>(in.v.shape()),
                          zero_reference<T>(in.key_projection.shape()),
                          zero_reference<T>(in.value_projection.shape())};
  for_each_index({q[0], in.k.heads(), 1, 1}, [&](Index b, Index key_head, Index, Index) {
    const Index length = in.key_lengths.empty() ? in.k.rows() : in.key_lengths[as_size(b)];
    const detail::OracleProjected<T> keys(in.key_projection, in.k, b, key_head, length);
    const detail::OracleProjected<T> values(in.value_projection, in.v, b, key_head, length);
    std::vector<Sum<T>> d_keys(keys.at.size()), d_values(values.at.size());
    const Index group = q[1] / in.k.heads();
    for_each_index({1, group, q[2], 1}, [&](Index, Index g, Index i, Index) {
      const Index h = key_head * group + g;
      std::vector<W> s(as_size(rows));
      W largest = 0;
      W most = -std::numeric_limits<W>::infinity();
      for (Index p = 0; p < rows; ++p) {
        Sum<T> logit;
        W magnitude = 0;
        for (Index c = 0; c < width; ++c) {
          logit.add(W{in.q(b, h, i, c)} * keys(p, c).value);
          magnitude += std::abs(W{in.q(b, h, i, c)}) * keys(p, c).magnitude;
        }
        s[as_size(p)] = factor * logit.value;
        largest = std::max(largest, std::abs(factor) * magnitude);
        if (!(s[as_size(p)] <= most)) most = s[as_size(p)];
      }
      W sum = 0;
      for (const W logit : s) sum += std::exp(logit - most);
      const W condition = 1 + largest;
      const W lse = most + std::log(sum);
      detail::add(to.lse, {b, h, i, 0}, lse, condition + std::abs(lse));
      std::vector<Sum<T>> d_weight(as_size(rows));
      Sum<T> delta;
      for (Index p = 0; p < rows; ++p) {
        const W weight = std::exp(s[as_size(p)] - most) / sum;
        for (Index c = 0; c < value_width; ++c) {
          const Sum<T>& value = values(p, c);
          detail::add(to.out, {b, h, i, c}, weight * value.value,
                      (weight + kFaint<T>)*value.magnitude * condition);
          if (d_out.empty()) continue;
          const W d = d_out(b, h, i, c);
          d_weight[as_size(p)].value += d * value.value;
          d_weight[as_size(p)].magnitude += std::abs(d) * value.magnitude;
          Sum<T>& d_value = d_values[as_size(p * value_width + c)];
          d_value.value += weight * d;
          d_value.magnitude += (weight + kFaint<T>)*std::abs(d) * condition;
        }
        delta.value += weight * d_weight[as_size(p)].value;
        delta.magnitude += (weight + kFaint<T>)*d_weight[as_size(p)].magnitude;
      }
      if (d_out.empty()) return;
      for (Index p = 0; p < rows; ++p) {
        const W weight = std::exp(s[as_size(p)] - most) / sum;
        const W ds = factor * weight * (d_weight[as_size(p)].value - delta.value);
        const W size = std::abs(factor) *
                       (weight + kFaint<T>)*(d_weight[as_size(p)].magnitude + delta.magnitude) *
                       condition;
        for (Index c = 0; c < width; ++c) {
          detail::add(to.q, {b, h, i, c}, ds * keys(p, c).value, size * keys(p, c).magnitude);
          Sum<T>& d_key = d_keys[as_size(p * width + c)];
          d_key.value += ds * W{in.q(b, h, i, c)};
          d_key.magnitude += size * std::abs(W{in.q(b, h, i, c)});
        }
      }
    });
    if (d_out.empty()) return;
    detail::add_projection(in.key_projection, in.k, b, key_head, length, d_keys, to.k,
                           to.key_projection);
    detail::add_projection(in.value_projection, in.v, b, key_head, length, d_values, to.v,
                           to.value_projection);
  });
  return to;
}

}  // namespace fovea_test
