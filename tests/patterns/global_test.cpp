// SPDX-License-Identifier: MIT
/// \file
/// Tests of patterns/global.hpp. (For masks see masks_test.cpp.)
#include "fovea/patterns/global.hpp"

#include "patterns/enumeration.hpp"

namespace fovea_test::patterns_global {

using fovea::GlobalTokens;

/// Neighbours share a run, and their rows have a separate block that sees all keys without bounds.
TEST(GlobalTokens, GlobalRowsAreSeparateBlocks) {
  const SequenceShape shape = SequenceShape::of(4096, 4096, CausalAlignment::top_left);
  const auto plan = GlobalTokens::first(64).plan(shape);
  BlockStorage storage(plan.most_runs());
  for (Index b = 0; b < plan.block_count(); ++b) {
    const QueryBlock block = plan.block(b, storage);
    ASSERT_EQ(block.run_count, 1);
    EXPECT_EQ(block.runs[0].lower, nullptr);
    EXPECT_EQ(block.runs[0].count, b == 0 ? 4096 : 64);
    EXPECT_TRUE(b > 0 || block.count == 64);
  }
  EXPECT_EQ(plan.attended_pairs(), 64 * 4096 + (4096 - 64) * 64);
}

TEST(GlobalTokens, BadTokensAreRefused) {
  const auto at = [](const std::vector<Index>& tokens) {
    return refusal([&] { GlobalTokens::at(tokens, false, "Op"); });
  };
  EXPECT_EQ(at({3, 3}), "Op: global token 1 is 3; expected more than 3, the one before");
  EXPECT_EQ(at({3, 1}), "Op: global token 1 is 1; expected more than 3, the one before");
  EXPECT_EQ(at({-1}), "Op: global token 0 is -1; expected at least 0");
  EXPECT_EQ(at({0, 4}), "accepted");
  EXPECT_EQ(refusal([] { GlobalTokens::first(-1, false, "Op"); }),
            "Op: the number of global tokens is -1; expected 0 to " +
                std::to_string(fovea::kFarPosition));
  EXPECT_EQ(refusal([] {
              fovea::check_global("Op", GlobalTokens::at({2, 10}), 10);
            }),
            "Op: the last global token is 10; expected less than 10, the number of keys");
  EXPECT_EQ(refusal([] { fovea::check_global("Op", GlobalTokens::at({2, 9}), 10); }), "accepted");
}

}  // namespace fovea_test::patterns_global
