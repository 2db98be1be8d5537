// SPDX-License-Identifier: MIT
// fovea_test(ALONE)
/// \file
/// kernels/feature_map.inl.hpp: the stated errors over all floats, values where something happens,
/// equal bits at v3 and v4, and rows of any width, stride and storage, padded with zeros.
/// FOVEA_MATH_STRIDE=1 takes all 2^32 floats; the default takes every 4093rd,
/// that of the full suite every 1021st.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "fovea/core/key_run.hpp"
#include "fovea/kernels/linear/linear.hpp"
#include "support/compare.hpp"
#include "support/fill.hpp"
#include "support/levels.hpp"
#include "support/tensor.hpp"

namespace {

using fovea::Index;

/// The functions of feature_map_body.inl.hpp for one level.
template <fovea::Storage S, class T>
using MappedRows = void (*)(const fovea::FeatureMapArgs<T>&, const fovea::StoredMatrix<S>&,
                            Index count, Index width, T* to, Index to_row);

}  // namespace

#define FOVEA_LEVEL_BODY "kernels/linear/feature_map_body.inl.hpp"
#include "fovea/simd/foreach_level.hpp"

namespace fovea_test {
namespace {

using fovea::FeatureMapArgs;
using fovea::FeatureMapKind;
using fovea::StoredMatrix;

constexpr std::array kKinds = {FeatureMapKind::elu_plus_one, FeatureMapKind::elu_minus_plus_one,
                               FeatureMapKind::tanh_plus_one, FeatureMapKind::tanh,
                               FeatureMapKind::relu};

const char* name(FeatureMapKind kind) {
  constexpr std::array names = {"EluPlusOne", "EluMinusPlusOne", "TanhPlusOne", "Tanh", "Relu",
                                "Own"};
  return names[static_cast<std::size_t>(kind)];
}

template <fovea::Storage S, class T>
MappedRows<S, T> values_at(IsaLevel level) {
  return FOVEA_AT_LEVEL(level, value_function<S, T>());
}

template <class T>
MappedRows<fovea::Storage::native, T> function_at(IsaLevel level, bool slope) {
  if (slope) return FOVEA_AT_LEVEL(level, slope_function<T>());
  return values_at<fovea::Storage::native, T>(level);
}

/// phi or phi' of n numbers at a level.
template <class T>
std::vector<T> mapped(IsaLevel level, FeatureMapKind kind, bool slope, const std::vector<T>& x) {
  const auto n = static_cast<Index>(x.size());
  std::vector<T> y(as_size(fovea::padded_row<T>(n)));
  FeatureMapArgs<T> map;
  map.kind = kind;
  function_at<T>(level, slope)(map, {x.data(), n, 1}, 1, n, y.data(), n);
  y.resize(x.size());
  return y;
}

// ---- numbers in order, and the oracle one precision up ------------------------------------------

template <class T>
using Key = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;

/// All numbers in increasing order: -NaN, -infinity ... -0, +0 ... infinity, NaN.
template <class T>
T number(Key<T> key) {
  constexpr Key<T> top = Key<T>{1} << (8 * sizeof(T) - 1);
  return std::bit_cast<T>(key >= top ? static_cast<Key<T>>(key - top) : ~key);
}
template <class T>
Key<T> key(T x) {
  constexpr Key<T> top = Key<T>{1} << (8 * sizeof(T) - 1);
  const auto bits = std::bit_cast<Key<T>>(x);
  return bits >= top ? ~bits : static_cast<Key<T>>(bits + top);
}

template <class W>
W exact(FeatureMapKind kind, bool slope, W x) {
  switch (kind) {
    case FeatureMapKind::elu_plus_one:
      return x < 0 ? std::exp(x) : slope && !std::isnan(x) ? 1 : x + 1;
    case FeatureMapKind::elu_minus_plus_one:
      return slope ? -exact<W>(FeatureMapKind::elu_plus_one, true, -x)
                   : exact<W>(FeatureMapKind::elu_plus_one, false, -x);
    case FeatureMapKind::relu:
      return std::isnan(x) ? x : x > 0 ? (slope ? 1 : x) : 0;
    case FeatureMapKind::tanh_plus_one:
    case FeatureMapKind::tanh: {
      const W e = std::exp(-2 * std::abs(x));
      if (slope) return 4 * e / ((1 + e) * (1 + e));
      return kind == FeatureMapKind::tanh ? std::tanh(x) : 2 * (x < 0 ? e : 1) / (1 + e);
    }
    case FeatureMapKind::identity:
      return slope ? 1 : x;
    case FeatureMapKind::own:
      break;
  }
  return x;
}

/// |y - exact| in ulp of the exact value, which may be subnormal; infinity where one of them is not
/// finite and the other is not the same.
template <class T>
double ulp_error(T y, Wide<T> expected) {
  using Limits = std::numeric_limits<T>;
  if (std::isnan(expected)) return std::isnan(y) ? 0 : Limits::infinity();
  if (y == static_cast<T>(expected)) return 0.5;
  if (!std::isfinite(y) || !std::isfinite(expected)) return Limits::infinity();
  int exponent = Limits::min_exponent;
  if (expected != 0) static_cast<void>(std::frexp(expected, &exponent));
  exponent = std::clamp(exponent, Limits::min_exponent, Limits::max_exponent) - Limits::digits;
  return static_cast<double>(std::ldexp(std::abs(static_cast<Wide<T>>(y) - expected), -exponent));
}

/// Blocks of numbers: of float the whole range in steps of the stride, of double the arguments
/// where the maps change; and the numbers around 0 and where exp gets subnormal.
template <class T, class F>
void for_each_block(F&& f) {
  const char* text = std::getenv("FOVEA_MATH_STRIDE");
  const std::uint64_t given = text == nullptr ? 0 : std::strtoull(text, nullptr, 10);
  const std::uint64_t stride = given != 0 ? given : FOVEA_FULL_SUITE ? 1021 : 4093;
  constexpr std::size_t size = 4096;
  std::vector<T> x;
  const auto sweep = [&](Key<T> first, Key<T> last, Key<T> step) {
    for (Key<T> at = first; at <= last; at += step) {
      x.push_back(number<T>(at));
      if (x.size() == size) {
        f(x);
        x.clear();
      }
      if (last - at < step) break;
    }
  };
  if constexpr (sizeof(T) == 4) {
    sweep(0, ~Key<T>{0}, static_cast<Key<T>>(stride));
  } else {
    const std::uint64_t count = std::min<std::uint64_t>((std::uint64_t{1} << 30) / stride, 1 << 22);
    for (const T sign : {T(-1), T(1)}) {
      const Key<T> one = key(sign * T(1e-17)), other = key(sign * T(1000));
      const Key<T> low = std::min(one, other), high = std::max(one, other);
      sweep(low, high, (high - low) / count);
    }
  }
  using Limits = std::numeric_limits<T>;
  const T ln2 = static_cast<T>(0.693147180559945309L);
  for (const T point : {T(0), T(1), Limits::min(), -Limits::min_exponent * ln2,
                        (Limits::digits - Limits::min_exponent) * ln2, Limits::infinity()}) {
    for (const T around : {point, -point, point / 2, -point / 2}) {
      sweep(key(around) - 256, key(around) + 256, 1);
    }
  }
  f(x);
}

// ---- accuracy -----------------------------------------------------------------------------------

/// The errors that feature_map.inl.hpp documents, in ulp.
template <class T>
double stated(FeatureMapKind kind, bool slope, bool fused) {
  constexpr bool single = sizeof(T) == 4;
  switch (kind) {
    case FeatureMapKind::relu:
      return 0.5;
    case FeatureMapKind::elu_plus_one:
    case FeatureMapKind::elu_minus_plus_one:
      return fused ? single ? 0.89 : 0.87 : single ? 1.17 : 1.15;
    case FeatureMapKind::tanh:
      if (!slope) return fused ? single ? 0.87 : 0.90 : single ? 1.33 : 1.40;
      break;
    case FeatureMapKind::tanh_plus_one:
      if (!slope) return fused ? single ? 1.48 : 1.55 : single ? 1.97 : 1.95;
      break;
    case FeatureMapKind::identity:
      return 0;
    case FeatureMapKind::own:
      break;
  }
  return 4.25;  // sech^2
}

class FeatureMap : public testing::TestWithParam<std::tuple<FeatureMapKind, bool>> {
 protected:
  template <class T>
  void check_accuracy() {
    const FeatureMapKind kind = std::get<0>(GetParam());
    const bool slope = std::get<1>(GetParam());
    for (const IsaLevel level : {IsaLevel::baseline, IsaLevel::v3, IsaLevel::v4}) {
      if (!has_level(level)) continue;
      double worst = 0;
      T at = 0;
      std::uint64_t count = 0;
      for_each_block<T>([&](const std::vector<T>& x) {
        const std::vector<T> y = mapped(level, kind, slope, x);
        count += x.size();
        for (std::size_t i = 0; i < x.size(); ++i) {
          const double error = ulp_error<T>(y[i], exact<Wide<T>>(kind, slope, x[i]));
          if (!(error <= worst)) worst = error, at = x[i];
        }
      });
      const double bound = stated<T>(kind, slope, has_fma(level));
      const AtLevel use(level);
      fovea_test::exactness.error<T>("ulp", {name(kind), slope ? "slopes" : "values"}, worst,
                                     count);
      EXPECT_FALSE(!(worst <= bound)) << worst << " ulp at " << at << ", stated " << bound;
    }
  }

