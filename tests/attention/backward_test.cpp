// SPDX-License-Identifier: MIT
// fovea_test(OPTIMISED SHARDS 4)
/// \file
/// Gradients of every operator against the oracle: sizes, lse, logits; and identities that hold for
/// any data. (For widths, heads and key lengths see conformance_test.cpp.)
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

#include "attention/gradients.hpp"
#include "attention/zero_sizes.hpp"
#include "fovea/core/thread_pool.hpp"
#include "support/refusal.hpp"
#include "support/scalars.hpp"

namespace fovea_test::attention_backward {

class ConformingGradients : public Conformance {};
class GradientArithmetic : public Arithmetic {};
class SoftmaxGradientArithmetic : public SoftmaxArithmetic {};

TEST_P(ConformingGradients, GradientsAtEdgeSizes) {
  each([]<class T>(const Case<T>& op) {
    std::vector<std::array<Index, 2>> few;
    for (const Index keys : {0, 1, 2, 17, 63, 64, 65, 127, 128, 129, 257}) {
      for (const Index queries : {0, 1, 7, 63, 64, 65, 131}) {
        if (keys <= 130 || queries <= 70) few.push_back({queries, keys});
      }
    }
    std::uint64_t seed = 1;
    for (const auto& [queries, keys] : sizes_for(op, few)) {
      expect_grads_conform(op, make_problem(op, sizes(queries, keys, 4, 3), seed++));
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

/// Each combination of the seven sizes is 0: results and gradients equal the oracles', 0 where no
/// pair contributes. Query heads without key heads are refused.
TEST_P(ConformingGradients, ZeroSizesAndTheirGradients) {
  each([]<class T>(const Case<T>& op) {
    fovea::ThreadPool pool(3);
    AnyExecutor threads = AnyExecutor::of(pool);
    for_each_zero_sizes({2, 4, 2, 6, 9, 5, 3}, [&](const AttentionShape& shape) {
      const Problem<T> problem = make_problem(op, shape);
      const Tensor<T> d_out = make_d_out(problem);
      SCOPED_TRACE(describe(problem));
      if (problem.shape.query_heads > 0 && problem.shape.key_heads == 0) {
        EXPECT_NE(refusal([&] { run(op, problem); }), "accepted");
        return;
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
    });
  });
}

/// A column of values that are 0, whose d_out is 1 and whose out is -d_lse, changes delta by as
/// much as d_lse does, and nothing else.
TEST_P(ConformingGradients, GradientsThroughLse) {
  each([]<class T>(const Case<T>& op) {
    if (!op.backward_through_lse) return;
    const auto expect = [&](const Problem<T>& problem) {
      SCOPED_TRACE(describe(problem));
      const Shape shape = problem.out_shape();
      const Index last = shape[3];
      const Tensor<T> d_lse(problem.row_shape());
      d_lse.fill(gaussian(problem.seed + 900));
      Problem<T> wide = problem.in({}, {}, {}, {});
      wide.v =
          Tensor<T>({problem.v.shape()[0], problem.v.shape()[1], problem.v.shape()[2], last + 1});
      wide.v.fill([&](Index b, Index h, Index n, Index d) {
        return d < last ? static_cast<double>(problem.v(b, h, n, d)) : 0;
      });
      wide.shape.value_width = last + 1;
      const Tensor<T> d_out = make_d_out(problem);
      const Tensor<T> wide_d_out(wide.out_shape());
      wide_d_out.fill([&](Index b, Index h, Index n, Index d) {
        return d < last ? static_cast<double>(d_out(b, h, n, d)) : 1;
      });
      at_each_level([&] {
        const Wanted wanted{.v = false};
        const Gradients<T> got = run_backward(op, problem.inputs(), View<const T>(d_out.view()),
                                              nullptr, {}, wanted, View<const T>(d_lse.view()));
        const Tensor<T> out(wide.out_shape());
        const Tensor<T> lse(wide.row_shape());
        const AllInputs<T> in = wide.inputs();
        op.forward(in, out.view(), {lse.view()}, nullptr);
        for_each_index(d_lse.shape(), [&](Index b, Index h, Index n, Index) {
          out(b, h, n, last) = -d_lse(b, h, n, 0);
        });
        GradStorage<T> to(in, {});
        op.backward(in, out.view(), {lse.view()}, wide_d_out.view(), to.grads(in, wanted), nullptr);
        EXPECT_TRUE(same_bits(got.q, to.q.values()));
        EXPECT_TRUE(same_bits(got.k, to.k.values()));
        EXPECT_TRUE(same_bits(got.bias, to.bias.values()));
        EXPECT_TRUE(same_bits(got.sink, to.sink));
      });
    };
    expect(make_problem(op, {2, 4, 2, 70, 33, 6, 7}));
    Problem<T> lengths = make_problem(op, {3, 1, 1, 9, 300, 3, 2}, 2);
    lengths.key_lengths = {0, 131, 300};
    expect(lengths);
    expect(make_problem(
        op, sizes(40, 150, 2, 6), 5,
        {constant(1), first_column([](Index j) { return static_cast<double>(j % 7 * 300); }),
         gaussian(5)}));
    if (op.packs) expect(make_packed(op, {1, 2, 1, 0, 0, 5, 3}, {70, 0, 33}, {64, 3, 40}));
  });
}

TEST_P(GradientArithmetic, GradientsAtExtremeLogits) {
  each([]<class T>(const Case<T>& op) {
    for (const double size : {1.0, 5.0, 20.0, 88.0, 104.0, 709.0, 1e4}) {
      // Far beyond its cap the slope of a logit underflows in T, and all gradients may be 0.
      if (op.options.soft_cap && size > 5) continue;
      const auto value = [=](Index j) { return j % 7 == 3 ? size : j % 7 == 5 ? -size : 0; };
      expect_grads_conform(op, make_problem(op, sizes(40, 150, 2, 6), 5,
                                            {constant(1), first_column(value), gaussian(5)}));
    }
  });
}

/// The magnitude of the scale of an operator's products of queries and keys.
template <class T>
double scale_of(const Case<T>& op, Index width) {
  if (op.has_given_logits) return 0;
  return op.options.scale ? std::abs(*op.options.scale) : 1 / std::sqrt(static_cast<double>(width));
}

/// A problem whose logits are `size` and -size exactly, as far as T distinguishes them: the weights
/// of a row are those of ties, of few keys or of many, without effects of the logits' rounding.
template <class T>
Problem<T> tied_problem(const Case<T>& op, const AttentionShape& shape, double size) {
  const auto value = [=](Index j) { return j % 9 == 4 || j % 31 == 5 ? size : -size; };
  Problem<T> made = make_problem(op, shape, 5, {constant(1), first_column(value), gaussian(5)});
  // Its bias hides a logit, or leaves the nearest keys unchanged.
  if (made.bias) {
    made.bias->fill([fill = bias_fill(5, op.extras)](Index b, Index h, Index i, Index j) {
      const double x = fill(b, h, i, j);
      return std::isinf(x) ? x : 0;
    });
  }
  for (T& slope : made.slopes) slope = static_cast<T>(4 * size * scale_of(op, shape.width));
  return made;
}

/// The reference of a tied_problem: the factor 1 + B of the gauges is for the roundings of logits.
template <class T>
ExpectedGrads<T> tied_reference(const Case<T>& op, const Problem<T>& problem,
                                const Tensor<T>& d_out, double size) {
  ExpectedGrads<T> expected = op.grad_oracle(problem.inputs(), d_out.view());
  const double scale = scale_of(op, problem.shape.width);
  for (auto* x : {&expected.q, &expected.k, &expected.v, &expected.bias, &expected.sink}) {
    for (std::size_t i = 0; i < x->gauge.size(); ++i) {
      x->gauge[i] /= static_cast<Wide<T>>(1 + scale * size);
      // Of an exact zero, as a row with one weight has them, the oracle leaves its own roundings.
      if (std::abs(x->value[i]) < kRoundoff<T> * x->gauge[i] / 64) x->value[i] = 0;
    }
  }
  return expected;
}

/// With logits in the thousands lse has no digits to spare; the weights have them nevertheless, as
/// exactly as under small logits.
TEST_P(SoftmaxGradientArithmetic, GradientsAtLogitsInTheThousands) {
  each([]<class T>(const Case<T>& op) {
    if (op.options.soft_cap) GTEST_SKIP() << "a cap keeps the logits small";
    for (const double size : {4e3, 7073.0, 3e4}) {
      for (const AttentionShape& shape :
           {sizes(40, 150, 2, 6), sizes(150, 140, 2, 3), AttentionShape{2, 4, 2, 70, 65, 2, 5}}) {
        const Problem<T> problem = tied_problem(op, shape, size);
        SCOPED_TRACE(describe(problem));
        const Tensor<T> d_out = make_d_out(problem);
        const ExpectedGrads<T> expected = tied_reference(op, problem, d_out, size);
        at_each_level(
            [&] { expect_within(op, run_backward(op, problem, d_out), expected, " thousands"); });
      }
    }
  });
}

/// Long sums of equal terms: every rounding errs the same way.
TEST_P(GradientArithmetic, GradientsOfConstantData) {
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
/// is one of u |d_out| |v| / sqrt(size of v) in the sum (tests/README.md, "How results are
/// judged").
TEST_P(GradientArithmetic, ValuesAndTheirGradientsAreAdjoint) {
  each([]<class T>(const Case<T>& op) {
    if (op.signed_weights) GTEST_SKIP() << "denominators without a bound";
    const bool is_short =
        !op.is_softmax ||
        (!op.makes_lists && op.attended_pairs(sizes(65'536, 65'536, 1, 1)) < 13'000'000);
    constexpr Index kShortRows = FOVEA_FULL_SUITE ? 65'536 : 16'384;
    constexpr Index kLongRows = FOVEA_FULL_SUITE ? 5000 : 2000;
    const Index n = op.has_pairs() ? 1500 : is_short ? kShortRows : kLongRows;
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
      exactness.error<T>("ratio", {op.name, "adjoint"}, static_cast<double>(ratio), 1);
    });
  });
}

INSTANTIATE_TEST_SUITE_P(, ConformingGradients, conforming_subjects(), test_name);
INSTANTIATE_TEST_SUITE_P(, GradientArithmetic, arithmetic_subjects(), test_name);
INSTANTIATE_TEST_SUITE_P(, SoftmaxGradientArithmetic, softmax_arithmetic_subjects(), test_name);

/// d_v of one query row over keys whose logits are given, at every level.
template <class T>
std::vector<T> value_gradient(const std::vector<double>& logits, const fovea::FullAttention& op,
                              T lse_more, std::vector<T> sink = {}, const T* bias = nullptr) {
  const auto keys = static_cast<Index>(logits.size());
  std::vector<T> q = {1};
  std::vector<T> k(logits.begin(), logits.end());
  std::vector<T> v(logits.size(), 1);
  std::vector<T> d_v(logits.size());
  T out = 0;
  T lse = 0;
  T d_out = 1;
  AllInputs<T> in{View<const T>(q.data(), {1, 1, 1, 1}), View<const T>(k.data(), {1, 1, keys, 1}),
                  View<const T>(v.data(), {1, 1, keys, 1})};
  in.sink = sink;
  if (bias != nullptr) in.bias = View<const T>(bias, {1, 1, 1, keys});
  const AllSaved<T> saved{View<T>(&lse, {1, 1, 1, 1})};
  op.forward(in, View<T>(&out, {1, 1, 1, 1}), saved);
  lse += lse_more;
  op.backward(in, View<const T>(&out, {1, 1, 1, 1}), saved, View<const T>(&d_out, {1, 1, 1, 1}),
              AllGrads<T>{.v = View<T>(d_v.data(), {1, 1, keys, 1})});
  return d_v;
}

template <class T>
class LargeLse : public testing::Test {};
TYPED_TEST_SUITE(LargeLse, Scalars);

/// d_out is 1, so the gradient of a value is its weight.
TYPED_TEST(LargeLse, LeavesWeightsThatSumToOne) {
  using T = TypeParam;
  using fovea::FullAttention;
  const FullAttention plain{{.scale = 1.0}};
  const FullAttention capped{{.scale = 1.0, .soft_cap = 2e4}};
  constexpr auto u = static_cast<T>(kRoundoff<T>);
  at_each_level([&] {
    for (const double size : {100.0, 5001.0, -5001.0, 29999.0, 1e6}) {
      // Three keys: the logarithm of two is exact in the kernels' units.
      const std::vector<T> tied = value_gradient<T>({size, size, size, size - 200}, plain, 0);
      EXPECT_NEAR(tied[0], 1.0 / 3, 4 * u) << size;
      EXPECT_EQ(tied[0], tied[2]);
      EXPECT_LT(tied[3], 1e-30);
      if (size < 2e4) {
        EXPECT_NEAR(value_gradient<T>({size, size - 200}, capped, 0)[0], 1, 4 * u) << size;
      }
      // A sink takes all of a row's weight, or none.
      EXPECT_NEAR(value_gradient<T>({size}, plain, 0, {static_cast<T>(size - 500)})[0], 1, 4 * u);
      EXPECT_LT(value_gradient<T>({size}, plain, 0, {static_cast<T>(size + 500)})[0], 1e-30);
      const auto bias = static_cast<T>(size);
      const T biases[] = {bias, bias, bias - 300, bias};
      const std::vector<T> biased = value_gradient<T>({0, 0, 0, 0}, plain, 0, {}, biases);
      EXPECT_NEAR(biased[0], 1.0 / 3, 4 * u) << size;
      EXPECT_EQ(biased[0], biased[3]);
    }
  });
}

/// A caller's lse may include more keys than the call has: only rounding errors are corrected.
TYPED_TEST(LargeLse, OfMoreKeysStaysAsItIs) {
  using T = TypeParam;
  at_each_level([&] {
    for (const double size : {100.0, 5000.0}) {
      const fovea::FullAttention op{{.scale = 1.0}};
      const T weight = value_gradient<T>({size, size}, op, static_cast<T>(1))[0];
      EXPECT_NEAR(weight, std::exp(-1.0) / 2, static_cast<double>(4 * kRoundoff<T>) * size);
    }
  });
}

}  // namespace fovea_test::attention_backward
