// SPDX-License-Identifier: MIT
/// \file
/// Random keys of a sketch in blocks, with the blocks' statistics, for tests of kernels.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "fovea/kernels/sketch/blocks.hpp"
#include "support/fill.hpp"

namespace fovea_test {

/// The number of blocks.
inline constexpr Index kBlocks = 32;

/// Keys of some blocks, and their moments.
template <class T>
struct DrawnBlocks {
  /// \param deviation of the keys from the mean of their block
  DrawnBlocks(Index d, double deviation, std::uint64_t seed)
      : width(d), moments(as_size(fovea::sketch_moments(d) * kBlocks)) {
    const Fill centre = gaussian(seed, 2);
    const Fill away = gaussian(seed + 1, deviation);
    for (Index b = 0; b < kBlocks; ++b) {
      for (Index n = 0; n < fovea::kBlockKeys; ++n) {
        for (Index c = 0; c < d; ++c) {
          // Some blocks lean to one side, or have a key far away.
          const double x = away(0, 0, b * fovea::kBlockKeys + n, c);
          const double skew = b % 3 == 1 ? std::abs(x) : b % 3 == 2 && n == 5 ? 8 * x : x;
          keys.push_back(static_cast<T>(centre(0, 0, b, c) + skew));
        }
      }
      find_moments(b);
    }
  }

  T key(Index b, Index n, Index c) const {
    return keys[as_size((b * fovea::kBlockKeys + n) * width + c)];
  }

  void find_moments(Index b) {
    std::vector<T> mean;
    for (Index c = 0; c < width; ++c) {
      long double sum = 0;
      for (Index n = 0; n < fovea::kBlockKeys; ++n) sum += key(b, n, c);
      mean.push_back(static_cast<T>(sum / fovea::kBlockKeys));
      T reach = 0;
      for (Index n = 0; n < fovea::kBlockKeys; ++n) {
        reach = std::max(reach, std::abs(key(b, n, c) - mean.back()));
      }
      moments[as_size(c * kBlocks + b)] = mean.back();
      moments[as_size((width + c) * kBlocks + b)] = reach * T(1.000001);
    }
    Index m = 2 * width;
    for (Index c = 0; c < width; ++c) {
      for (Index e = c; e < width; ++e, ++m) {
        long double sum = 0;
        for (Index n = 0; n < fovea::kBlockKeys; ++n) {
          sum += (static_cast<long double>(key(b, n, c)) - mean[as_size(c)]) *
                 (static_cast<long double>(key(b, n, e)) - mean[as_size(e)]);
        }
        moments[as_size(m * kBlocks + b)] =
            static_cast<T>((c == e ? 1 : 2) * sum / fovea::kBlockKeys);
      }
    }
  }

  Index width;
  std::vector<T> keys;     // [kBlocks, fovea::kBlockKeys, width]
  std::vector<T> moments;  // [sketch_moments(width), kBlocks]
};

}  // namespace fovea_test
