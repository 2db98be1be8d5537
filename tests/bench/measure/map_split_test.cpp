// SPDX-License-Identifier: MIT
// Bands and ranks of matrices whose singular values are known.
#include "bench/measure/map_split.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace fovea_test::bench_measure_map_split {

using bench::Index;

/// A band of half width 3 plus a rest of rank 2.
Eigen::MatrixXd band_and_rest(Index n) {
  Eigen::MatrixXd map(n, n);
  for (Index i = 0; i < n; ++i) {
    for (Index j = 0; j < n; ++j) {
      const auto a = static_cast<double>(i);
      const auto b = static_cast<double>(j);
      map(i, j) = std::sin(a) * std::cos(b) + 0.1 * a * b / static_cast<double>(n);
      if (std::abs(i - j) < 3) map(i, j) += 10 + a;
    }
  }
  return map;
}

TEST(MapSplit, SelectsTheBand) {
  const Eigen::MatrixXd map = band_and_rest(40);
  const Eigen::MatrixXd rest = bench::without_band(map, 3);
  for (Index i = 0; i < 40; ++i) {
    for (Index j = 0; j < 40; ++j) EXPECT_EQ(rest(i, j), std::abs(i - j) < 3 ? 0 : map(i, j));
  }
  EXPECT_EQ(bench::without_band(map, 0), map);
}

TEST(MapSplit, FindsTheLargestSingularValues) {
  for (const Index n : {5, 40, 120}) {
    const Eigen::MatrixXd x = bench::without_band(band_and_rest(n), 3);
    const Eigen::VectorXd all = Eigen::JacobiSVD<Eigen::MatrixXd>(x).singularValues();
    const std::vector<double> largest = bench::largest_singular_values(x, 3);
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_NEAR(largest[i], all(static_cast<Index>(i)), 1e-6 * all(0)) << n << " " << i;
    }
  }
}

TEST(MapSplit, ErrorsAreThoseOfTheBestRest) {
  const Eigen::MatrixXd map = band_and_rest(60);
  const auto errors = bench::split_errors(map, 2);
  const Eigen::MatrixXd rest = bench::without_band(map, 2);
  const Eigen::VectorXd values = Eigen::JacobiSVD<Eigen::MatrixXd>(rest).singularValues();
  for (Index r = 0; r < 4; ++r) {
    const double left = values.tail(values.size() - r).norm();
    EXPECT_NEAR(errors[static_cast<std::size_t>(r)], left / map.norm(), 1e-6);
  }
}

TEST(MapSplit, CountsTheRank) {
  Eigen::MatrixXd map = Eigen::MatrixXd::Zero(20, 20);
  map(15, 1) = 1;
  map(16, 2) = 2e-6;
  map(17, 3) = 0.5e-6;  // below what is counted
  EXPECT_EQ(bench::rank_without_band(map, 5), 2);
}

}  // namespace fovea_test::bench_measure_map_split
