// SPDX-License-Identifier: MIT
/// \file
/// The truth for some rows of the gradients of the operators with a far field, in time linear in N:
/// by the oracles of the tests, and of feature maps, whose oracle takes O(N^2), by sums over
/// tokens, in the units of that oracle.
#include <algorithm>
#include <array>
#include <numeric>
#include <set>
#include <vector>

#include "bench/reference/far_oracles.hpp"
#include "bench/reference/far_reference.hpp"
#include "bench/reference/gradient_reference.hpp"

namespace bench {

namespace {

/// Sampled rows of the gradients of one key head, and of one query head at a time of those that
/// read it, Nq = Nk. What the query heads add to k, v and beta is summed, and so are its units.
template <class T>
struct SampledGradients {
  std::vector<Index> rows;
  std::vector<GradientRow<T>> q, k, v, beta;  // one for each row

  SampledGradients(const AllInputs<T>& in, Index key_head, Index samples) {
    const Index count = std::min(samples, in.q.rows());
    for (Index s = 0; s < count; ++s) {
      rows.push_back(sampled_row(s, count, key_head, in.q.rows()));
      q.emplace_back(in.q.width());
      k.emplace_back(in.k.width());
      v.emplace_back(in.v.width());
      beta.emplace_back(1);
    }
  }

  /// Before the gradients of a further query head.
  void begin_head() {
    for (GradientRow<T>& row : q) row = GradientRow<T>(static_cast<Index>(row.value.size()));
  }

  /// Adds the sampled rows of an oracle's gradients, of one query head.
  void add(const fovea_test::ExpectedGrads<T>& grads) {
    const auto add_rows = [&](const fovea_test::Reference<T>& x, std::vector<GradientRow<T>>& to) {
      if (x.value.empty()) return;
      for (std::size_t s = 0; s < rows.size(); ++s) {
        std::size_t at = fovea_test::place_of(x.shape, 0, 0, rows[s], 0);
        for (std::size_t c = 0; c < to[s].value.size(); ++c, ++at) {
          to[s].value[c] += x.value[at];
          to[s].unit[c] += x.gauge[at];
        }
      }
    };
    add_rows(grads.q, q);
    add_rows(grads.k, k);
    add_rows(grads.v, v);
    add_rows(grads.beta, beta);
  }
};

/// Adds the gradients of a feature map's term to those of one query head. \pre Nq = Nk
template <class T>
class SumsGradient {
  using W = Wide<T>;

