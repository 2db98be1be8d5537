// SPDX-License-Identifier: MIT
/// \file
/// Random points against the scalar draws that define them, at every level, for all numbers of
/// slots around those of vectors, from any key on; nothing else is written.
#include "fovea/kernels/indexed/random_points.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "fovea/core/philox.hpp"
#include "fovea/kernels/indexed/table.hpp"
#include "support/index.hpp"
#include "support/levels.hpp"

namespace fovea_test::kernels_indexed_random_points {

TEST(RandomPoints, EqualScalarDraws) {
  constexpr std::uint64_t seed = 0x123456789abcdef0;
  for (const Index slots_per_key : {1, 2, 3, 4, 5, 8, 13}) {
    for (const Index keys : {0, 1, 7, 40}) {
      for (const Index length : {keys, Index{1} << 40}) {
        const Index begin = length % 11;
        const Index row = slots_per_key + 2;
        at_each_level([&] {
          std::vector<Index> points(as_size(keys * row + 3), -5);
          fovea::GraphKernels<float>{}.random_points(
              {seed, 3, 2, begin, keys, slots_per_key, length, points.data() + 1, row});
          std::vector<Index> expected(points.size(), -5);
          for (Index j = 0; j < keys; ++j) {
            for (Index m = 0; m < slots_per_key; ++m) {
              expected[as_size(1 + j * row + m)] =
                  static_cast<Index>(fovea::uniform_draw<double>(seed, 3, 2, begin + j, m) *
                                     static_cast<double>(length));
            }
          }
          EXPECT_EQ(points, expected) << slots_per_key << " slots of " << keys << " keys";
        });
      }
    }
  }
}

}  // namespace fovea_test::kernels_indexed_random_points
