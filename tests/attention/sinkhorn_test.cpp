// SPDX-License-Identifier: MIT
// fovea_test(OPTIMISED)
/// \file
/// Sinkhorn attention beyond the conformance suite: what the normalisation makes, what NaN reaches,
/// and more sequences than are computed at once.
#include "fovea/attention/sinkhorn.hpp"
#include "fovea/attention/sinkhorn/passes.hpp"
#include "fovea/attention/sinkhorn/sorting_weights.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "attention/sinkhorn_problem.hpp"
#include "support/scalars.hpp"

namespace fovea_test::attention_sinkhorn {

static_assert(fovea::DifferentiableAttention<SinkhornAttention, float>);
static_assert(fovea::DifferentiableAttention<SinkhornAttention, double>);
static_assert(!fovea::IncrementalAttention<SinkhornAttention, float>);

template <class T>
class Sinkhorn : public testing::Test {};
TYPED_TEST_SUITE(Sinkhorn, Scalars);

/// After many iterations, all rows and columns of the weights sum to 1: values of 1 stay so.
TYPED_TEST(Sinkhorn, WeightsBecomeDoublyStochastic) {
  using T = TypeParam;
  const SortProblem<T> p(SinkhornAttention({.block = 2}), {1, 1, 1, 12, 12, 8, 5});
  const fovea::SortingWeights<T> normalisation(100);
  std::vector<T> weights(36);
  std::vector<T> scratch(as_size(fovea::SortingWeights<T>::scratch_elements(6)));
  normalisation.compute({p.view("sorting").data(), 6, 1}, 6, weights.data(), scratch.data());
  for (std::size_t a = 0; a < 6; ++a) {
    T row = 0;
    T column = 0;
    for (std::size_t c = 0; c < 6; ++c) {
      row += weights[a * 6 + c];
      column += weights[c * 6 + a];
    }
    EXPECT_NEAR(row, 1, 100 * std::numeric_limits<T>::epsilon());
    EXPECT_NEAR(column, 1, 100 * std::numeric_limits<T>::epsilon());
  }
}

/// A NaN of R reaches the block of queries whose logit it is, and through a normalisation all.
TYPED_TEST(Sinkhorn, NanOfASortingLogitReachesTheRowsThatDependOnIt) {
  using T = TypeParam;
  for (const Index iterations : {0, 1, 5}) {
    const SinkhornAttention op({.block = 4, .iterations = iterations});
    const SortProblem<T> p(op, {1, 1, 1, 24, 24, 8, 5});
    p["sorting"](0, 0, 3, 1) = std::numeric_limits<T>::quiet_NaN();
    const CallResult<T> got = p.run();
    for (Index i = 0; i < 24; ++i) {
      EXPECT_EQ(std::isnan(got["out"][as_size(i * 5 + 2)]), iterations > 0 || i / 4 == 3) << i;
    }
  }
}

TEST(SinkhornGroups, MoreSequencesThanAreComputedAtOnce) {
  const SinkhornOptions options{.block = 64, .iterations = 2};
  const SortProblem<float> p(SinkhornAttention(options), {3, 2, 2, 8192, 8192, 64, 64});
  ASSERT_LT(fovea::sinkhorn_sequences_at_once(options, p.shape()), 6);
  expect_same_part(p, p.run(), {.batch = 2, .head = 1, .rows = 8192});
}

}  // namespace fovea_test::attention_sinkhorn
