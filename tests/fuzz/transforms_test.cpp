// SPDX-License-Identifier: MIT
// fovea_test(OPTIMISED NEEDS fftw)
// What the fuzzer of transforms calls, led by a generator: the same in every run.
#include "fuzz/transforms.hpp"

#include <gtest/gtest.h>

#include "fuzz/corpus.hpp"

namespace fovea_test::fuzz_transforms {

TEST(DrawnTransforms, MatchTheirDefinitions) { each_drawn(600, 1, try_transform); }

/// What libFuzzer has kept, each of which reaches other code.
TEST(DrawnTransforms, TheCorpusPasses) { each_kept("transforms", 50, try_transform); }

}  // namespace fovea_test::fuzz_transforms
