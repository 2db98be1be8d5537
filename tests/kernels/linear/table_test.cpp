// SPDX-License-Identifier: MIT
// fovea_test(HEAP)
/// \file
/// The kernels of linear attention and the delta rule in float and double, called by the operators,
/// at every level. Drawn calls: any widths and lengths, every map and policy, features far from 1,
/// division into steps, levels, strides, NaN in tokens that rows do not see. Beyond them long sums
/// of equal terms, denominators of both passes, and tensors of 16 bits.
#include "fovea/kernels/linear/table.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "attention/linear_case.hpp"
#include "attention/pieces.hpp"
#include "fovea/core/eigen.hpp"
#include "fuzz/drawn_problem.hpp"
#include "kernels/through_operators.hpp"
#include "support/between_fences.hpp"
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

/// Linear attention of each map with each policy, and the delta rule of each map that it may have.
template <class T>
const std::vector<Case<T>>& policies() {
  static const std::vector<Case<T>> all = [] {
    std::vector<Case<T>> made;
    const auto add = [&]<class Map>(Map) {
      for (const bool causal : {true, false}) {
        for (const Denominator& denominator :
             {Denominator::propagate(), Denominator::zero_row(), Denominator::signed_floor(0.3)}) {
          made.push_back(
              linear_case<T>("linear_policy",
                             LinearAttention<Map>{{.causal = causal, .denominator = denominator}}));
        }
      }
      if constexpr (Map::kNonNegative) {
        made.push_back(delta_case<T>("delta_map", fovea::DeltaRuleAttention<Map>{}));
      }
    };
    add(fovea::EluMinusPlusOne{});
    add(TanhPlusOne{});
    add(fovea::Tanh{});
    add(Relu{});
    add(SquarePlusOne{});
    return made;
  }();
  return all;
}

/// Lengths around chunks, now and then around segments; as many rows as tokens in half of them.
AttentionShape drawn_tokens(Bytes& bytes) {
  static const std::vector<Index> segments = {kStateSegment, kLinearSegment,
                                              2 * kStateSegment + kLinearChunk,
                                              2 * kLinearSegment + kLinearChunk};
  AttentionShape s = drawn_shape(bytes);
  if (bytes.once_in(2)) s.queries = s.keys = bytes(1, 2 * kLinearChunk + 3);
  if (bytes.once_in(8)) {
    s = sizes(20, drawn_of(bytes, segments) + bytes(0, 2) - 1, 4, 3);
    if (bytes.once_in(2)) s.queries = s.keys;
  }
  return s;
}

/// Numbers of any kind, some rows of relu without a feature, a key without a sign.
template <class T>
Problem<T> drawn_features(Bytes& bytes, const Case<T>& op) {
  static const std::vector<Fills> kinds = {gaussian_fills(1), gaussian_fills(2),
                                           features_around(1, 1), features_around(-3, 0.5)};
  Problem<T> made = make_problem(op, drawn_tokens(bytes), 1, drawn_of(bytes, kinds));
  if (made.shape.queries > 0 && made.shape.keys > 0 && bytes.once_in(2)) {
    set_row(made.q, 0, made.shape.queries / 5, T{-1});
    set_row(made.k, 0, made.shape.keys / 9, T{0});
  }
  const bool has_lengths = bytes.once_in(3);
  for (Index b = 0; has_lengths && b < made.shape.batch; ++b) {
    made.key_lengths.push_back(bytes(0, made.shape.keys));
  }
  return made;
}

template <class T>
class LinearKernels : public testing::Test {};
TYPED_TEST_SUITE(LinearKernels, BothScalars);

TYPED_TEST(LinearKernels, AnyMapAndPolicy) {
  using T = TypeParam;
  each_drawn(100, 1, [](std::span<const std::uint8_t> data) {
    Bytes bytes(data);
    const Case<T>& op = drawn_of(bytes, policies<T>());
    expect_both_conform(op, drawn_features(bytes, op));
    if (!bytes.once_in(4)) return;
    expect_conforms(op, make_problem(op, sizes(40, 40, 20, 8), 1, features_around(1e4, 1)));
  });
}

/// As small as T can represent. Rows of 32 features have no gaps.
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
}

/// Steps of any length have the bits of one call.
template <class T>
void expect_same_steps(const Case<T>& op, const Problem<T>& problem, Index step) {
  at_each_level([&] {
    const AnyDecoder<T> decoder = op.decoder(decoder_shape(problem.shape));
    const Tensor<T> out(problem.out_shape());
    for (Index row = 0; row < problem.shape.keys; row += step) {
      const Index rows = std::min(step, problem.shape.keys - row);
      decoder.step(rows_with_keys(problem.inputs(), row, rows, row), cut(out.view(), 2, row, rows),
                   {});
    }
    EXPECT_TRUE(same_bits(run(op, problem).out, out.values())) << op.name << ", by " << step;
  });
}

/// Rows before a token keep their bits, forward and backward, whatever it and later ones contain;
/// its own row does not.
template <class T>
void expect_blind(const Case<T>& op, const Problem<T>& clean, Index token) {
  const AttentionShape& s = clean.shape;
  const Problem<T> poisoned = clean.in({}, {}, {}, {});
  for_each_index({s.batch, 1, s.keys - token, 1}, [&](Index b, Index, Index n, Index) {
    set_row(poisoned.k, b, token + n, std::numeric_limits<T>::quiet_NaN());
    set_row(poisoned.v, b, token + n, std::numeric_limits<T>::quiet_NaN());
  });
  const Index first_blind = std::max<Index>(0, token - (s.keys - s.queries));
  at_each_level([&] {
    const BothResults<T> expected = run_both(op, clean);
    const BothResults<T> got = run_both(op, poisoned);
    for_each_index(clean.row_shape(), [&](Index b, Index h, Index row, Index) {
      if (row < first_blind) {
        EXPECT_TRUE(same_row(expected.forward, {b, h, row}, got.forward, {b, h, row})) << row;
        EXPECT_TRUE(same_bits(expected.backward.q_row(b, h, row), got.backward.q_row(b, h, row),
                              as_size(s.width), {}))
            << row;
      } else if (s.width > 0 && s.value_width > 0) {
        EXPECT_TRUE(std::isnan(*got.forward.row(b, h, row))) << row;
        EXPECT_TRUE(std::isnan(*got.backward.q_row(b, h, row))) << row;
      }
    });
  });
}

TYPED_TEST(LinearKernels, AnyPath) {
  using T = TypeParam;
  each_drawn(100, 2, [](std::span<const std::uint8_t> data) {
    Bytes bytes(data);
    const Case<T>& op = drawn_of(bytes, paths<T>());
    Problem<T> problem = drawn_features(bytes, op);
    expect_both_conform(op, problem);
    expect_same_elsewhere(op, problem);
    if (!op.has_decoder) return;
    problem.key_lengths = {};
    SCOPED_TRACE(op.name + ", " + describe(problem));
    if (problem.shape.queries == problem.shape.keys) {
      expect_same_steps(op, problem, bytes(1, 2 * kLinearChunk));
    }
    if (problem.shape.keys > 0) expect_blind(op, problem, bytes(0, problem.shape.keys - 1));
  });
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
