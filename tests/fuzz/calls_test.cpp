// SPDX-License-Identifier: MIT
// fovea_test(OPTIMISED LINK fovea_test_calls)
// The trials of the fuzzer of calls, with bytes from a seeded generator: the same in every run.
#include "fuzz/calls.hpp"

#include <gtest/gtest.h>

#include "fuzz/corpus.hpp"

namespace fovea_test::fuzz_calls {

TEST(DrawnCalls, MatchTheirOracles) {
  each_drawn(600, 1, try_call);
  const auto [judged, undecided] = reformer_calls();
  EXPECT_GT(judged, undecided) << "rounding decides too many buckets to tell anything";
}

/// The corpus of libFuzzer: inputs that reach different code.
TEST(DrawnCalls, TheCorpusPasses) { each_kept("calls", 50, try_call); }

}  // namespace fovea_test::fuzz_calls
