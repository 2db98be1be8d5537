// SPDX-License-Identifier: MIT
/// \file
/// Gradients of every operator against the oracle: sizes, widths, heads, key lengths, logits; and
/// the identities that hold whatever the data.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "attention/gradients.hpp"
#include "fovea/core/thread_pool.hpp"
#include "support/refusal.hpp"

namespace fovea_test {
namespace {

TEST_P(Conformance, GradientsAtEdgeSizes) {
  each([]<class T>(const Case<T>& op) {
    std::uint64_t seed = 1;
    for (const Index keys : {0, 1, 2, 17, 63, 64, 65, 127, 128, 129, 257}) {
      for (const Index queries : {0, 1, 7, 63, 64, 65, 131}) {
        if (keys > 130 && queries > 70) continue;
        expect_grads_conform(op, make_problem(op, sizes(queries, keys, 4, 3), seed++));
      }
    }
    for (const auto& [queries, keys] : {std::array<Index, 2>{511, 19},
                                        {512, 31},
                                        {513, 512},
                                        {640, 23},
                                        {1031, 5},
                                        {29, 511},
                                        {13, 513},
                                        {11, 1031},
                                        {5, 2051}}) {
      expect_grads_conform(op, make_problem(op, sizes(queries, keys, 3, 5), seed++));
    }
  });
}

/// Every choice of the seven sizes is 0: results and gradients are what the oracles say, which is 0
/// wherever no pair contributes. Query heads without key heads have nothing to read: refused.
TEST_P(Conformance, ZeroSizesAndTheirGradients) {
  each([]<class T>(const Case<T>& op) {
    fovea::ThreadPool pool(3);
    AnyExecutor threads = AnyExecutor::of(pool);
    for (int zeros = 0; zeros < 128; ++zeros) {
      const auto extent = [=](int bit, Index n) { return (zeros >> bit & 1) != 0 ? 0 : n; };
      const Problem<T> problem =
          make_problem(op, {extent(0, 2), extent(1, 4), extent(2, 2), extent(3, 6), extent(4, 9),
                            extent(5, 5), extent(6, 3)});
      const Tensor<T> d_out = make_d_out(problem);
      SCOPED_TRACE(describe(problem));
      if (problem.shape.query_heads > 0 && problem.shape.key_heads == 0) {
        EXPECT_NE(refusal([&] { run(op, problem); }), "accepted");
        continue;
      }
      const Expected<T> expected = op.oracle(problem.inputs());
      const ExpectedGrads<T> grads = op.grad_oracle(problem.inputs(), d_out.view());
      at_each_level([&] {
        for (AnyExecutor* executor : {static_cast<AnyExecutor*>(nullptr), &threads}) {
          const Result<T> got = run(op, problem, executor);
          EXPECT_TRUE(within_ratio(got.out, expected.out, kOutBound));
          if (op.is_softmax) {
            EXPECT_TRUE(within_ratio(got.lse, expected.lse, kLseBound));
          }
          expect_within(op, run_backward(op, problem, d_out, executor), grads);
        }
      });
    }
  });
}

TEST_P(Conformance, GradientsAtWidths) {
  each([]<class T>(const Case<T>& op) {
    const std::vector<Index> widths = {0,  1,  2,  3,  4,  5,  7,  8,   9,
                                       15, 16, 17, 24, 31, 33, 64, 111, 128};
    for (std::size_t i = 0; i < widths.size(); ++i) {
      const Index other = widths[(i * 7 + 3) % widths.size()];
      expect_grads_conform(op, make_problem(op, sizes(19, 37, widths[i], other), i));
    }
    for (const Index width : register_widths()) {
      expect_grads_conform(op, make_problem(op, sizes(35, 40, width, width), 3));
    }
  });
}

TEST_P(Conformance, GradientsOfGroupedHeads) {
  each([]<class T>(const Case<T>& op) {
    for (const Index key_heads : {1, 2, 3, 6}) {
      expect_grads_conform(op, make_problem(op, {2, 6, key_heads, 70, 33, 6, 7}));
    }
  });
}

TEST_P(Conformance, GradientsWithKeyLengths) {
  each([]<class T>(const Case<T>& op) {
    for (const auto& [queries, keys] : {std::array<Index, 2>{40, 40}, {150, 137}, {5, 300}}) {
      Problem<T> problem = make_problem(op, {6, 2, 1, queries, keys, 3, 4});
      problem.key_lengths = {0, 1, keys / 2, keys - 1, keys, std::min<Index>(keys, 128)};
      expect_grads_conform(op, problem);
    }
  });
}

TEST_P(Conformance, GradientsAtExtremeLogits) {
  each([]<class T>(const Case<T>& op) {
    for (const double size : {1.0, 5.0, 20.0, 88.0, 104.0, 709.0, 1e4}) {
      // Far beyond its cap a logit has no slope that T could hold, and all gradients may be 0.
      if (op.options.soft_cap && size > 5) continue;
      const auto value = [=](Index j) { return j % 7 == 3 ? size : j % 7 == 5 ? -size : 0; };
      expect_grads_conform(op, make_problem(op, sizes(40, 150, 2, 6), 5,
                                            {constant(1), first_column(value), gaussian(5)}));
    }
  });
}

/// Long sums of equal terms: every rounding errs the same way.
TEST_P(Conformance, GradientsOfConstantData) {
  each([]<class T>(const Case<T>& op) {
    const Problem<T> problem =
        make_problem(op, sizes(600, 300, 2, 2), 1, {constant(0.1), constant(0.7), gaussian(3)});
    const Tensor<T> d_out(problem.out_shape());
    d_out.fill(constant(0.1));
    expect_grads_conform(op, problem, d_out, " constant data");
  });
}

template <class T>
Wide<T> inner_product(const std::vector<T>& a, const std::vector<T>& b) {
  Wide<T> sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += Wide<T>{a[i]} * Wide<T>{b[i]};
  return sum;
}

/// out is linear in v, so <d_out, out> = <d_v, v>; where no oracle fits. An error of u per element
/// is one of u |d_out| |v| / sqrt(size of v) in the sum (reliability.md, FINUFFT).
TEST_P(Conformance, ValuesAndTheirGradientsAreAdjoint) {
  each([]<class T>(const Case<T>& op) {
    if (op.signed_weights) GTEST_SKIP() << "denominators without a bound";
    const bool is_short =
        !op.is_softmax || op.visible_pairs(sizes(65'536, 65'536, 1, 1)) < 13'000'000;
    const Index n = op.has_pairs() ? 1500 : is_short ? 65'536 : 5000;
    const Problem<T> problem = make_problem(op, sizes(n, n, 4, 3));
    const Tensor<T> d_out = make_d_out(problem);
    const std::vector<T> v = problem.v.values();
    const std::vector<T> d = d_out.values();
    const Wide<T> size =
        std::sqrt(inner_product(d, d) * inner_product(v, v) / static_cast<Wide<T>>(v.size()));
    at_each_level([&] {
      const std::vector<T> out = run(op, problem).out;
      const Gradients<T> grads = run_backward(
          op, problem, d_out, nullptr, {}, {.q = false, .k = false, .bias = false, .sink = false});
      const Wide<T> difference = inner_product(d, out) - inner_product(grads.v, v);
      const Wide<T> ratio = std::abs(difference) / (kRoundoff<T> * size);
      EXPECT_TRUE(ratio <= 8) << ratio;
      double& worst = WorstRatios::get().of(op.name + " " + scalar_name<T>() + " adjoint");
      worst = std::max(worst, static_cast<double>(ratio));
    });
  });
}

INSTANTIATE_TEST_SUITE_P(, Conformance, conforming_subjects(), test_name);

/// Adding a number to all logits of a row changes nothing, so the gradient of the bias sums to 0
/// over the row's keys; a sink takes part in the sum.
template <class T, class Op>
void expect_rows_sum_to_zero(const Op& op, const Law& law) {
  const Case<T> biased = softmax_case<T>("sum of the row", op, law, {.bias = "bhqk"});
  const Problem<T> problem = make_problem(biased, {2, 2, 1, 150, 170, 4, 5});
  const Tensor<T> d_out = make_d_out(problem);
  const ExpectedGrads<T> expected = biased.grad_oracle(problem.inputs(), d_out.view());
  at_each_level([&] {
    const Gradients<T> grads = run_backward(biased, problem, d_out);
    for (std::size_t first = 0; first < grads.bias.size(); first += 170) {
      Wide<T> sum = 0;
      Wide<T> gauge = 0;
      for (std::size_t j = first; j < first + 170; ++j) {
        sum += grads.bias[j];
        gauge += expected.bias.gauge[j];
      }
      ASSERT_TRUE(std::abs(sum) <= kGradBound * kRoundoff<T> * gauge)
          << sum << " in row " << first / 170;
    }
  });
}

template <class T>
class RowSums : public testing::Test {};
using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(RowSums, Scalars);

TYPED_TEST(RowSums, OfTheGradientOfTheLogitsAreZero) {
  using fovea::FullAttention;
  using fovea::LocalAttention;
  constexpr fovea::Dropout some{.probability = 0.4, .seed = 3};
  expect_rows_sum_to_zero<TypeParam>(FullAttention{}, all_pairs);
  expect_rows_sum_to_zero<TypeParam>(
      FullAttention{{.causal = true, .soft_cap = 1.5, .dropout = some}}, band(kAllKeys, 0));
  expect_rows_sum_to_zero<TypeParam>(LocalAttention{{.left = 9, .right = 40}}, band(9, 40));
}

}  // namespace
}  // namespace fovea_test
