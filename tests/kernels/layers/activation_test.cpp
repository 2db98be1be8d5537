// SPDX-License-Identifier: MIT
/// \file
/// ReLU, SiLU and the hyperbolic tangent with their derivatives, at every level: against the
/// definition in double, and at the ends.
#include "kernels/layers/element_functions.hpp"

namespace fovea_test::kernels_layers_activation {

template <class T>
class Activation : public testing::Test {};
using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(Activation, Scalars);

TYPED_TEST(Activation, Relu) {
  using T = TypeParam;
  using Kernels = fovea::LayerKernels<T>;
  const T inf = std::numeric_limits<T>::infinity();
  const std::vector<T> x = {-inf, -3, T(-1e-30), 0, T(1e-30), 3, inf};
  at_each_level([&] {
    EXPECT_EQ(of<T>(&Kernels::relu, x), (std::vector<T>{0, 0, 0, 0, T(1e-30), 3, inf}));
    EXPECT_EQ(of<T>(&Kernels::relu_grad, x, std::vector<T>(x.size(), T(0.75))),
              (std::vector<T>{0, 0, 0, 0, T(0.75), T(0.75), T(0.75)}));
    EXPECT_TRUE(std::isnan(of<T>(&Kernels::relu, {std::numeric_limits<T>::quiet_NaN()})[0]));
  });
}

TYPED_TEST(Activation, Silu) {
  using T = TypeParam;
  using Kernels = fovea::LayerKernels<T>;
  const std::vector<T> x = range<T>(-30, 30, 0.0371);
  const std::vector<T> d(x.size(), T(0.75));
  const T inf = std::numeric_limits<T>::infinity();
  at_each_level([&] {
    const std::vector<T> y = of<T>(&Kernels::silu, x);
    const std::vector<T> d_x = of<T>(&Kernels::silu_grad, x, d);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double at = x[i];
      const double s = 1 / (1 + std::exp(-at));
      EXPECT_TRUE(is_near(y[i], at * s, std::abs(at * s), 6)) << at;
      const double size = s * (1 + std::abs(at));  // x is multiplied by 1 - s, which s rounds
      EXPECT_TRUE(is_near(d_x[i], 0.75 * (s + at * s * (1 - s)), size, 8)) << at;
    }
    EXPECT_EQ(of<T>(&Kernels::silu, {inf})[0], inf);
    EXPECT_NEAR(of<T>(&Kernels::silu, {-inf})[0], 0, 1e-25);
    EXPECT_TRUE(std::isnan(of<T>(&Kernels::silu, {std::numeric_limits<T>::quiet_NaN()})[0]));
  });
}

/// The relative error of the derivative counts, in the tails too.
TYPED_TEST(Activation, Tanh) {
  using T = TypeParam;
  using Kernels = fovea::LayerKernels<T>;
  const std::vector<T> x = range<T>(-20, 20, 0.0371);
  const std::vector<T> d(x.size(), T(0.75));
  const T inf = std::numeric_limits<T>::infinity();
  at_each_level([&] {
    const std::vector<T> y = of<T>(&Kernels::tanh, x);
    const std::vector<T> d_x = of<T>(&Kernels::tanh_grad, x, d);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double at = x[i];
      const double slope = 1 / (std::cosh(at) * std::cosh(at));
      EXPECT_TRUE(is_near(y[i], std::tanh(at), std::abs(std::tanh(at)), 4)) << at;
      EXPECT_TRUE(is_near(d_x[i], 0.75 * slope, slope, 8)) << at;
    }
    EXPECT_EQ(of<T>(&Kernels::tanh, {-inf, inf}), (std::vector<T>{-1, 1}));
    EXPECT_EQ(of<T>(&Kernels::tanh_grad, {-inf, inf}, {1, 1}), (std::vector<T>{0, 0}));
    EXPECT_TRUE(std::isnan(of<T>(&Kernels::tanh, {std::numeric_limits<T>::quiet_NaN()})[0]));
  });
}

}  // namespace fovea_test::kernels_layers_activation
