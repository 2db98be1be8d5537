// SPDX-License-Identifier: MIT
// What the fuzzer of calls calls, led by a generator: the same in every run.
#include "fuzz/calls.hpp"

#include <gtest/gtest.h>

namespace fovea_test::fuzz_calls {

TEST(DrawnCalls, DoAsTheirOraclesDo) { each_drawn(600, 1, try_call); }

}  // namespace fovea_test::fuzz_calls
