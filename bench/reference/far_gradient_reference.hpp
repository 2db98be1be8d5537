// SPDX-License-Identifier: MIT
/// \file
/// The truth for some rows of the gradients of the operators with a far field, in time linear in N,
/// in the units of the library's own oracles (far_reference.hpp, gradient_reference.hpp).
#pragma once

#include <array>
#include <vector>

#include "bench/reference/delta_reference.hpp"
#include "bench/reference/far_model.hpp"
#include "bench/reference/gradient_reference.hpp"

namespace bench {

/// Adds the gradients of a feature map's term for one query head. \pre Nq = Nk
template <class T>
class SumsGradient {
  using W = Wide<T>;

 public:
  /// \param weight of the term in the output   \param d_out [1, Hq, N, Dv]
  SumsGradient(const FarTokens<T>& x, const WideMap<W>& map, bool causal, Index head, W weight,
               const View<const T>& d_out, SampledGradients<T>& to)
      : x_(x),
        map_(map),
        causal_(causal),
        head_(head),
        key_head_(x.key_head(head)),
        weight_(weight),
        to_(to),
        q_(features_of(map, x.in.q, head)),
        k_(features_of(map, x.in.k, key_head_)) {
    for (Index n = 0; n < x.count; ++n) {
      for (Index c = 0; c < value_width(); ++c) {
        v_.push_back(x.in.v(0, key_head_, n, c));
        d_out_.push_back(weight_ * static_cast<W>(d_out(0, head, n, c)));
      }
    }
  }

  void run() {
    read_rows();
    for (std::size_t s = 0; s < to_.rows.size(); ++s) {
      add_query(s);
      add_token(s);
    }
  }

 private:
  /// What the gradients need of a row: its denominator, and <d_out, its term> with its unit.
  struct Row {
    W denominator = 0;
    W delta = 0;
    W delta_size = 0;
  };

  Index width() const { return x_.in.q.width(); }
  Index value_width() const { return x_.in.v.width(); }
  const W* q(Index n) const { return q_.data() + n * width(); }
  const W* k(Index n) const { return k_.data() + n * width(); }
  const W* v(Index n) const { return v_.data() + n * value_width(); }
  const W* d_out(Index n) const { return d_out_.data() + n * value_width(); }

  /// The sums over the tokens so far: of k v, of k |v| and of k.
  struct Sums {
    std::vector<W> of_v, of_size, of_k;
  };

  void add_to(Sums& sums, Index t) const {
    for (Index d = 0; d < width(); ++d) {
      const W feature = k(t)[d];
      sums.of_k[static_cast<std::size_t>(d)] += feature;
      W* const of_v = sums.of_v.data() + d * value_width();
      W* const of_size = sums.of_size.data() + d * value_width();
      for (Index c = 0; c < value_width(); ++c) {
        of_v[c] += feature * v(t)[c];
        of_size[c] += feature * std::abs(v(t)[c]);
      }
    }
  }

  Row read(const Sums& sums, Index n) const {
    Row row;
    for (Index d = 0; d < width(); ++d) {
      row.denominator += q(n)[d] * sums.of_k[static_cast<std::size_t>(d)];
      const W* const of_v = sums.of_v.data() + d * value_width();
      const W* const of_size = sums.of_size.data() + d * value_width();
      for (Index c = 0; c < value_width(); ++c) {
        row.delta += q(n)[d] * d_out(n)[c] * of_v[c];
        row.delta_size += q(n)[d] * std::abs(d_out(n)[c]) * of_size[c];
      }
    }
    row.delta /= row.denominator;
    row.delta_size /= row.denominator;
    return row;
  }

  void read_rows() {
    const auto zeros = std::vector<W>(static_cast<std::size_t>(width() * value_width()));
    Sums sums{zeros, zeros, std::vector<W>(static_cast<std::size_t>(width()))};
    for (Index t = 0; t < x_.count; ++t) {
      add_to(sums, t);
      if (causal_) rows_.push_back(read(sums, t));
    }
    for (Index n = 0; n < x_.count && !causal_; ++n) rows_.push_back(read(sums, n));
  }

