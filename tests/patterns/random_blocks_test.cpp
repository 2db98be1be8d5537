// SPDX-License-Identifier: MIT
/// \file
/// Tests of patterns/random_blocks.hpp: what a draw promises, and the plan.
#include "fovea/patterns/random_blocks.hpp"

#include <set>

#include "patterns/enumeration.hpp"

namespace fovea_test::patterns_random_blocks {

using fovea::RandomBlocks;

/// The blocks of keys that a block of queries sees, by asking for every one.
std::set<Index> drawn(const RandomBlocks& pattern, Index own, Index key_blocks) {
  std::set<Index> blocks;
  const Index last_row = (own + 1) * pattern.block - 1;
  for (Index k = 0; k < key_blocks; ++k) {
    if (pattern.allows(last_row, k * pattern.block)) blocks.insert(k);
  }
  return blocks;
}

/// Distinct, as many as requested if there are, and none that is skipped.
TEST(RandomBlocks, DrawsMatchTheDocumentation) {
  for (const bool causal : {true, false}) {
    for (const Index near : {-1, 0, 1}) {
      for (const Index first : {0, 2}) {
        for (const Index count : {0, 1, 3, 8, 64}) {
          RandomBlocks pattern{4, count, 20, 7, 3, causal, first, near};
          for (Index own = 0; own < 20; ++own) {
            Index candidates = 0;
            for (Index k = first; k < (causal ? own + 1 : 20); ++k) {
              if (std::abs(k - own) > near) ++candidates;
            }
            if (own < first) candidates = 0;
            const std::set<Index> blocks = drawn(pattern, own, 20);
            ASSERT_EQ(static_cast<Index>(blocks.size()), std::min(count, candidates));
            for (const Index k : blocks) {
              ASSERT_GE(k, first);
              ASSERT_GT(std::abs(k - own), near);
              ASSERT_LT(k, causal ? own + 1 : 20);
            }
          }
        }
      }
    }
  }
}

/// More queries than keys: their blocks draw, too, unless the last blocks are skipped, which are
/// theirs.
TEST(RandomBlocks, QueriesBeyondTheKeysDraw) {
  RandomBlocks pattern{4, 3, 10, 7, 3};
  for (Index own = 0; own < 20; ++own) EXPECT_EQ(drawn(pattern, own, 10).size(), 3u) << own;
  pattern.skip_last = 1;
  for (Index own = 0; own < 20; ++own) {
    EXPECT_EQ(drawn(pattern, own, 10).size(), own < 9 ? 3u : 0u) << own;
  }
}

/// All keys of a drawn block are seen, by all of its queries, causal: up to their own position.
TEST(RandomBlocks, EntireBlocksAreDrawn) {
  for (const bool causal : {true, false}) {
    const RandomBlocks pattern{8, 3, 16, 11, 0, causal};
    for (Index own = 0; own < 16; ++own) {
      const std::set<Index> blocks = drawn(pattern, own, 16);
      for (Index i = 8 * own; i < 8 * (own + 1); ++i) {
        for (Index j = 0; j < 128; ++j) {
          EXPECT_EQ(pattern.allows(i, j), blocks.count(j / 8) == 1 && (!causal || j <= i));
        }
      }
    }
  }
}

/// The same seed draws the same, another seed or head something else; every candidate is equally
/// likely.
TEST(RandomBlocks, DrawsAreSeeded) {
  const RandomBlocks pattern{4, 3, 50, 1, 0};
  RandomBlocks seed = pattern;
  seed.seed = 2;
  RandomBlocks head = pattern;
  head.head = 1;
  Index same_seed = 0;
  Index same_head = 0;
  for (Index own = 0; own < 50; ++own) {
    EXPECT_EQ(drawn(pattern, own, 50), drawn(RandomBlocks(pattern), own, 50));
    same_seed += drawn(pattern, own, 50) == drawn(seed, own, 50) ? 1 : 0;
    same_head += drawn(pattern, own, 50) == drawn(head, own, 50) ? 1 : 0;
  }
  EXPECT_LE(same_seed, 1);
  EXPECT_LE(same_head, 1);

  std::vector<int> times(10);
  for (std::uint64_t s = 0; s < 2000; ++s) {
    for (const Index k : drawn({4, 3, 10, s, 0}, 5, 10)) ++times[as_size(k)];
  }
  // 600 expected of each, standard deviation 20.5.
  for (const int n : times) EXPECT_NEAR(n, 600, 100);
}

/// The last blocks neither draw nor are drawn; all others do and are.
TEST(RandomBlocks, LastBlocksAreSkipped) {
  RandomBlocks pattern{4, 3, 12, 9, 0, false, 1, 0};
  pattern.skip_last = 2;
  std::set<Index> all;
  for (Index own = 0; own < 12; ++own) {
    const std::set<Index> blocks = drawn(pattern, own, 14);
    EXPECT_EQ(blocks.size(), own == 0 || own >= 10 ? 0U : 3U) << own;
    EXPECT_EQ(blocks.count(own), 0U) << own;
    all.insert(blocks.begin(), blocks.end());
  }
  EXPECT_EQ(all, (std::set<Index>{1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

/// A longer sequence does not change the draws of causal rows.
TEST(RandomBlocks, CausalDrawsDoNotDependOnTheLength) {
  for (Index own = 0; own < 12; ++own) {
    EXPECT_EQ(drawn({4, 3, 12, 9, 0, true}, own, 40), drawn({4, 3, 40, 9, 0, true}, own, 40));
  }
}

TEST(RandomBlocks, BadOnesAreRefused) {
  const auto message = [](const RandomBlocks& blocks) {
    return refusal([&] { fovea::check_random_blocks("Op", blocks); });
  };
  EXPECT_EQ(message({0, 3, 4}), "Op: block is 0; expected at least 1");
  EXPECT_EQ(message({4, -1, 4}), "Op: the number of random blocks is -1; expected 0 to 64");
  EXPECT_EQ(message({4, 65, 4}), "Op: the number of random blocks is 65; expected 0 to 64");
  EXPECT_EQ(message({4, 3, 4, 0, 0, false, -1}),
            "Op: skip_first is -1; expected at least 0 blocks");
  EXPECT_EQ(message({4, 3, 4, 0, 0, false, 0, -2}),
            "Op: skip_near is -2; expected at least 0 blocks, or kSkipNone");
  EXPECT_EQ(message({4, 3, 4}), "accepted");
}

}  // namespace fovea_test::patterns_random_blocks