 public:
  /// \param one the head   \param d_out of the term, [1, 1, N, Dv]
  SumsGradient(const AllInputs<T>& one, const fovea_test::OracleMap<T>& map, bool causal,
               const View<const W>& d_out, SampledGradients<T>& to)
      : one_(one), causal_(causal), d_out_(d_out), to_(to), q_({map}, one.q), k_({map}, one.k) {
    for (Index n = 0; n < count(); ++n) {
      for (Index c = 0; c < value_width(); ++c) v_.push_back(one.v(0, 0, n, c));
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

  Index count() const { return one_.k.rows(); }
  Index width() const { return one_.q.width(); }
  Index value_width() const { return one_.v.width(); }
  const W* q(Index n) const { return q_.values.data() + n * width(); }
  const W* k(Index n) const { return k_.values.data() + n * width(); }
  const W* v(Index n) const { return v_.data() + n * value_width(); }
  const W* d_out(Index n) const { return &d_out_(0, 0, n, 0); }

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
    for (Index t = 0; t < count(); ++t) {
      add_to(sums, t);
      if (causal_) rows_.push_back(read(sums, t));
    }
    for (Index n = 0; n < count() && !causal_; ++n) rows_.push_back(read(sums, n));
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

  /// Adds a gradient by features and its unit as one by x. \param slopes of the features
  static void add(const std::vector<W>& value, const std::vector<W>& size, const W* slopes,
                  GradientRow<T>& to) {
    for (std::size_t d = 0; d < value.size(); ++d) {
      to.value[d] += slopes[d] * value[d];
      to.unit[d] += std::abs(slopes[d]) * size[d];
    }
  }

  void add_query(std::size_t s) {
    const Index n = to_.rows[s];
    std::vector<W> value(static_cast<std::size_t>(width()));
    std::vector<W> size(value.size());
    for (Index t = 0; t < (causal_ ? n + 1 : count()); ++t) {
      const auto [sum, unit] = by_weight(n, t);
      for (std::size_t d = 0; d < value.size(); ++d) {
        value[d] += sum * k(t)[d];
        size[d] += unit * k(t)[d];
      }
    }
    add(value, size, q_.slopes_of_row(0, 0, n), to_.q[s]);
  }

  void add_token(std::size_t s) {
    const Index t = to_.rows[s];
    std::vector<W> value(static_cast<std::size_t>(width()));
    std::vector<W> size(value.size());
    for (Index n = causal_ ? t : 0; n < count(); ++n) {
      const auto [sum, unit] = by_weight(n, t);
      for (std::size_t d = 0; d < value.size(); ++d) {
        value[d] += sum * q(n)[d];
        size[d] += unit * q(n)[d];
      }
      const W share = std::inner_product(q(n), q(n) + width(), k(t), W{0}) /
                      rows_[static_cast<std::size_t>(n)].denominator;
      for (Index c = 0; c < value_width(); ++c) {
        to_.v[s].value[static_cast<std::size_t>(c)] += share * d_out(n)[c];
        to_.v[s].unit[static_cast<std::size_t>(c)] += share * std::abs(d_out(n)[c]);
      }
    }
    add(value, size, k_.slopes_of_row(0, 0, t), to_.k[s]);
  }

  const AllInputs<T>& one_;
  bool causal_;
  View<const W> d_out_;
  SampledGradients<T>& to_;
  fovea_test::OracleFeatures<T> q_, k_;
  std::vector<W> v_;       // [N, Dv]
  std::vector<Row> rows_;  // [N]
};

/// The gradients of the near field in some tokens of a head: by the rows of the oracle that are
/// they, or see them. \param d_out of the near field, [1, 1, N, Dv]
template <class T>
fovea_test::ExpectedGrads<T> band_gradients(const AllInputs<T>& one,
                                            const fovea::LocalAttention& near_field,
                                            const View<const Wide<T>>& d_out,
                                            const std::vector<Index>& tokens) {
  using fovea_test::zero_reference;
  fovea_test::ExpectedGrads<T> grads{zero_reference<T>(one.q.shape()),
                                     zero_reference<T>(one.k.shape()),
                                     zero_reference<T>(one.v.shape())};
  const auto band = band_of<T>(near_field, one.q.width());
  const auto sequence = fovea_test::oracle_sequences(one).front();
  std::set<Index> rows;
  for (const Index n : tokens) {
    const Index last = std::min(one.q.rows() - 1, n + near_field.options.left);
    for (Index row = std::max<Index>(0, n - near_field.options.right); row <= last; ++row) {
      rows.insert(row);
    }
  }
  for (const Index row : rows) {
    fovea_test::detail::add_row(one, band.scale, d_out, oracle_row(one, band, sequence, 0, row),
                                grads);
  }
  return grads;
}

/// Adds the gradients of all terms of one query head.
template <class T>
void add_gradients(const FarModel& model, const AllInputs<T>& in, Index head,
                   const View<const T>& d_out, SampledGradients<T>& to) {
  using W = Wide<T>;
  const AllInputs<T> one = one_head(in, head);
  const auto weighted = [&](W weight) {
    std::vector<W> numbers;
    for (Index n = 0; n < d_out.rows(); ++n) {
      for (Index c = 0; c < d_out.width(); ++c) {
        numbers.push_back(weight * static_cast<W>(d_out(0, head, n, c)));
      }
    }
    return numbers;
  };
  const fovea::Shape shape = {1, 1, d_out.rows(), d_out.width()};
  const auto [near_weight, far_weight] = blend_of(in, head);
  if (model.near_field) {
    const std::vector<W> d_near = weighted(near_weight);
    to.add(band_gradients(one, *model.near_field, View<const W>(d_near.data(), shape), to.rows));
  }
  const std::vector<W> numbers = weighted(far_weight);
  const View<const W> d_far(numbers.data(), shape);
  for (const FarMap map : model.sums) {
    SumsGradient<T>(one, oracle_map<T>(map), model.causal, d_far, to).run();
  }
  for (const FarMap map : model.deltas) {
    to.add(delta_grad_oracle(one, fovea_test::OracleDelta<T>{oracle_map<T>(map)}, d_far));
  }
}

}  // namespace

template <class T>
Error far_gradient_error(const FarModel& model, const AllInputs<T>& in, const View<const T>& d_out,
                         const AllGrads<T>& grads, Index samples) {
  Error error;
  std::vector<Index> key_heads = {0};
  if (in.k.heads() > 1) key_heads.push_back(in.k.heads() - 1);
  const Index group = in.q.heads() / in.k.heads();
  for (const Index key_head : key_heads) {
    SampledGradients<T> want(in, key_head, samples);
    for (Index head = key_head * group; head < (key_head + 1) * group; ++head) {
      want.begin_head();
      add_gradients(model, in, head, d_out, want);
      for (std::size_t s = 0; s < want.rows.size(); ++s) {
        want.q[s].judge(grads.q, head, want.rows[s], error);
      }
    }
    for (std::size_t s = 0; s < want.rows.size(); ++s) {
      want.k[s].judge(grads.k, key_head, want.rows[s], error);
      want.v[s].judge(grads.v, key_head, want.rows[s], error);
      if (!grads.beta.empty()) want.beta[s].judge(grads.beta, key_head, want.rows[s], error);
    }
  }
  return error;
}

template Error far_gradient_error(const FarModel&, const AllInputs<float>&,
                                  const View<const float>&, const AllGrads<float>&, Index);
#if !defined(FOVEA_BENCH_FLOAT_ONLY)
template Error far_gradient_error(const FarModel&, const AllInputs<double>&,
                                  const View<const double>&, const AllGrads<double>&, Index);
#endif

}  // namespace bench
