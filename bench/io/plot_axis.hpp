// SPDX-License-Identifier: MIT
/// \file
/// Logarithmic axes of plots and their ticks. Test: tests/bench/io/svg_plot_test.cpp.
#pragma once

#include <array>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

namespace bench {

struct PlotAxis {
  std::string label;
  bool bytes = false;              ///< ticks are KiB, MiB, ...
  std::vector<double> ticks = {};  ///< none: powers of 10, or of 2 or 4 for bytes, or multiples
};

namespace detail {

/// "12.3" for a place in pixels, "0.0042" for a tick.
inline std::string short_number(double x, const char* format = "%.1f") {
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), format, x);
  return text.data();
}

/// The values of an axis, and their positions.
class LogScale {
 public:
  LogScale(double low, double high, double from, double to)
      : low_(std::log(low)), high_(std::log(high)), from_(from), to_(to) {}
  double at(double value) const {
    return from_ + (std::log(value) - low_) / (high_ - low_) * (to_ - from_);
  }
  bool holds(double value) const {
    return std::log(value) >= low_ - 1e-9 && std::log(value) <= high_ + 1e-9;
  }
  double decades() const { return (high_ - low_) / std::log(10.0); }

  /// Multiples of 1, 2 or 5 times a power of 10, at most nine.
  std::vector<double> multiples() const {
    const double low = std::exp(low_);
    const double high = std::exp(high_);
    double step = std::pow(10.0, std::floor(std::log10((high - low) / 8)));
    for (const double times : {2.0, 2.5, 2.0}) {
      if ((high - low) / step > 8) step *= times;
    }
    std::vector<double> all;
    for (double n = std::ceil(low / step); n * step <= high; ++n) all.push_back(n * step);
    return all;
  }

 private:
  double low_, high_, from_, to_;
};

inline std::string tick_text(double value, bool bytes) {
  if (!bytes) return short_number(value, "%g");
  constexpr std::array units = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < units.size(); ++unit) value /= 1024;
  return short_number(value, "%g") + " " + units[unit];
}

inline std::vector<double> ticks_of(const PlotAxis& axis, const LogScale& scale) {
  std::vector<double> ticks = axis.ticks;
  if (ticks.empty() && axis.bytes) {
    for (int power = 0; power < 50; power += scale.decades() < 2 ? 1 : 2)
      ticks.push_back(std::exp2(power));
  } else if (ticks.empty()) {
    // 1, 2 and 5 of each decade where there are few.
    for (int power = -12; power <= 12; ++power) {
      for (const double digit : {1.0, 2.0, 5.0}) {
        if (digit == 1 || scale.decades() < 2.5) ticks.push_back(digit * std::pow(10.0, power));
      }
    }
  }
  std::erase_if(ticks, [&](double tick) { return !scale.holds(tick); });
  const bool are_too_few = axis.ticks.empty() && !axis.bytes && ticks.size() < 3;
  return are_too_few ? scale.multiples() : ticks;
}

}  // namespace detail

}  // namespace bench
