// SPDX-License-Identifier: MIT
/// \file
/// What oracles return: values, and the units of their errors. Without GoogleTest, since the
/// benchmarks are judged by oracles, too.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "support/index.hpp"

namespace fovea_test {

/// Results this small may be lost: the rounding of T at 1 makes as much of its least normal number.
template <class T>
inline constexpr Wide<T> kFaint = Wide<T>{std::numeric_limits<T>::min()} / kRoundoff<T>;

/// The requirement for an element.
enum class Demand : unsigned char {
  ratio,       // to be the value, within the bound
  not_finite,  // to be infinite or NaN: which of them the order of the operations decides
  nothing      // rounding may decide everything
};

/// The expected values of a tensor, and per element the unit of its error.
template <class T>
struct Reference {
  Shape shape{};
  std::vector<Wide<T>> value;       // [B, H, N, D], the last index fastest
  std::vector<Wide<T>> gauge;       // the same
  std::vector<Demand> demand = {};  // the same, or empty: ratio

  Demand demand_of(std::size_t i) const { return demand.empty() ? Demand::ratio : demand[i]; }
  /// Asks less of element i than `ratio`; of two demands the lesser stays.
  void relax(std::size_t i, Demand to) {
    if (demand.empty()) demand.assign(value.size(), Demand::ratio);
    demand[i] = std::max(demand[i], to);
  }
};

}  // namespace fovea_test
