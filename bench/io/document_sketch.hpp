// SPDX-License-Identifier: MIT
/// \file
/// A sketch for Smart Bird attention that is computed instead of learnt: queries and keys of a few
/// dimensions whose products are nearest to the mean of the heads' logits. Test:
/// tests/bench/io/document_sketch_test.cpp, against the singular values of the whole matrix.
#pragma once

#include <Eigen/Eigenvalues>
#include <algorithm>
#include <cmath>
#include <vector>

#include "bench/io/sketch.hpp"
#include "fovea/attention/attention.hpp"

namespace bench {

namespace detail {

/// [N, groups D]: heads side by side, those of a group added up.
template <class T>
Eigen::MatrixXd side_by_side(const View<const T>& x, Index groups) {
  Eigen::MatrixXd all = Eigen::MatrixXd::Zero(x.rows(), groups * x.width());
  for (Index h = 0; h < x.heads(); ++h) {
    const Index first = h / (x.heads() / groups) * x.width();
    for (Index c = 0; c < x.width(); ++c) {
      for (Index n = 0; n < x.rows(); ++n) all(n, first + c) += static_cast<double>(x(0, h, n, c));
    }
  }
  return all;
}

/// x^T x.
inline Eigen::MatrixXd gram(const Eigen::MatrixXd& x) {
  Eigen::MatrixXd products = Eigen::MatrixXd::Zero(x.cols(), x.cols());
  products.selfadjointView<Eigen::Lower>().rankUpdate(x.transpose());
  return products.selfadjointView<Eigen::Lower>();
}

/// Row-major.
template <class T>
void put_rows(const Eigen::MatrixXd& x, std::vector<T>& to) {
  using Rows = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  Eigen::Map<Rows>(to.data(), x.rows(), x.cols()) = x.cast<T>();
}

}  // namespace detail

/// <sketch_q_i, sketch_k_j> / sqrt(d) is the best approximation of rank d (Eckart and Young, 1936)
/// of the mean over the heads h of batch 0 of <q_hi, k_hj> / sqrt(D), less what its row i has in
/// the mean over j: that changes no weight of a softmax, and would take a dimension.
///
/// With heads side by side, the matrix is M = Q K^T / (H sqrt(D)). It is never made: with
/// K^T K = A A^T, where A = V S^(1/2) of the eigenvectors V and eigenvalues S, M^T M has the
/// eigenvectors K V S^(-1/2) w, w those of A^T Q^T Q A. Time O(N (Hk D)^2 + (Hk D)^3), memory
/// O(N Hk D), in double.
template <class T>
Sketch<T> document_sketch(const AllInputs<T>& in, Index width) {
  const Index groups = in.k.heads();
  const Eigen::MatrixXd q = detail::side_by_side(in.q, groups);
  Eigen::MatrixXd k = detail::side_by_side(in.k, groups);
  k.rowwise() -= k.colwise().mean().eval();

  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> keys(detail::gram(k));
  const Index columns = k.cols();
  const double least = 1e-12 * std::max(keys.eigenvalues()(columns - 1), 0.0);
  Index kept = 0;  // eigenvalues ascend; the first ones may be roundings of 0
  while (kept < columns && keys.eigenvalues()(columns - 1 - kept) > least) ++kept;
  Sketch<T> sketch{{1, 1, q.rows(), width}, {1, 1, k.rows(), width}, {}, {}};
  sketch.q.resize(static_cast<std::size_t>(q.rows() * width));
  sketch.k.resize(static_cast<std::size_t>(k.rows() * width));
  if (kept == 0) return sketch;
  const Eigen::MatrixXd v = keys.eigenvectors().rightCols(kept);
  const Eigen::VectorXd root = keys.eigenvalues().tail(kept).cwiseSqrt();
  const Eigen::MatrixXd a = v * root.asDiagonal();  // [Hk D, kept]

  Eigen::MatrixXd to_q = Eigen::MatrixXd::Zero(columns, width);
  Eigen::MatrixXd to_k = to_q;
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> best(
      Eigen::MatrixXd(a.transpose() * detail::gram(q) * a));
  const double scale = std::sqrt(static_cast<double>(width) / static_cast<double>(in.q.width())) /
                       static_cast<double>(in.q.heads());
  for (Index n = 0; n < std::min(width, kept); ++n) {
    const auto w = best.eigenvectors().col(kept - 1 - n);
    const double sigma = std::sqrt(std::max(best.eigenvalues()(kept - 1 - n), 0.0));
    if (sigma == 0) break;
    // Queries and keys share the singular value, and the scale.
    to_q.col(n) = a * w * std::sqrt(scale / sigma);
    to_k.col(n) = v * (w.array() / root.array()).matrix() * std::sqrt(scale * sigma);
  }
  detail::put_rows(q * to_q, sketch.q);
  detail::put_rows(k * to_k, sketch.k);
  return sketch;
}

}  // namespace bench
