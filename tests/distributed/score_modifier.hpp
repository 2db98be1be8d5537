// SPDX-License-Identifier: MIT
/// \file
/// A function of logits that a user writes, for tests on ranks.
#pragma once

#include "fovea/attention/modified.hpp"

namespace fovea_test {

/// Knows positions.
struct NearerIsMore {
  template <class T>
  T value(T z, fovea::ScorePair pair) const noexcept {
    return z - static_cast<T>(0.001) * static_cast<T>(pair.query - pair.key);
  }
  template <class T>
  T derivative(T /*z*/, fovea::ScorePair /*pair*/) const noexcept {
    return 1;
  }
};

}  // namespace fovea_test
