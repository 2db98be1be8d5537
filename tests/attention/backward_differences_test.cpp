// SPDX-License-Identifier: MIT
// fovea_test(OPTIMISED SHARDS 4 LEVELS)
/// \file
/// Gradients of every operator against central differences of its own forward pass in double: every
/// derivative of short sequences, random directions of longer ones.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "attention/differences.hpp"

namespace fovea_test::attention_backward_differences {

class BackwardDifferences : public testing::TestWithParam<const Case<double>*> {
 protected:
  static std::vector<double> forward(const Problem<double>& problem) {
    return run(*GetParam(), problem).out;
  }

  static void expect_derivatives(Problem<double>& problem) {
    at_each_level([&] {
      expect_jacobian(
          problem, 0x1p-16, 1e-8, [&] { return forward(problem); },
          [&](const Tensor<double>& d_out) {
            return flat(run_backward(*GetParam(), problem, d_out));
          });
    });
  }

  /// <d_out, out> as the parameters move along a random direction, against its gradient there.
  static void expect_derivative_along_a_line(Problem<double>& problem, std::uint64_t seed) {
    constexpr double step = 0x1p-16;
    const Tensor<double> d_out = make_d_out(problem);
    const std::vector<double> weights = d_out.values();
    const std::vector<double*> all = parameters(problem);
    const std::vector<long double> grads = flat(run_backward(*GetParam(), problem, d_out));
    ASSERT_EQ(all.size(), grads.size());
    std::vector<double> direction;
    long double derivative = 0;
    long double size = 0;
    for (std::size_t p = 0; p < all.size(); ++p) {
      direction.push_back(gaussian(seed)(0, 0, 0, static_cast<Index>(p)));
      derivative += direction[p] * grads[p];
      size += direction[p] * direction[p] * grads[p] * grads[p];
    }
    const std::vector<double> before = [&] {
      std::vector<double> values;
      for (const double* x : all) values.push_back(*x);
      return values;
    }();
    const auto loss_at = [&](double t) {
      for (std::size_t p = 0; p < all.size(); ++p) *all[p] = before[p] + t * direction[p];
      const std::vector<double> out = forward(problem);
      for (std::size_t p = 0; p < all.size(); ++p) *all[p] = before[p];
      return out;
    };
    const std::vector<double> above = loss_at(step);
    const std::vector<double> below = loss_at(-step);
    long double difference = 0;
    for (std::size_t i = 0; i < above.size(); ++i) {
      difference += weights[i] * ((above[i] - below[i]) / (2 * step));
    }
    EXPECT_TRUE(std::abs(difference - derivative) <= 1e-6L * std::sqrt(size))
        << derivative << ", difference " << difference << "; " << describe(problem);
  }
};

TEST_P(BackwardDifferences, FullJacobian) {
  const Case<double>& op = *GetParam();
  Problem<double> square = smooth(op, make_problem(op, {1, 2, 1, 12, 12, 3, 2}));
  expect_derivatives(square);
  Problem<double> with_lengths = smooth(op, make_problem(op, {2, 1, 1, 5, 9, 2, 3}, 2));
  with_lengths.key_lengths = {9, 4};
  expect_derivatives(with_lengths);
  Problem<double> more_queries = smooth(op, make_problem(op, {1, 1, 1, 11, 7, 2, 1}, 3));
  expect_derivatives(more_queries);
  if (!op.packs) return;
  Problem<double> packed = smooth(op, make_packed(op, {1, 2, 1, 0, 0, 2, 2}, {4, 0, 7}, {5, 2, 4}));
  expect_derivatives(packed);
}

/// Every derivative of every lse that is finite.
TEST_P(BackwardDifferences, OfLse) {
  const Case<double>& op = *GetParam();
  if (!op.backward_through_lse) return;
  const auto expect = [&](Problem<double>&& problem) {
    const Tensor<double> no_d_out(problem.out_shape());
    no_d_out.fill(constant(0));
    expect_jacobian(
        problem, problem.row_shape(), 0x1p-16, 1e-8,
        [&] {
          std::vector<double> all = run(op, problem).lse;
          for (double& x : all) x = std::isfinite(x) ? x : 0;
          return all;
        },
        [&](const Tensor<double>& d_lse) {
          return flat(run_backward(op, problem.inputs(), View<const double>(no_d_out.view()),
                                   nullptr, {}, {}, View<const double>(d_lse.view())));
        });
  };
  at_each_level([&] {
    expect(make_problem(op, {1, 2, 1, 12, 12, 3, 2}));
    Problem<double> with_lengths = make_problem(op, {2, 1, 1, 5, 9, 2, 3}, 2);
    with_lengths.key_lengths = {9, 4};
    expect(std::move(with_lengths));
    if (op.packs) expect(make_packed(op, {1, 2, 1, 0, 0, 2, 2}, {4, 0, 7}, {5, 2, 4}));
  });
}

TEST_P(BackwardDifferences, RandomDirections) {
  const Case<double>& op = *GetParam();
  std::uint64_t seed = 70;
  Problem<double> grouped = smooth(op, make_problem(op, {2, 4, 2, 150, 170, 7, 5}));
  grouped.key_lengths = {170, 131};
  Problem<double> tall = smooth(op, make_problem(op, {1, 1, 1, 600, 260, 16, 16}, 2));
  Problem<double> packed =
      smooth(op, make_packed(op, {1, 2, 2, 0, 0, 5, 6}, {70, 1, 130, 65}, {64, 3, 129, 65}));
  at_each_level([&] {
    for (int round = 0; round < 2; ++round) {
      expect_derivative_along_a_line(grouped, seed++);
      expect_derivative_along_a_line(tall, seed++);
      if (op.packs) expect_derivative_along_a_line(packed, seed++);
    }
  });
}

std::vector<const Case<double>*> cases() {
  std::vector<const Case<double>*> all;
  for (const Case<double>& op : all_cases<double>()) all.push_back(&op);
  return all;
}

INSTANTIATE_TEST_SUITE_P(, BackwardDifferences, testing::ValuesIn(cases()),
                         [](const auto& op) { return op.param->name; });

}  // namespace fovea_test::attention_backward_differences
