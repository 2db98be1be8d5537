// SPDX-License-Identifier: MIT
// fovea_test(OPTIMISED LINK fovea_test_cases)
// The trials of the fuzzer of checks, with bytes from a seeded generator: the same in every run.
#include "fuzz/arguments.hpp"

#include <gtest/gtest.h>

#include "fuzz/corpus.hpp"

namespace fovea_test::fuzz_arguments {

TEST(DrawnArguments, AreRefused) { each_drawn(3000, 1, try_arguments); }

/// The corpus of libFuzzer: inputs that reach different code.
TEST(DrawnArguments, TheCorpusPasses) { each_kept("arguments", 50, try_arguments); }

}  // namespace fovea_test::fuzz_arguments
