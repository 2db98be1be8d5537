// SPDX-License-Identifier: MIT
/// \file
/// Dominant indices for calls of FSAT attention.
#pragma once

#include <cmath>
#include <cstdint>

#include "support/fill.hpp"
#include "support/index.hpp"

namespace fovea_test {

/// Dominant indices of any size up to `most`, half of them within a short piece of the sequence, so
/// that queries have many keys, few or none; some are integers, and some occur twice for a key.
inline Fill dominant_fill(std::uint64_t seed, double most) {
  return [=](Index b, Index h, Index j, Index m) {
    if (m % 4 == 3 && j % 2 == 0) m -= 1;
    const double u = uniform(hash(seed, b, h, j, m));
    const double x = most * (m % 2 == 0 ? u : u / 5);
    return m % 4 == 2 && j % 3 == 0 ? std::floor(x) : static_cast<double>(static_cast<float>(x));
  };
}

}  // namespace fovea_test
