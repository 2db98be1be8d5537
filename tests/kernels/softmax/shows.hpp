// SPDX-License-Identifier: MIT
/// \file
/// Which keys the runs of a block show, one pair at a time.
#pragma once

#include <algorithm>
#include <vector>

#include "fovea/core/key_run.hpp"
#include "support/index.hpp"

namespace fovea_test {

/// Whether one of the runs shows row r of its block the key at position j.
inline bool shows(const std::vector<fovea::KeyRun>& runs, Index r, Index j) {
  return std::any_of(runs.begin(), runs.end(), [=](const fovea::KeyRun& run) {
    const Index t = (j - run.first) / run.step;
    if (j < run.first || (j - run.first) % run.step != 0 || t >= run.count) return false;
    return run.lower == nullptr || (run.lower[r] <= t && t < run.upper[r]);
  });
}

}  // namespace fovea_test
