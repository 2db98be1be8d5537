// SPDX-License-Identifier: MIT
#include "bench/baselines/eigen_heads.hpp"

// This unit is compiled with -march=native, the others are not. Eigen's inline functions change
// with such flags (alignment of its memory, width of its packets) but keep their names, and the
// linker would keep one of each. Under another name they stay apart.
#define Eigen eigen_for_this_machine
#include <Eigen/Core>
#include <algorithm>
#include <cmath>

namespace bench {

namespace {

template <class T>
using RowMajor = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Weights = Eigen::Map<RowMajor<float>, Eigen::Aligned64>;
using ConstWeights = Eigen::Map<const RowMajor<float>, Eigen::Aligned64>;

template <class T>
Eigen::Map<RowMajor<T>, Eigen::Unaligned, Eigen::OuterStride<>> matrix(HeadRows<T> x,
                                                                       std::ptrdiff_t rows,
                                                                       std::ptrdiff_t width) {
  return {x.data, rows, width, Eigen::OuterStride<>(x.row)};
}
template <class T>
Eigen::Map<const RowMajor<T>, Eigen::Unaligned, Eigen::OuterStride<>> matrix(HeadRows<const T> x,
                                                                             std::ptrdiff_t rows,
                                                                             std::ptrdiff_t width) {
  return {x.data, rows, width, Eigen::OuterStride<>(x.row)};
}

/// Softmax of the first `visible` elements of a row; the others become exactly 0 (Eigen's
/// exp(-inf) is a small number on some levels). Returns the sum of the weights.
template <class T, class Row>
T weights_of(Row row, Eigen::Index visible) {
  auto seen = row.head(visible).array();
  const T most = seen.maxCoeff();
  seen = (seen - most).exp();
  row.tail(row.size() - visible).setZero();
  return seen.sum();
}

float scale_of(const HeadSizes& sizes) { return 1 / std::sqrt(static_cast<float>(sizes.d)); }

}  // namespace

template <class T>
void eigen_attention(const HeadSizes& sizes, HeadRows<const T> q, HeadRows<const T> k,
                     HeadRows<const T> v, HeadRows<T> out, bool causal, std::ptrdiff_t block_rows,
                     T* scores) {
  const T scale = sizes.d == 0 ? T(1) : T(1) / std::sqrt(static_cast<T>(sizes.d));
  const auto queries = matrix(q, sizes.queries, sizes.d);
  const auto all_keys = matrix(k, sizes.keys, sizes.d);
  const auto values = matrix(v, sizes.keys, sizes.dv);
  auto result = matrix(out, sizes.queries, sizes.dv);
  for (std::ptrdiff_t first = 0; first < sizes.queries; first += block_rows) {
    const std::ptrdiff_t count = std::min(block_rows, sizes.queries - first);
    const std::ptrdiff_t keys = causal ? first + count : sizes.keys;
    Eigen::Map<RowMajor<T>> s(scores, count, keys);
    s.noalias() = scale * (queries.middleRows(first, count) * all_keys.topRows(keys).transpose());
    Eigen::Map<RowMajor<T>> inverse_sums(scores + count * keys, count, 1);
    for (std::ptrdiff_t r = 0; r < count; ++r) {
      inverse_sums(r, 0) = T(1) / weights_of<T>(s.row(r), causal ? first + r + 1 : keys);
    }
    auto o = result.middleRows(first, count);
    o.noalias() = s * values.topRows(keys);
    o.array().colwise() *= inverse_sums.col(0).array();
  }
}

template void eigen_attention(const HeadSizes&, HeadRows<const float>, HeadRows<const float>,
                              HeadRows<const float>, HeadRows<float>, bool, std::ptrdiff_t, float*);
template void eigen_attention(const HeadSizes&, HeadRows<const double>, HeadRows<const double>,
                              HeadRows<const double>, HeadRows<double>, bool, std::ptrdiff_t,
                              double*);

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
  const auto o = matrix(out, s.queries, s.dv);
  const auto d_o = matrix(d_out, s.queries, s.dv);
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
