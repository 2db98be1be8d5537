// SPDX-License-Identifier: MIT
/// \file
/// Equivalent calls of linear attention, FMM attention and the delta rule have equal results: by
/// bits where the arithmetic is the same, otherwise within the bounds of the oracle.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "attention/gradients.hpp"
#include "attention/linear_case.hpp"
#include "support/scalars.hpp"

namespace fovea_test::attention_linear_equivalence {

using fovea::DeltaRuleAttention;
using fovea::EluPlusOne;
using fovea::FmmAttention;
using fovea::FullAttention;
using fovea::LinearAttention;
using fovea::LocalAttention;
using fovea::Relu;

template <class T>
class LinearEquivalence : public testing::Test {
 protected:
  static constexpr T kInfinity = std::numeric_limits<T>::infinity();

  /// FMM attention whose near and far field have these weights.
  template <class... Terms>
  static AllInputs<T> with_weights(const Problem<T>& problem, const T& near_logit,
                                   const T& far_logit) {
    AllInputs<T> in = problem.inputs();
    in.near_logits = View<const T>(&near_logit, {1, 1, 1, 1});
    in.far_logits = View<const T>(&far_logit, {1, 1, 1, 1});
    return in;
  }

  /// Calls f(problem) at several sizes.
  template <class F>
  static void for_each_problem(F&& f) {
    const Case<T> plain = softmax_case<T>("full", FullAttention{}, all_pairs);
    for (const auto& [queries, keys] :
         {std::array<Index, 2>{40, 40}, {150, 170}, {70, 30}, {3, 2100}, {1, 1}}) {
      f(make_problem(plain, {2, 4, 2, queries, keys, 6, 17}));
    }
  }

