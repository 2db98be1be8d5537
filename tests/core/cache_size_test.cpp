// SPDX-License-Identifier: MIT
/// \file
/// Tests of core/cache_size.hpp.
#include "fovea/core/cache_size.hpp"

#include <gtest/gtest.h>

namespace fovea_test::core_cache_size {

TEST(CacheSize, IsPlausible) {
  const fovea::Index bytes = fovea::second_cache_bytes();
  EXPECT_GE(bytes, fovea::Index{64} << 10);
  EXPECT_LE(bytes, fovea::Index{1} << 30);
  EXPECT_EQ(bytes % 1024, 0);
  EXPECT_EQ(fovea::second_cache_bytes(), bytes);
}

}  // namespace fovea_test::core_cache_size
