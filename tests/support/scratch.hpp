// SPDX-License-Identifier: MIT
/// \file
/// Memory that kernels compute in.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "support/index.hpp"

namespace fovea_test {

/// Memory initialised to NaN, aligned to cache lines and followed by NaN.
template <class T>
class Scratch {
 public:
  explicit Scratch(Index size)
      : values_(as_size(size) + 64, std::numeric_limits<T>::quiet_NaN()), data_(values_.data()) {
    while (reinterpret_cast<std::uintptr_t>(data_) % 64 != 0) ++data_;
    end_ = data_ + size;
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  T* data() const { return data_; }
  /// Whether nothing behind it was written.
  bool is_whole() const {
    return std::all_of(end_, values_.data() + values_.size(), [](T x) { return x != x; });
  }

 private:
  std::vector<T> values_;
  T* data_;
  const T* end_;
};

}  // namespace fovea_test
