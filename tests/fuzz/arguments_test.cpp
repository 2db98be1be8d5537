// SPDX-License-Identifier: MIT
// fovea_test(OPTIMISED LINK fovea_test_cases)
// What the fuzzer of checks calls, led by a generator: the same in every run.
#include "fuzz/arguments.hpp"

#include <gtest/gtest.h>

#include "fuzz/corpus.hpp"

namespace fovea_test::fuzz_arguments {

TEST(DrawnArguments, AreRefused) { each_drawn(3000, 1, try_arguments); }

/// What libFuzzer has kept, each of which reaches other code.
TEST(DrawnArguments, TheCorpusPasses) { each_kept("arguments", 50, try_arguments); }

}  // namespace fovea_test::fuzz_arguments