  /// The gradient by the weight w of (row n, token t) and its unit.
  std::array<W, 2> by_weight(Index n, Index t) const {
    const Row& row = rows_[static_cast<std::size_t>(n)];
    W sum = 0;
    W size = 0;
    for (Index c = 0; c < value_width(); ++c) {
      sum += d_out(n)[c] * v(t)[c];
      size += std::abs(d_out(n)[c] * v(t)[c]);
    }
    return {(sum - row.delta) / row.denominator, (size + row.delta_size) / row.denominator};
  }

  /// Adds a gradient by features and its unit as one by x.
  void add(const std::vector<W>& value, const std::vector<W>& size, const View<const T>& x,
           Index head, Index row, GradientRow<T>& to) const {
    for (std::size_t d = 0; d < value.size(); ++d) {
      const W slope = map_.derivative(x(0, head, row, static_cast<Index>(d)));
      to.value[d] += slope * value[d];
      to.unit[d] += std::abs(slope) * size[d];
    }
  }

  void add_query(std::size_t s) {
    const Index n = to_.rows[s];
    std::vector<W> value(static_cast<std::size_t>(width()));
    std::vector<W> size(value.size());
    for (Index t = 0; t < x_.end(n, causal_); ++t) {
      const auto [sum, unit] = by_weight(n, t);
      for (std::size_t d = 0; d < value.size(); ++d) {
        value[d] += sum * k(t)[d];
        size[d] += unit * k(t)[d];
      }
    }
    add(value, size, x_.in.q, head_, n, to_.q[s]);
  }

  void add_token(std::size_t s) {
    const Index t = to_.rows[s];
    std::vector<W> value(static_cast<std::size_t>(width()));
    std::vector<W> size(value.size());
    for (Index n = causal_ ? t : 0; n < x_.count; ++n) {
      const auto [sum, unit] = by_weight(n, t);
      for (std::size_t d = 0; d < value.size(); ++d) {
        value[d] += sum * q(n)[d];
        size[d] += unit * q(n)[d];
      }
      const W share = dot(q(n), k(t), width()) / rows_[static_cast<std::size_t>(n)].denominator;
      for (Index c = 0; c < value_width(); ++c) {
        to_.v[s].value[static_cast<std::size_t>(c)] += share * d_out(n)[c];
        to_.v[s].unit[static_cast<std::size_t>(c)] += share * std::abs(d_out(n)[c]);
      }
    }
    add(value, size, x_.in.k, key_head_, t, to_.k[s]);
  }

  const FarTokens<T>& x_;
  const WideMap<W>& map_;
  bool causal_;
  Index head_;
  Index key_head_;
  W weight_;
  SampledGradients<T>& to_;
  std::vector<W> q_, k_;      // [N, D] features
  std::vector<W> v_, d_out_;  // [N, Dv]
  std::vector<Row> rows_;     // [N]
};

/// Adds the gradients of the near field for one query head. \pre Nq = Nk
template <class T>
class BandGradient {
  using W = Wide<T>;

 public:
  /// \param weight of the near field in the output   \param d_out [1, Hq, N, Dv]
  BandGradient(const FarTokens<T>& x, const fovea::LocalAttention& near_field, Index head, W weight,
               const View<const T>& d_out, SampledGradients<T>& to)
      : x_(x), near_(near_field), head_(head), weight_(weight), d_out_(d_out), to_(to) {}

  void run() {
    for (std::size_t s = 0; s < to_.rows.size(); ++s) {
      const Index n = to_.rows[s];
      for (const Pair& pair : pairs_of(n)) {
        to_.q[s].add(pair.by_product, pair.size, x_.in.k, x_.key_head(head_), pair.token);
      }
      const Index first = std::max<Index>(0, n - near_.options.right);
      const Index last = std::min(x_.count - 1, n + near_.options.left);
      for (Index row = first; row <= last; ++row) {
        for (const Pair& pair : pairs_of(row)) {
          if (pair.token != n) continue;
          to_.k[s].add(pair.by_product, pair.size, x_.in.q, head_, row);
          to_.v[s].add(pair.weight, pair.weight_size, d_out_, head_, row);
        }
      }
    }
  }

