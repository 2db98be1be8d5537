// SPDX-License-Identifier: MIT
/// \file
/// Tests of kernels/linear/grad.hpp: gradients compared with the oracle (which is checked by
/// central differences), for every map and policy; and by bits, independence of layouts and calls.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kernels/linear/grad_call.hpp"
#include "support/compare.hpp"
#include "support/levels.hpp"
#include "support/oracle/linear.hpp"
#include "support/oracle/linear_grad.hpp"

namespace fovea_test::kernels_linear_grad {

constexpr double kBound = 32;
constexpr double kValueBound = 16;

template <class T>
OracleMap<T> oracle_map(FeatureMapKind kind) {
  using W = Wide<T>;
  switch (kind) {
    case FeatureMapKind::elu_plus_one:
      return elu_plus_one<T>();
    case FeatureMapKind::elu_minus_plus_one:
      return elu_plus_one<T>(-1);
    case FeatureMapKind::tanh_plus_one:
      return tanh_plus_one<T>();
    case FeatureMapKind::tanh:
      return tanh_map<T>();
    case FeatureMapKind::relu:
      return relu<T>();
    default:
      return {[](W x) { return x * x; }, [](W x) { return 2 * x; }, false};
  }
}

template <class T>
struct Expected {
  ExpectedGrads<T> grads;
  Reference<T> products;
};

template <class T>
Expected<T> expected(const Problem<T>& p) {
  const Setup& s = p.setup;
  bench::AllInputs<T> in;
  in.q = View<const T>(p.q.view());
  in.k = View<const T>(p.k.view());
  in.v = View<const T>(p.v.view());
  OracleLinear<T> op;
  for (const FeatureMapKind kind : s.maps) op.maps.push_back(oracle_map<T>(kind));
  op.policy = s.policy == DenominatorPolicy::propagate  ? OraclePolicy::propagate
              : s.policy == DenominatorPolicy::zero_row ? OraclePolicy::zero_row
                                                        : OraclePolicy::signed_floor;
  op.tau = static_cast<T>(s.tau);
  op.reference_mask = [s](const Pair& pair) { return !s.causal || pair.j <= pair.row + s.first; };
  Tensor<T> weighted(p.d_out.shape());
  weighted.fill([&](Index b, Index h, Index n, Index c) {
    return p.d_out(b, h, n, c) * (p.far_weight.empty() ? T(1) : p.far_weight[as_size(c)]);
  });
  Expected<T> e{linear_grad_oracle(in, op, weighted.view()), zero_reference<T>({1, s.heads, 1, 1})};
  const Reference<T> out = linear_oracle(in, op);
  for_each_index(out.shape, [&](Index b, Index h, Index n, Index c) {
    const std::size_t i = place_of(out.shape, b, h, n, c);
    e.products.value[as_size(h)] += out.value[i] * weighted(b, h, n, c);
    e.products.gauge[as_size(h)] += out.gauge[i] * std::abs(weighted(b, h, n, c));
    if (out.demand_of(i) != Demand::ratio) e.products.relax(as_size(h), Demand::nothing);
  });
  return e;
}

/// The expected value if `before` was accumulated to.
template <class T>
Reference<T> added(Reference<T> x, double before) {
  for (auto& value : x.value) value += before;
  for (auto& gauge : x.gauge) gauge += std::abs(before);
  return x;
}

template <class T>
void expect_within(const Result<T>& got, const Expected<T>& e, double before = 0) {
  EXPECT_TRUE(within_ratio(got.q.values(), added(e.grads.q, before), kBound)) << "d_q";
  EXPECT_TRUE(within_ratio(got.k.values(), added(e.grads.k, before), kBound)) << "d_k";
  EXPECT_TRUE(within_ratio(got.v.values(), added(e.grads.v, before), kValueBound)) << "d_v";
  EXPECT_TRUE(within_ratio(got.products, e.products, kBound)) << "<G, far>";
}

template <class T>
void expect_same(const Result<T>& a, const Result<T>& b) {
  EXPECT_TRUE(same_bits(a.q.values(), b.q.values(), a.q.shape())) << "d_q";
  EXPECT_TRUE(same_bits(a.k.values(), b.k.values(), a.k.shape())) << "d_k";
  EXPECT_TRUE(same_bits(a.v.values(), b.v.values(), a.v.shape())) << "d_v";
  EXPECT_TRUE(same_bits(a.products, b.products)) << "<G, far>";
}

std::string text(const Setup& s) {
  std::string maps;
  for (const FeatureMapKind kind : s.maps) maps += std::to_string(static_cast<int>(kind)) + " ";
  return std::string(s.causal ? "causal " : "all ") + std::to_string(s.heads) + " heads, " +
         std::to_string(s.rows) + " rows from " + std::to_string(s.first) + ", " +
         std::to_string(s.tokens) + " tokens, widths " + std::to_string(s.width) + " and " +
         std::to_string(s.value_width) + ", maps " + maps + "policy " +
         std::to_string(static_cast<int>(s.policy));
}

/// Shapes around chunks, vectors and reduction blocks; rows before and after the tokens.
std::vector<Setup> shapes() {
  std::vector<Setup> all(9);
  all[1] = {true, 3, 45, 100, 33, 17, 55};
  all[2] = {true, 2, 130, 40, 16, 64, 0};
  all[3] = {true, 1, 50, 70, 1, 1, -20};
  all[4] = {true, 2, 5, 200, 7, 5, 60};
  all[5] = {true, 1, 20, 64, 70, 130, 64};
  all[6] = {true, 1, 9, 5, 4, 4, -9};  // nothing is seen
  all[7] = {true, 1, 1, 1, 3, 2, 0};
  all[8] = {true, 2, 96, 97, 48, 32, 1};
  for (std::size_t i = 0; i < 9; i += 2) {
    if (i == 6) continue;
    all.push_back(all[i]);
    all.back().causal = false;
  }
  all.push_back({true, 1, 9, 5, 4, 4, -200});  // nothing is seen from afar
  all.push_back({true, 1, 9, 0, 4, 4, 0});     // nothing is there to see
  return all;
}

template <class T>
class LinearGrad : public testing::Test {};
using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(LinearGrad, Scalars);

TYPED_TEST(LinearGrad, IsWithinBoundsForEveryShape) {
  for (Setup s : shapes()) {
    s.weighted = true;
    SCOPED_TRACE(text(s));
    const Problem<TypeParam> p(s);
    const Expected<TypeParam> e = expected(p);
    at_each_level([&] { expect_within(run(p), e); });
  }
}

TYPED_TEST(LinearGrad, IsWithinBoundsForEveryMapAndPolicy) {
  using enum FeatureMapKind;
  for (const bool causal : {true, false}) {
    for (const auto& maps :
         std::vector<std::vector<FeatureMapKind>>{{elu_minus_plus_one},
                                                  {tanh_plus_one},
                                                  {tanh},
                                                  {relu},
                                                  {own},
                                                  {elu_plus_one, tanh, elu_minus_plus_one}}) {
      for (const auto policy : {DenominatorPolicy::propagate, DenominatorPolicy::zero_row,
                                DenominatorPolicy::signed_floor}) {
        Setup s{causal, 2, 40, 45, 6, 9, 5, maps, policy, 0.3};
        SCOPED_TRACE(text(s));
        Problem<TypeParam> p(s);
        // Rows of relu without a feature, and a key without a sign.
        for (Index d = 0; d < s.width && policy != DenominatorPolicy::propagate; ++d) {
          p.q(0, 1, 7, d) = -1;
          p.k(0, 0, 3, d) = 0;
        }
        const Expected<TypeParam> e = expected(p);
        at_each_level([&] { expect_within(run(p), e); });
      }
    }
  }
}

/// Each run checks the memory after its scratch: here complete chunks, with many channels.
TYPED_TEST(LinearGrad, WideHeadsStayWithinTheirScratch) {
  for (const bool causal : {true, false}) {
    Setup s;
    s.causal = causal;
    s.width = 6000;
    s.value_width = 16;  // rows without padding
    const Problem<TypeParam> p(s);
    at_each_level([&] { EXPECT_EQ(run(p).q.changed_gaps(), 0); });
  }
}

TYPED_TEST(LinearGrad, DoesNotDriftOnRepeatedTokens) {
  for (const bool causal : {true, false}) {
    Setup s;
    s.causal = causal;
    s.rows = 40;
    s.tokens = 3 * fovea::kLinearSegment + 77;
    s.first = s.tokens - s.rows;
    s.width = 2;
    s.value_width = 3;
    Problem<TypeParam> p(s);
    p.q.fill(constant(0.1));
    // Two kinds of tokens: of one kind, nothing would depend on q.
    p.k.fill([](Index, Index, Index n, Index d) {
      return n % 2 == 0 ? -0.3 : 0.1 * static_cast<double>(d);
    });
    p.v.fill([](Index, Index, Index n, Index) { return n % 2 == 0 ? 0.7 : 0.2; });
    p.d_out.fill(constant(0.1));
    const Expected<TypeParam> e = expected(p);
    at_each_level([&] { expect_within(run(p), e); });
  }
}

/// Causal forward passes and gradients use denominators with the same bits, so a floored or skipped
/// row is the same in both. Only token 0 has a value, which every row weighs with 1, so a row is
/// the inverse of its denominator.
TYPED_TEST(LinearGrad, DividesByTheDenominatorsOfTheForwardPass) {
  using T = TypeParam;
  Setup s;
  s.rows = s.tokens = 2 * fovea::kLinearSegment + 77;
  s.value_width = 1;
  s.maps = {FeatureMapKind::relu};
  Problem<T> p(s);
  for (Index n = 0; n < s.tokens; ++n) {
    p.q(0, 0, n, 0) = 1;
    p.v(0, 0, n, 0) = n == 0 ? T(1) : T(0);
  }
  for (Index d = 0; d < s.width; ++d) p.k(0, 0, 0, d) = d == 0 ? T(1) : T(0);
  const fovea::LinearShape shape{1, s.width, s.value_width};
  fovea::Workspace state(fovea::linear_state_elements<T>(shape) * Index{sizeof(T)});
  fovea::Workspace scratch(fovea::linear_stream_scratch<T>(shape) * Index{sizeof(T)});
  fovea::Workspace grad_scratch(fovea::linear_grad_scratch<T>(s.width, s.value_width) *
                                Index{sizeof(T)});
  const Tensor<T> out(p.d_out.shape());
  const Index record = fovea::linear_grad_record<T>(s.width, s.policy);
  at_each_level([&] {
    fovea::LinearRows<T> rows;
    rows.q = stored(input_of(p.q, 0));
    rows.out = output(matrix_of(out, 0));
    fovea::LinearStreamArgs<T> forward;
    forward.k = stored(input_of(p.k, 0));
    forward.v = stored(input_of(p.v, 0));
    forward.width = s.width;
    forward.value_width = s.value_width;
    forward.maps = p.linear_maps();
    forward.tokens = s.tokens;
    forward.rows = &rows;
    forward.heads = 1;
    forward.row_count = s.rows;
    forward.state = state.data<T>();
    forward.scratch = scratch.data<T>();
    fovea::LinearKernels<T>{}.stream(forward);
    LinearGradRows<T> grad_rows;
    grad_rows.q = input_of(p.q, 0);
    grad_rows.d_out = input_of(p.d_out, 0);
    std::vector<T> saved(as_size(s.rows * record));
    fovea::LinearGradCausalArgs<T> args;
    args.tokens = {input_of(p.k, 0), input_of(p.v, 0), {}, {}, s.tokens};
    args.width = s.width;
    args.value_width = s.value_width;
    args.maps = p.linear_maps();
    args.rows = &grad_rows;
    args.heads = 1;
    args.row_count = s.rows;
    args.saved = saved.data();
    args.scratch = grad_scratch.data<T>();
    fovea::LinearGradKernels<T>{}.causal_rows(args);
    for (Index i = 0; i < s.rows; ++i) {
      ASSERT_EQ(out(0, 0, i, 0), saved[as_size(i * record)]) << "row " << i;
    }
  });
}

TYPED_TEST(LinearGrad, Accumulates) {
  for (const bool causal : {true, false}) {
    Setup s{causal, 2, 40, 45, 6, 9, -3};
    s.maps = {FeatureMapKind::relu, FeatureMapKind::elu_plus_one};
    s.policy = DenominatorPolicy::zero_row;
    const Problem<TypeParam> p(s);
    const Expected<TypeParam> e = expected(p);
    RunOptions options;
    options.before = 0.5;
    at_each_level([&] { expect_within(run(p, options), e, 0.5); });
  }
}

TYPED_TEST(LinearGrad, HasTheSameBitsAtV3AndV4) {
  if (!has_level(IsaLevel::v4)) GTEST_SKIP() << "no v4";
  for (Setup s : shapes()) {
    SCOPED_TRACE(text(s));
    s.policy = DenominatorPolicy::signed_floor;
    s.tau = 0.3;
    s.maps = {FeatureMapKind::elu_plus_one, FeatureMapKind::tanh};
    const Problem<TypeParam> p(s);
    const Result<TypeParam> v4 = run(p);
    const AtLevel at(IsaLevel::v3);
    expect_same(run(p), v4);
  }
}

TYPED_TEST(LinearGrad, DoesNotDependOnStridesOrCalls) {
  Layout layout;
  layout.order = {0, 3, 1, 2};
  layout.innermost = 2;
  layout.gap = 3;
  layout.reversed = {false, true, true, false};
  for (const Setup& s : shapes()) {
    SCOPED_TRACE(text(s));
    const Problem<TypeParam> p(s);
    at_each_level([&] {
      const Result<TypeParam> whole = run(p);
      RunOptions options;
      options.layout = layout;
      options.head_by_head = true;
      const Result<TypeParam> other = run(p, options);
      expect_same(other, whole);
      EXPECT_EQ(other.q.changed_gaps() + other.k.changed_gaps() + other.v.changed_gaps(), 0);
    });
  }
}

TYPED_TEST(LinearGrad, ComputesRequestedGradientsOnly) {
  for (const bool causal : {true, false}) {
    const Problem<TypeParam> p(Setup{causal, 2, 40, 45, 20, 9, 5});
    at_each_level([&] {
      const Result<TypeParam> all = run(p);
      for (const int only : {0, 1, 2}) {
        RunOptions options;
        options.q = only == 0;
        options.k = only == 1;
        options.v = only == 2;
        const Result<TypeParam> one = run(p, options);
        const Tensor<TypeParam>* const got[] = {&one.q, &one.k, &one.v};
        const Tensor<TypeParam>* const expected[] = {&all.q, &all.k, &all.v};
        for (const int n : {0, 1, 2}) {
          if (n == only) {
            EXPECT_TRUE(same_bits(got[n]->values(), expected[n]->values())) << n;
          } else {
            EXPECT_TRUE(std::isnan(got[n]->values()[0])) << n << " is written";
          }
        }
      }
    });
  }
}

/// The rows [first, first + count) of a tensor's heads.
template <class T>
std::vector<T> rows_of(const Tensor<T>& x, Index first, Index count) {
  std::vector<T> values;
  for (Index h = 0; h < x.shape()[1]; ++h) {
    for (Index n = first; n < first + count; ++n) {
      for (Index c = 0; c < x.shape()[3]; ++c) values.push_back(x(0, h, n, c));
    }
  }
  return values;
}

template <class T>
void poison(const Tensor<T>& x, Index h, Index n) {
  const T bad[] = {std::numeric_limits<T>::quiet_NaN(), std::numeric_limits<T>::infinity()};
  for (Index c = 0; c < x.shape()[3]; ++c) x(0, h, n, c) = bad[c % 2];
}

TYPED_TEST(LinearGrad, TokensDoNotAffectEarlierRows) {
  const Setup s{true, 2, 75, 90, 20, 9, 10};
  at_each_level([&] {
    const Result<TypeParam> clean = run(Problem<TypeParam>(s));
    for (const Index token : {10, 31, 32, 40, 84, 85, 89}) {
      Problem<TypeParam> p(s);
      poison(p.k, 0, token);
      poison(p.v, 0, token);
      const Result<TypeParam> got = run(p);
      const Index before = token - s.first;  // rows
      EXPECT_TRUE(same_bits(rows_of(got.q, 0, std::min(s.rows, before)),
                            rows_of(clean.q, 0, std::min(s.rows, before))))
          << token;
      if (before < s.rows) {
        EXPECT_TRUE(std::isnan(got.q(0, 1, before, 0))) << token;
        continue;
      }
      EXPECT_EQ(got.k(0, 0, token, 0), 0);
      EXPECT_EQ(got.v(0, 0, token, 0), 0);
      EXPECT_TRUE(same_bits(rows_of(got.k, 0, token), rows_of(clean.k, 0, token)));
      EXPECT_TRUE(same_bits(rows_of(got.v, 0, token), rows_of(clean.v, 0, token)));
    }
  });
}

TYPED_TEST(LinearGrad, RowsDoNotAffectLaterTokensOrOtherRows) {
  const Setup s{true, 2, 75, 90, 20, 9, 10};
  at_each_level([&] {
    const Result<TypeParam> clean = run(Problem<TypeParam>(s));
    for (const Index row : {0, 21, 22, 23, 40, 74}) {
      Problem<TypeParam> p(s);
      poison(p.q, 1, row);
      const Result<TypeParam> got = run(p);
      const Index later = row + s.first + 1;
      EXPECT_TRUE(same_bits(rows_of(got.k, later, s.tokens - later),
                            rows_of(clean.k, later, s.tokens - later)));
      EXPECT_TRUE(same_bits(rows_of(got.v, later, s.tokens - later),
                            rows_of(clean.v, later, s.tokens - later)));
      EXPECT_TRUE(std::isnan(got.k(0, 0, later - 1, 0)) && std::isnan(got.v(0, 0, 0, 0)));
      EXPECT_TRUE(std::isnan(got.q(0, 1, row, 3)));
      for (Index n = 0; n < s.rows; ++n)
        got.q(0, 1, row, n % s.width) = clean.q(0, 1, row, n % s.width);
      EXPECT_TRUE(same_bits(got.q.values(), clean.q.values())) << row;
    }
  });
}

}  // namespace fovea_test::kernels_linear_grad
