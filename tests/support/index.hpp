// SPDX-License-Identifier: MIT
/// \file
/// Small helpers for indices, and the wider scalar that oracles compute in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "fovea/core/view.hpp"

namespace fovea_test {

using fovea::Index;
using fovea::Shape;
using fovea::View;

/// The type in which results for T are judged: double for float, long double for double.
template <class T>
using Wide = std::conditional_t<std::is_same_v<T, double>, long double, double>;

/// Unit roundoff of T: 2^-24 for float, 2^-53 for double.
template <class T>
inline constexpr Wide<T> kRoundoff = Wide<T>{std::numeric_limits<T>::epsilon()} / 2;

/// The bits of a number of at most 8 bytes. (At -O1, comparing numbers by memcmp is a call for
/// each.)
template <class T>
std::uint64_t bits_of(const T& x) {
  static_assert(sizeof(T) <= sizeof(std::uint64_t));
  std::uint64_t bits = 0;
  std::memcpy(&bits, &x, sizeof(T));
  return bits;
}

constexpr std::size_t as_size(Index i) { return static_cast<std::size_t>(i); }

constexpr Index size_of(const Shape& s) { return s[0] * s[1] * s[2] * s[3]; }

/// Calls f(b, h, n, d) for every index, the last one fastest.
template <class F>
void for_each_index(const Shape& shape, F&& f) {
  for (Index b = 0; b < shape[0]; ++b) {
    for (Index h = 0; h < shape[1]; ++h) {
      for (Index n = 0; n < shape[2]; ++n) {
        for (Index d = 0; d < shape[3]; ++d) f(b, h, n, d);
      }
    }
  }
}

}  // namespace fovea_test
