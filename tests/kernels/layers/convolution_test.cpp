// SPDX-License-Identifier: MIT
/// \file
/// The kernels of the depth-wise convolution against sums in double, at every level.
#include "fovea/kernels/layers/table.hpp"

#include "kernels/layers/drawn_rows.hpp"

namespace fovea_test::kernels_layers_convolution {

template <class T>
class Convolution : public testing::Test {};
using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(Convolution, Scalars);

struct Sizes {
  Index rows;    // of the tensors
  Index length;  // of the sequence
  Index taps;
  Index width;
};

constexpr Sizes kSizes[] = {{1, 1, 5, 3},    {9, 9, 1, 8},  {9, 7, 5, 17},
                            {30, 23, 7, 16}, {4, 0, 3, 20}, {12, 12, 11, 1}};

TYPED_TEST(Convolution, Rows) {
  using T = TypeParam;
  for (const Sizes& size : kSizes) {
    for (const bool reversed : {false, true}) {
      const DrawnRows<T> x(size.rows, size.width, 1);
      const DrawnRows<T> w(size.taps, size.width, 2, 0);
      at_each_level([&] {
        const DrawnRows<T> before(size.rows, size.width, 3);
        DrawnRows<T> written = before;
        DrawnRows<T> added = before;
        for (DrawnRows<T>* const to : {&written, &added}) {
          // In two parts, as tasks are.
          for (const bool is_second : {false, true}) {
            fovea::LayerKernels<T>().convolve({.x = x.data(),
                                               .x_row = x.row,
                                               .length = size.length,
                                               .weights = w.data(),
                                               .weights_row = w.row,
                                               .taps = size.taps,
                                               .reversed = reversed,
                                               .to = to->data(),
                                               .to_row = to->row,
                                               .begin = is_second ? size.rows / 2 : 0,
                                               .end = is_second ? size.rows : size.rows / 2,
                                               .add = to == &added,
                                               .width = size.width});
          }
        }
        for (Index i = 0; i < size.rows; ++i) {
          for (Index c = 0; c < size.width; ++c) {
            double sum = 0;
            for (Index t = 0; t < size.taps && i < size.length; ++t) {
              const Index from = i + t - size.taps / 2;
              if (from < 0 || from >= size.length) continue;
              sum += static_cast<double>(w(reversed ? size.taps - 1 - t : t, c)) * x(from, c);
            }
            ASSERT_TRUE(is_near(written(i, c), sum, 20, 10)) << i << ", " << c;
            ASSERT_TRUE(is_near(added(i, c), before(i, c) + sum, 20, 10)) << i << ", " << c;
          }
        }
        EXPECT_TRUE(written.has_its_gaps() && added.has_its_gaps());
      });
    }
  }
}

TYPED_TEST(Convolution, GradientOfWeights) {
  using T = TypeParam;
  for (const Sizes& size : kSizes) {
    const DrawnRows<T> x(size.rows, size.width, 1);
    const DrawnRows<T> d(size.rows, size.width, 2);
    at_each_level([&] {
      const DrawnRows<T> before(size.taps, size.width, 3);
      const auto add = [&](Index begin, Index end, DrawnRows<T>& to) {
        fovea::LayerKernels<T>().convolution_weights({.x = x.data(),
                                                      .x_row = x.row,
                                                      .length = size.length,
                                                      .taps = size.taps,
                                                      .begin = begin,
                                                      .end = end,
                                                      .d = d.data(),
                                                      .d_row = d.row,
                                                      .d_weights = to.data(),
                                                      .d_weights_row = to.row,
                                                      .width = size.width});
      };
      DrawnRows<T> to = before;
      add(0, size.rows, to);
      DrawnRows<T> in_parts = before;
      for (Index n = 0; n < size.rows; n += 3) add(n, std::min(size.rows, n + 3), in_parts);
      for (Index t = 0; t < size.taps; ++t) {
        for (Index c = 0; c < size.width; ++c) {
          double sum = before(t, c);
          for (Index i = 0; i < size.length; ++i) {
            const Index from = i + t - size.taps / 2;
            if (from < 0 || from >= size.length) continue;
            sum += static_cast<double>(d(i, c)) * x(from, c);
          }
          ASSERT_TRUE(is_near(to(t, c), sum, 40, 10)) << t << ", " << c;
          ASSERT_EQ(in_parts(t, c), to(t, c)) << t << ", " << c;
        }
      }
      EXPECT_TRUE(to.has_its_gaps());
    });
  }
}

}  // namespace fovea_test::kernels_layers_convolution
