// SPDX-License-Identifier: MIT
/// \file
/// Tests of patterns/window.hpp and patterns/pattern.hpp. (For masks see masks_test.cpp.)
#include "fovea/patterns/window.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "patterns/enumeration.hpp"

namespace fovea_test::patterns_window {

using fovea::DilatedWindow;
using fovea::Window;

TEST(Window, BlocksOfLongSequencesMatchTheReferenceMask) {
  for (const Index queries : {511, 512, 513, 4095, 4096, 4097, 5000}) {
    for (const CausalAlignment alignment : kAlignments) {
      expect_mask(Window{3, 2}, SequenceShape::of(queries, 40, alignment), "narrow",
                  [](Index i, Index j) { return i - j <= 3 && j - i <= 2; });
    }
    expect_mask(fovea::Causal{}, SequenceShape::of(queries, 700, CausalAlignment::bottom_right),
                "causal", [](Index i, Index j) { return j <= i; });
  }
}

TEST(Window, QueriesEndWhereKeysEndUnlessTopLeft) {
  EXPECT_EQ(SequenceShape::of(3, 10, CausalAlignment::bottom_right).first_position, 7);
  EXPECT_EQ(SequenceShape::of(10, 3, CausalAlignment::bottom_right).first_position, -7);
  EXPECT_EQ(SequenceShape::of(3, 10, CausalAlignment::top_left).first_position, 0);
}

TEST(Window, SidesOfAnySizeAreExact) {
  constexpr Index most = std::numeric_limits<Index>::max();
  for (const Index side :
       {most, most - 1, most / 2, most / 4 + 1, most / 4, most / 4 - 1, Index{1} << 40}) {
    const SequenceShape shape = SequenceShape::of(20, 30, CausalAlignment::bottom_right);
    expect_mask(Window{side, 2}, shape, "side", [](Index i, Index j) { return j <= i + 2; });
    expect_mask(Window{2, side}, shape, "side", [](Index i, Index j) { return i - 2 <= j; });
    expect_mask(Window{side, side}, shape, "side", [](Index, Index) { return true; });
  }
  // Positions as far out as an operator lets them be.
  const Index far = most / 8;
  EXPECT_TRUE((Window{5, 5}.allows(far, far - 5)));
  EXPECT_FALSE((Window{5, 5}.allows(far, far - 6)));
  EXPECT_TRUE((Window{most / 4 - 1, 0}.allows(far, 0)));
  EXPECT_FALSE((Window{0, most / 4 - 1}.allows(far, 0)));
}

/// Blocks without a partial row carry no bounds: no mask code runs for them.
TEST(Window, DenseBlocksHaveNoBounds) {
  BlockStorage storage;
  const auto dense = fovea::Dense{}.plan(SequenceShape::of(200, 300, CausalAlignment::top_left));
  for (Index b = 0; b < dense.block_count(); ++b) {
    const QueryBlock block = dense.block(b, storage);
    ASSERT_EQ(block.run_count, 1);
    EXPECT_EQ(block.runs[0].lower, nullptr);
    EXPECT_EQ(block.runs[0].count, 300);
  }
  const auto causal =
      fovea::Causal{}.plan(SequenceShape::of(200, 300, CausalAlignment::bottom_right));
  EXPECT_NE(causal.block(0, storage).runs[0].lower, nullptr);
}

TEST(Window, BlockRowsDependOnTheQueriesAlone) {
  for (Index queries = 0; queries < 10000; queries += 37) {
    const Index rows = fovea::block_rows(queries);
    EXPECT_GE(rows, 64);
    EXPECT_LE(rows, fovea::kMaxBlockRows);
    EXPECT_EQ(rows % 64, 0);
    EXPECT_GE(rows, fovea::block_rows(queries - 37));
  }
}

TEST(Window, NegativeSidesAreRefused) {
  const auto message = [](const Window& window) {
    return refusal([&] { fovea::check_window("Op", window); });
  };
  EXPECT_EQ(message({-1, 4}), "Op: left is -1; expected at least 0 keys");
  EXPECT_EQ(message({4, -7}), "Op: right is -7; expected at least 0 keys");
  EXPECT_EQ(message({0, 0}), "accepted");
  EXPECT_EQ(message({}), "accepted");
}

/// Blocks of keys ask only the blocks of queries around them.
TEST(Window, QueryBlocksAreTheNeighbours) {
  const SequenceShape shape = SequenceShape::of(65536, 65536, CausalAlignment::top_left);
  const auto window = Window{256, 256}.plan(shape);
  const auto causal = fovea::Causal{}.plan(shape);
  for (Index p = 0; p < 128; ++p) {
    const Range near = window.query_blocks(p);
    EXPECT_EQ(near.begin, std::max(Index{0}, p - 1));
    EXPECT_EQ(near.end, std::min(Index{128}, p + 2));
    EXPECT_EQ(causal.query_blocks(p).begin, p);
    EXPECT_FALSE(window.meets(p, (p + 64) % 128));
  }
}

TEST(DilatedWindow, BadOnesAreRefused) {
  const auto message = [](const DilatedWindow& window) {
    return refusal([&] { fovea::check_dilated_window("Op", window); });
  };
  EXPECT_EQ(message({-1, 0, 2}), "Op: left is -1; expected at least 0 keys");
  EXPECT_EQ(message({1, 0, 0}), "Op: dilation is 0; expected at least 1");
  EXPECT_EQ(message({1, 0, 1}), "accepted");
  EXPECT_EQ(message({1, 0, 2}), "accepted");
}

}  // namespace fovea_test::patterns_window
