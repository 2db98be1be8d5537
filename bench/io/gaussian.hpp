// SPDX-License-Identifier: MIT
/// \file
/// Normal random numbers that are a function of (seed, stream, index): the same bits on every
/// machine, because they are made by integer arithmetic and one exact scaling.
#pragma once

#include <cstdint>
#include <vector>

#include "fovea/core/philox.hpp"

namespace bench {

using fovea::Index;

/// About N(0, 1): the sum of eight uniform 16-bit integers, centred, with unit variance. It ends at
/// +-4.9.
constexpr float gaussian(std::uint64_t seed, std::uint32_t stream, std::uint64_t index) {
  const auto words = fovea::philox4x32_10(
      {static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32), stream, 0},
      {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  std::int32_t sum = 0;
  for (const std::uint32_t word : words) {
    sum += static_cast<std::int32_t>(word >> 16) + static_cast<std::int32_t>(word & 0xffff);
  }
  // Eight times the mean 32767.5; variance 8 (2^32 - 1) / 12.
  return static_cast<float>(static_cast<double>(sum - 262140) / 53509.92);
}

/// n normal numbers times `deviation`.
template <class T = float>
std::vector<T> gaussians(std::uint64_t seed, std::uint32_t stream, Index n, float deviation = 1) {
  std::vector<T> x(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<T>(deviation * gaussian(seed, stream, i));
  }
  return x;
}

}  // namespace bench
