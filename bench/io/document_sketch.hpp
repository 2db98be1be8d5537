// SPDX-License-Identifier: MIT
/// \file
/// A sketch for Smart Bird attention that is computed instead of learnt: queries and keys of a few
/// dimensions whose products are nearest to the mean of the heads' logits. Test:
/// tests/bench/io/document_sketch_test.cpp, against the singular values of the whole matrix.
#pragma once

#include <Eigen/Core>
#include <cmath>
#include <vector>

#include "bench/io/sketch.hpp"
#include "bench/io/sketch_rows.hpp"

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
  const double scale = std::sqrt(static_cast<double>(width) / static_cast<double>(in.q.width())) /
                       static_cast<double>(in.q.heads());
  const SketchRows rows = sketch_rows(detail::side_by_side(in.q, groups),
                                      detail::side_by_side(in.k, groups), width, scale);
  const auto narrowed = [](const SketchRows::Matrix& x) {
    return std::vector<T>(x.data(), x.data() + x.size());
  };
  return {{1, 1, rows.q.rows(), width},
          {1, 1, rows.k.rows(), width},
          narrowed(rows.q),
          narrowed(rows.k)};
}

}  // namespace bench
