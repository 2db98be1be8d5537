// SPDX-License-Identifier: MIT
// What the fuzzer of decoders calls, led by a generator: the same in every run.
#include "fuzz/decoders.hpp"

#include <gtest/gtest.h>

namespace fovea_test::fuzz_decoders {

TEST(DrawnDecoders, HaveTheBitsOfForward) { each_drawn(600, 1, try_decoder); }

}  // namespace fovea_test::fuzz_decoders
