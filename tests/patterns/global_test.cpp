// SPDX-License-Identifier: MIT
/// \file
/// Tests of patterns/global.hpp.
#include "fovea/patterns/global.hpp"

#include <set>

#include "patterns/enumeration.hpp"

namespace fovea_test::patterns_global {

using fovea::GlobalTokens;

void expect_global(const GlobalTokens& tokens, const std::set<Index>& set, bool causal) {
  for_each_shape(130, [&](const SequenceShape& shape) {
    expect_mask(tokens, shape, causal ? "causal" : "both ways", [&](Index i, Index j) {
      return (set.count(i) + set.count(j) > 0) && (!causal || j <= i);
    });
  });
}

TEST(GlobalTokens, MatchTheReferenceMask) {
  for (const bool causal : {true, false}) {
    for (const Index count : {0, 1, 3, 64, 100, 300}) {
      std::set<Index> set;
      for (Index i = 0; i < count; ++i) set.insert(i);
      expect_global(GlobalTokens::first(count, causal), set, causal);
    }
    for (const std::vector<Index>& tokens :
         {std::vector<Index>{}, {0}, {5}, {0, 1, 2, 7}, {3, 4, 9, 63, 64, 65, 129}, {200}}) {
      expect_global(GlobalTokens::at(tokens, causal), {tokens.begin(), tokens.end()}, causal);
    }
  }
}

TEST(GlobalTokens, FirstAndLastMatchTheReferenceMask) {
  struct Ends {
    Index count, last, end;
  };
  for (const bool causal : {true, false}) {
    for (const Ends& at : {Ends{3, 60, 70}, Ends{0, 5, 9}, Ends{5, 2, 9}, Ends{5, 5, 9},
                           Ends{9, 3, 5}, Ends{4, 8, 0}, Ends{0, 0, 6}, Ends{0, 0, 0}}) {
      std::set<Index> set;
      for (Index i = 0; i < at.count; ++i) set.insert(i);
      for (Index i = at.last; i < at.end; ++i) set.insert(i);
      expect_global(GlobalTokens::first_and_last(at.count, at.last, at.end, causal), set, causal);
    }
  }
}

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
