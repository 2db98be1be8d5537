// SPDX-License-Identifier: MIT
/// \file
/// Which calls of a parallel loop were made, and how often.
#pragma once

#include <algorithm>
#include <atomic>
#include <vector>

#include "support/index.hpp"

namespace fovea_test {

/// A count per index, raised from any thread.
class Tally {
 public:
  explicit Tally(Index size) : counts_(as_size(size)) {}
  void raise(Index i) { ++counts_[as_size(i)]; }
  bool all(int count) const {
    return std::all_of(counts_.begin(), counts_.end(),
                       [count](const std::atomic<int>& c) { return c == count; });
  }

 private:
  std::vector<std::atomic<int>> counts_;
};

}  // namespace fovea_test
