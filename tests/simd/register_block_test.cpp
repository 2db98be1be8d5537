// SPDX-License-Identifier: MIT
/// \file
/// How simd/register_block.inl.hpp cuts rows into blocks, at every level.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "support/index.hpp"
#include "support/levels.hpp"

namespace fovea_test {

struct RowBlock {
  Index first;
  int rows;
};

/// The functions of register_block_body.inl.hpp for one level: cuts with the largest block of 1, 3,
/// ...
using Cut = int (*)(Index begin, Index end, RowBlock* blocks);
using Cuts = std::array<Cut, 6>;
inline constexpr std::array<int, 6> kLargest = {1, 3, 4, 6, 8, 12};

}  // namespace fovea_test

#define FOVEA_LEVEL_BODY "simd/register_block_body.inl.hpp"
#include "fovea/simd/foreach_level.hpp"

namespace fovea_test::simd_register_block {

TEST(RowBlocks, CoverEachRowOnce) {
  at_each_level([] {
    const Cuts cuts = FOVEA_AT_LEVEL(fovea::isa_level(), operations());
    for (std::size_t n = 0; n < cuts.size(); ++n) {
      for (Index rows = 0; rows < 70; ++rows) {
        std::array<RowBlock, 70> blocks{};
        const int count = cuts[n](5, 5 + rows, blocks.data());
        Index next = 5;
        for (int b = 0; b < count; ++b) {
          const RowBlock& block = blocks[static_cast<std::size_t>(b)];
          ASSERT_EQ(block.first, next) << kLargest[n] << " of " << rows;
          EXPECT_LE(block.rows, kLargest[n]) << rows;
          next += block.rows;
        }
        ASSERT_EQ(next, 5 + rows) << kLargest[n];
      }
    }
  });
}

/// With two vectors each, the chains of fewer than four rows would wait for themselves.
TEST(RowBlocks, WidthsOfModelsLeaveNoSmallBlock) {
  at_each_level([] {
    const Cut of_six = FOVEA_AT_LEVEL(fovea::isa_level(), operations())[3];
    for (const Index rows : {4, 8, 16, 32, 40, 64, 80, 96, 128, 256}) {
      std::array<RowBlock, 256> blocks{};
      const int count = of_six(0, rows, blocks.data());
      EXPECT_TRUE(std::all_of(blocks.begin(), blocks.begin() + count, [](const RowBlock& block) {
        return block.rows >= 4;
      })) << rows;
    }
  });
}

}  // namespace fovea_test::simd_register_block