  template <class T>
  void check_bits() {
    if (!has_level(IsaLevel::v4)) GTEST_SKIP() << "no v4";
    const FeatureMapKind kind = std::get<0>(GetParam());
    const bool slope = std::get<1>(GetParam());
    std::size_t different = 0;
    for_each_block<T>([&](const std::vector<T>& x) {
      const std::vector<T> at3 = mapped(IsaLevel::v3, kind, slope, x);
      const std::vector<T> at4 = mapped(IsaLevel::v4, kind, slope, x);
      for (std::size_t i = 0; i < x.size(); ++i) {
        if (std::isnan(at3[i]) && std::isnan(at4[i])) continue;
        different += std::bit_cast<Key<T>>(at3[i]) != std::bit_cast<Key<T>>(at4[i]);
      }
    });
    EXPECT_EQ(different, 0u);
  }
};

TEST_P(FeatureMap, AccuracyFloat) { check_accuracy<float>(); }
TEST_P(FeatureMap, AccuracyDouble) { check_accuracy<double>(); }
TEST_P(FeatureMap, SameBitsAtV3AndV4Float) { check_bits<float>(); }
TEST_P(FeatureMap, SameBitsAtV3AndV4Double) { check_bits<double>(); }

INSTANTIATE_TEST_SUITE_P(, FeatureMap, testing::Combine(testing::ValuesIn(kKinds), testing::Bool()),
                         [](const auto& test) {
                           return std::string(name(std::get<0>(test.param))) +
                                  (std::get<1>(test.param) ? "Slope" : "Value");
                         });

// ---- rows ---------------------------------------------------------------------------------------

template <class T>
void halve(const T* x, T* y, Index n) noexcept {
  for (Index i = 0; i < n; ++i) y[i] = x[i] / 2;
}
template <class T>
void negate(const T* x, T* y, Index n) noexcept {
  for (Index i = 0; i < n; ++i) y[i] = -x[i];
}

template <class T>
class FeatureRows : public testing::Test {
 protected:
  /// Rows between guard pages: each element is the map of its number, the padding is 0, and nothing
  /// is written after it.
  static void check(FeatureMapKind kind, Index width, Index column, Guard guard) {
    constexpr Index rows = 3;
    Layout layout;
    layout.innermost = column;
    layout.guard = guard;
    const Tensor<T> x({1, 1, rows, width}, layout);
    x.fill(gaussian(7, 2));
    const Index padded = fovea::padded_row<T>(width);
    const Index row = padded + 8;
    const auto strides = x.view().strides();
    const StoredMatrix<> matrix = {&x(0, 0, 0, 0), strides[2], column};
    const FeatureMapArgs<T> map = {kind, &halve<T>, &negate<T>};
    for (const bool slope : {false, true}) {
      std::vector<T> y(as_size(rows * row), T(77));
      function_at<T>(fovea::isa_level(), slope)(map, matrix, rows, width, y.data(), row);
      for (Index i = 0; i < rows; ++i) {
        for (Index c = 0; c < row; ++c) {
          T expected = c < padded ? T(0) : T(77);
          if (c < width) {
            const T at = x(0, 0, i, c);
            expected = kind != FeatureMapKind::own
                           ? mapped(fovea::isa_level(), kind, slope, std::vector<T>{at})[0]
                       : slope ? -at
                               : at / 2;
          }
          EXPECT_EQ(y[as_size(i * row + c)], expected)
              << name(kind) << " " << i << ", " << c << " of " << width << ", column " << column;
        }
      }
    }
  }
};

using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(FeatureRows, Scalars);

TYPED_TEST(FeatureRows, EveryKindWidthAndStride) {
  at_each_level([] {
    for (const Guard guard : {Guard::before, Guard::behind}) {
      for (const Index width : {1, 2, 3, 7, 8, 15, 16, 17, 33, 64, 150}) {
        for (const Index column : {1, 3}) {
          for (const FeatureMapKind kind : kKinds) TestFixture::check(kind, width, column, guard);
          TestFixture::check(FeatureMapKind::own, width, column, guard);
        }
      }
    }
  });
}

/// 16-bit numbers are mapped as the equal floats.
TEST(StoredFeatureRows, Bfloat16) {
  at_each_level([] {
    constexpr Index width = 19;
    std::array<std::uint16_t, width> stored{};
    std::vector<float> x;
    for (std::size_t i = 0; i < width; ++i) {
      const float value = 0.37f * static_cast<float>(i) - 3;
      stored[i] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
      x.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(stored[i]) << 16));
    }
    for (const FeatureMapKind kind : kKinds) {
      FeatureMapArgs<float> map;
      map.kind = kind;
      std::vector<float> y(as_size(fovea::padded_row<float>(width)));
      values_at<fovea::Storage::bfloat16, float>(fovea::isa_level())(map, {stored.data(), width, 1},
                                                                     1, width, y.data(), 32);
      y.resize(width);
      EXPECT_TRUE(same_bits(y, mapped(fovea::isa_level(), kind, false, x))) << name(kind);
    }
  });
}

}  // namespace
}  // namespace fovea_test
