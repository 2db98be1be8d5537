// SPDX-License-Identifier: MIT
/// \file
/// The kernels of layer and RMS normalisation against their definition in double, at every level.
#include "fovea/kernels/layers/table.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/layers/drawn_rows.hpp"

namespace fovea_test::kernels_layers_norm {

template <class T>
class Norm : public testing::Test {};
using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(Norm, Scalars);

constexpr Index kWidths[] = {1, 2, 7, 8, 16, 17, 31, 64, 100};

/// Rows with all that the kernels read and write.
template <class T>
struct DrawnNorm {
  explicit DrawnNorm(Index width, bool centred, Index rows = 5)
      : is_centred(centred),
        x(rows, width, 1),
        d_y(rows, width, 2),
        scale(1, width, 3),
        shift(1, width, 4),
        y(rows, width, 5),
        d_x(rows, width, 6),
        moments(rows, fovea::norm_moments(centred), 7, 0) {}

  fovea::NormArgs<T> args() {
    return {.x = x.data(),
            .x_row = x.row,
            .moments = moments.data(),
            .scale = scale.data(),
            .shift = is_centred ? shift.data() : nullptr,
            .y = y.data(),
            .y_row = y.row,
            .d_y = d_y.data(),
            .d_y_row = d_y.row,
            .d_x = d_x.data(),
            .d_x_row = d_x.row,
            .rows = x.rows,
            .width = x.columns,
            .epsilon = T(0.01),
            .is_centred = is_centred};
  }

