// SPDX-License-Identifier: MIT
// fovea_test(OPTIMISED)
// The trials of the fuzzer of patterns, with bytes from a seeded generator: the same in every run.
#include "fuzz/patterns.hpp"

#include <gtest/gtest.h>

#include "fuzz/corpus.hpp"

namespace fovea_test::fuzz_patterns {

TEST(DrawnPatterns, MatchTheirReferenceMasks) { each_drawn(800, 1, try_pattern); }

/// The corpus of libFuzzer: inputs that reach different code.
TEST(DrawnPatterns, TheCorpusPasses) { each_kept("patterns", 50, try_pattern); }

}  // namespace fovea_test::fuzz_patterns
