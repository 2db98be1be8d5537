// SPDX-License-Identifier: MIT
// fovea_test(OPTIMISED SHARDS 4 LEVELS)
/// \file
/// Every derivative of every operator of short sequences against central differences of its own
/// forward pass in double. (For longer ones see backward_test.cpp and packed_test.cpp.)
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

std::vector<const Case<double>*> cases() {
  std::vector<const Case<double>*> all;
  for (const Case<double>& op : all_cases<double>()) all.push_back(&op);
  return all;
}

INSTANTIATE_TEST_SUITE_P(, BackwardDifferences, testing::ValuesIn(cases()),
                         [](const auto& op) { return op.param->name; });

}  // namespace fovea_test::attention_backward_differences
