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
using Scalars = testing::Types<float, double, Eigen::bfloat16, Eigen::half>;
TYPED_TEST_SUITE(Rotary, Scalars);

constexpr Index kRows = 3;
constexpr Index kHeads = 2;

/// Where the heads are: the usual place, heads in descending order, channels apart.
struct Place {
  Index row, head, channel, first;
};

std::vector<Place> places(Index head_width) {
  const Index w = head_width;
  return {{kHeads * w + 1, w, 1, 0},
          {w + 3, kRows * (w + 3), 1, 0},
          {2 * w, -w, 1, w},
          {1, kRows + 1, kHeads * (kRows + 1), 0},
          {-1, kRows, -kHeads * kRows, kHeads * kRows * w - kRows * kHeads + kRows - 1}};
}

/// Whether an element has the error of the arithmetic, which `size` measures, and of at most one
/// rounding to 16 bits.
template <class S>
bool is_rounded_once(S got, double expected, double size) {
  constexpr double of_storage = fovea::kStorage<S> == fovea::Storage::native     ? 0
                                : fovea::kStorage<S> == fovea::Storage::bfloat16 ? 0x1p-8
                                                                                 : 0x1p-11;
  const double room = of_storage * std::abs(expected) +
                      2 * std::numeric_limits<fovea::Compute<S>>::epsilon() * size;
  return std::abs(static_cast<double>(got) - expected) <= room;
}

template <class S>
void expect_turned(Index pairs, Index head_width, RotaryPairing pairing, const Place& place,
                   Index table_column) {
  using T = fovea::Compute<S>;
  const Index size = (kRows + 2) * (kHeads + 1) * (head_width + 4);
  std::vector<S> before(as_size(size));
  for (Index i = 0; i < size; ++i) before[as_size(i)] = static_cast<S>(gaussian(1)(0, 0, 0, i));
  std::vector<T> cosines(as_size(kRows * pairs * table_column)), sines = cosines;
  const auto angle = [&](Index n, Index i) { return as_size((n * pairs + i) * table_column); };
  for (Index n = 0; n < kRows; ++n) {
    for (Index i = 0; i < pairs; ++i) {
      cosines[angle(n, i)] = static_cast<T>(std::cos(0.7 * static_cast<double>(n * pairs + i)));
      sines[angle(n, i)] = static_cast<T>(std::sin(0.7 * static_cast<double>(n * pairs + i)));
    }
  }
  std::vector<S> x = before;
  fovea::RotaryArgs<T, fovea::kStorage<S>> args{
      .x = {x.data() + place.first, place.row, place.channel},
      .x_head = place.head,
      .rows = kRows,
      .heads = kHeads,
      .pairs = pairs,
      .cosines = {cosines.data(), pairs * table_column, table_column},
      .sines = {sines.data(), pairs * table_column, table_column},
      .pairing = pairing};
  fovea::RotaryKernels<T, fovea::kStorage<S>>().turn_heads(args);
  std::vector<S> back = x;
  args.x.data = back.data() + place.first;
  args.is_back = true;
  fovea::RotaryKernels<T, fovea::kStorage<S>>().turn_heads(args);
  std::vector<bool> is_turned(as_size(size));
  for (Index n = 0; n < kRows; ++n) {
    for (Index h = 0; h < kHeads; ++h) {
      for (Index i = 0; i < pairs; ++i) {
        const bool halves = pairing == RotaryPairing::halves;
        const Index row = place.first + n * place.row + h * place.head;
        const auto a = as_size(row + (halves ? i : 2 * i) * place.channel);
        const auto b = as_size(row + (halves ? i + pairs : 2 * i + 1) * place.channel);
        is_turned[a] = is_turned[b] = true;
        const auto wide = [](S element) { return static_cast<double>(element); };
        const std::complex<double> from(wide(before[a]), wide(before[b]));
        const std::complex<double> turned =
            from * std::complex<double>(cosines[angle(n, i)], sines[angle(n, i)]);
        const double size_of_pair = std::abs(from);
        EXPECT_TRUE(is_rounded_once(x[a], turned.real(), size_of_pair));
        EXPECT_TRUE(is_rounded_once(x[b], turned.imag(), size_of_pair));
        const std::complex<double> again(wide(x[a]), wide(x[b]));
        const std::complex<double> returned =
            again * std::complex<double>(cosines[angle(n, i)], -sines[angle(n, i)]);
        EXPECT_TRUE(is_rounded_once(back[a], returned.real(), size_of_pair));
        EXPECT_TRUE(is_rounded_once(back[b], returned.imag(), size_of_pair));
      }
    }
  }
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (is_turned[i]) continue;
    EXPECT_EQ(x[i], before[i]);
    EXPECT_EQ(back[i], before[i]);
  }
}

TYPED_TEST(Rotary, RotatesPairsAsComplexNumbers) {
  using T = TypeParam;
  at_each_level([&] {
    for (const RotaryPairing pairing : {RotaryPairing::halves, RotaryPairing::neighbours}) {
      for (const Index pairs : {1, 3, 8, 16, 19, 150}) {
        for (const Index width : {2 * pairs, 2 * pairs + 3}) {
          for (const Place& place : places(width)) {
            for (const Index column : {1, 2}) {
              expect_turned<T>(pairs, width, pairing, place, column);
            }
          }
        }
      }
    }
  });
}

}  // namespace fovea_test::kernels_layers_rotary
