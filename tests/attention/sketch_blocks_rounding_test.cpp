// SPDX-License-Identifier: MIT
// fovea_test(OPTIMISED)
/// \file
/// The choice of keys by blocks against the exhaustive one where logits differ by less than
/// rounding, and where the squares of queries are infinite.
#include <gtest/gtest.h>

#include <cmath>

#include "attention/sketch_problem.hpp"
#include "support/fill.hpp"

namespace fovea_test::attention_sketch_blocks_rounding {

class SketchBlocksRounding : public testing::TestWithParam<SamplingPolicy> {};

constexpr Index kGroups = 32;
constexpr Index kWidth = 7;

/// Column c of the point that a group of keys is near. The columns count as + + + - - -, and add up
/// to 0 exactly: they are multiples of 2^-20.
double centre(Index group, Index c) {
  const auto drawn = [=](Index column) {
    return 1 + std::floor(uniform(hash(1, 0, 0, group, column)) * 0x1p20) * 0x1p-20;
  };
  if (c == 6) return 0;
  return c < 5 ? drawn(c) : drawn(0) + drawn(1) + drawn(2) - drawn(3) - drawn(4);
}

/// Large products cancel, and the remaining rounding error differs for each group of keys. A group
/// is a block, whose mean does not contain that error. So logits in a skipped block may exceed its
/// bound, within the tolerance for rounding.
TEST_P(SketchBlocksRounding, EqualsTheExhaustiveChoiceWhereProductsCancel) {
  BirdProblem<float> problem(
      {.heads = 2, .queries = 64, .keys = kGroups * fovea::kBlockKeys, .sketch_width = kWidth});
  problem.sketch_q.fill([](Index, Index, Index i, Index c) {
    const double size = std::exp2(static_cast<double>(i % 8)) * (1 + static_cast<double>(i) / 64);
    return c < 3 || c == 6 ? size : -size;
  });
  for (const double spread : {0x1p-21, 0x1p-23}) {
    problem.sketch_k.fill([=](Index, Index, Index j, Index c) {
      return c < 6 ? centre(j % kGroups, c) : spread * uniform(hash(2, 0, 0, j, 0));
    });
    for (const Index chosen : {2, 12, 30}) {
      SCOPED_TRACE(testing::Message() << "spread " << spread << ", K " << chosen);
      expect_same_choice(problem, {.keys_per_row = chosen, .policy = GetParam()});
    }
  }
}

/// Logits of a usual size that are products of very large numbers and very small ones: products of
/// two queries are infinite, and variances of keys 0.
TEST_P(SketchBlocksRounding, EqualsTheExhaustiveChoiceWhereSquaresAreInfinite) {
  for (const Index width : {1, 2, 4}) {
    for (const double size : {0x1p62, 0x1p66, 0x1p80, 0x1p100}) {
      SCOPED_TRACE(testing::Message() << "width " << width << ", size " << size);
      BirdProblem<float> problem({.heads = 4, .queries = 16, .keys = 3072, .sketch_width = width});
      problem.sketch_q.fill(gaussian(4, size));
      problem.sketch_k.fill(gaussian(5, 1 / size));
      expect_same_choice(problem, {.policy = GetParam()});
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, SketchBlocksRounding, testing::ValuesIn(kPolicies), policy_name);

}  // namespace fovea_test::attention_sketch_blocks_rounding
