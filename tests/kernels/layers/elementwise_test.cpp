// SPDX-License-Identifier: MIT
/// \file
/// The sigmoid with its derivative, at every level, against the definition in double; and of all
/// functions of elements, each element for itself.
#include "kernels/layers/element_functions.hpp"

namespace fovea_test::kernels_layers_elementwise {

template <class T>
class Elementwise : public testing::Test {};
using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(Elementwise, Scalars);

double logistic(double x) { return 1 / (1 + std::exp(-x)); }

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

TYPED_TEST(Elementwise, ElementsAreIndependent) {
  using T = TypeParam;
  using Kernels = fovea::LayerKernels<T>;
  const std::vector<T> x = range<T>(-7, 7, 0.31);
  at_each_level([&] {
    for (const auto function : {&Kernels::gelu, &Kernels::gelu_tanh, &Kernels::sigmoid,
                                &Kernels::relu, &Kernels::silu, &Kernels::tanh}) {
      const std::vector<T> y = of<T>(function, x);
      for (std::size_t i = 0; i < x.size(); ++i) {
        EXPECT_TRUE(same_bits(of<T>(function, {x[i]}), {y[i]})) << x[i];
      }
    }
  });
}

/// Rows have gaps, and the result may overwrite an input.
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

}  // namespace fovea_test::kernels_layers_elementwise
