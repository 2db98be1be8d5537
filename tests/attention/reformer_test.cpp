// SPDX-License-Identifier: MIT
// fovea_test(OPTIMISED)
/// \file
/// Reformer attention beyond the conformance suite: the union of candidates, and what NaN reaches.
#include "fovea/attention/reformer.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "attention/reformer_problem.hpp"
#include "support/scalars.hpp"

namespace fovea_test::attention_reformer {

static_assert(fovea::DifferentiableAttention<ReformerAttention, float>);
static_assert(fovea::DifferentiableAttention<ReformerAttention, double>);
static_assert(!fovea::IncrementalAttention<ReformerAttention, float>);

template <class T>
class Reformer : public testing::Test {};
TYPED_TEST_SUITE(Reformer, Scalars);

/// With the correction, rows that several rounds find count once: softmax over the union.
TYPED_TEST(Reformer, CorrectedEqualsSoftmaxOverTheUnion) {
  using T = TypeParam;
  using W = Wide<T>;
  for (ReformerOptions options : reformer_options(8, 4, 4)) {
    options.correct_duplicates = true;
    const ReformerProblem<T> p(ReformerAttention(options), {1, 1, 1, 48, 48, 8, 5});
    const fovea::ReformerInputs<T> in = p.inputs();
    const OracleHashes<T> hashes(in, options, 0, 0);
    const CallResult<T> got = p.run();
    for (Index i = 0; i < 48; ++i) {
      std::vector<bool> seen(48);
      for (Index r = 0; r < options.rounds; ++r) {
        for (const Index j : hashes.candidates(r, i)) seen[as_size(j)] = true;
      }
      W sum = 0;
      W out = 0;
      bool others = false;
      for (Index j = 0; j < 48; ++j) {
        if (!seen[as_size(j)] || j == i) continue;
        W s = 0;
        for (Index d = 0; d < 8; ++d) s += hashes.x(i, d) * hashes.key(j, d);
        others = true;
        sum += std::exp(hashes.scale() * s);
        out += std::exp(hashes.scale() * s) * W{p["v"](0, 0, j, 2)};
      }
      const W expected = others ? out / sum : W{p["v"](0, 0, i, 2)};
      EXPECT_NEAR(static_cast<double>(got["out"][as_size(i * 5 + 2)]),
                  static_cast<double>(expected), 100 * std::numeric_limits<T>::epsilon())
          << i << ", " << describe(options);
    }
  }
}

/// A NaN in a row makes that row NaN, and the rows that it is a candidate of.
TYPED_TEST(Reformer, NanReachesTheRowsThatSeeIt) {
  using T = TypeParam;
  for (const bool in_values : {false, true}) {
    const ReformerOptions options{.chunk = 8, .rounds = 2, .buckets = 6};
    const ReformerAttention op(options);
    const ReformerProblem<T> p(op, {1, 1, 1, 64, 64, 8, 5});
    p[in_values ? "v" : "qk"](0, 0, 21, 3) = std::numeric_limits<T>::quiet_NaN();
    std::vector<Index> buckets(128);
    op.buckets(p.inputs(), View<Index>(buckets.data(), {1, 1, 2, 64}));
    EXPECT_EQ(buckets[21], in_values ? buckets[21] : -1);
    const CallResult<T> got = p.run();
    for (Index i = 0; i < 64; ++i) {
      bool sees = i == 21;
      for (Index r = 0; r < 2; ++r) {
        std::vector<Index> order;
        for (Index b = 0; b < 6; ++b) {
          for (Index j = 0; j < 64; ++j) {
            if (std::max<Index>(0, buckets[as_size(r * 64 + j)]) == b) order.push_back(j);
          }
        }
        const auto chunk = [&](Index j) {
          return (std::find(order.begin(), order.end(), j) - order.begin()) / 8;
        };
        sees = sees || chunk(21) == chunk(i) || chunk(21) == (chunk(i) + 7) % 8;
      }
      EXPECT_EQ(std::isnan(got["out"][as_size(i * 5 + 3)]), sees) << i;
    }
  }
}

/// A NaN in the projection leaves no row a bucket; nothing hangs, and every row is NaN.
TYPED_TEST(Reformer, NanInTheProjectionReachesAllRows) {
  using T = TypeParam;
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    const ReformerAttention op({.chunk = 8, .rounds = 2, .buckets = 6});
    const ReformerProblem<T> p(op, {1, 1, 1, 32, 32, 8, 5}, {{'?', 1}});
    p["projection"](0, 1, 4, 2) = static_cast<T>(bad);
    const CallResult<T> got = p.run();
    for (const T x : got["out"]) EXPECT_EQ(std::isnan(x), std::isnan(bad));
    for (const T x : got["d_v"]) EXPECT_EQ(std::isnan(x), std::isnan(bad));
  }
}

}  // namespace fovea_test::attention_reformer
