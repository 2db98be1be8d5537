// SPDX-License-Identifier: MIT
/// \file
/// Wall time, its median, and how much of it the process had a core.
#pragma once

#include <algorithm>
#include <chrono>
#include <ctime>
#include <vector>

namespace bench {

/// Wall time in seconds from its construction.
class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// Processor time of all threads of this process in seconds, from its construction.
class CpuStopwatch {
 public:
  double seconds() const { return static_cast<double>(std::clock() - start_) / CLOCKS_PER_SEC; }

  /// How much of `threads` cores the process had in `wall` seconds: 1 if it computed all the time.
  /// Less: threads waited for each other, or other processes had the cores, and a wall time says
  /// little.
  double share(double wall, int threads) const {
    return std::min(1.0, seconds() / (std::max(wall, 1e-9) * threads));
  }

 private:
  std::clock_t start_ = std::clock();
};

/// The median; of an even number the larger one of the two in the middle. \pre not empty
inline double median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  return x[x.size() / 2];
}

/// Wall time of f().
template <class F>
double seconds_of(F&& f) {
  const Stopwatch watch;
  f();
  return watch.seconds();
}

}  // namespace bench
