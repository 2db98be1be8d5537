// SPDX-License-Identifier: MIT
#include "bench/reference/gradient_reference.hpp"

#include <algorithm>
#include <utility>

namespace bench {

namespace {

/// One visible pair: its weight P, dP, Delta, and the unit's factor 1 + B.
template <class W>
struct PairTruth {
  W weight;
  W d_weight;
  W delta;
  W gauge;
};

/// The pairs of one head, from lse and out as forward saved them.
template <class T>
class PairTruths {
  using W = Wide<T>;

 public:
  PairTruths(const AllInputs<T>& in, const View<const T>& out, const View<const T>& lse,
             const View<const T>& d_out, Index head)
      : in_(in),
        out_(out),
        lse_(lse),
        d_out_(d_out),
        head_(head),
        key_head_(head / (in.q.heads() / in.k.heads())),
        scale_(1 / std::sqrt(static_cast<W>(std::max<Index>(1, in.q.width())))) {}

  PairTruth<W> at(Index i, Index j) const {
    W dot = 0;
    W size = 0;
    for (Index c = 0; c < in_.q.width(); ++c) {
      const W term = static_cast<W>(in_.q(0, head_, i, c)) * in_.k(0, key_head_, j, c);
      dot += term;
      size += std::abs(term);
    }
    PairTruth<W> pair{std::exp(scale_ * dot - lse_(0, head_, i, 0)), 0, 0, 1 + scale_ * size};
    for (Index c = 0; c < in_.v.width(); ++c) {
      pair.d_weight += static_cast<W>(d_out_(0, head_, i, c)) * in_.v(0, key_head_, j, c);
      pair.delta += static_cast<W>(d_out_(0, head_, i, c)) * out_(0, head_, i, c);
    }
    return pair;
  }

  W scale() const { return scale_; }
  Index key_head() const { return key_head_; }

 private:
  const AllInputs<T>& in_;
  const View<const T>& out_;
  const View<const T>& lse_;
  const View<const T>& d_out_;
  Index head_;
  Index key_head_;
  W scale_;
};

/// Rows of the gradients of an operator.
template <class T>
class GradientTruth {
  using W = Wide<T>;

 public:
  GradientTruth(const fovea_test::ReferenceMask& mask, const AllInputs<T>& in,
                const View<const T>& out, const View<const T>& lse, const View<const T>& d_out)
      : mask_(mask), in_(in), out_(out), lse_(lse), d_out_(d_out) {}

  GradientRow<T> d_q(Index head, Index i) const {
    GradientRow<T> row(in_.q.width());
    const PairTruths<T> pairs(in_, out_, lse_, d_out_, head);
    for (Index j = 0; j < in_.k.rows(); ++j) {
      if (!is_visible(head, i, j)) continue;
      const PairTruth<W> pair = pairs.at(i, j);
      row.add(by_product(pairs, pair), size_of_product(pairs, pair), in_.k, pairs.key_head(), j);
    }
    return row;
  }

  /// Of k and of v: sums over all query heads that read the key head.
  std::pair<GradientRow<T>, GradientRow<T>> d_k_and_d_v(Index key_head, Index j) const {
    GradientRow<T> d_k(in_.k.width());
    GradientRow<T> d_v(in_.v.width());
    const Index group = in_.q.heads() / in_.k.heads();
    for (Index head = key_head * group; head < (key_head + 1) * group; ++head) {
      const PairTruths<T> pairs(in_, out_, lse_, d_out_, head);
      for (Index i = 0; i < in_.q.rows(); ++i) {
        if (!is_visible(head, i, j)) continue;
        const PairTruth<W> pair = pairs.at(i, j);
        d_k.add(by_product(pairs, pair), size_of_product(pairs, pair), in_.q, head, i);
        d_v.add(pair.weight, (pair.weight + fovea_test::kFaint<T>)*pair.gauge, d_out_, head, i);
      }
    }
    return {d_k, d_v};
  }

 private:
  bool is_visible(Index head, Index i, Index j) const {
    return mask_({0, head, i, j, in_.q.rows(), in_.k.rows()});
  }

  /// The gradient by <q, k>, and its unit.
  static W by_product(const PairTruths<T>& pairs, const PairTruth<W>& pair) {
    return pairs.scale() * pair.weight * (pair.d_weight - pair.delta);
  }
  static W size_of_product(const PairTruths<T>& pairs, const PairTruth<W>& pair) {
    return pairs.scale() *
           (pair.weight + fovea_test::kFaint<T>)*(std::abs(pair.d_weight) + std::abs(pair.delta)) *
           pair.gauge;
  }

  const fovea_test::ReferenceMask& mask_;
  const AllInputs<T>& in_;
  View<const T> out_, lse_, d_out_;
};

}  // namespace

template <class T>
Error softmax_gradient_error(const fovea_test::ReferenceMask& mask, const AllInputs<T>& in,
                             const View<const T>& out, const View<const T>& lse,
                             const View<const T>& d_out, const AllGrads<T>& grads, Index samples) {
  Error error;
  const GradientTruth<T> truth(mask, in, out, lse, d_out);
  const auto for_each_sample = [samples](const View<const T>& x, const auto& judge) {
    const Index count = std::min(samples, x.rows());
    for (Index head = 0; head < x.heads(); ++head) {
      for (Index s = 0; s < count; ++s) judge(head, sampled_row(s, count, head, x.rows()));
    }
  };
  for_each_sample(in.q,
                  [&](Index head, Index i) { truth.d_q(head, i).judge(grads.q, head, i, error); });
  for_each_sample(in.k, [&](Index head, Index j) {
    const auto [d_k, d_v] = truth.d_k_and_d_v(head, j);
    d_k.judge(grads.k, head, j, error);
    d_v.judge(grads.v, head, j, error);
  });
  return error;
}

template Error softmax_gradient_error(const fovea_test::ReferenceMask&, const AllInputs<float>&,
                                      const View<const float>&, const View<const float>&,
                                      const View<const float>&, const AllGrads<float>&, Index);
#if !defined(FOVEA_BENCH_FLOAT_ONLY)
template Error softmax_gradient_error(const fovea_test::ReferenceMask&, const AllInputs<double>&,
                                      const View<const double>&, const View<const double>&,
                                      const View<const double>&, const AllGrads<double>&, Index);
#endif

}  // namespace bench
