// SPDX-License-Identifier: MIT
/// \file
/// Rotary positions at every level: against complex numbers in double, back again, and what is not
/// to be turned stays.
#include <complex>

#include "fovea/kernels/layers/table.hpp"
#include "kernels/layers/drawn_rows.hpp"

namespace fovea_test::kernels_layers_rotary {

using fovea::RotaryPairing;

template <class T>
class Rotary : public testing::Test {};
using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(Rotary, Scalars);

constexpr Index kRows = 3;
constexpr Index kHeads = 2;

template <class T>
void expect_turned(Index pairs, Index head_width, RotaryPairing pairing) {
  const DrawnRows<T> before(kRows, kHeads * head_width, 1);
  std::vector<T> cosines, sines;
  for (Index i = 0; i < kRows * pairs; ++i) {
    cosines.push_back(static_cast<T>(std::cos(0.7 * static_cast<double>(i))));
    sines.push_back(static_cast<T>(std::sin(0.7 * static_cast<double>(i))));
  }
  DrawnRows<T> x = before;
  fovea::RotaryArgs<T> args{.x = x.data(),
                            .x_row = x.row,
                            .rows = kRows,
                            .heads = kHeads,
                            .head_width = head_width,
                            .pairs = pairs,
                            .cosines = cosines.data(),
                            .sines = sines.data(),
                            .pairing = pairing};
  fovea::LayerKernels<T>().turn_heads(args);
  DrawnRows<T> back = x;
  args.x = back.data();
  args.is_back = true;
  fovea::LayerKernels<T>().turn_heads(args);
  EXPECT_TRUE(x.has_its_gaps() && back.has_its_gaps());
  for (Index n = 0; n < kRows; ++n) {
    for (Index h = 0; h < kHeads; ++h) {
      for (Index d = 0; d < head_width; ++d) {
        const Index c = h * head_width + d;
        if (d >= 2 * pairs) {
          EXPECT_EQ(x(n, c), before(n, c));
          EXPECT_EQ(back(n, c), before(n, c));
          continue;
        }
        const bool halves = pairing == RotaryPairing::halves;
        const bool is_first = halves ? d < pairs : d % 2 == 0;
        const Index i = halves ? d % pairs : d / 2;
        const Index a = h * head_width + (halves ? i : 2 * i);
        const Index b = h * head_width + (halves ? i + pairs : 2 * i + 1);
        const std::complex<double> from(before(n, a), before(n, b));
        const auto at = as_size(n * pairs + i);
        const std::complex<double> turned = from * std::complex<double>(cosines[at], sines[at]);
        const double size = std::abs(from);
        EXPECT_TRUE(is_near(x(n, c), is_first ? turned.real() : turned.imag(), size, 2));
        EXPECT_TRUE(is_near(back(n, c), before(n, c), size, 4));
      }
    }
  }
}

TYPED_TEST(Rotary, TurnsPairsAsComplexNumbers) {
  using T = TypeParam;
  at_each_level([&] {
    for (const RotaryPairing pairing : {RotaryPairing::halves, RotaryPairing::neighbours}) {
      for (const Index pairs : {1, 3, 8, 16, 19, 150}) {
        expect_turned<T>(pairs, 2 * pairs, pairing);
        expect_turned<T>(pairs, 2 * pairs + 3, pairing);
      }
    }
  });
}

}  // namespace fovea_test::kernels_layers_rotary
