// SPDX-License-Identifier: MIT
/// \file
/// The model of a pass in fovea_scale: pairs, bytes and messages.
#pragma once

#include <bit>
#include <functional>
#include <limits>
#include <string_view>

#include "bench/scale/sent.hpp"

namespace bench {

/// The kind of the model's bytes, besides those of the rank that sends most.
enum class Basis {
  exact,  ///< the same
  mean,   ///< their mean, where keys are chosen evenly
};

/// The name of a basis, in JSON.
constexpr std::string_view name_of(Basis basis) {
  return basis == Basis::exact ? "exact" : "mean of even choices";
}

/// Numbers for one pass over a sequence of that many rows, distributed by a layout.
struct Costs {
  std::function<double(double rows)> pairs;  ///< of the whole sequence, in any unit
  std::function<void(Sent& to, const RowLayout& layout)> add_sent;  ///< by each rank
  std::function<double(int ranks)> messages;                        ///< in order
  Basis basis = Basis::exact;
  /// The share of the work that ranks do one by one: in a chain over H heads it is 1 / H.
  double serial = 0;
  /// In a chain, the bytes that go from one rank to the next one for a head; otherwise 0.
  double chain_bytes = 0;
  /// The work for a pair of rows of two ranks, in units of one of the same rank. Rows see those of
  /// all ranks alike, or hardly any of others: then it is 1.
  double shared_work = 1;
  /// So many ranks have something to compute: as many as there are heads, or channels.
  double most_ranks = std::numeric_limits<double>::infinity();

  /// What each rank sends.
  Sent sent(const RowLayout& layout) const {
    Sent all(layout);
    add_sent(all, layout);
    return all;
  }
  /// The work of all ranks together, in units of one process.
  double work(int ranks) const { return 1 + (shared_work - 1) * (1 - 1.0 / ranks); }
};

/// The costs of a forward or a backward pass.
using CostsOf = std::function<Costs(bool is_backward)>;

/// In backward passes, both ranks compute logits and gradients of weights for pairs whose query and
/// key are on different ranks: 7 products instead of 5.
inline constexpr double kSharedBackward = 7.0 / 5;

/// Messages in which ranks agree before and after a call: three reductions.
inline double agreements(int ranks) {
  return 3.0 * std::bit_width(static_cast<unsigned>(ranks - 1));
}

/// Messages if each rank sends that many to every other one.
inline std::function<double(int)> messages_to_all(double of_rank) {
  return [=](int ranks) { return of_rank * (ranks - 1) + agreements(ranks); };
}

/// Messages of chains over that many heads, the last of which is sent to all. \param chains how
/// many
inline std::function<double(int)> messages_of_chains(double chains, Index heads) {
  const auto h = static_cast<double>(heads);
  return [=](int ranks) {
    const double to_all = h * std::bit_width(static_cast<unsigned>(ranks - 1));
    return chains * (ranks > 1 ? ranks + h - 2 + to_all : 0) + agreements(ranks);
  };
}

}  // namespace bench
