// SPDX-License-Identifier: MIT
// What the fuzzer of transforms calls, led by a generator: the same in every run.
#include "fuzz/transforms.hpp"

#include <gtest/gtest.h>

namespace fovea_test::fuzz_transforms {

TEST(DrawnTransforms, DoAsTheirDefinitionsSay) { each_drawn(600, 1, try_transform); }

}  // namespace fovea_test::fuzz_transforms
