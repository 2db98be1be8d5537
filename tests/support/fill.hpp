// SPDX-License-Identifier: MIT
/// \file
/// The contents of tensors. A value depends only on the seed and its own index, so that the tokens
/// of a short sequence are the first tokens of a longer one.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>

#include "support/index.hpp"

namespace fovea_test {

/// The element at [b, h, n, d].
using Fill = std::function<double(Index b, Index h, Index n, Index d)>;

/// 64 bits that depend on all bits of x (the last step of splitmix64).
inline std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// 64 bits that depend on the seed and four numbers.
inline std::uint64_t hash(std::uint64_t seed, Index b, Index h, Index n, Index d) {
  std::uint64_t x = seed * 0x9e3779b97f4a7c15u;
  x += static_cast<std::uint64_t>(b + 1) * 0xa0761d6478bd642fu;
  x += static_cast<std::uint64_t>(h) * 0xe7037ed1a0b428dbu;
  x += static_cast<std::uint64_t>(n) * 0x8ebc6af09c88c6e3u;
  x += static_cast<std::uint64_t>(d) * 0x589965cc75374cc3u;
  return mixed(mixed(x) + 0x9e3779b97f4a7c15u);
}

/// Uniform in (0, 1).
inline double uniform(std::uint64_t bits) {
  return (static_cast<double>(bits >> 12) + 0.5) * 0x1p-52;
}

/// A sequence of numbers from a seed, each in [low, high].
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : seed_(seed) {}
  Index operator()(Index low, Index high) {
    const auto span = static_cast<std::uint64_t>(high - low + 1);
    return low + static_cast<Index>(hash(seed_, ++count_, 0, 0, 0) % span);
  }

 private:
  std::uint64_t seed_;
  Index count_ = 0;
};

inline Fill constant(double value) {
  return [=](Index, Index, Index, Index) { return value; };
}

/// Nearly normal, mean 0: the sum of four uniform numbers, each of 32 bits. A logarithm and a
/// cosine took a third of the time of some tests.
inline Fill gaussian(std::uint64_t seed, double deviation = 1) {
  return [seed, size = deviation * std::sqrt(3.0) * 0x1p-32](Index b, Index h, Index n, Index d) {
    const std::uint64_t two = hash(seed, b, h, n, d);
    const std::uint64_t others = mixed(~two);
    const auto sum = static_cast<double>((two >> 32) + (two & 0xffffffffu) + (others >> 32) +
                                         (others & 0xffffffffu));
    return size * (sum - 0x1p33);
  };
}

/// Integers from -most to most.
inline Fill integers(std::uint64_t seed, int most) {
  return [=](Index b, Index h, Index n, Index d) {
    const auto span = 2 * static_cast<std::uint64_t>(most) + 1;
    return static_cast<double>(hash(seed, b, h, n, d) % span) - most;
  };
}

/// Column 0 is value(n), the others are 0: with queries of constant(1) the logit is value(n) times
/// the scale.
template <class F>
Fill first_column(F value) {
  return [=](Index, Index, Index n, Index d) { return d == 0 ? value(n) : 0.0; };
}

/// Keys whose products with queries of constant(1) are large and cancel to small numbers.
inline Fill cancelling(std::uint64_t seed, double size) {
  const Fill small = gaussian(seed);
  const Fill large = gaussian(seed + 1, size);
  return [=](Index b, Index h, Index n, Index d) {
    const double pair = large(b, h, n, d / 2);
    return (d % 2 == 0 ? pair : -pair) + small(b, h, n, d);
  };
}

}  // namespace fovea_test