 private:
  struct Pair {
    Index token;
    W weight;       // of the token in the output
    W weight_size;  // its unit
    W by_product;   // the gradient by <q, k>
    W size;         // its unit
  };

  std::vector<Pair> pairs_of(Index row) const {
    const BandRow<T> band = band_row(x_, near_, head_, row);
    std::vector<W> by_weight(band.weights.size());
    W delta = 0;
    for (std::size_t n = 0; n < band.weights.size(); ++n) {
      for (Index c = 0; c < x_.in.v.width(); ++c) {
        by_weight[n] +=
            weight_ * static_cast<W>(d_out_(0, head_, row, c)) *
            static_cast<W>(x_.in.v(0, x_.key_head(head_), band.first + static_cast<Index>(n), c));
      }
      delta += band.weights[n] * by_weight[n];
    }
    const W scale = 1 / std::sqrt(static_cast<W>(x_.in.q.width()));
    std::vector<Pair> pairs;
    for (std::size_t n = 0; n < band.weights.size(); ++n) {
      const W p = band.weights[n];
      const W size = (p + kFaintWeight<T>)*band.gauge;
      pairs.push_back({band.first + static_cast<Index>(n), weight_ * p, weight_ * size,
                       scale * p * (by_weight[n] - delta),
                       scale * size * (std::abs(by_weight[n]) + std::abs(delta))});
    }
    return pairs;
  }

  const FarTokens<T>& x_;
  const fovea::LocalAttention& near_;
  Index head_;
  W weight_;
  const View<const T>& d_out_;
  SampledGradients<T>& to_;
};

namespace detail {

/// Adds the gradients of all terms of one query head.
template <class T>
void add_gradients(const FarModel<T>& model, const FarTokens<T>& x, Index head,
                   const View<const T>& d_out, SampledGradients<T>& to) {
  const auto [near_field, far_field] = blend_of(x.in, head);
  if (model.near_field) BandGradient<T>(x, *model.near_field, head, near_field, d_out, to).run();
  for (const auto& map : model.sums) {
    SumsGradient<T>(x, map, model.causal, head, far_field, d_out, to).run();
  }
  for (const auto& map : model.deltas) DeltaSweep<T>(x, map, head, far_field, d_out, to).run();
}

}  // namespace detail

/// Compares `samples` rows of the gradients of k, v and beta of the first and the last key head,
/// and of q of all heads that read them. \pre Nq = Nk
template <class T, class GradsT>
Error far_gradient_error(const FarModel<T>& model, const FarTokens<T>& x,
                         const View<const T>& d_out, const GradsT& grads, Index samples) {
  Error error;
  std::vector<Index> key_heads = {0};
  if (x.in.k.heads() > 1) key_heads.push_back(x.in.k.heads() - 1);
  const Index group = x.in.q.heads() / x.in.k.heads();
  for (const Index key_head : key_heads) {
    SampledGradients<T> want(x.in, key_head, samples);
    for (Index head = key_head * group; head < (key_head + 1) * group; ++head) {
      want.begin_head();
      detail::add_gradients(model, x, head, d_out, want);
      for (std::size_t s = 0; s < want.rows.size(); ++s) {
        want.q[s].judge(grads.q, head, want.rows[s], error);
      }
    }
    for (std::size_t s = 0; s < want.rows.size(); ++s) {
      want.k[s].judge(grads.k, key_head, want.rows[s], error);
      want.v[s].judge(grads.v, key_head, want.rows[s], error);
      if constexpr (requires { grads.beta; }) {
        if (!grads.beta.empty()) want.beta[s].judge(grads.beta, key_head, want.rows[s], error);
      }
    }
  }
  return error;
}

}  // namespace bench
