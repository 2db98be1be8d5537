// SPDX-License-Identifier: MIT
// fovea_test(OPTIMISED LINK fovea_test_cases)
// What the fuzzer of decoders calls, led by a generator: the same in every run.
#include "fuzz/decoders.hpp"

#include <gtest/gtest.h>

#include "fuzz/corpus.hpp"

namespace fovea_test::fuzz_decoders {

TEST(DrawnDecoders, MatchForwardBitwise) { each_drawn(600, 1, try_decoder); }

/// What libFuzzer has kept, each of which reaches other code.
TEST(DrawnDecoders, TheCorpusPasses) { each_kept("decoders", 50, try_decoder); }

}  // namespace fovea_test::fuzz_decoders
