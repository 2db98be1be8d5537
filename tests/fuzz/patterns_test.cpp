// SPDX-License-Identifier: MIT
// fovea_test(OPTIMISED)
// What the fuzzer of patterns calls, led by a generator: the same in every run.
#include "fuzz/patterns.hpp"

#include <gtest/gtest.h>

#include "fuzz/corpus.hpp"

namespace fovea_test::fuzz_patterns {

TEST(DrawnPatterns, MatchTheirReferenceMasks) { each_drawn(800, 1, try_pattern); }

/// What libFuzzer has kept, each of which reaches other code.
TEST(DrawnPatterns, TheCorpusPasses) { each_kept("patterns", 50, try_pattern); }

}  // namespace fovea_test::fuzz_patterns
