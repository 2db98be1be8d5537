// SPDX-License-Identifier: MIT
/// \file
/// Sizes whose transforms are fast.
#pragma once

#include <initializer_list>

#include "fovea/core/config.hpp"

FOVEA_NAMESPACE_BEGIN

/// Whether n is a product of powers of 2, 3, 5 and 7. \pre n > 0
constexpr bool is_good_size(Index n) {
  for (const Index prime : {2, 3, 5, 7}) {
    while (n > 1 && n % prime == 0) n /= prime;
  }
  return n == 1;
}

/// The least multiple of `step` that is at least n and whose quotient by `step` is good: at most 6
/// % above n for quotients from 20 on, and 1 % from 30000 on.
constexpr Index good_multiple(Index n, Index step) {
  Index quotient = n <= step ? 1 : (n + step - 1) / step;
  while (!is_good_size(quotient)) ++quotient;
  return quotient * step;
}

/// The size of a transform of N = R M complex elements. FFTW computes R transforms of M elements,
/// each within a cache, and an outer step combines them.
struct TransformSize {
  Index rows = 1;     ///< R
  Index columns = 2;  ///< M

  /// N = R M, the number of complex elements.
  constexpr Index size() const { return rows * columns; }
  /// Whether both have the same rows and columns.
  bool operator==(const TransformSize&) const = default;
};

/// The longest transform done by FFTW as a whole. Both arrays fit, or nearly fit, a first-level
/// cache.
inline constexpr Index kLongestWhole = 4096;

/// The size for a product of sequences that needs n elements: the least good even number, or,
/// beyond kLongestWhole, the least good multiple of 32 times the number of rows. It is monotone in
/// n.
constexpr TransformSize transform_size(Index n) {
  if (n <= kLongestWhole) return {1, good_multiple(n, 2)};
  Index rows = 2;
  while (rows < 16 && n > rows * kLongestWhole) rows *= 2;
  return {rows, good_multiple(n, 32 * rows) / rows};
}

FOVEA_NAMESPACE_END
