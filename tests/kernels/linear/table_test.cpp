// SPDX-License-Identifier: MIT
// fovea_test(HEAP)
/// \file
/// The kernels of linear attention and the delta rule in float and double, called by the operators,
/// at every level. Against the oracles: any widths and lengths, every map and policy, features far
/// from 1, long sums of equal terms. By bits: any division into steps, levels, strides,
/// denominators of both passes, NaN in tokens that rows do not see, and tensors of 16 bits.
#include "fovea/kernels/linear/table.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "attention/gradients.hpp"
#include "attention/linear_case.hpp"
#include "attention/pieces.hpp"
#include "attention/poisons.hpp"
#include "fovea/core/eigen.hpp"
#include "support/between_fences.hpp"
#include "support/same_everywhere.hpp"
#include "support/scratch.hpp"

namespace fovea_test::kernels_linear_table {

using fovea::Denominator;
using fovea::EluPlusOne;
using fovea::FmmAttention;
using fovea::kLinearChunk;
using fovea::kLinearSegment;
using fovea::kStateSegment;
using fovea::LinearAttention;
using fovea::Relu;
using fovea::TanhPlusOne;

/// One operator for each path: sums of all tokens, streams of one map and of several, the delta
/// rule, and each blended with a near field.
template <class T>
const std::vector<Case<T>>& paths() {
  using fovea::DeltaRule;
  const Extras blend{.near_logits = "hd", .far_logits = "h"};
  const Extras delta_blend{.beta = true, .near_logits = "h", .far_logits = "hd"};
  static const std::vector<Case<T>> all = {
      linear_case<T>("linear", LinearAttention<EluPlusOne, TanhPlusOne>{}),
      linear_case<T>("linear_causal", LinearAttention<EluPlusOne>{{.causal = true}}),
      linear_case<T>("linear_joint_causal",
                     LinearAttention<EluPlusOne, fovea::EluMinusPlusOne, TanhPlusOne>{
                         {.causal = true, .combine = fovea::CombineMaps::joint}}),
      fmm_case<T>("fmm", FmmAttention<EluPlusOne>{{.band = {.left = 3, .right = 2}}}, blend),
      fmm_case<T>("fmm_causal",
                  FmmAttention<TanhPlusOne, EluPlusOne>{{.band = {.left = 3}, .causal = true}},
                  blend),
      fmm_case<T>("fmm_delta", FmmAttention<DeltaRule<TanhPlusOne>>{{.band = {.left = 3}}},
                  delta_blend),
      delta_case<T>("delta", fovea::DeltaRuleAttention<EluPlusOne>{}),
  };
  return all;
}

/// Normally distributed numbers of this size around another one.
Fill around(double centre, double deviation, std::uint64_t seed) {
  return [=, normal = gaussian(seed, deviation)](Index b, Index h, Index n, Index d) {
    return centre + normal(b, h, n, d);
  };
}
/// The same for queries and keys.
Fills features_around(double centre, double deviation) {
  return {around(centre, deviation, 1), around(centre, deviation, 2), gaussian(3)};
}

template <class T>
class LinearKernels : public testing::Test {};
using BothScalars = testing::Types<float, double>;
TYPED_TEST_SUITE(LinearKernels, BothScalars);

TYPED_TEST(LinearKernels, AnyWidth) {
  const Index widths[] = {1, 2, 5, 16, 31, 64, 65, 130};
  for (const auto& op : paths<TypeParam>()) {
    for (std::size_t i = 0; i < std::size(widths); ++i) {
      for (const std::size_t shift : {std::size_t{3}, std::size_t{6}}) {
        const Index other = widths[(i + shift) % std::size(widths)];
        expect_both_conform(op, make_problem(op, sizes(40, 45, widths[i], other), i));
      }
    }
  }
}

/// All rows of short sequences, and of long ones the last, which see every segment.
TYPED_TEST(LinearKernels, AnyLength) {
  for (const auto& op : paths<TypeParam>()) {
    for (Index n = 1; n < 2 * kLinearChunk + 3; n += op.extras.beta ? 1 : 5) {
      expect_both_conform(op, make_problem(op, sizes(n, n, 8, 8)));
    }
    for (const Index n : {kStateSegment - 1, kStateSegment, kStateSegment + 1, kLinearSegment + 1,
                          2 * kStateSegment + kLinearChunk}) {
      expect_both_conform(op, make_problem(op, sizes(20, n, 4, 3)));
    }
  }
  const auto& causal = paths<TypeParam>()[1];
  expect_both_conform(causal,
                      make_problem(causal, sizes(kLinearSegment + 9, kLinearSegment + 9, 3, 2)));
}

/// Rows before the first key, and after the last one.
TYPED_TEST(LinearKernels, OtherNumbersOfRowsThanOfTokens) {
  for (const auto& op : paths<TypeParam>()) {
    for (const Index rows : {1, 7, 90, 130}) {
      expect_both_conform(op, make_problem(op, {1, 2, 1, rows, 50, 8, 8}));
      auto problem = make_problem(op, {3, 1, 1, rows, 100, 5, 9});
      problem.key_lengths = {64, 0, 99};
      expect_both_conform(op, problem);
    }
    expect_both_conform(op, make_problem(op, {1, 3, 1, 33, 97, 40, 33}));
  }
}

/// Calls f(op) for linear attention of this map with every policy, and for its delta rule.
template <class T, class Map, class F>
void for_each_policy(const F& f) {
  for (const bool causal : {true, false}) {
    for (const Denominator& denominator :
         {Denominator::propagate(), Denominator::zero_row(), Denominator::signed_floor(0.3)}) {
      f(linear_case<T>("linear_policy",
                       LinearAttention<Map>{{.causal = causal, .denominator = denominator}}));
    }
  }
  if constexpr (Map::kNonNegative) {
    f(delta_case<T>("delta_map", fovea::DeltaRuleAttention<Map>{}));
  }
}

/// Also with rows of relu without a feature, a key without a sign, and features that vanish.
TYPED_TEST(LinearKernels, EveryMapAndPolicy) {
  using T = TypeParam;
  const auto check = [](const Case<T>& op) {
    for (const Index width : {2, 17}) {
      Problem<T> problem = make_problem(op, {1, 2, 1, 40, 45, width, 9});
      expect_both_conform(op, problem);
      set_row(problem.q, 0, 7, T{-1});
      set_row(problem.k, 0, 3, T{0});
      expect_both_conform(op, problem);
      expect_both_conform(op, make_problem(op, sizes(70, 70, width, 9), 1, features_around(1, 1)));
    }
    expect_both_conform(op, make_problem(op, sizes(70, 70, 8, 8), 1, features_around(-3, 0.5)));
  };
  for_each_policy<T, fovea::EluMinusPlusOne>(check);
  for_each_policy<T, TanhPlusOne>(check);
  for_each_policy<T, fovea::Tanh>(check);
  for_each_policy<T, Relu>(check);
  for_each_policy<T, SquarePlusOne>(check);
}

/// As small as T can represent, and as large as 1e4. Rows of 32 features have no gaps.
TYPED_TEST(LinearKernels, FeaturesFarFromOne) {
  using T = TypeParam;
  const double small = sizeof(T) == 4 ? -69 : -600;
  const double smallest = sizeof(T) == 4 ? -80 : -700;
  for (const auto& op : paths<T>()) {
    for (const Index width : {8, 20, 32}) {
      expect_conforms(op, make_problem(op, sizes(40, 40, width, 8), 1, features_around(small, 1)));
      expect_conforms(op,
                      make_problem(op, sizes(40, 40, width, 8), 1, features_around(smallest, 0.1)));
    }
  }
  const auto check = [](const Case<T>& op) {
    expect_conforms(op, make_problem(op, sizes(40, 40, 20, 8), 1, features_around(1e4, 1)));
  };
  for_each_policy<T, Relu>(check);
}

/// Equal values are the output of every row; of two kinds of tokens, gradients do not drift; nor
/// does the state of a delta rule over many tokens.
TYPED_TEST(LinearKernels, LongSums) {
  using T = TypeParam;
  for (const bool causal : {true, false}) {
    const auto op = linear_case<T>("linear", LinearAttention<EluPlusOne>{{.causal = causal}});
    const Index n = sizeof(T) == 4 ? 65536 : 5000;
    for (const double x : {0.1, -2.3}) {
      const auto problem =
          make_problem(op, sizes(n, n, 16, 4), 1, {constant(x), constant(x), constant(0.7)});
      at_each_level([&] {
        for (const T y : run(op, problem).out) {
          ASSERT_TRUE(std::abs(y - static_cast<T>(0.7)) <= kOutBound * kRoundoff<T> * 0.7);
        }
      });
    }
    const Fill kinds = [](Index, Index, Index i, Index d) {
      return i % 2 == 0 ? -0.3 : 0.1 * static_cast<double>(d);
    };
    const Fill values = [](Index, Index, Index i, Index) { return i % 2 == 0 ? 0.7 : 0.2; };
    const auto repeated = make_problem(op, sizes(40, 3 * kLinearSegment + 77, 2, 3), 1,
                                       {constant(0.1), kinds, values});
    const Tensor<T> d_out(repeated.out_shape());
    d_out.fill(constant(0.1));
    expect_grads_conform(op, repeated, d_out);
  }
  const auto delta = delta_case<T>("delta", fovea::DeltaRuleAttention<EluPlusOne>{});
  expect_conforms(delta, make_problem(delta, sizes(20000, 20000, 4, 3)));
}

/// Rates of 0 and 1.
TYPED_TEST(LinearKernels, ExtremeRates) {
  const auto op = delta_case<TypeParam>("delta", fovea::DeltaRuleAttention<EluPlusOne>{});
  for (const double rate : {0.0, 1.0}) {
    auto problem = make_problem(op, sizes(70, 70, 8, 8));
    problem.beta->fill(constant(rate));
    expect_both_conform(op, problem);
  }
}

/// Problems whose bits are compared.
template <class T>
std::vector<Problem<T>> compared(const Case<T>& op) {
  std::vector<Problem<T>> all;
  for (const AttentionShape& shape :
       {AttentionShape{1, 1, 1, 100, 100, 9, 5}, AttentionShape{1, 3, 1, 100, 100, 40, 64},
        AttentionShape{1, 2, 2, 96, 96, 130, 48},
        AttentionShape{1, 1, 1, kStateSegment + 40, kStateSegment + 40, 3, 2}}) {
    all.push_back(make_problem(op, shape));
  }
  return all;
}

TYPED_TEST(LinearKernels, AnyDivisionIntoStepsHasTheSameBits) {
  using T = TypeParam;
  for (const Case<T>& op : paths<T>()) {
    if (!op.has_decoder) continue;
    for (const Problem<T>& problem : compared(op)) {
      at_each_level([&] {
        const Result<T> whole = run(op, problem);
        for (const Index step : {1, 7, 31, 32, 33, 64}) {
          const AnyDecoder<T> decoder = op.decoder(decoder_shape(problem.shape));
          const Tensor<T> out(problem.out_shape());
          for (Index row = 0; row < problem.shape.keys; row += step) {
            const Index rows = std::min(step, problem.shape.keys - row);
            decoder.step(rows_with_keys(problem.inputs(), row, rows, row),
                         cut(out.view(), 2, row, rows), {});
          }
          EXPECT_TRUE(same_bits(whole.out, out.values())) << op.name << ", by " << step;
        }
      });
    }
  }
}

TYPED_TEST(LinearKernels, LevelsAndStridesDoNotChangeBits) {
  using T = TypeParam;
  const Layout layout{
      .order = {0, 3, 1, 2}, .innermost = 2, .gap = 3, .reversed = {false, true, true, false}};
  const Layout out{.order = {3, 0, 2, 1}, .innermost = 3, .gap = 2};
  for (const Case<T>& op : paths<T>()) {
    SCOPED_TRACE(op.name);
    for (const Problem<T>& problem : compared(op)) {
      expect_levels_agree([&] { return run(op, problem); });
      expect_levels_agree([&] { return run_backward(op, problem); });
      const Problem<T> apart = problem.in(layout, layout, layout, layout);
      const Tensor<T> d_out = make_d_out(problem);
      at_each_level([&] {
        EXPECT_TRUE(same_bits(run(op, problem), run(op, apart, nullptr, out)));
        EXPECT_TRUE(same_bits(run_backward(op, problem, d_out),
                              run_backward(op, apart, d_out.in(layout), nullptr, out)));
      });
    }
  }
}

/// Rows before a token keep their bits, forward and backward, whatever it contains; the next one
/// does not.
TYPED_TEST(LinearKernels, LaterTokensAreInvisible) {
  using T = TypeParam;
  for (const Case<T>& op : paths<T>()) {
    if (!op.has_decoder) continue;
    const Problem<T> clean = make_problem(op, sizes(75, 80, 20, 9));
    at_each_level([&] {
      const Result<T> out = run(op, clean);
      const Gradients<T> grads = run_backward(op, clean);
      for (const Index token : {5, 31, 32, 33, 63, 79}) {
        SCOPED_TRACE(op.name + ", token " + std::to_string(token));
        const Problem<T> poisoned = clean.in({}, {}, {}, {});
        for (Index n = token; n < 80; ++n) {
          set_row(poisoned.k, 0, n, std::numeric_limits<T>::quiet_NaN());
          set_row(poisoned.v, 0, n, std::numeric_limits<T>::quiet_NaN());
        }
        const Result<T> got = run(op, poisoned);
        const Gradients<T> got_grads = run_backward(op, poisoned);
        const Index before = token - 5;  // rows
        EXPECT_TRUE(same_bits(got.out.data(), out.out.data(), as_size(before * 9), {}));
        EXPECT_TRUE(same_bits(got_grads.q.data(), grads.q.data(), as_size(before * 20), {}));
        EXPECT_TRUE(std::isnan(*got.row(0, 0, before)));
        EXPECT_TRUE(std::isnan(*got_grads.q_row(0, 0, before)));
      }
    });
  }
}

/// Both passes of causal attention divide by denominators with the same bits, so that a floored or
/// zeroed row is the same in both. Only token 0 has a value, which every row weighs with 1, so that
/// a row is the inverse of its denominator, and so is the gradient of the value by the row.
TYPED_TEST(LinearKernels, GradientsDivideByTheDenominatorsOfForward) {
  using T = TypeParam;
  const auto op = linear_case<T>(
      "linear", LinearAttention<Relu>{{.causal = true, .denominator = Denominator::propagate()}});
  const Index n = 2 * kLinearSegment + 77;
  const Problem<T> problem = make_problem(op, sizes(n, n, 20, 1));
  for (Index i = 0; i < n; ++i) {
    problem.q(0, 0, i, 0) = 1;
    problem.v(0, 0, i, 0) = i == 0 ? T(1) : T(0);
  }
  for (Index d = 0; d < 20; ++d) problem.k(0, 0, 0, d) = d == 0 ? T(1) : T(0);
  at_each_level([&] {
    const Result<T> out = run(op, problem);
    for (Index i = 0; i < n; i += 97) {
      const Tensor<T> d_out(problem.out_shape());
      d_out.fill([=](Index, Index, Index row, Index) { return row == i ? 1 : 0; });
      ASSERT_EQ(run_backward(op, problem, d_out).v[0], *out.row(0, 0, i)) << "row " << i;
    }
  });
}

/// Called directly: no call of an operator above runs a kernel for rows without a token.
TYPED_TEST(LinearKernels, RowsWithoutTokensHaveNoGradients) {
  using T = TypeParam;
  const Tensor<T> q({1, 1, 9, 4}), d_out(q.shape()), d_q(q.shape());
  q.fill(gaussian(1));
  d_out.fill(gaussian(2));
  const fovea::FeatureMapArgs<T> map;
  T product = 7;
  const fovea::LinearGradRows<T> rows = {{q.view().data(), 4, 1},
                                         {d_out.view().data(), 4, 1},
                                         nullptr,
                                         {d_q.view().data(), 4, 1},
                                         &product};
  fovea::LinearGradCausalArgs<T> args;
  args.width = args.value_width = 4;
  args.maps = {&map, 1};
  args.rows = &rows;
  args.heads = 1;
  args.row_count = 9;
  const Scratch<T> saved(fovea::linear_grad_saved(9, 4, args.maps));
  const Scratch<T> scratch(fovea::linear_grad_scratch<T>(4, 4));
  args.saved = saved.data();
  args.scratch = scratch.data();
  at_each_level([&] {
    fovea::LinearGradKernels<T>{}.causal_rows(args);
    EXPECT_TRUE(same_bits(d_q.values(), std::vector<T>(36)));
    EXPECT_EQ(product, 0);
  });
}

/// Whole chunks of heads so wide that their rows have many parts.
TYPED_TEST(LinearKernels, WideHeadsStayWithinTheirMemory) {
  using T = TypeParam;
  for (const Case<T>& op : paths<T>()) {
    if (op.has_band) continue;
    const Problem<T> problem = make_problem(op, sizes(70, 70, op.extras.beta ? 600 : 6000, 16));
    between_fences([&] { run_backward(op, problem); });
  }
}

/// Tensors of 16 bits give the result of the same numbers as floats, rounded once.
template <class S, class Op>
void expect_rounded(const Op& op, bool has_beta) {
  for (const auto& [queries, keys] : {std::array<Index, 2>{70, 70}, {9, 140}}) {
    const AttentionShape s{1, 4, 2, queries, keys, 9, 19};
    const Case<float> plain = softmax_case<float>("full", fovea::FullAttention{}, all_pairs);
    const Problem<float> numbers = make_problem(plain, s);
    const auto narrowed = [](const Tensor<float>& x) {
      Tensor<S> narrow(x.shape());
      narrow.fill([&](Index b, Index h, Index n, Index d) {
        return x(b, h, n, d) = static_cast<float>(S(x(b, h, n, d)));
      });
      return narrow;
    };
    const Tensor<S> q = narrowed(numbers.q);
    const Tensor<S> k = narrowed(numbers.k);
    const Tensor<S> v = narrowed(numbers.v);
    Tensor<float> beta({1, 2, keys, 1});
    beta.fill(beta_fill(1));
    AllInputs<S> narrow{q.view(), k.view(), v.view()};
    AllInputs<float> wide = numbers.inputs();
    if (has_beta) narrow.beta = wide.beta = beta.view();
    const Tensor<S> out(numbers.out_shape());
    const Tensor<float> expected(numbers.out_shape());
    at_each_level([&] {
      op.forward(narrow, out.view());
      op.forward(wide, expected.view());
      for_each_index(out.shape(), [&](Index b, Index h, Index n, Index d) {
        ASSERT_EQ(static_cast<float>(out(b, h, n, d)), static_cast<float>(S(expected(b, h, n, d))));
      });
    });
  }
}

template <class S>
class LinearStorage : public testing::Test {};
using ShortTypes = testing::Types<Eigen::bfloat16, Eigen::half>;
TYPED_TEST_SUITE(LinearStorage, ShortTypes, );

TYPED_TEST(LinearStorage, RoundsTheFloatResultOnce) {
  for (const bool causal : {false, true}) {
    expect_rounded<TypeParam>(LinearAttention<EluPlusOne, fovea::TanhPlusOne>{{.causal = causal}},
                              false);
    expect_rounded<TypeParam>(
        FmmAttention<EluPlusOne>{{.band = {.left = 40, .right = 40}, .causal = causal}}, false);
  }
  expect_rounded<TypeParam>(fovea::DeltaRuleAttention<EluPlusOne>{}, true);
}

}  // namespace fovea_test::kernels_linear_table
