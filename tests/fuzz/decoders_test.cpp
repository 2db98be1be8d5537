// SPDX-License-Identifier: MIT
// fovea_test(OPTIMISED LINK fovea_test_cases)
// The trials of the fuzzer of decoders, with bytes from a seeded generator: the same in every run.
#include "fuzz/decoders.hpp"

#include <gtest/gtest.h>

#include "fuzz/corpus.hpp"

namespace fovea_test::fuzz_decoders {

TEST(DrawnDecoders, MatchForwardBitwise) { each_drawn(600, 1, try_decoder); }

/// The corpus of libFuzzer: inputs that reach different code.
TEST(DrawnDecoders, TheCorpusPasses) { each_kept("decoders", 50, try_decoder); }

}  // namespace fovea_test::fuzz_decoders
