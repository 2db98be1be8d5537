// SPDX-License-Identifier: MIT
#include "bench/baselines/dense_heads.hpp"

// Compiled for this very machine, as eigen_attention.cpp is, and under another name as there.
#define Eigen eigen_for_this_machine
#include <Eigen/Core>
#include <cmath>

namespace bench {

namespace {

using RowMajor = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Rows = Eigen::Map<RowMajor, Eigen::Unaligned, Eigen::OuterStride<>>;
using ConstRows = Eigen::Map<const RowMajor, Eigen::Unaligned, Eigen::OuterStride<>>;
using Weights = Eigen::Map<RowMajor, Eigen::Aligned64>;
using ConstWeights = Eigen::Map<const RowMajor, Eigen::Aligned64>;

Rows matrix(HeadRows<float> x, std::ptrdiff_t rows, std::ptrdiff_t width) {
  return {x.data, rows, width, Eigen::OuterStride<>(x.row)};
}
ConstRows matrix(HeadRows<const float> x, std::ptrdiff_t rows, std::ptrdiff_t width) {
  return {x.data, rows, width, Eigen::OuterStride<>(x.row)};
}

float scale_of(const HeadSizes& sizes) { return 1 / std::sqrt(static_cast<float>(sizes.d)); }

}  // namespace

void dense_head_forward(const HeadSizes& s, HeadRows<const float> q, HeadRows<const float> k,
                        HeadRows<const float> v, HeadRows<float> out, float* weights) {
  Weights p(weights, s.queries, s.keys);
  p.noalias() = scale_of(s) * (matrix(q, s.queries, s.d) * matrix(k, s.keys, s.d).transpose());
  for (std::ptrdiff_t i = 0; i < p.rows(); ++i) {
    auto row = p.row(i).array();
    row = (row - row.maxCoeff()).exp();
    row /= row.sum();
  }
  matrix(out, s.queries, s.dv).noalias() = p * matrix(v, s.keys, s.dv);
}

void dense_head_backward(const HeadSizes& s, HeadRows<const float> q, HeadRows<const float> k,
                         HeadRows<const float> v, HeadRows<const float> out,
                         HeadRows<const float> d_out, const float* weights, float* d_weights,
                         HeadRows<float> d_q, HeadRows<float> d_k, HeadRows<float> d_v) {
  const ConstWeights p(weights, s.queries, s.keys);
  Weights d(d_weights, s.queries, s.keys);
  const ConstRows o = matrix(out, s.queries, s.dv);
  const ConstRows d_o = matrix(d_out, s.queries, s.dv);
  matrix(d_v, s.keys, s.dv).noalias() = p.transpose() * d_o;
  d.noalias() = d_o * matrix(v, s.keys, s.dv).transpose();
  for (std::ptrdiff_t i = 0; i < p.rows(); ++i) {
    const float delta = d_o.row(i).dot(o.row(i));
    d.row(i).array() = (d.row(i).array() - delta) * p.row(i).array() * scale_of(s);
  }
  matrix(d_q, s.queries, s.d).noalias() = d * matrix(k, s.keys, s.d);
  matrix(d_k, s.keys, s.d).noalias() = d.transpose() * matrix(q, s.queries, s.d);
}

}  // namespace bench
