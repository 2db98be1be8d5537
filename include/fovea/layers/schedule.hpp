// SPDX-License-Identifier: MIT
/// \file
/// Learning-rate schedules.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>

#include "fovea/core/config.hpp"
#include "fovea/core/error.hpp"
#include "fovea/core/rounded.hpp"

FOVEA_NAMESPACE_BEGIN

/// How the rate decays after the warm-up.
enum class RateDecay {
  constant,  ///< constant
  linear,    ///< linear
  cosine,    ///< half a cosine wave (Loshchilov and Hutter 2017, without restarts)
};

/// A linear warm-up to the peak, then a decay to the last rate. For steps t = 0, 1, ...: peak (t
/// + 1) / warmup_steps if t < warmup_steps, and otherwise last + (peak - last) f(p), where p grows
/// from 0 at the end of the warm-up to 1 at total_steps and stays 1, and f(p) is 1, 1 - p or (1 +
/// cos(pi p)) / 2.
struct RateSchedule {
  double peak = 1e-3;                   ///< the largest rate, 0 or more
  Index warmup_steps = 0;               ///< 0 or more; if 0, the first step has the peak
  Index total_steps = 0;                ///< the total number of steps, at least warmup_steps
  double last = 0;                      ///< the rate from total_steps on, 0 or more
  RateDecay decay = RateDecay::cosine;  ///< f

  /// The rate of step t, for AdamOptions::learning_rate.
  /// \throws std::invalid_argument if t is negative or a member is out of range
  double rate(Index t) const {
    check(t);
    if (t < warmup_steps) {
      return peak * (static_cast<double>(t + 1) / static_cast<double>(warmup_steps));
    }
    const auto rest = static_cast<double>(total_steps - warmup_steps);
    const double p = t >= total_steps ? 1 : static_cast<double>(t - warmup_steps) / rest;
    constexpr double pi = 3.14159265358979323846;
    switch (decay) {
      case RateDecay::constant:
        return peak;
      case RateDecay::linear:
        return last + rounded((peak - last) * (1 - p));
      case RateDecay::cosine:
        break;
    }
    return last + rounded((peak - last) * ((1 + std::cos(pi * p)) / 2));
  }

 private:
  void check(Index t) const {
    const auto check_steps = [](const char* name, Index steps, Index least) {
      if (steps < least) {
        refuse("RateSchedule", name, std::to_string(steps), "at least " + std::to_string(least));
      }
    };
    const auto check_rate = [](const char* name, double rate) {
      if (!(rate >= 0 && std::isfinite(rate))) {
        refuse("RateSchedule", name, to_string(rate), "a finite number of at least 0");
      }
    };
    check_steps("t", t, 0);
    check_steps("warmup_steps", warmup_steps, 0);
    check_steps("total_steps", total_steps, warmup_steps);
    check_rate("peak", peak);
    check_rate("last", last);
  }
};

FOVEA_NAMESPACE_END
