// SPDX-License-Identifier: MIT
/// \file
/// GELU and the sigmoid with their derivatives, at every level: against the definition in double,
/// at the ends, and each element for itself.
#include "fovea/kernels/layers/table.hpp"

#include "kernels/layers/drawn_rows.hpp"

namespace fovea_test {
namespace {

template <class T>
class Elementwise : public testing::Test {};
using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(Elementwise, Scalars);

template <class T>
using Function = void (fovea::LayerKernels<T>::*)(const fovea::ElementArgs<T>&) const noexcept;

/// A function of x, and of d if that is given, with a factor.
template <class T>
std::vector<T> of(Function<T> function, const std::vector<T>& x, const std::vector<T>& d = {},
                  T factor = 1) {
  std::vector<T> to(x.size());
  const auto width = static_cast<Index>(x.size());
  (fovea::LayerKernels<T>().*function)({.x = x.data(),
                                        .x_row = width,
                                        .d = d.empty() ? nullptr : d.data(),
                                        .d_row = width,
                                        .to = to.data(),
                                        .to_row = width,
                                        .rows = 1,
                                        .width = width,
                                        .factor = factor});
  return to;
}

/// From `low` on, in steps, below `high`.
template <class T>
std::vector<T> range(double low, double high, double step) {
  std::vector<T> x;
  const auto count = static_cast<Index>((high - low) / step);
  for (Index i = 0; i < count; ++i)
    x.push_back(static_cast<T>(low + static_cast<double>(i) * step));
  return x;
}

double logistic(double x) { return 1 / (1 + std::exp(-x)); }
double inner(double x) { return 2 * std::sqrt(2 / std::acos(-1)) * (x + 0.044715 * x * x * x); }

TYPED_TEST(Elementwise, Gelu) {
  using T = TypeParam;
  using Kernels = fovea::LayerKernels<T>;
  const std::vector<T> x = range<T>(-9, 9, 0.0371);
  const std::vector<T> d(x.size(), T(0.75));
  at_each_level([&] {
    const std::vector<T> y = of<T>(&Kernels::gelu, x);
    const std::vector<T> d_x = of<T>(&Kernels::gelu_grad, x, d);
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

TYPED_TEST(Elementwise, GeluHasEnds) {
  using T = TypeParam;
  using Kernels = fovea::LayerKernels<T>;
  constexpr T inf = std::numeric_limits<T>::infinity();
  constexpr T most = std::numeric_limits<T>::max();
  const std::vector<T> x = {most, inf, -most, -inf, 0, std::numeric_limits<T>::quiet_NaN()};
  at_each_level([&] {
    const std::vector<T> y = of<T>(&Kernels::gelu, x);
    EXPECT_EQ(y[0], most);
    EXPECT_EQ(y[1], inf);
    for (const std::size_t i : {2u, 3u, 4u}) EXPECT_EQ(y[i], 0);
    EXPECT_TRUE(std::isnan(y[5]));
    const std::vector<T> d_x = of<T>(&Kernels::gelu_grad, x, std::vector<T>(x.size(), 1));
    for (const std::size_t i : {0u, 1u}) EXPECT_EQ(d_x[i], 1);
    for (const std::size_t i : {2u, 3u}) EXPECT_EQ(d_x[i], 0);
    EXPECT_EQ(d_x[4], T(0.5));
    EXPECT_TRUE(std::isnan(d_x[5]));
  });
}

TYPED_TEST(Elementwise, Sigmoid) {
  using T = TypeParam;
  using Kernels = fovea::LayerKernels<T>;
  const std::vector<T> x = range<T>(-40, 40, 0.7);
  const std::vector<T> d(x.size(), T(0.75));
  at_each_level([&] {
    for (const T factor : {T(1), T(640)}) {
      const std::vector<T> y = of<T>(&Kernels::sigmoid, x, {}, factor);
      const std::vector<T> d_x = of<T>(&Kernels::sigmoid_grad, y, d, factor);
      for (std::size_t i = 0; i < x.size(); ++i) {
        const double s = logistic(x[i]);
        EXPECT_TRUE(is_near(y[i], s * factor, s * factor, 6)) << x[i];
        EXPECT_TRUE(is_near(d_x[i], 0.75 * s * (1 - s) * factor, s * factor, 6)) << x[i];
      }
      EXPECT_TRUE(std::isnan(of<T>(&Kernels::sigmoid, {std::numeric_limits<T>::quiet_NaN()})[0]));
    }
  });
}

TYPED_TEST(Elementwise, AnElementsBitsAreItsOwn) {
  using T = TypeParam;
  using Kernels = fovea::LayerKernels<T>;
  const std::vector<T> x = range<T>(-7, 7, 0.31);
  at_each_level([&] {
    for (const auto function : {&Kernels::gelu, &Kernels::sigmoid}) {
      const std::vector<T> y = of<T>(function, x);
      for (std::size_t i = 0; i < x.size(); ++i) {
        EXPECT_TRUE(same_bits(of<T>(function, {x[i]}), {y[i]})) << x[i];
      }
    }
  });
}

/// Rows lie apart, and the result may take the place of what it is made of.
TYPED_TEST(Elementwise, Rows) {
  using T = TypeParam;
  for (const Index width : {1, 5, 16, 19}) {
    at_each_level([&] {
      DrawnRows<T> x(4, width, 1);
      const DrawnRows<T> before = x;
      fovea::LayerKernels<T>().gelu({.x = x.data(),
                                     .x_row = x.row,
                                     .to = x.data(),
                                     .to_row = x.row,
                                     .rows = 4,
                                     .width = width});
      for (Index i = 0; i < 4; ++i) {
        for (Index c = 0; c < width; ++c) {
          EXPECT_EQ(x(i, c), of<T>(&fovea::LayerKernels<T>::gelu, {before(i, c)})[0]);
        }
      }
      EXPECT_TRUE(x.has_its_gaps());
    });
  }
}

}  // namespace
}  // namespace fovea_test
