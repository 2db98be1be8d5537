// SPDX-License-Identifier: MIT
/// \file
/// simd/storage.inl.hpp at every level: all 65536 numbers of both 16-bit types against Eigen's
/// conversion, roundings around every one of them, and tails between guard pages.
#include <gtest/gtest.h>

#include <Eigen/Core>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "fovea/core/eigen.hpp"
#include "support/tensor.hpp"

namespace {

/// The functions of storage_body.inl.hpp for one level.
template <class T>
struct StorageOperations {
  int lanes = 0;
  void (*load)(const void* x, T* y, fovea::Index n) = nullptr;
  void (*store)(const T* x, void* y, fovea::Index n) = nullptr;
  void (*pad)(const void* x, T* y, fovea::Index n) = nullptr;
};

}  // namespace

#define FOVEA_LEVEL_BODY "simd/storage_body.inl.hpp"
#include "fovea/simd/foreach_level.hpp"

namespace {

using fovea::Compute;
using fovea::Index;
using fovea::IsaLevel;
using fovea_test::Guard;
using fovea_test::GuardedBytes;

/// The operations of one level; without lanes where this unit or machine does not have it.
template <class S>
StorageOperations<Compute<S>> operations_at(IsaLevel level) {
  if (level > fovea::highest_isa_level() || level < fovea::kUnitIsaLevel) return {};
  constexpr fovea::Storage storage = fovea::ScalarTraits<S>::kStorage;
  return FOVEA_AT_LEVEL(level, storage_operations<storage, Compute<S>>());
}

std::uint32_t bits(float x) { return std::bit_cast<std::uint32_t>(x); }
float from_bits(std::uint32_t x) { return std::bit_cast<float>(x); }

/// Bits of a fraction in a 16-bit type, and how many a float has more.
template <class S>
constexpr int kFractionBits = std::is_same_v<S, Eigen::half> ? 10 : 7;
template <class S>
constexpr int kLackedBits = 23 - kFractionBits<S>;

/// The bits of the NaN that a float becomes: those of its payload that fit, quiet.
template <class S>
std::uint16_t stored_nan(float x) {
  const std::uint32_t sign = bits(x) >> 16 & 0x8000;
  const std::uint32_t magnitude = (bits(x) & 0x7fffff) >> kLackedBits<S>;
  const std::uint32_t exponent = 0x7fffu >> kFractionBits<S> << kFractionBits<S>;
  return static_cast<std::uint16_t>(sign | exponent | 1u << (kFractionBits<S> - 1) | magnitude);
}

/// Floats around every number of a 16-bit type and around the middles between two of them, every
/// exponent, and a sweep over all floats.
template <class S>
std::vector<float> rounding_samples() {
  std::vector<float> all;
  constexpr std::uint32_t step = 1u << kLackedBits<S>;
  for (std::uint64_t upper = 0; upper < 1ull << 32; upper += step) {
    for (const std::uint32_t lower : {0u, 1u, step / 2 - 1, step / 2, step / 2 + 1, step - 1}) {
      all.push_back(from_bits(static_cast<std::uint32_t>(upper) + lower));
    }
  }
  // Subnormal binary16 numbers: their midpoints have other bits in a float.
  for (int i = 0; i < 2048; ++i) {
    const float middle = std::ldexp(static_cast<float>(2 * i + 1), -25);
    for (const float x : {std::nextafter(middle, 0.0F), middle, std::nextafter(middle, 1.0F)}) {
      all.push_back(x);
      all.push_back(-x);
    }
  }
  for (std::uint64_t x = 0; x < 1ull << 32; x += 4099) {
    all.push_back(from_bits(static_cast<std::uint32_t>(x)));
  }
  all.push_back(1);  // an odd count: there is a tail
  if (all.size() % 2 == 0) all.push_back(2);
  return all;
}

template <class S>
class StorageOf : public testing::Test {
 protected:
  /// Calls check(operations) for every level there is.
  template <class Check>
  static void at_each_level(Check&& check) {
    for (const IsaLevel level : {IsaLevel::baseline, IsaLevel::v3, IsaLevel::v4}) {
      SCOPED_TRACE(fovea::name(level));
      if (operations_at<S>(level).lanes != 0) check(operations_at<S>(level));
    }
  }
};

/// The 16-bit types.
template <class S>
class ShortStorage : public StorageOf<S> {};
using ShortTypes = testing::Types<Eigen::bfloat16, Eigen::half>;
TYPED_TEST_SUITE(ShortStorage, ShortTypes, );

TYPED_TEST(ShortStorage, LoadsEveryNumber) {
  using S = TypeParam;
  this->at_each_level([](const StorageOperations<float>& operations) {
    std::vector<std::uint16_t> stored(65536);
    for (std::size_t i = 0; i < stored.size(); ++i) stored[i] = static_cast<std::uint16_t>(i);
    std::vector<float> loaded(stored.size());
    operations.load(stored.data(), loaded.data(), std::ssize(stored));
    for (std::size_t i = 0; i < stored.size(); ++i) {
      const auto expected = static_cast<float>(std::bit_cast<S>(stored[i]));
      std::uint32_t expected_bits = bits(expected);
      // Eigen leaves it to the machine whether a signalling NaN becomes quiet.
      if (std::isnan(expected) && std::is_same_v<S, Eigen::half>) expected_bits |= 0x00400000;
      ASSERT_EQ(bits(loaded[i]), expected_bits) << i;
    }
  });
}

TYPED_TEST(ShortStorage, StoresTheNearestNumber) {
  using S = TypeParam;
  const std::vector<float> floats = rounding_samples<S>();
  this->at_each_level([&](const StorageOperations<float>& operations) {
    std::vector<std::uint16_t> stored(floats.size());
    operations.store(floats.data(), stored.data(), std::ssize(floats));
    for (std::size_t i = 0; i < floats.size(); ++i) {
      const std::uint16_t expected = std::isnan(floats[i])
                                         ? stored_nan<S>(floats[i])
                                         : std::bit_cast<std::uint16_t>(S(floats[i]));
      ASSERT_EQ(stored[i], expected) << std::hexfloat << floats[i] << " " << bits(floats[i]);
    }
  });
}

/// Every storage type, the native ones too.
template <class S>
class AnyStorage : public StorageOf<S> {};
using AllTypes = testing::Types<Eigen::bfloat16, Eigen::half, float, double>;
TYPED_TEST_SUITE(AnyStorage, AllTypes, );

TYPED_TEST(AnyStorage, TailsReadAndWriteNothingBeyond) {
  using S = TypeParam;
  using T = Compute<S>;
  this->at_each_level([](const StorageOperations<T>& operations) {
    for (int n = 1; n <= 2 * operations.lanes; ++n) {
      for (const Guard guard : {Guard::before, Guard::behind}) {
        const auto count = static_cast<std::size_t>(n);
        const GuardedBytes in(count * sizeof(S), guard);
        const GuardedBytes out(count * sizeof(S), guard);
        for (std::size_t i = 0; i < count; ++i) {
          const S x = static_cast<S>(static_cast<float>(i) - 2.5F);
          std::memcpy(in.data() + i * sizeof(S), &x, sizeof(S));
        }
        std::vector<T> loaded(count);
        operations.load(in.data(), loaded.data(), n);
        for (std::size_t i = 0; i < count; ++i) EXPECT_EQ(loaded[i], static_cast<T>(i) - T(2.5));
        operations.store(loaded.data(), out.data(), n);
        EXPECT_EQ(std::memcmp(in.data(), out.data(), count * sizeof(S)), 0);
      }
    }
  });
}

TYPED_TEST(AnyStorage, LanesBeyondATailAreZeroAndStayUnwritten) {
  using S = TypeParam;
  using T = Compute<S>;
  this->at_each_level([](const StorageOperations<T>& operations) {
    const auto lanes = static_cast<std::size_t>(operations.lanes);
    const std::vector<S> in(lanes, S(3));
    for (std::size_t n = 0; n < lanes; ++n) {
      std::vector<T> padded(lanes, T(7));
      operations.pad(in.data(), padded.data(), static_cast<Index>(n));
      std::vector<S> out(lanes, S(7));
      operations.store(padded.data(), out.data(), static_cast<Index>(n));
      for (std::size_t i = 0; i < lanes; ++i) {
        EXPECT_EQ(padded[i], i < n ? T(3) : T(0)) << i << " of " << n;
        EXPECT_EQ(static_cast<T>(out[i]), i < n ? T(3) : T(7)) << i << " of " << n;
      }
    }
  });
}

}  // namespace
