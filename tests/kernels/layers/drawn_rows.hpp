// SPDX-License-Identifier: MIT
/// \file
/// Dense rows with gaps, as the kernels of layers take them.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "support/compare.hpp"
#include "support/fill.hpp"
#include "support/index.hpp"
#include "support/levels.hpp"

namespace fovea_test {

/// Rows of normal numbers. Gaps contain NaN, to detect kernels that read or write them.
template <class T>
struct DrawnRows {
  DrawnRows(Index rows_, Index columns_, std::uint64_t seed, Index gap = 3)
      : rows(rows_),
        columns(columns_),
        row(columns_ + gap),
        at(as_size(rows_ * row + gap), std::numeric_limits<T>::quiet_NaN()) {
    const Fill fill = gaussian(seed);
    for (Index i = 0; i < rows; ++i) {
      for (Index c = 0; c < columns; ++c) (*this)(i, c) = static_cast<T>(fill(0, 0, i, c));
    }
  }

  T& operator()(Index i, Index c) { return at[as_size(i * row + c)]; }
  T operator()(Index i, Index c) const { return at[as_size(i * row + c)]; }
  T* data() { return at.data(); }
  const T* data() const { return at.data(); }

  /// Whether all gaps are as they were.
  bool has_its_gaps() const {
    for (Index n = 0; n < static_cast<Index>(at.size()); ++n) {
      const bool is_gap = n >= rows * row || n % row >= columns;
      if (is_gap && !std::isnan(at[as_size(n)])) return false;
    }
    return true;
  }

  Index rows;
  Index columns;
  Index row;
  std::vector<T> at;
};

/// |got - expected| <= roundings eps magnitude, where `magnitude` is that of the terms of a sum.
template <class T>
testing::AssertionResult is_near(T got, double expected, double magnitude, double roundings) {
  const double room = roundings * std::numeric_limits<T>::epsilon() * magnitude;
  if (std::abs(static_cast<double>(got) - expected) <= room) return testing::AssertionSuccess();
  return testing::AssertionFailure() << got << ", expected " << expected << " within " << room;
}

}  // namespace fovea_test
