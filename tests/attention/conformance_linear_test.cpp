// SPDX-License-Identifier: MIT
// fovea_test(OPTIMISED SHARDS 4 LEVELS)
/// \file
/// Linear attention, FMM attention and the delta rule against their oracles where softmax attention
/// has no like: around their chunks and segments, features that underflow or are huge, denominators
/// that vanish or change sign, rates that nothing reads.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "attention/gradients.hpp"
#include "attention/linear_case.hpp"
#include "attention/poisons.hpp"
#include "support/scalars.hpp"

namespace fovea_test::attention_conformance_linear {

class LinearConformance : public Conformance {};

TEST_P(LinearConformance, ChunksAndSegments) {
  each([]<class T>(const Case<T>& op) {
    constexpr Index chunk = fovea::kLinearChunk;
    constexpr Index segment = fovea::kLinearSegment;
    std::uint64_t seed = 1;
    for (const Index n : {chunk - 1, chunk, chunk + 1, 2 * chunk, 3 * chunk + 1, 4 * chunk}) {
      for (const Index ahead : {Index{0}, Index{1}, Index{5}, chunk}) {
        expect_conforms(op, make_problem(op, sizes(n, n + ahead, 9, 7), seed));
        expect_grads_conform(op, make_problem(op, sizes(n, n + ahead, 5, 6), seed++));
      }
    }
    for (const Index keys : {segment - 1, segment, segment + 1, 2 * segment + chunk + 3}) {
      expect_conforms(op, make_problem(op, sizes(2 * chunk + 1, keys, 9, 7), seed));
      expect_grads_conform(op, make_problem(op, sizes(70, keys, 3, 4), seed++));
    }
    expect_grads_conform(op, make_problem(op, sizes(segment + 70, 90, 3, 4), seed));
  });
}

/// Column 0 of q and k is of this size in some rows: features are huge, or underflow to 0 in whole
/// rows.
TEST_P(LinearConformance, FeaturesOfExtremeMagnitude) {
  each([]<class T>(const Case<T>& op) {
    // The square of an own map overflows first.
    const bool squares = op.name.find("own") != std::string::npos;
    for (const double size : {20.0, 86.0, 88.0, 104.0, 707.0, 709.0, 746.0, 1e4, 1e15}) {
      if (squares && size > 1e4) continue;
      const auto some = [=](Index n) { return n % 7 == 3 ? size : n % 7 == 5 ? -size : 0.5; };
      for (const Index width : {1, 16}) {
        const AttentionShape shape = sizes(75, 75, width, 6);
        const auto expect = [&](const Fill& q, const Fill& k) {
          expect_conforms(op, make_problem(op, shape, 5, {q, k, gaussian(5)}), " extremes");
        };
        expect(constant(1), first_column(some));
        expect(first_column(some), gaussian(6));
        expect(first_column(some), first_column(some));
        expect(constant(-size), gaussian(6));
        expect(gaussian(6), constant(-size));
        expect(gaussian(6), constant(size));
      }
    }
  });
}

/// The same backwards, where derivatives are not all 0, and for small features in all columns.
TEST_P(LinearConformance, GradientsOfExtremeFeatures) {
  each([]<class T>(const Case<T>& op) {
    const Problem<T> small =
        make_problem(op, sizes(75, 75, 3, 6), 5, {constant(-60), gaussian(6), gaussian(5)});
    expect_grads_conform(op, small, " small");
    for (const double size : {20.0, 88.0, 1e4}) {
      const auto some = [=](Index n) { return n % 7 == 3 ? size : n % 7 == 5 ? -size : 0.5; };
      const AttentionShape shape = sizes(75, 75, 3, 6);
      const auto expect = [&](const Fill& q, const Fill& k) {
        expect_grads_conform(op, make_problem(op, shape, 5, {q, k, gaussian(5)}), " extremes");
      };
      expect(constant(1), first_column(some));
      expect(first_column(some), gaussian(6));
      expect(gaussian(6, 0.1), constant(size));
    }
  });
}

/// A rate of a token that no row sees is not read, forward or backward; its gradient is +0.
TEST_P(LinearConformance, HiddenRatesDoNotChangeBits) {
  each([]<class T>(const Case<T>& op) {
    if (!op.extras.beta) return;
    at_each_level([&] {
      Problem<T> problem = make_problem(op, {2, 2, 1, 40, 70, 3, 5});
      problem.key_lengths = {33, 70};
      const Result<T> clean = run(op, problem);
      const Gradients<T> grads = run_backward(op, problem);
      for (const double poison : {std::nan(""), -1.0, HUGE_VAL}) {
        for (Index j = 33; j < 70; ++j) (*problem.beta)(0, 0, j, 0) = static_cast<T>(poison);
        EXPECT_TRUE(same_bits(clean, run(op, problem))) << poison;
        EXPECT_TRUE(same_bits(grads, run_backward(op, problem))) << poison;
      }
      const std::vector<T> zeros(37);
      EXPECT_TRUE(same_bits(&grads.beta[33], zeros.data(), zeros.size(), {1, 1, 37, 1}));
    });
  });
}

/// The scratch of forward is at most that of the inputs.
TEST_P(LinearConformance, WorkspaceIsLinearInTheTokens) {
  each([]<class T>(const Case<T>& op) {
    const auto bytes = [&](Index n) { return op.workspace_bytes(sizes(n, n, 64, 64), 1); };
    for (const Index n : {Index{1} << 14, Index{1} << 16, Index{1} << 20}) {
      EXPECT_LE(bytes(2 * n), 2 * bytes(n)) << n;
      EXPECT_LE(bytes(n), n * 128 * static_cast<Index>(sizeof(T))) << n;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(, LinearConformance,
                         testing::ValuesIn(subjects([](const auto& op) { return !op.is_softmax; })),
                         test_name);

/// Denominators that vanish exactly, and that are negative: features of tanh are 1, 0 and -1, so
/// that every number is exact. The sums z are (1, 0), (1, -1), (1, -2); phi(q) is (1, 1), so the
/// denominators are 1, 0, -1.
template <class T>
class Denominators : public testing::Test {
 protected:
  static std::vector<T> outputs(const fovea::Denominator& denominator, bool causal) {
    const fovea::LinearAttention<fovea::Tanh> op{{.causal = causal,
                                                  .alignment = fovea::CausalAlignment::bottom_right,
                                                  .denominator = denominator}};
    const Tensor<T> q({1, 1, 3, 2});
    const Tensor<T> k({1, 1, 3, 2});
    const Tensor<T> v({1, 1, 3, 1});
    const Tensor<T> out({1, 1, 3, 1});
    q.fill(constant(50));
    k.fill([](Index, Index, Index n, Index d) {
      return n == 0 ? (d == 0 ? 50.0 : 0.0) : (d == 0 ? 0.0 : -50.0);
    });
    v.fill([](Index, Index, Index n, Index) { return n == 0 ? 7.0 : n == 1 ? 3.0 : 8.0; });
    op.forward(AllInputs<T>{q.view(), k.view(), v.view()}, out.view());
    return out.values();
  }
};
TYPED_TEST_SUITE(Denominators, Scalars);

TYPED_TEST(Denominators, FollowThePolicy) {
  using T = TypeParam;
  using fovea::Denominator;
  const auto outputs = [](const Denominator& denominator) {
    return TestFixture::outputs(denominator, true);
  };
  at_each_level([&] {
    const std::vector<T> as_is = outputs(Denominator::propagate());
    EXPECT_EQ(as_is[0], 7);
    EXPECT_TRUE(std::isinf(as_is[1])) << "4 / 0 is " << as_is[1];
    EXPECT_EQ(as_is[2], 4);  // (7 - 3 - 8) / -1
    EXPECT_EQ(outputs(Denominator::zero_row()), (std::vector<T>{7, 0, 4}));
    EXPECT_EQ(outputs(Denominator::signed_floor(0.25)), (std::vector<T>{7, 8, 4}));
    EXPECT_EQ(outputs(Denominator::signed_floor(0.5)), (std::vector<T>{7, 4, T{-4} / T{-1.5}}));
    EXPECT_EQ(TestFixture::outputs(Denominator::signed_floor(0.5), false),
              (std::vector<T>(3, T{-4} / T{-1.5})));
  });
}

/// Features that are all 0: 0 / 0, and the results of the policies.
TYPED_TEST(Denominators, WithoutFeatures) {
  using T = TypeParam;
  using fovea::Denominator;
  for (const bool causal : {false, true}) {
    const auto made = [&](const Denominator& denominator) {
      return linear_case<T>("relu", fovea::LinearAttention<fovea::Relu>{
                                        {.causal = causal,
                                         .alignment = fovea::CausalAlignment::bottom_right,
                                         .denominator = denominator}});
    };
    Problem<T> problem = make_problem(made(Denominator::zero_row()), sizes(50, 50, 4, 3));
    set_row(problem.q, 0, 20, T{-1});
    at_each_level([&] {
      const Case<T> zeroed = made(Denominator::zero_row());
      const Result<T> rows = run(zeroed, problem);
      const Gradients<T> grads = run_backward(zeroed, problem);
      for (Index c = 0; c < 3; ++c) EXPECT_EQ(rows.row(0, 0, 20)[c], 0);
      for (Index d = 0; d < 4; ++d) EXPECT_EQ(grads.q_row(0, 0, 20)[d], 0);
      for (const Denominator& other : {Denominator::propagate(), Denominator::signed_floor(0.5)}) {
        const Result<T> as_is = run(made(other), problem);
        EXPECT_TRUE(std::isnan(as_is.row(0, 0, 20)[1]));
      }
    });
    expect_conforms(made(Denominator::zero_row()), problem);
    expect_grads_conform(made(Denominator::zero_row()), problem);
  }
}

}  // namespace fovea_test::attention_conformance_linear
