// SPDX-License-Identifier: MIT
/// \file
/// Sampling of the next token from its logits.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fovea/core/philox.hpp>
#include <numeric>
#include <span>
#include <vector>

namespace models {

using fovea::Index;

/// Options of sampling.
struct Sampling {
  double temperature = 1;  ///< of the logits; 0 takes the most probable token
  Index top_k = 256;       ///< number of most probable tokens to draw from
  std::uint64_t seed = 1;
};

/// Draws a token; of equal logits the smaller token comes first. \param number of the draw
inline Index draw_token(std::span<const float> logits, const Sampling& sampling, Index number) {
  std::vector<std::size_t> order(logits.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const Index kept = sampling.temperature == 0 ? 1 : std::min(sampling.top_k, std::ssize(order));
  std::partial_sort(order.begin(), order.begin() + kept, order.end(),
                    [&](std::size_t a, std::size_t b) {
                      return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
                    });
  order.resize(static_cast<std::size_t>(kept));
  std::vector<double> sums;
  double sum = 0;
  for (const std::size_t token : order) {
    const double below = static_cast<double>(logits[token]) - static_cast<double>(logits[order[0]]);
    sum += kept == 1 ? 1 : std::exp(below / sampling.temperature);
    sums.push_back(sum);
  }
  const double at = sum * fovea::uniform_draw<double>(sampling.seed, 1 << 21, 0, number, 0);
  const auto found = std::upper_bound(sums.begin(), sums.end(), at) - sums.begin();
  return static_cast<Index>(order[static_cast<std::size_t>(std::min(found, kept - 1))]);
}

}  // namespace models
