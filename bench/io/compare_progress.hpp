// SPDX-License-Identifier: MIT
/// \file
/// What runs and how long the rest takes, on a terminal.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>

#include "bench/io/human.hpp"
#include "bench/measure/compare_measure.hpp"

namespace bench {

/// Tells on stderr what runs and how long the rest takes, in a line that comes and goes: only where
/// stderr is a terminal.
class Progress {
 public:
  explicit Progress(int total) : total_(total) {}

  void begin(const std::string& label, Index n, double seconds_left) {
    ++started_;
    if (!terminal_) return;
    clear();
    std::fprintf(stderr, "[%d/%d%s] %s, N = %td", started_, total_,
                 seconds_left > 0 ? (", " + human_seconds(seconds_left) + " left").c_str() : "",
                 label.c_str(), n);
    std::fflush(stderr);
  }

  /// Takes the line away before something is printed to stdout.
  void clear() const {
    if (terminal_) std::fprintf(stderr, "\r\x1b[K");
  }

 private:
  int total_;
  int started_ = 0;
  bool terminal_ = isatty(2) != 0;
};

/// Predicts the seconds of cells from those that ran.
class Forecast {
 public:
  explicit Forecast(int repeat) : repeat_(repeat) {}

  /// \param flops of one pass of the row's cell, which took `cell_seconds` in all
  void learn(const Row& row, double flops, double cell_seconds) {
    if (flops <= 0 || !row.skipped.empty()) return;
    const double timed = row.seconds * (row.runs + 1);
    const double checks = std::max(0.0, cell_seconds - timed) / static_cast<double>(row.n);
    known_[row.names.label] = {row.seconds / flops, checks};
    last_ = row.names.label;
  }

  bool knows(const std::string& label) const { return known_.count(label) != 0; }

  /// Of one pass of an operator that is known.
  double pass_seconds(const std::string& label, double flops) const {
    return known_.at(label).seconds_per_flop * flops;
  }

  /// Of a cell; an operator that did not run yet is as fast as the last one.
  double seconds(const std::string& label, Index n, double flops) const {
    const auto cost = known_.find(known_.count(label) != 0 ? label : last_);
    if (cost == known_.end()) return 0;
    const double pass = cost->second.seconds_per_flop * flops;
    return pass + std::max(0.2, repeat_ * pass) +
           cost->second.check_seconds_per_row * static_cast<double>(n);
  }

 private:
  struct Cost {
    double seconds_per_flop;
    double check_seconds_per_row;
  };

  int repeat_;
  std::map<std::string, Cost> known_;
  std::string last_;
};

}  // namespace bench
