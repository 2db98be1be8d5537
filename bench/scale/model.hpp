// SPDX-License-Identifier: MIT
/// \file
/// The model of fovea_scale: time = computation + messages. One process and one rank are measured;
/// what their times become on many ranks follows from the costs of the operator and from two
/// numbers of a network.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "bench/scale/system.hpp"

namespace bench {

/// What carries messages.
struct Network {
  double latency = 0;                                          ///< seconds of a message
  double bandwidth = std::numeric_limits<double>::infinity();  ///< bytes a second
};

/// What computes, and what carries messages.
struct Machines {
  Network network;
  double cores = std::numeric_limits<double>::infinity();  ///< ranks that can compute at once
};

/// What is fitted to one operator and sequence.
struct Work {
  double pairs = 0;  ///< seconds that grow with the pairs of the pattern
  double rows = 0;   ///< seconds that grow with the rows, which a rank copies

  /// \param one seconds of one process   \param alone seconds over one rank, which copies rows, too
  static Work fitted(double one, double alone) { return {one, std::max(0.0, alone - one)}; }
  /// That of another sequence.
  Work of_rows(const Costs& costs, double from, double to) const {
    return {pairs * costs.pairs(to) / costs.pairs(from), rows * to / from};
  }
};

/// Seconds of a pass over ranks. Nothing overlaps.
/// \param bytes of the rank that sends most
inline double modelled_seconds(const Costs& costs, int ranks, double bytes, const Work& work,
                               const Machines& machines) {
  const double at_once = std::min({static_cast<double>(ranks), machines.cores, costs.most_ranks});
  const double pairs = work.pairs * costs.work(ranks);
  const double computing =
      pairs * ((1 - costs.serial) / at_once + costs.serial) + work.rows / at_once;
  // In a chain the states of a head are with one rank after the other; those of other heads follow.
  const double passed_on = ranks > 2 ? (ranks - 2) * costs.chain_bytes : 0;
  return computing + (bytes + passed_on) / machines.network.bandwidth +
         costs.messages(ranks) * machines.network.latency;
}

/// A place on a curve of the model.
struct Outlook {
  int ranks = 1;
  double seconds = 0;
  double speed_up = 1;  ///< over one rank
  double bytes = 0;     ///< sent by the rank that sends most
};

/// The number of ranks (doubling) from which efficiency is below one half; 0: none up to the last.
inline int ranks_of_half_efficiency(const std::vector<Outlook>& curve) {
  for (const Outlook& at : curve) {
    if (at.speed_up < 0.5 * at.ranks) return at.ranks;
  }
  return 0;
}

/// 1, 2, 4, ... ranks over one sequence.
/// \param work of that sequence
inline std::vector<Outlook> outlook(const Costs& costs, LayoutOf layout, Index rows,
                                    const Work& work, const Network& network, int most_ranks) {
  std::vector<Outlook> curve;
  for (int ranks = 1; ranks <= most_ranks; ranks *= 2) {
    Outlook& at = curve.emplace_back();
    at.ranks = ranks;
    at.bytes = ranks > 1 ? costs.sent(layout(rows, ranks)).most() : 0;
    at.seconds = modelled_seconds(costs, ranks, at.bytes, work, {network});
    at.speed_up = curve.front().seconds / at.seconds;
  }
  return curve;
}

}  // namespace bench
