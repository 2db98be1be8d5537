// SPDX-License-Identifier: MIT
/// \file
/// Normal densities against exp in a wider type, at every level and length, within the error that
/// the kernel documents; nothing beyond the last number is written.
#include "fovea/kernels/indexed/normal_density.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "fovea/kernels/indexed/table.hpp"
#include "support/compare.hpp"
#include "support/fill.hpp"
#include "support/levels.hpp"

namespace fovea_test::kernels_indexed_normal_density {

template <class T>
class NormalDensity : public testing::Test {};
using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(NormalDensity, Scalars);

TYPED_TEST(NormalDensity, IsTheExponential) {
  using T = TypeParam;
  using W = Wide<T>;
  for (const Index count : {0, 1, 3, 4, 7, 8, 15, 16, 17, 33, 1000}) {
    for (const double variance : {0.3, 65536.0}) {
      const T factor = static_cast<T>(-0.5 / variance);
      std::vector<T> x(as_size(count) + 1, T{9});
      for (Index n = 0; n < count; ++n) {
        x[as_size(n)] =
            static_cast<T>((uniform(hash(1, n, 0, 0, 0)) * 12 - 6) * std::sqrt(variance));
      }
      std::vector<std::vector<T>> fused;
      at_each_level([&] {
        std::vector<T> got = x;
        fovea::GraphKernels<T>{}.normal_density({got.data(), count, factor, T{0.25}});
        for (Index n = 0; n < count; ++n) {
          const W power = -W{x[as_size(n)]} * W{x[as_size(n)]} * W{factor};
          const W expected = W{0.25} * std::exp(-power);
          const W room = std::numeric_limits<T>::epsilon() * (3 + power) * expected;
          ASSERT_TRUE(std::abs(W{got[as_size(n)]} - expected) <= room) << n << " of " << count;
        }
        EXPECT_EQ(got.back(), T{9});
        if (fovea::isa_level() != IsaLevel::baseline) fused.push_back(got);
      });
      for (const std::vector<T>& other : fused) EXPECT_TRUE(same_bits(fused[0], other));
    }
  }
}

/// At its peak and far from it, where squares overflow: never a NaN.
TYPED_TEST(NormalDensity, HandlesExtremes) {
  using T = TypeParam;
  constexpr T most = std::numeric_limits<T>::max();
  at_each_level([&] {
    for (const T variance : {std::numeric_limits<T>::min(), T{1}, most}) {
      std::vector<T> x = {0, -T{0}, most, -most, variance == most ? T{1e10} : T{0}};
      const T factor = T{-0.5} / variance;
      fovea::GraphKernels<T>{}.normal_density({x.data(), 5, factor, T{2}});
      EXPECT_EQ(x[0], 2);
      EXPECT_EQ(x[1], 2);
      EXPECT_EQ(x[2], 0);
      EXPECT_EQ(x[3], 0);
      EXPECT_EQ(x[4], 2);
    }
  });
}

}  // namespace fovea_test::kernels_indexed_normal_density
