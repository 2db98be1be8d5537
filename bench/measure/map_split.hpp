// SPDX-License-Identifier: MIT
/// \file
/// How an attention map splits into a band near the diagonal and a rest of low rank, as FMM
/// attention has it (Nguyen et al. 2021, section 2.2). Test:
/// tests/bench/measure/map_split_test.cpp.
#pragma once

#include <Eigen/Dense>
#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "bench/io/gaussian.hpp"
#include "bench/measure/head_kinds.hpp"

namespace bench {

/// The map of a head: row i has the weights of full attention. Memory: 8 N^2 bytes.
inline Eigen::MatrixXd full_map(const AllInputs<float>& in, Index head, bool causal) {
  const Index rows = in.q.rows();
  Eigen::MatrixXd map = Eigen::MatrixXd::Zero(rows, rows);
  std::vector<double> weights;
  for (Index i = 0; i < rows; ++i) {
    full_weights(in, head, i, causal, weights);
    for (std::size_t j = 0; j < weights.size(); ++j) map(i, static_cast<Index>(j)) = weights[j];
  }
  return map;
}

/// The map without |i - j| < k: k is the half width of the paper's code, and 0 takes nothing.
inline Eigen::MatrixXd without_band(Eigen::MatrixXd map, Index k) {
  for (Index i = 0; i < map.rows(); ++i) {
    const Index end = std::min(i + k, map.cols());
    for (Index j = std::max<Index>(0, i - k + 1); j < end; ++j) map(i, j) = 0;
  }
  return map;
}

/// The largest singular values, descending, by subspace iteration with 8 spare columns.
inline std::vector<double> largest_singular_values(const Eigen::MatrixXd& x, Index count) {
  const Index columns = std::min(count + 8, std::min(x.rows(), x.cols()));
  const std::vector<double> numbers = gaussians<double>(17, 0, x.cols() * columns);
  Eigen::MatrixXd basis = Eigen::Map<const Eigen::MatrixXd>(numbers.data(), x.cols(), columns);
  Eigen::MatrixXd image;
  for (int turn = 0; turn < 12; ++turn) {
    image = x * basis;
    basis = x.transpose() * image;
    basis = Eigen::HouseholderQR<Eigen::MatrixXd>(basis).householderQ() *
            Eigen::MatrixXd::Identity(x.cols(), columns);
  }
  image = x * basis;
  const Eigen::VectorXd values = Eigen::BDCSVD<Eigen::MatrixXd>(image).singularValues();
  return {values.data(), values.data() + std::min(count, columns)};
}

/// |map - band - best matrix of rank r| / |map|, Frobenius, for r = 0, 1, 2, 3.
inline std::array<double, 4> split_errors(const Eigen::MatrixXd& map, Index k) {
  const Eigen::MatrixXd rest = without_band(map, k);
  const std::vector<double> values = largest_singular_values(rest, 3);
  std::array<double, 4> errors{};
  double square = rest.squaredNorm();
  for (std::size_t r = 0; r < errors.size(); ++r) {
    errors[r] = std::sqrt(std::max(square, 0.0) / map.squaredNorm());
    if (r < values.size()) square -= values[r] * values[r];
  }
  return errors;
}

/// How many singular values of the map without its band are above the paper's 1e-6.
inline Index rank_without_band(const Eigen::MatrixXd& map, Index k) {
  const Eigen::VectorXd values =
      Eigen::BDCSVD<Eigen::MatrixXd>(without_band(map, k)).singularValues();
  return (values.array() > 1e-6).count();
}

}  // namespace bench
