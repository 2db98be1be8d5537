// SPDX-License-Identifier: MIT
/// \file
/// YaRN (Peng et al. 2024): rotary frequencies for sequences longer than those of training.
#pragma once

#include <algorithm>
#include <cmath>

#include "fovea/core/rounded.hpp"
#include "fovea/layers/layer_check.hpp"

FOVEA_NAMESPACE_BEGIN

/// YaRN's frequency scaling: pairs with more than `fast` turns in the original length keep their
/// frequency, that of pairs with fewer than `slow` is divided by `factor`, and in between it is a
/// mean of both, weighted linearly in the pair's number. Cosines and sines are multiplied by 1 +
/// ln(factor) / 10.
struct RotaryYarn {
  double factor = 1;           ///< at least 1
  double fast = 32;            ///< turns, at least `slow`
  double slow = 1;             ///< turns, more than 0
  double original_length = 0;  ///< tokens, more than 0
};

namespace detail {

/// \throws std::invalid_argument
inline void check_yarn(const char* layer, const RotaryYarn& yarn, double base) {
  const auto check = [&](const char* name, double value, bool holds, const char* expected) {
    if (!holds || !std::isfinite(value)) {
      refuse(layer, std::string("rotary.") + name, to_string(value), expected);
    }
  };
  check("base", base, base > 1, "a finite number above 1, since yarn is given");
  check("yarn.factor", yarn.factor, yarn.factor >= 1, "a finite number, at least 1");
  check("yarn.slow", yarn.slow, yarn.slow > 0, "a finite number above 0");
  check("yarn.fast", yarn.fast, yarn.fast >= yarn.slow, "a finite number, at least slow");
  check("yarn.original_length", yarn.original_length, yarn.original_length > 0,
        "a finite number above 0");
}

/// The frequency of a pair. \param frequency base^(-2 pair / width)
inline double yarn_frequency(const RotaryYarn& yarn, double base, Index width, Index pair,
                             double frequency) {
  constexpr double full_turn = 6.28318530717958647693;
  // The (fractional) pair with this many turns in the original length.
  const auto pair_of = [&](double turns) {
    return static_cast<double>(width) * std::log(yarn.original_length / (turns * full_turn)) /
           (2 * std::log(base));
  };
  const double first = (std::max)(std::floor(pair_of(yarn.fast)), 0.0);
  const double last = (std::min)(std::ceil(pair_of(yarn.slow)), static_cast<double>(width - 1));
  const double place = (static_cast<double>(pair) - first) / (std::max)(last - first, 0.001);
  const double divided = std::clamp(place, 0.0, 1.0);
  return rounded(divided * (frequency / yarn.factor)) + rounded((1 - divided) * frequency);
}

/// The factor of cosines and sines.
inline double yarn_magnitude(const RotaryYarn& yarn) {
  return 1 + rounded(0.1 * std::log(yarn.factor));
}

}  // namespace detail

FOVEA_NAMESPACE_END
