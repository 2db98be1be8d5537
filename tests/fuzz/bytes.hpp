// SPDX-License-Identifier: MIT
/// \file
/// Bytes as a row of choices: how a fuzzer and a generator of numbers lead the same trial.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "support/fill.hpp"

namespace fovea_test {

/// Takes choices from the front of some bytes. When none are left, each choice is its least one.
class Bytes {
 public:
  explicit Bytes(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}

  /// A number in [low, high]. Small ranges take one byte, so that changing it changes one choice.
  Index operator()(Index low, Index high) {
    const auto count = static_cast<std::uint64_t>(high - low) + 1;
    std::uint64_t number = next();
    for (std::uint64_t receptive_field = 256; receptive_field < count; receptive_field *= 256)
      number = number * 256 + next();
    return low + static_cast<Index>(number % count);
  }

  /// True once in `turns` times.
  bool once_in(Index turns) { return (*this)(1, turns) == turns; }

  bool is_empty() const { return bytes_.empty(); }

 private:
  std::uint64_t next() {
    if (bytes_.empty()) return 0;
    const std::uint8_t byte = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return byte;
  }

  std::span<const std::uint8_t> bytes_;
};

/// Rows of drawn bytes, the same in every run.
class DrawnBytes {
 public:
  explicit DrawnBytes(std::uint64_t seed) : draw_(seed) {}

  std::vector<std::uint8_t> next() {
    constexpr Index longest = 96;
    std::vector<std::uint8_t> bytes(as_size(draw_(8, longest)));
    for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(draw_(0, 255));
    return bytes;
  }

 private:
  Draw draw_;
};

/// Calls trial(bytes) `count` times; or as often as the environment variable FOVEA_TRIALS sets,
/// starting with the same ones.
template <class Trial>
void each_drawn(long count, std::uint64_t seed, Trial&& trial) {
  if (const char* const trials = std::getenv("FOVEA_TRIALS")) count = std::atol(trials);
  DrawnBytes drawn(seed);
  for (long n = 0; n < count && !testing::Test::HasFailure(); ++n) {
    SCOPED_TRACE("trial " + std::to_string(n));
    trial(std::span<const std::uint8_t>(drawn.next()));
  }
}

/// Calls trial(bytes) with the rows of these numbers, ascending: those that have found something.
template <class Trial>
void these_drawn(const std::vector<long>& numbers, std::uint64_t seed, Trial&& trial) {
  DrawnBytes drawn(seed);
  long n = 0;
  for (const long number : numbers) {
    while (n++ < number) drawn.next();
    SCOPED_TRACE("trial " + std::to_string(number));
    trial(std::span<const std::uint8_t>(drawn.next()));
  }
}

}  // namespace fovea_test
