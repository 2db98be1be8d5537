// SPDX-License-Identifier: MIT
/// \file
/// The comparators: by bits, and by the ratio R = |got - expected| / (u gauge) of
/// tests/README.md, "How results are judged". Bounds are written !(r <= bound), so that a NaN
/// fails; one bad element fails; an output of zeros where more is expected than underflow may take
/// fails however wide the gauge. Held by tests/support/compare_test.cpp.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iomanip>
#include <limits>
#include <string>
#include <vector>

#include "support/exactness.hpp"
#include "support/reference.hpp"

namespace fovea_test {

/// "[b, h, n, d]" of the flat index i.
inline std::string index_text(const Shape& shape, Index i) {
  std::string text;
  for (std::size_t d = 4; d-- > 0;) {
    const Index extent = shape[d] > 0 ? shape[d] : 1;
    text = std::to_string(i % extent) + (d == 3 ? "]" : ", ") + text;
    i /= extent;
  }
  return "[" + text;
}

/// |got - expected| / (u gauge), and what T loses where it underflows: 0 where they are equal,
/// infinity where a non-finite value is not the expected one (any NaN equals any NaN).
template <class T>
Wide<T> error_ratio(T got, Wide<T> expected, Wide<T> gauge) {
  constexpr Wide<T> infinity = std::numeric_limits<Wide<T>>::infinity();
  const auto value = static_cast<Wide<T>>(got);
  if (std::isnan(expected)) return std::isnan(value) ? 0 : infinity;
  if (value == expected) return 0;
  if (std::isinf(expected)) return infinity;
  return std::abs(value - expected) / (kRoundoff<T> * gauge + std::numeric_limits<T>::min());
}

/// The error_ratio of element i, where one is demanded.
template <class T>
Wide<T> error_ratio(T got, const Reference<T>& expected, std::size_t i) {
  switch (expected.demand_of(i)) {
    case Demand::not_finite:
      return std::isfinite(got) ? std::numeric_limits<Wide<T>>::infinity() : 0;
    case Demand::nothing:
      return 0;
    default:
      return error_ratio<T>(got, expected.value[i], expected.gauge[i]);
  }
}

/// Whether every error_ratio is at most `bound`. \param of where the table of errors has it
template <class T>
testing::AssertionResult within_ratio(const std::vector<T>& got, const Reference<T>& expected,
                                      double bound, const Judged& of = {}) {
  const std::size_t n = expected.value.size();
  if (got.size() != n || expected.gauge.size() != n) {
    return testing::AssertionFailure() << got.size() << " elements, expected " << n;
  }
  std::size_t bad = 0;
  std::size_t at = 0;
  Wide<T> largest = -1;
  bool all_zero = true;
  bool none_expected = true;
  for (std::size_t i = 0; i < n; ++i) {
    const Wide<T> ratio = error_ratio(got[i], expected, i);
    if (!(ratio <= bound)) ++bad;
    if (!(ratio <= largest) && !std::isnan(largest)) {
      largest = ratio;
      at = i;
    }
    all_zero = all_zero && got[i] == 0;
    none_expected = none_expected && (expected.demand_of(i) == Demand::nothing ||
                                      std::abs(expected.value[i]) < kFaint<T>);
  }
  exactness.error<T>("ratio", of, static_cast<double>(largest), n);
  if (all_zero && !none_expected) {
    return testing::AssertionFailure() << "all " << n << " elements are 0, the expected are not";
  }
  if (bad == 0) return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << std::setprecision(21) << bad << " of " << n << " elements fail; worst "
         << index_text(expected.shape, static_cast<Index>(at)) << ": got " << got[at]
         << ", expected " << expected.value[at] << ", ratio " << std::setprecision(6) << largest
         << " > " << bound;
}

/// Whether two results are the same bits.
template <class T>
testing::AssertionResult same_bits(const T* a, const T* b, std::size_t n, const Shape& shape) {
  exactness.bits(n);
  if (n == 0 || std::memcmp(a, b, n * sizeof(T)) == 0) return testing::AssertionSuccess();
  std::size_t different = 0;
  std::size_t first = n;
  for (std::size_t i = n; i-- > 0;) {
    if (std::memcmp(a + i, b + i, sizeof(T)) == 0) continue;
    ++different;
    first = i;
  }
  return testing::AssertionFailure()
         << std::setprecision(21) << different << " of " << n << " elements differ; first "
         << index_text(shape, static_cast<Index>(first)) << ": " << a[first] << " and " << b[first];
}

template <class T>
testing::AssertionResult same_bits(const std::vector<T>& a, const std::vector<T>& b,
                                   const Shape& shape) {
  if (a.size() != b.size()) {
    return testing::AssertionFailure() << a.size() << " and " << b.size() << " elements";
  }
  return same_bits(a.data(), b.data(), a.size(), shape);
}

template <class T>
testing::AssertionResult same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return same_bits(a, b, {1, 1, 1, static_cast<Index>(a.size())});
}

/// Whether two results of one kind are the same bits: results whose `for_each(f)` calls f(name,
/// numbers).
template <class R>
requires requires(const R& r) {
  r.for_each([](const char*, const auto&) {});
}
testing::AssertionResult same_bits(const R& a, const R& b) {
  testing::AssertionResult all = testing::AssertionSuccess();
  a.for_each([&](const char* name, const auto& x) {
    b.for_each([&](const char* other, const auto& y) {
      if (std::strcmp(name, other) != 0 || !all) return;
      const testing::AssertionResult same = same_bits(x, y);
      if (!same) all = testing::AssertionFailure() << same.message() << " (" << name << ")";
    });
  });
  return all;
}

}  // namespace fovea_test
