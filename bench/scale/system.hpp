// SPDX-License-Identifier: MIT
/// \file
/// The operators that fovea_scale measures over ranks. Each family is a separate source.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/scale/costs.hpp"
#include "bench/scale/tensors.hpp"
#include "fovea/distributed/comm_stats.hpp"
#include "fovea/distributed/sharding.hpp"
#include "fovea/simd/softmax_constants.hpp"

namespace bench {

using fovea::distributed::CommStats;
using fovea::distributed::Sharding;

/// One pass of an operator.
struct PassOfSystem {
  std::function<void(Tensors&)> touch;                          ///< makes all tensors
  std::function<void(Tensors&)> one;                            ///< in one process
  std::function<CommStats(Tensors&, const Sharding&)> sharded;  ///< over ranks
  Costs costs;
};

/// What travels over the ranks: there is a plot for each.
enum class Family { patterns, sums, lists, packed_rows, heads, weights };

inline constexpr Family kFamilies[] = {Family::patterns,    Family::sums,  Family::lists,
                                       Family::packed_rows, Family::heads, Family::weights};

/// The name of a family, in JSON and in files.
constexpr std::string_view name_of(Family family) {
  constexpr std::string_view names[] = {"patterns",    "sums",  "lists",
                                        "packed_rows", "heads", "weights"};
  return names[static_cast<std::size_t>(family)];
}

/// When an operator is measured.
enum class Taken {
  always,    ///< unless others are requested; it is in the plots of all families, too
  usually,   ///< the same, for the plots of its family alone
  if_asked,  ///< it takes long, or much memory
};

/// How an operator is called and drawn.
struct Look {
  std::string name;
  std::string style;  ///< in plots (bench/io/system_styles.hpp)
  Family family = Family::patterns;
  Taken taken = Taken::usually;
  bool causal = false;  ///< no row sees a later one: it is in separate plots
};

/// The layout of that many rows on that many ranks.
using LayoutOf = RowLayout (*)(Index, int);

/// An operator to be measured. The backward pass, if it has one, reads what a forward pass has
/// written and saved.
struct System {
  Look look;
  LayoutOf layout = nullptr;
  PassOfSystem forward;
  PassOfSystem backward;
  Index multiple = 1;  ///< that the rows of its sequence are one of

  bool has_backward() const { return backward.sharded != nullptr; }
  const PassOfSystem& pass(bool is_backward) const { return is_backward ? backward : forward; }
};

/// Gradients of weights begin with whole chains of tokens.
inline RowLayout whole_chains(Index rows, int ranks) {
  return RowLayout::contiguous(rows, ranks, fovea::kReductionBlock);
}

using Systems = std::vector<System>;

/// Those of a source, for that many heads. Forward passes save what backward ones read if `saves`.
using SystemsOf = Systems(Index heads, bool saves);

SystemsOf pattern_systems;   ///< softmax over patterns
SystemsOf far_systems;       ///< with a far field, and Performer attention
SystemsOf list_systems;      ///< over lists of keys
SystemsOf packed_systems;    ///< of rows that all ranks have
SystemsOf head_systems;      ///< that ranks compute by heads
SystemsOf spectral_systems;  ///< the same by channels, of Fourier transforms: they need FFTW
SystemsOf weight_systems;    ///< the Synthesizers, a block of an encoder, and a decoder

/// All of them.
inline Systems all_systems(Index heads, bool saves) {
  Systems all;
  for (SystemsOf* const some :
       {pattern_systems, far_systems, list_systems, packed_systems, head_systems,
#ifdef FOVEA_BENCH_HAS_FFTW
        spectral_systems,
#endif
        weight_systems}) {
    for (System& system : some(heads, saves)) all.push_back(std::move(system));
  }
  return all;
}

}  // namespace bench
