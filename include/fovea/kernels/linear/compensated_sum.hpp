// SPDX-License-Identifier: MIT
/// \file
/// A compensated sum that can be continued elsewhere.
#pragma once

#include "fovea/core/config.hpp"

FOVEA_NAMESPACE_BEGIN

/// A sum whose error does not grow with the number of its terms (Neumaier 1974).
template <class T>
struct CompensatedSum {
  T sum = 0;   ///< the sum, rounded after each term
  T lost = 0;  ///< the accumulated rounding error

  /// Adds a term.
  FOVEA_INLINE void add(T x) {
    const T s = sum + x;
    const T from_x = s - sum;
    lost += (sum - (s - from_x)) + (x - from_x);
    sum = s;
  }
  /// The sum. If it is infinite, `lost` is NaN and ignored.
  FOVEA_INLINE T value() const { return lost == lost ? sum + lost : sum; }
};

FOVEA_NAMESPACE_END