  /// `a` and `b` of the same inputs have the same bits of out and of the gradients of q, k and v.
  static void expect_same(const Case<T>& a, const AllInputs<T>& of_a, const Case<T>& b,
                          const Problem<T>& problem) {
    SCOPED_TRACE(describe(problem));
    const Tensor<T> d_out = make_d_out(problem);
    const Wanted wanted{.near_logits = false, .far_logits = false};
    at_each_level([&] {
      const auto both = [&](const Case<T>& op, const AllInputs<T>& in) {
        return run_both(op, in, View<const T>(d_out.view()), nullptr, {}, wanted);
      };
      const auto [out_a, grads_a] = both(a, of_a);
      const auto [out_b, grads_b] = both(b, problem.inputs());
      EXPECT_TRUE(same_bits(out_a.out, out_b.out, out_a.shape));
      EXPECT_TRUE(same_bits(grads_a, grads_b));
    });
  }
};

TYPED_TEST_SUITE(LinearEquivalence, Scalars);

/// Blend weights (1, 0) and (0, 1).
TYPED_TEST(LinearEquivalence, OneFieldEqualsItsOperator) {
  using T = TypeParam;
  const T one = this->kInfinity;
  const T zero = -this->kInfinity;
  for (const bool causal : {false, true}) {
    const Case<T> fmm =
        fmm_case<T>("fmm", FmmAttention<EluPlusOne, fovea::TanhPlusOne>{
                               {.band = {.left = 4, .right = 4}, .causal = causal}});
    const Case<T> near_field =
        make_case<T>("near", LocalAttention{{.left = 4, .right = causal ? 0 : 4}}, all_pairs);
    const Case<T> far_field =
        linear_case<T>("far", LinearAttention<EluPlusOne, fovea::TanhPlusOne>{{.causal = causal}});
    this->for_each_problem([&](const Problem<T>& problem) {
      this->expect_same(fmm, this->with_weights(problem, one, zero), near_field, problem);
      this->expect_same(fmm, this->with_weights(problem, zero, one), far_field, problem);
    });
  }
}

/// Without rates nothing is written, and only the rates have a gradient.
TYPED_TEST(LinearEquivalence, TheDeltaRuleWithoutRatesIsZero) {
  using T = TypeParam;
  const Case<T> op = delta_case<T>("delta", DeltaRuleAttention<EluPlusOne>{});
  Problem<T> problem = make_problem(op, {2, 4, 2, 70, 80, 5, 3});
  problem.beta->fill(constant(0));
  at_each_level([&] {
    for (const T x : run(op, problem).out) ASSERT_EQ(x, 0);
    const Gradients<T> grads = run_backward(op, problem);
    for (const std::vector<T>* zeros : {&grads.q, &grads.k, &grads.v}) {
      for (const T x : *zeros) ASSERT_EQ(x, 0);
    }
    EXPECT_NE(grads.beta[0], 0);
  });
  expect_grads_conform(op, problem);
}

/// Keys of one feature and rates of 1 are a memory: a query reads the last value under its key.
TYPED_TEST(LinearEquivalence, TheDeltaRuleStoresValuesByKey) {
  using T = TypeParam;
  const Case<T> op = delta_case<T>("delta", DeltaRuleAttention<Relu>{});
  const AttentionShape shape = sizes(200, 200, 5, 7);
  const auto key_of = [](Index n) { return static_cast<Index>(hash(9, n, 0, 0, 0) % 5); };
  const Fill hot = [&](Index, Index, Index n, Index d) { return d == key_of(n) ? 2.0 : -1.0; };
  const Fill asked = [](Index, Index, Index n, Index d) { return d == n % 5 ? 0.25 : -3.0; };
  Problem<T> problem = make_problem(op, shape, 1, {asked, hot, integers(4, 1000)});
  problem.beta->fill(constant(1));
  at_each_level([&] {
    const Result<T> got = run(op, problem);
    for (Index row = 0; row < shape.queries; ++row) {
      Index last = row;
      while (last >= 0 && key_of(last) != row % 5) --last;
      for (Index c = 0; c < shape.value_width; ++c) {
        ASSERT_EQ(got.row(0, 0, row)[c], last < 0 ? 0 : problem.v(0, 0, last, c)) << row;
      }
    }
  });
}

/// No values is no output, so that no gradient depends on denominators, which are exactly 0 here.
TYPED_TEST(LinearEquivalence, NoValuesGiveNoGradients) {
  using T = TypeParam;
  const auto any = fovea::Denominator::propagate();
  const Extras blend{.near_logits = "h", .far_logits = "h"};
  const Extras delta_blend{.beta = true, .near_logits = "h", .far_logits = "h"};
  std::vector<Case<T>> all = {
      delta_case<T>("delta rule", DeltaRuleAttention<Relu>{}),
      fmm_case<T>("FMM with a delta rule",
                  FmmAttention<fovea::DeltaRule<Relu>, Relu>{{.band = {.left = 3}}}, delta_blend)};
  for (const bool causal : {false, true}) {
    all.push_back(linear_case<T>("ReLU", LinearAttention<Relu>{{.causal = causal}}));
    all.push_back(linear_case<T>(
        "tanh", LinearAttention<fovea::Tanh>{{.causal = causal, .denominator = any}}));
    all.push_back(linear_case<T>(
        "floor", LinearAttention<fovea::Tanh>{
                     {.causal = causal, .denominator = fovea::Denominator::signed_floor(0.1)}}));
    all.push_back(linear_case<T>(
        "joint",
        LinearAttention<Relu, fovea::Tanh>{
            {.causal = causal, .denominator = any, .combine = fovea::CombineMaps::joint}}));
    all.push_back(fmm_case<T>("FMM",
                              FmmAttention<Relu, fovea::Tanh>{
                                  {.band = {.left = 3}, .causal = causal, .denominator = any}},
                              blend));
  }
  for (const Case<T>& op : all) {
    for (const double at : {0.0, -1.0}) {
      const Problem<T> problem = make_problem(op, {2, 4, 2, 1500, 1500, 5, 0}, 1,
                                              {constant(at), constant(at), constant(1)});
      at_each_level([&] {
        const Gradients<T> grads = run_backward(op, problem);
        for_each_gradient(
            [&](const char* name, const std::vector<T>& numbers) {
              for (const T x : numbers) ASSERT_EQ(x, T(0)) << op.name << ", " << name;
            },
            grads);
      });
    }
  }
}

/// Small integers whose features are integers: every sum is exact, so the linear form has the
/// digits of the naive one.
TYPED_TEST(LinearEquivalence, IntegersAreExact) {
  using T = TypeParam;
  const Case<T> op = linear_case<T>("linear", LinearAttention<Relu>{{.causal = true}});
  const Fill positive = [](Index b, Index h, Index n, Index d) {
    return static_cast<double>(hash(3, b, h, n, d) % 4 + 1);
  };
  const Problem<T> problem =
      make_problem(op, sizes(300, 300, 6, 5), 1, {positive, positive, integers(2, 20)});
  const Expected<T> expected = op.oracle(problem.inputs());
  at_each_level([&] {
    const Result<T> got = run(op, problem);
    for (std::size_t i = 0; i < got.out.size(); ++i) {
      // The quotient of two exact numbers, by a division or by the inverse.
      ASSERT_TRUE(std::abs(got.out[i] - expected.out.value[i]) <=
                  2 * kRoundoff<T> * std::abs(expected.out.value[i]))
          << i;
    }
  });
}

}  // namespace fovea_test::attention_linear_equivalence
