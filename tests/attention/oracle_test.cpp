// SPDX-License-Identifier: MIT
// fovea_test(OPTIMISED)
/// \file
/// The gradient oracle itself, against central differences of the forward oracle in long double:
/// every derivative, of every case.
#include <gtest/gtest.h>

#include <vector>

#include "attention/differences.hpp"
#include "attention/linear_case.hpp"

namespace fovea_test::attention_oracle {

class Oracle : public testing::TestWithParam<const Case<double>*> {
 protected:
  static void expect_derivatives(Problem<double>& problem) {
    const Case<double>& op = *GetParam();
    expect_jacobian(
        problem, 0x1p-20, 2e-9, [&] { return op.oracle(problem.inputs()).out.value; },
        [&](const Tensor<double>& d_out) {
          return flat(op.grad_oracle(problem.inputs(), d_out.view()));
        });
  }
};

TEST_P(Oracle, GradientsMatchCentralDifferences) {
  const Case<double>& op = *GetParam();
  Problem<double> grouped = smooth(op, make_problem(op, {2, 2, 1, 4, 6, 3, 2}, 3));
  expect_derivatives(grouped);
  grouped.key_lengths = {6, 3};
  expect_derivatives(grouped);
  Problem<double> more_queries = smooth(op, make_problem(op, {1, 2, 2, 6, 5, 2, 3}, 4));
  expect_derivatives(more_queries);
}

TEST_P(Oracle, PackedGradientsMatchCentralDifferences) {
  Problem<double> packed =
      smooth(*GetParam(), make_packed(*GetParam(), {1, 2, 1, 0, 0, 2, 2}, {2, 0, 3}, {3, 1, 2}));
  expect_derivatives(packed);
}

/// Values of 1 come out as what the sink leaves.
TEST(OracleSink, HasAWeight) {
  const Case<double> op =
      softmax_case<double>("sink", fovea::FullAttention{}, all_pairs, {.sink = true});
  const Problem<double> problem =
      make_problem(op, {1, 2, 1, 5, 6, 3, 1}, 1, {gaussian(1), gaussian(2), constant(1)});
  const Expected<double> expected = op.oracle(problem.inputs());
  for (std::size_t i = 0; i < expected.lse.value.size(); ++i) {
    const long double share = std::exp(problem.sink[i / 5] - expected.lse.value[i]);
    EXPECT_GT(share, 0.001L);
    EXPECT_NEAR(static_cast<double>(expected.out.value[i]), static_cast<double>(1 - share), 1e-15);
  }
}

/// Denominators below and above the floor: keys whose features have opposite signs in two columns.
TEST(OracleFloor, HasItsOwnDerivatives) {
  for (const bool causal : {false, true}) {
    const auto op =
        linear_case<double>("floor", fovea::LinearAttention<fovea::Tanh>{
                                         {.causal = causal,
                                          .alignment = fovea::CausalAlignment::bottom_right,
                                          .denominator = fovea::Denominator::signed_floor(0.5)}});
    Problem<double> problem = make_problem(op, sizes(5, 5, 2, 3));
    problem.q.fill([](Index, Index, Index n, Index d) {
      return n < 2 ? 0.3 : 0.1 + 0.3 * static_cast<double>(d);
    });
    problem.k.fill([](Index, Index, Index n, Index d) {
      return d == 0 ? 1 - 0.1 * static_cast<double>(n) : -0.6;
    });
    expect_jacobian(
        problem, 0x1p-20, 2e-9, [&] { return op.oracle(problem.inputs()).out.value; },
        [&](const Tensor<double>& d_out) {
          return flat(op.grad_oracle(problem.inputs(), d_out.view()));
        });
  }
}

std::vector<const Case<double>*> cases() {
  std::vector<const Case<double>*> all;
  for (const Case<double>& op : all_cases<double>()) all.push_back(&op);
  return all;
}

INSTANTIATE_TEST_SUITE_P(, Oracle, testing::ValuesIn(cases()),
                         [](const auto& op) { return op.param->name; });

}  // namespace fovea_test::attention_oracle
