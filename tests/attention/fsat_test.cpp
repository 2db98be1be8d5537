// SPDX-License-Identifier: MIT
// fovea_test(OPTIMISED HEAP)
/// \file
/// FSAT attention beyond the conformance suites: groups of heads; truncated gradients; long
/// sequences; memory.
#include "fovea/attention/fsat.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "attention/exact_workspace.hpp"
#include "attention/fsat_problem.hpp"
#include "fovea/attention/fat.hpp"
#include "fovea/core/eigen.hpp"
#include "support/scalars.hpp"

namespace fovea_test::attention_fsat {

static_assert(fovea::Attention<FsatAttention, Eigen::bfloat16>);
static_assert(fovea::DifferentiableAttention<FsatAttention, double>);
static_assert(!fovea::DifferentiableAttention<FsatAttention, Eigen::half>);
static_assert(!fovea::IncrementalAttention<FsatAttention, float>);
static_assert(fovea::DifferentiableAttention<fovea::FatAttention, float>);
static_assert(!fovea::IncrementalAttention<fovea::FatAttention, float>);

template <class T>
class Fsat : public testing::Test {};
TYPED_TEST_SUITE(Fsat, Scalars);

/// Heads with more edges than the backward pass processes at once.
TEST(FsatBackward, GroupsOfHeadsDoNotChangeBits) {
  const FsatProblem<float> p(FsatAttention({.max_length = 70'000}), {1, 6, 3, 70'000, 70'000, 1, 1},
                             {{'M', 8}});
  const CallResult<float> all = p.run();
  for (const Index head : {0, 4}) {
    expect_same_part(p, all, {.head = head, .heads = 2, .rows = 70'000});
  }
}

/// A truncated gradient has no term of the other sign: one slot, one edge.
TEST(FsatTruncation, KeepsTheNegativeGradientsOfConfidences) {
  const FsatOptions options{.max_length = 50};
  const auto inside = [](Index b, Index h, Index j, Index m) {
    return 49 * uniform(hash(6, b, h, j, m));
  };
  FsatProblem<double> p(FsatAttention(options), {1, 2, 2, 50, 50, 5, 3}, {{'M', 1}});
  p["dominant"].fill(inside);
  const CallResult<double> truncated = p.run();
  p.op.options.truncate_gradient = false;
  const CallResult<double> whole = p.run();
  int kept = 0;
  int dropped = 0;
  for (std::size_t i = 0; i < whole["d_dominant"].size(); ++i) {
    const double ibar = p["dominant"].values()[i];
    // I - Ibar is not positive, so the gradient of the confidence has the other sign.
    const bool flows = whole["d_dominant"][i] > 0;
    EXPECT_EQ(truncated["d_dominant"][i], flows ? whole["d_dominant"][i] : 0) << ibar;
    (flows ? kept : dropped) += 1;
  }
  EXPECT_GT(kept, 20);
  EXPECT_GT(dropped, 20);
  EXPECT_TRUE(same_bits(truncated["d_q"], whole["d_q"]));
}

/// At large positions, float still distinguishes the distances of neighbours. Each row has one key,
/// whose value its confidence multiplies.
TYPED_TEST(Fsat, ConfidencesAreAccurateInLongSequences) {
  using T = TypeParam;
  constexpr Index tokens = 65'536;
  const auto query_of = [](Index j) { return j * 7919 % tokens; };
  for (const double variance : {0.01, 65536.0}) {
    const FsatAttention op({.max_length = tokens, .variance = variance});
    const FsatProblem<T> p(op, {1, 1, 1, tokens, tokens, 1, 1}, {{'M', 1}});
    p["dominant"].fill([&](Index, Index, Index j, Index m) {
      return static_cast<float>(static_cast<double>(query_of(j)) +
                                0.99 * uniform(hash(3, j, m, 0, 0)));
    });
    const CallResult<T> got = p.run();
    for (Index j = 0; j < tokens; ++j) {
      const long double distance =
          static_cast<long double>(query_of(j)) - p["dominant"](0, 0, j, 0);
      const long double power = distance * distance / (2 * variance);
      const long double expected =
          std::exp(-power) / std::sqrt(6.283185307179586477L * variance) * p["v"](0, 0, j, 0);
      const long double room = 4 * std::numeric_limits<T>::epsilon() * (1 + power);
      const T out = got["out"][as_size(query_of(j))];
      ASSERT_LE(std::abs(out - expected), room * std::abs(expected) + std::numeric_limits<T>::min())
          << "key " << j << ", variance " << variance;
    }
  }
}

/// Nothing of L x L.
TYPED_TEST(Fsat, AllocatesExactlyItsWorkspace) {
  for (const EdgeSource edges : {EdgeSource::predicted, EdgeSource::both}) {
    for (const Index n : {300, 9000}) {
      FsatOptions options{.max_length = n};
      options.edges = edges;
      const FsatProblem<TypeParam> p(FsatAttention(options), {2, 2, 1, n, n, 5, 3});
      expect_exact_workspace(p.op, p, p.call_shape(), {12, 20, 1024});
    }
  }
}

}  // namespace fovea_test::attention_fsat
