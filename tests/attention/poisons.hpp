// SPDX-License-Identifier: MIT
/// \file
/// Values that must not get out of where they are put.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <vector>

#include "support/tensor.hpp"

namespace fovea_test {

/// A NaN with these bits in the low part of its payload.
template <class T>
T nan_with(std::uint32_t payload, bool negative = false) {
  if constexpr (sizeof(T) == 4) {
    return std::bit_cast<float>((negative ? 0xffc00000u : 0x7fc00000u) | payload);
  } else {
    const std::uint64_t quiet = negative ? 0xfff8000000000000u : 0x7ff8000000000000u;
    return std::bit_cast<double>(quiet | payload);
  }
}

template <class T>
std::vector<T> all_nans() {
  return {nan_with<T>(0),       nan_with<T>(0, true), nan_with<T>(1),
          nan_with<T>(1, true), nan_with<T>(0x155),   nan_with<T>(0x3fffff, true)};
}

template <class T>
std::vector<T> all_poisons() {
  using Limits = std::numeric_limits<T>;
  return {nan_with<T>(0),      nan_with<T>(0x3fffff, true),
          Limits::infinity(),  -Limits::infinity(),
          Limits::max(),       Limits::lowest(),
          Limits::denorm_min()};
}

/// Row j of every head of a batch.
template <class T>
void set_row(const Tensor<T>& x, Index b, Index j, T value) {
  for (Index h = 0; h < x.shape()[1]; ++h) {
    for (Index c = 0; c < x.shape()[3]; ++c) x(b, h, j, c) = value;
  }
}

/// Puts the elements of a tensor back when it goes.
template <class T>
class Restored {
 public:
  explicit Restored(const Tensor<T>& x) : x_(x), values_(x.values()) {}
  Restored(const Restored&) = delete;
  Restored& operator=(const Restored&) = delete;
  ~Restored() {
    auto next = values_.begin();
    x_.fill([&](Index, Index, Index, Index) { return *next++; });
  }

 private:
  const Tensor<T>& x_;
  std::vector<T> values_;
};

}  // namespace fovea_test
