// SPDX-License-Identifier: MIT
/// \file
/// An output compared with full attention's: its distance, and the share of full attention's weight
/// on its visible keys.
#pragma once

#include <cmath>
#include <vector>

#include "bench/entries/sparse_entry.hpp"
#include "fovea/attention/smart_bird.hpp"

namespace bench {

/// An output with the logarithm of each row's sum.
struct Result {
  explicit Result(const AllInputs<float>& in)
      : out(static_cast<std::size_t>(in.q.heads() * in.q.rows() * in.v.width())),
        lse(static_cast<std::size_t>(in.q.heads() * in.q.rows())),
        out_view(out.data(), {1, in.q.heads(), in.q.rows(), in.v.width()}),
        lse_view(lse.data(), {1, in.q.heads(), in.q.rows(), 1}) {}
  Result(const Result&) = delete;
  Result& operator=(const Result&) = delete;

  std::vector<float> out, lse;
  View<float> out_view, lse_view;
};

/// The result of an operator for one head.
struct Found {
  double distance = 0;  ///< |out - full| / |full|, Euclidean
  double cosine = 0;    ///< of the angle between out and full
  double weight = 0;    ///< of full attention on the visible keys, mean over rows
};

/// Compares one head with full attention that sees all that the head sees.
inline Found found(const Result& one, const Result& full, Index head) {
  const Index rows = full.out_view.rows();
  double gap = 0;
  double size = 0;
  double own = 0;
  double product = 0;
  double weight = 0;
  for (Index n = 0; n < rows; ++n) {
    for (Index c = 0; c < full.out_view.width(); ++c) {
      const double a = one.out_view(0, head, n, c);
      const double b = full.out_view(0, head, n, c);
      gap += (a - b) * (a - b);
      own += a * a;
      size += b * b;
      product += a * b;
    }
    weight += std::exp(static_cast<double>(one.lse_view(0, head, n, 0)) -
                       static_cast<double>(full.lse_view(0, head, n, 0)));
  }
  return {std::sqrt(gap / size), product / std::sqrt(own * size),
          weight / static_cast<double>(rows)};
}

/// Attention to the keys of the largest weights: a sketch of each head's own queries and keys.
inline void attend_to_best(const AllInputs<float>& in, const fovea::SmartBirdOptions& options,
                           const Result& to, ThreadPool& pool) {
  fovea::SmartBirdOptions best = options;
  best.policy = fovea::SamplingPolicy::top_k;
  const fovea::SmartBirdAttention op(best);
  for (Index h = 0; h < in.q.heads(); ++h) {
    const Index key_head = h / (in.q.heads() / in.k.heads());
    AllInputs<float> one{head_of(in.q, h), head_of(in.k, key_head), head_of(in.v, key_head)};
    one.sketch_q = one.q;
    one.sketch_k = one.k;
    op.forward(one, head_of(to.out_view, h), {head_of(to.lse_view, h)}, pool);
  }
}

}  // namespace bench
