// SPDX-License-Identifier: MIT
/// \file
/// What runs and how long the rest takes, on stderr.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>

#include "bench/compare_table.hpp"

namespace bench {

/// Tells on stderr what runs and how long the rest takes.
class Progress {
 public:
  explicit Progress(int total) : total_(total) {}

  void begin(const std::string& label, Index n, double seconds_left) {
    ++started_;
    clear();
    std::fprintf(stderr, "[%d/%d%s] %s, N = %td%s", started_, total_,
                 seconds_left > 0 ? (", " + human_seconds(seconds_left) + " left").c_str() : "",
                 label.c_str(), n, terminal_ ? "" : "\n");
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

  void learn(const std::string& label, double flops, const Row& row, double cell_seconds) {
    if (flops <= 0 || !row.skipped.empty()) return;
    seconds_per_flop_[label] = row.seconds / flops;
    const double timed = row.seconds * (row.runs + 1);
    overhead_per_flop_[label] = std::max(0.0, cell_seconds - timed) / flops;
    last_ = label;
  }

  /// Of a cell; an operator that did not run yet is as fast as the last one.
  double seconds(const std::string& label, double flops) const {
    const std::string& known = seconds_per_flop_.count(label) != 0 ? label : last_;
    if (known.empty()) return 0;
    const double pass = seconds_per_flop_.at(known) * flops;
    return pass + std::max(0.2, repeat_ * pass) + overhead_per_flop_.at(known) * flops;
  }

 private:
  int repeat_;
  std::map<std::string, double> seconds_per_flop_;
  std::map<std::string, double> overhead_per_flop_;
  std::string last_;
};

}  // namespace bench
