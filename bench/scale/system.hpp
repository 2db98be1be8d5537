// SPDX-License-Identifier: MIT
/// \file
/// The operators that fovea_scale measures over ranks. Each family is a source of its own.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/scale/costs.hpp"
#include "bench/scale/tensors.hpp"
#include "fovea/distributed/rows.hpp"
#include "fovea/distributed/traffic.hpp"

namespace bench {

using fovea::distributed::Rows;
using fovea::distributed::Traffic;

/// One pass of an operator.
struct PassOfSystem {
  std::function<void(Tensors&)> one;                     ///< in one process
  std::function<Traffic(Tensors&, const Rows&)> spread;  ///< over ranks
  Costs costs;
};

/// An operator to be measured. The backward pass reads what a forward pass has written and saved.
struct System {
  std::string name;
  std::string style;    ///< in plots (bench/io/system_styles.hpp)
  bool dashed = false;  ///< a further variant of its style
  RowLayout (*layout)(Index, int) = nullptr;
  PassOfSystem forward;
  PassOfSystem backward;
};

/// The operators over patterns, for so many heads: forward passes save lse if `saves`.
std::vector<System> pattern_systems(Index heads, bool saves);
/// Those with a far field.
std::vector<System> far_systems(Index heads, bool saves);
/// Those over lists of keys.
std::vector<System> list_systems(Index heads, bool saves);

/// All of them.
inline std::vector<System> all_systems(Index heads, bool saves) {
  std::vector<System> all = pattern_systems(heads, saves);
  for (const auto& family : {far_systems(heads, saves), list_systems(heads, saves)}) {
    all.insert(all.end(), family.begin(), family.end());
  }
  return all;
}

}  // namespace bench
