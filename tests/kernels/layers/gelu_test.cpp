// SPDX-License-Identifier: MIT
/// \file
/// Both forms of GELU with their derivatives, at every level: against the definition in double, in
/// the far tail, and at the ends.
#include "kernels/layers/element_functions.hpp"

namespace fovea_test::kernels_layers_gelu {

template <class T>
class Gelu : public testing::Test {};
using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(Gelu, Scalars);

const double kTwoOverPi = 2 / std::acos(-1);
double logistic(double x) { return 1 / (1 + std::exp(-x)); }
double inner(double x) { return 2 * std::sqrt(kTwoOverPi) * (x + 0.044715 * x * x * x); }
/// Phi(x) and its derivative, whose relative errors are those of long double.
long double below(long double x) { return std::erfc(-x / std::sqrt(2.0L)) / 2; }
long double bell(long double x) { return std::exp(-x * x / 2) / std::sqrt(2 * std::acos(-1.0L)); }

/// The relative error counts, down to the smallest normal numbers.
TYPED_TEST(Gelu, IsAccurateInTheTail) {
  using T = TypeParam;
  using Kernels = fovea::LayerKernels<T>;
  const double low = sizeof(T) == 4 ? -12.9 : -37.4;
  const std::vector<T> x = range<T>(low, 9, 0.00371);
  at_each_level([&] {
    const bool has_fma = fovea::isa_level() != fovea::IsaLevel::baseline;
    const std::vector<T> y = of<T>(&Kernels::gelu, x);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto expected = static_cast<double>(x[i] * below(x[i]));
      // Without fma the square of x is rounded, and that error is multiplied by x^2 / 2.
      const double square = has_fma ? 0 : static_cast<double>(x[i]) * static_cast<double>(x[i]);
      EXPECT_TRUE(is_near(y[i], expected, std::abs(expected) * (1 + square / 4), 3)) << x[i];
    }
  });
}

TYPED_TEST(Gelu, HasItsDerivative) {
  using T = TypeParam;
  using Kernels = fovea::LayerKernels<T>;
  const std::vector<T> x = range<T>(-9, 9, 0.00371);
  const std::vector<T> d(x.size(), T(0.75));
  at_each_level([&] {
    const std::vector<T> d_x = of<T>(&Kernels::gelu_grad, x, d);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const long double at = x[i];
      const auto expected = static_cast<double>(0.75L * (below(at) + at * bell(at)));
      const auto size = static_cast<double>(below(at) + std::abs(at) * bell(at));
      const double square = static_cast<double>(at * at);
      EXPECT_TRUE(is_near(d_x[i], expected, size * (1 + square / 4), 3)) << x[i];
    }
  });
}

TYPED_TEST(Gelu, HasATanhForm) {
  using T = TypeParam;
  using Kernels = fovea::LayerKernels<T>;
  const std::vector<T> x = range<T>(-9, 9, 0.0371);
  const std::vector<T> d(x.size(), T(0.75));
  at_each_level([&] {
    const std::vector<T> y = of<T>(&Kernels::gelu_tanh, x);
    const std::vector<T> d_x = of<T>(&Kernels::gelu_tanh_grad, x, d);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double at = x[i];
      const double s = logistic(inner(at));
      EXPECT_TRUE(is_near(y[i], at * s, std::abs(at), 12)) << at;
      const double slope = 2 * std::sqrt(2 / std::acos(-1)) * (1 + 3 * 0.044715 * at * at);
      const double expected = 0.75 * (s + at * s * (1 - s) * slope);
      EXPECT_TRUE(is_near(d_x[i], expected, 1 + std::abs(at * slope), 12)) << at;
    }
  });
}

TYPED_TEST(Gelu, HandlesExtremes) {
  using T = TypeParam;
  using Kernels = fovea::LayerKernels<T>;
  constexpr T inf = std::numeric_limits<T>::infinity();
  constexpr T most = std::numeric_limits<T>::max();
  const std::vector<T> x = {most, inf, -most, -inf, 0, std::numeric_limits<T>::quiet_NaN()};
  const auto expect_ends = [&](Function<T> value, Function<T> gradient) {
    const std::vector<T> y = of<T>(value, x);
    EXPECT_EQ(y[0], most);
    EXPECT_EQ(y[1], inf);
    for (const std::size_t i : {2u, 3u, 4u}) EXPECT_EQ(y[i], 0);
    EXPECT_TRUE(std::isnan(y[5]));
    const std::vector<T> d_x = of<T>(gradient, x, std::vector<T>(x.size(), 1));
    for (const std::size_t i : {0u, 1u}) EXPECT_EQ(d_x[i], 1);
    for (const std::size_t i : {2u, 3u}) EXPECT_EQ(d_x[i], 0);
    EXPECT_EQ(d_x[4], T(0.5));
    EXPECT_TRUE(std::isnan(d_x[5]));
  };
  at_each_level([&] {
    expect_ends(&Kernels::gelu, &Kernels::gelu_grad);
    expect_ends(&Kernels::gelu_tanh, &Kernels::gelu_tanh_grad);
  });
}

}  // namespace fovea_test::kernels_layers_gelu