  bool is_centred;
  DrawnRows<T> x, d_y, scale, shift, y, d_x, moments;
};

/// xhat of a row, in double, and 1 / deviation.
template <class T>
double normal_row(const DrawnNorm<T>& norm, Index i, std::vector<double>& normal) {
  const DrawnRows<T>& x = norm.x;
  const auto width = static_cast<double>(x.columns);
  double mean = 0;
  double square = 0;
  for (Index c = 0; norm.is_centred && c < x.columns; ++c) mean += x(i, c) / width;
  for (Index c = 0; c < x.columns; ++c) square += (x(i, c) - mean) * (x(i, c) - mean) / width;
  const double inverse = 1 / std::sqrt(square + static_cast<double>(T(0.01)));
  normal.clear();
  for (Index c = 0; c < x.columns; ++c) normal.push_back((x(i, c) - mean) * inverse);
  return inverse;
}

/// Of layer normalisation, or of RMS normalisation.
template <class T>
void expect_forward_and_input_gradient(bool centred) {
  for (const Index width : kWidths) {
    at_each_level([&] {
      DrawnNorm<T> norm(width, centred);
      fovea::LayerKernels<T>().normalise(norm.args());
      fovea::LayerKernels<T>().norm_grad(norm.args());
      std::vector<double> normal;
      for (Index i = 0; i < norm.x.rows; ++i) {
        const double inverse = normal_row(norm, i, normal);
        double of_g = 0;
        double of_g_x = 0;
        for (Index c = 0; c < width; ++c) {
          const double g = static_cast<double>(norm.d_y(i, c)) * norm.scale(0, c);
          of_g += centred ? g / static_cast<double>(width) : 0;
          of_g_x += g * normal[as_size(c)] / static_cast<double>(width);
        }
        for (Index c = 0; c < width; ++c) {
          const double n = normal[as_size(c)];
          const double y = n * norm.scale(0, c) + (centred ? norm.shift(0, c) : 0);
          ASSERT_TRUE(is_near(norm.y(i, c), y, 10, 20)) << c << " of " << width;
          const double g = static_cast<double>(norm.d_y(i, c)) * norm.scale(0, c);
          const double d_x = (g - of_g - n * of_g_x) * inverse;
          ASSERT_TRUE(is_near(norm.d_x(i, c), d_x, 100, 20)) << c << " of " << width;
        }
      }
      EXPECT_TRUE(norm.y.has_its_gaps() && norm.d_x.has_its_gaps());
    });
  }
}

TYPED_TEST(Norm, ForwardAndTheGradientOfItsInput) {
  expect_forward_and_input_gradient<TypeParam>(true);
}

TYPED_TEST(Norm, ForwardAndTheGradientOfItsInputByRms) {
  expect_forward_and_input_gradient<TypeParam>(false);
}

/// Of layer normalisation, or of RMS normalisation.
template <class T>
void expect_parameter_gradients(bool centred) {
  for (const Index width : kWidths) {
    at_each_level([&] {
      DrawnNorm<T> norm(width, centred, 30);
      fovea::LayerKernels<T>().normalise(norm.args());
      DrawnRows<T> d_scale(1, width, 8);
      DrawnRows<T> d_shift(1, width, 9);
      const DrawnRows<T> scale_before = d_scale;
      const DrawnRows<T> shift_before = d_shift;
      fovea::NormArgs<T> args = norm.args();
      args.d_scale = d_scale.data();
      args.d_shift = centred ? d_shift.data() : nullptr;
      fovea::LayerKernels<T>().norm_parameters(args);
      std::vector<double> of_scale(as_size(width));
      std::vector<double> of_shift(as_size(width));
      std::vector<double> normal;
      for (Index i = 0; i < norm.x.rows; ++i) {
        normal_row(norm, i, normal);
        for (Index c = 0; c < width; ++c) {
          of_scale[as_size(c)] += norm.d_y(i, c) * normal[as_size(c)];
          of_shift[as_size(c)] += centred ? norm.d_y(i, c) : 0;
        }
      }
      for (Index c = 0; c < width; ++c) {
        ASSERT_TRUE(is_near(d_scale(0, c), scale_before(0, c) + of_scale[as_size(c)], 60, 20));
        ASSERT_TRUE(is_near(d_shift(0, c), shift_before(0, c) + of_shift[as_size(c)], 60, 20));
      }
      EXPECT_TRUE(d_scale.has_its_gaps() && d_shift.has_its_gaps());
    });
  }
}

TYPED_TEST(Norm, GradientsOfItsParameters) { expect_parameter_gradients<TypeParam>(true); }

TYPED_TEST(Norm, GradientsOfItsParametersByRms) { expect_parameter_gradients<TypeParam>(false); }

/// A row of zeros has no deviation, and its result is the shift itself, or zeros without it.
TYPED_TEST(Norm, OfARowOfZerosIsTheShift) {
  using T = TypeParam;
  at_each_level([&] {
    for (const bool centred : {true, false}) {
      DrawnNorm<T> norm(37, centred);
      for (Index c = 0; c < 37; ++c) norm.x(2, c) = 0;
      fovea::LayerKernels<T>().normalise(norm.args());
      for (Index c = 0; c < 37; ++c) EXPECT_EQ(norm.y(2, c), centred ? norm.shift(0, c) : T(0));
    }
  });
}

/// From numbers whose squares vanish relative to epsilon to those whose squares nearly overflow.
TYPED_TEST(Norm, OfHugeAndTinyRows) {
  using T = TypeParam;
  const double huge = std::sqrt(static_cast<double>(std::numeric_limits<T>::max()) / 100) / 8;
  for (const double size : {1e-30, 1e-20, 1e-4, 1e4, huge}) {
    for (const bool centred : {true, false}) {
      at_each_level([&] {
        DrawnNorm<T> norm(100, centred);
        for (Index i = 0; i < norm.x.rows; ++i) {
          for (Index c = 0; c < 100; ++c) norm.x(i, c) *= static_cast<T>(size);
        }
        fovea::LayerKernels<T>().normalise(norm.args());
        std::vector<double> normal;
        for (Index i = 0; i < norm.x.rows; ++i) {
          normal_row(norm, i, normal);
          for (Index c = 0; c < 100; ++c) {
            const double y =
                normal[as_size(c)] * norm.scale(0, c) + (centred ? norm.shift(0, c) : 0);
            ASSERT_TRUE(is_near(norm.y(i, c), y, 10, 20)) << size << " at " << c;
          }
        }
      });
    }
  }
}

}  // namespace fovea_test::kernels_layers_norm
