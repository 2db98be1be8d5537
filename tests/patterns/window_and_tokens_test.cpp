// SPDX-License-Identifier: MIT
/// \file
/// Tests of patterns/window_and_tokens.hpp.
#include "fovea/patterns/window_and_tokens.hpp"

#include <algorithm>

#include "patterns/enumeration.hpp"

namespace fovea_test::patterns_window_and_tokens {

using fovea::GlobalTokens;
using fovea::Window;
using fovea::WindowAndTokens;

TEST(WindowAndTokens, MatchTheReferenceMask) {
  constexpr Index far = Window::kUnbounded;
  const std::vector<Index> sets[] = {{}, {0, 1, 2}, {5}, {0, 3, 4, 63, 64, 65, 129}, {200}};
  for (const auto& tokens : sets) {
    for (const bool causal : {true, false}) {
      for (const Window& window : {Window{9, 4}, Window{0, 0}, Window{70, 3}, Window{far, 2}}) {
        const WindowAndTokens pattern(window, GlobalTokens::at(tokens, causal));
        const auto is_token = [&](Index x) { return std::ranges::count(tokens, x) > 0; };
        for_each_shape(130, [&](const SequenceShape& shape) {
          expect_mask(pattern, shape, causal ? "causal" : "both ways", [&](Index i, Index j) {
            const bool near = (window.left == far || i - j <= window.left) && j - i <= window.right;
            return (near || is_token(i) || is_token(j)) && (!causal || j <= i);
          });
        });
      }
    }
  }
}

/// Rows of one kind alone.
TEST(WindowAndTokens, RowsOfOneKindMatchTheReferenceMask) {
  using fovea::GlobalRows;
  const std::vector<Index> sets[] = {{}, {0, 1, 2}, {5}, {0, 3, 4, 63, 64, 65, 129}, {200}};
  for (const auto& tokens : sets) {
    for (const bool causal : {true, false}) {
      for (const GlobalRows rows : {GlobalRows::alone, GlobalRows::left_out}) {
        const Window window{9, 4};
        const WindowAndTokens pattern(window, GlobalTokens::at(tokens, causal), rows);
        const auto is_token = [&](Index x) { return std::ranges::count(tokens, x) > 0; };
        for_each_shape(130, [&](const SequenceShape& shape) {
          expect_mask(pattern, shape, causal ? "causal" : "both ways", [&](Index i, Index j) {
            if (is_token(i) != (rows == GlobalRows::alone) || (causal && j > i)) return false;
            return (i - j <= 9 && j - i <= 4) || is_token(i) || is_token(j);
          });
        });
      }
    }
  }
}

/// A row of tokens sees all keys as one run; after them a block has the window and the tokens.
TEST(WindowAndTokens, HasOneRunForTheWindowAndOneForTheTokens) {
  const auto plan = WindowAndTokens({256, 256}, GlobalTokens::first(64)).plan({4096, 4096, 0});
  BlockStorage storage(plan.most_runs());
  EXPECT_EQ(plan.most_runs(), 2);
  for (Index b = 0; b < plan.block_count(); ++b) {
    const QueryBlock block = plan.block(b, storage);
    EXPECT_EQ(block.run_count, b == 0 ? 1 : 2);
    if (b == 0) {
      EXPECT_EQ(block.count, 64);
      EXPECT_EQ(block.runs[0].count, 4096);
      EXPECT_EQ(block.runs[0].lower, nullptr);
    }
  }
}

}  // namespace fovea_test::patterns_window_and_tokens
