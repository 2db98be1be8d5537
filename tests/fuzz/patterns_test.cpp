// SPDX-License-Identifier: MIT
// What the fuzzer of patterns calls, led by a generator: the same in every run.
#include "fuzz/patterns.hpp"

#include <gtest/gtest.h>

namespace fovea_test::fuzz_patterns {

TEST(DrawnPatterns, FollowTheirLaws) { each_drawn(800, 1, try_pattern); }

}  // namespace fovea_test::fuzz_patterns
