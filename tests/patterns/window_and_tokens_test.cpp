// SPDX-License-Identifier: MIT
/// \file
/// The runs of patterns/window_and_tokens.hpp. (For masks see masks_test.cpp.)
#include "fovea/patterns/window_and_tokens.hpp"

#include "patterns/enumeration.hpp"

namespace fovea_test::patterns_window_and_tokens {

using fovea::GlobalTokens;
using fovea::WindowAndTokens;

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
