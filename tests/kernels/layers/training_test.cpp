// SPDX-License-Identifier: MIT
/// \file
/// The kernels of the loss and of the optimiser against their definition in double, at every level.
#include "fovea/kernels/layers/table.hpp"

#include "kernels/layers/drawn_rows.hpp"

namespace fovea_test::kernels_layers_training {

template <class T>
class Training : public testing::Test {};
using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(Training, Scalars);

TYPED_TEST(Training, CrossEntropy) {
  using T = TypeParam;
  for (const Index classes : {1, 2, 3, 4, 9, 16, 37, 130}) {
    DrawnRows<T> x(6, classes, 1);
    for (Index c = 0; c < classes; ++c) x(1, c) = static_cast<T>(x(1, c) * 300);  // far apart
    const std::vector<Index> targets = {0, classes - 1, classes / 2, -1, 0, classes - 1};
    at_each_level([&] {
      DrawnRows<T> d(6, classes, 2);
      std::vector<double> losses(6, 7);
      const fovea::CrossEntropyArgs<T> args{.x = x.data(),
                                            .x_row = x.row,
                                            .targets = targets,
                                            .d = d.data(),
                                            .d_row = d.row,
                                            .losses = losses.data(),
                                            .rows = 6,
                                            .classes = classes,
                                            .share = 0.25};
      fovea::LayerKernels<T>().cross_entropy(args);
      for (Index i = 0; i < 6; ++i) {
        const Index target = targets[as_size(i)];
        double most = x(i, 0);
        double sum = 0;
        for (Index c = 0; c < classes; ++c) most = std::max<double>(most, x(i, c));
        for (Index c = 0; c < classes; ++c) sum += std::exp(x(i, c) - most);
        const double loss = target < 0 ? 0 : std::log(sum) + most - x(i, target);
        EXPECT_NEAR(losses[as_size(i)], loss, 1e-13 * (1 + std::abs(most))) << i;
        for (Index c = 0; c < classes; ++c) {
          const double weight = std::exp(x(i, c) - most) / sum;
          const double expected = target < 0 ? 0 : 0.25 * (weight - (c == target ? 1 : 0));
          ASSERT_TRUE(is_near(d(i, c), expected, 0.25, 4)) << i << ", " << c;
        }
      }
      EXPECT_TRUE(d.has_its_gaps());
      std::vector<double> alone(6);
      fovea::CrossEntropyArgs<T> without = args;
      without.d = nullptr;
      without.losses = alone.data();
      fovea::LayerKernels<T>().cross_entropy(without);
      EXPECT_TRUE(same_bits(alone, losses));
    });
  }
}

TYPED_TEST(Training, Adam) {
  using T = TypeParam;
  for (const Index count : {1, 7, 16, 41}) {
    const DrawnRows<T> weights(1, count, 1), gradient(1, count, 2), mean(1, count, 3);
    DrawnRows<T> square(1, count, 4);
    for (Index i = 0; i < count; ++i) square(0, i) *= square(0, i);
    at_each_level([&] {
      DrawnRows<T> w = weights, m = mean, v = square;
      fovea::LayerKernels<T>().adam({.weights = w.data(),
                                     .gradient = gradient.data(),
                                     .mean = m.data(),
                                     .square = v.data(),
                                     .count = count,
                                     .share = T(0.5),
                                     .beta1 = T(0.75),
                                     .beta2 = T(0.875),
                                     .rest1 = T(0.25),
                                     .rest2 = T(0.125),
                                     .rate = T(0.125),
                                     .unbias2 = T(1.5),
                                     .epsilon = T(0.0625),
                                     .kept = T(0.75)});
      for (Index i = 0; i < count; ++i) {
        const double g = 0.5 * gradient(0, i);
        const double m1 = 0.75 * mean(0, i) + 0.25 * g;
        const double v1 = 0.875 * square(0, i) + 0.125 * g * g;
        const double move = 0.125 * m1 / (std::sqrt(1.5 * v1) + 0.0625);
        EXPECT_TRUE(is_near(m(0, i), m1, 4, 2)) << i;
        EXPECT_TRUE(is_near(v(0, i), v1, 16, 2)) << i;
        EXPECT_TRUE(is_near(w(0, i), 0.75 * weights(0, i) - move, 8, 4)) << i;
      }
      EXPECT_TRUE(w.has_its_gaps() && m.has_its_gaps() && v.has_its_gaps());
    });
  }
}

TYPED_TEST(Training, SumOfSquares) {
  using T = TypeParam;
  for (const Index count : {0, 1, 3, 8, 15, 16, 17, 1000}) {
    const DrawnRows<T> x(1, count, 1);
    double sum = 0;
    for (Index i = 0; i < count; ++i) sum += static_cast<double>(x(0, i)) * x(0, i);
    std::vector<double> of_levels;
    at_each_level(
        [&] { of_levels.push_back(fovea::LayerKernels<T>().sum_of_squares(x.data(), count)); });
    for (const double got : of_levels) EXPECT_NEAR(got, sum, 1e-15 * 20 * sum);
  }
}

}  // namespace fovea_test::kernels_layers_training
