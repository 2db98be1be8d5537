// SPDX-License-Identifier: MIT
/// \file
/// What the model of fovea_scale knows of an operator: pairs, bytes and messages. Bytes are counted
/// from the layout of the rows and from which rows a rank needs, without enumerating a pattern, so
/// that sequences of 10^8 rows on thousands of ranks are counted at once. Test:
/// tests/bench/fovea_scale_test.cpp compares them with the bytes that were sent.
#pragma once

#include <algorithm>
#include <bit>
#include <functional>
#include <string_view>

#include "fovea/distributed/row_layout.hpp"

namespace bench {

using fovea::Index;
using fovea::Range;
using fovea::distributed::RowLayout;

/// What the bytes of the model are, beside those that the rank with most sends.
enum class Basis {
  exact,  ///< the same
  mean,   ///< their mean, where keys are chosen evenly
};

/// The name of a basis, in JSON.
constexpr std::string_view name_of(Basis basis) {
  return basis == Basis::exact ? "exact" : "mean of even choices";
}

/// Numbers for one pass over a sequence of so many rows, spread by a layout.
struct Costs {
  std::function<double(double rows)> pairs;  ///< of the whole sequence, in any unit
  /// Sent by the rank that sends most.
  std::function<double(const RowLayout& layout)> bytes;
  /// Messages that are sent one after the other.
  std::function<double(int ranks)> messages;
  Basis basis = Basis::exact;
  /// The share of the work that ranks do one by one: in a chain over H heads it is 1 / H.
  double serial = 0;
  /// In a chain, the bytes that go from one rank to the next one for a head; otherwise 0.
  double chain_bytes = 0;
  /// The work for a pair of rows of two ranks, in units of one of the same rank. Rows see those of
  /// all ranks alike, or hardly any of others: then it is 1.
  double shared_work = 1;

  /// The work of all ranks together, in units of one process.
  double work(int ranks) const { return 1 + (shared_work - 1) * (1 - 1.0 / ranks); }
};

/// Of pairs whose query and key lie on different ranks, both compute logits and gradients of
/// weights backward: 7 products in place of 5.
inline constexpr double kSharedBackward = 7.0 / 5;

/// The largest of f(rank) over all ranks.
template <class F>
double most_of_ranks(int ranks, const F& f) {
  double most = 0;
  for (int rank = 0; rank < ranks; ++rank) most = std::max(most, static_cast<double>(f(rank)));
  return most;
}

/// How many rows a rank sends, if each other rank `to` needs all rows of the range need(to).
template <class Need>
Index rows_sent(const RowLayout& layout, int rank, const Need& need) {
  Index rows = 0;
  for (int to = 0; to < layout.ranks(); ++to) {
    if (to == rank) continue;
    const Range needed = need(to);
    for (const Range& own : layout.of(rank)) {
      const Range part = own.within(needed);
      if (!part.is_empty()) rows += part.end - part.begin;
    }
  }
  return rows;
}

/// Messages in which ranks agree before and after a call: three reductions.
inline double agreements(int ranks) {
  return 3.0 * std::bit_width(static_cast<unsigned>(ranks - 1));
}

}  // namespace bench
