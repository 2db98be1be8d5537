// SPDX-License-Identifier: MIT
// fovea_test(ALONE)
/// \file
/// The building blocks of the selection of keys, at every level: lists of lanes, unfused
/// arithmetic, and the K largest numbers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "fovea/core/key_run.hpp"
#include "fovea/core/philox.hpp"
#include "fovea/kernels/sketch/select.hpp"
#include "fovea/simd/isa.hpp"
#include "fovea/simd/matrix.hpp"
#include "support/compare.hpp"
#include "support/fill.hpp"
#include "support/levels.hpp"

namespace {

/// The signed integer as wide as T.
template <class T>
using IntOfTest = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;

/// The functions of sketch_math_body.inl.hpp for one level.
template <class T>
struct SketchMath {
  using Index = fovea::Index;
  Index (*below)(const T* x, Index n, T bound, T* values, IntOfTest<T>* places);
  void (*exp2)(const T* x, Index n, T* y);
  void (*product_sum)(const T* x, const T* y, const T* z, Index n, T* to);
  void (*largest)(const std::int64_t* numbers, Index n, Index wanted, std::int64_t low,
                  std::int64_t high, std::int64_t* value, Index* equal);
  void (*order_bits)(const double* x, Index n, std::int64_t* to);
};

}  // namespace

#define FOVEA_LEVEL_BODY "kernels/sketch/math_body.inl.hpp"
#include "fovea/simd/foreach_level.hpp"

namespace fovea_test {
namespace {

template <class T>
SketchMath<T> at_level() {
  return FOVEA_AT_LEVEL(fovea::isa_level(), operations<T>());
}

constexpr Index kCount = 320;

template <class T>
std::vector<T> numbers(std::uint64_t seed, double deviation) {
  std::vector<T> all;
  const Fill fill = gaussian(seed, deviation);
  for (Index n = 0; n < kCount; ++n) all.push_back(static_cast<T>(fill(0, 0, n, 0)));
  return all;
}

template <class T>
void expect_lists() {
  const std::vector<T> x = numbers<T>(1, 1);
  for (const double bound : {-9.0, -1.0, 0.0, 0.7, 9.0}) {
    std::vector<T> values(kCount + 16);
    std::vector<IntOfTest<T>> places(kCount + 16);
    const Index count =
        at_level<T>().below(x.data(), kCount, static_cast<T>(bound), values.data(), places.data());
    Index expected = 0;
    for (Index n = 0; n < kCount; ++n) {
      if (!(x[as_size(n)] < static_cast<T>(bound))) continue;
      ASSERT_LT(expected, count);
      EXPECT_EQ(values[as_size(expected)], x[as_size(n)]);
      EXPECT_EQ(places[as_size(expected)], n);
      ++expected;
    }
    EXPECT_EQ(count, expected);
  }
}

TEST(SketchMath, ListsTheLanesOfAMask) {
  at_each_level([] {
    expect_lists<float>();
    expect_lists<double>();
  });
}

/// At every level the bits of scalar code, which rounds after each operation.
template <class T>
void expect_unfused() {
  const std::vector<T> x = numbers<T>(2, 3), y = numbers<T>(3, 3), z = numbers<T>(4, 3);
  std::vector<T> to(kCount);
  at_level<T>().product_sum(x.data(), y.data(), z.data(), kCount, to.data());
  for (std::size_t n = 0; n < to.size(); ++n) {
    volatile T product = x[n] * y[n];
    EXPECT_EQ(to[n], product + z[n]);
  }
}

TEST(SketchMath, ProductsRoundBeforeTheyAreAdded) {
  at_each_level([] {
    expect_unfused<float>();
    expect_unfused<double>();
  });
}

template <class T>
void expect_exp2(std::vector<T>& first) {
  std::vector<T> x = numbers<T>(5, 12);
  for (T& number : x) number = -std::abs(number);
  x[0] = 0;
  x[1] = std::numeric_limits<T>::quiet_NaN();
  x[2] = -std::numeric_limits<T>::infinity();
  x[3] = std::numeric_limits<T>::lowest();
  std::vector<T> y(kCount);
  at_level<T>().exp2(x.data(), kCount, y.data());
  EXPECT_EQ(y[0], 1);
  EXPECT_TRUE(std::isnan(y[1]));
  EXPECT_EQ(y[2], std::numeric_limits<T>::min());
  EXPECT_EQ(y[3], std::numeric_limits<T>::min());
  for (std::size_t n = 4; n < x.size(); ++n) {
    const Wide<T> exact = std::exp2(Wide<T>{x[n]});
    EXPECT_LE(std::abs(Wide<T>{y[n]} - exact), 8 * kRoundoff<T> * exact) << x[n];
  }
  if (first.empty()) first = y;
  EXPECT_TRUE(same_bits(first, y)) << "another level gives other bits";
}

TEST(SketchMath, Exp2IsTheSameAtEveryLevel) {
  std::vector<float> first_float;
  std::vector<double> first_double;
  at_each_level([&] {
    expect_exp2(first_float);
    expect_exp2(first_double);
  });
}

TEST(SketchMath, BitsOrderLikeTheirNumbers) {
  std::vector<double> x = numbers<double>(6, 100);
  x[0] = 0;
  x[1] = std::numeric_limits<double>::infinity();
  x[2] = -x[1];
  x[3] = std::numeric_limits<double>::denorm_min();
  std::sort(x.begin(), x.end());
  at_each_level([&] {
    std::vector<std::int64_t> order(x.size());
    at_level<double>().order_bits(x.data(), kCount, order.data());
    EXPECT_TRUE(std::is_sorted(order.begin(), order.end(), std::less_equal<>()));
  });
}

/// Which numbers are the K largest, of numbers with many ties and of the whole range.
TEST(SketchMath, FindsTheLargestNumbers) {
  constexpr std::int64_t least = std::numeric_limits<std::int64_t>::min();
  at_each_level([&] {
    for (std::uint64_t round = 0; round < 60; ++round) {
      Draw draw(round);
      const Index n = draw(1, 300);
      const Index wanted = draw(1, n);
      std::vector<std::int64_t> numbers;
      for (Index i = 0; i < n; ++i) {
        numbers.push_back(round % 3 == 0
                              ? draw(-3, 3)
                              : static_cast<std::int64_t>(hash(round, i, 1, 0, 0)) / 2 * 2);
      }
      std::vector<std::int64_t> sorted = numbers;
      std::sort(sorted.begin(), sorted.end(), std::greater<>());
      const std::int64_t kth = sorted[as_size(wanted - 1)];
      numbers.resize(numbers.size() + 8, least);
      std::int64_t value = 0;
      Index equal = 0;
      at_level<float>().largest(numbers.data(), n, wanted, least + 1, sorted[0] + 1, &value,
                                &equal);
      Index above = 0;
      for (Index i = 0; i < n; ++i) above += numbers[as_size(i)] > value ? 1 : 0;
      EXPECT_EQ(above + equal, wanted);
      EXPECT_TRUE(equal == 0 ? value < kth : value == kth);
    }
  });
}

}  // namespace
}  // namespace fovea_test
