// SPDX-License-Identifier: MIT
// fovea_test(OPTIMISED NEEDS fftw)
// The trials of the fuzzer of transforms, with bytes from a seeded generator: the same in every
// run.
#include "fuzz/transforms.hpp"

#include <gtest/gtest.h>

#include "fuzz/corpus.hpp"

namespace fovea_test::fuzz_transforms {

TEST(DrawnTransforms, MatchTheirDefinitions) { each_drawn(600, 1, try_transform); }

/// The corpus of libFuzzer: inputs that reach different code.
TEST(DrawnTransforms, TheCorpusPasses) { each_kept("transforms", 50, try_transform); }

}  // namespace fovea_test::fuzz_transforms
