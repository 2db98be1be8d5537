// SPDX-License-Identifier: MIT
/// \file
/// The costs of softmax attention over a pattern: keys travel to the rows that see them, and
/// backward these rows travel to the keys, too.
#pragma once

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "bench/scale/costs.hpp"
#include "bench/scale/tensors.hpp"

namespace bench {

inline constexpr Index kBand = 128;
inline constexpr double kAllRanks = std::numeric_limits<double>::infinity();

/// The rows that a rank needs.
using Need = SomeRows (*)(const RowLayout& layout, int rank);

inline SomeRows every(const RowLayout& layout, int /*rank*/) { return {{{{0, layout.rows()}}}}; }
/// Its own, and the band before and behind.
inline SomeRows margin(const RowLayout& layout, int rank) {
  return {{{{layout.of(rank).front().begin - kBand, layout.of(rank).back().end + kBand}}}};
}

/// Which keys a rank's rows see, and which rows see its keys.
struct Needs {
  Need keys = every;
  Need queries = every;
};

/// Bytes of a row.
struct RowBytes {
  double keys;     ///< of keys and values
  double queries;  ///< of q, out, d_out, lse and its low part

  /// \param key_width of queries and keys; values are of kWidth
  explicit RowBytes(Index heads, Index key_width = kWidth)
      : keys(float_bytes(heads * (key_width + kWidth))),
        queries(float_bytes(heads * (key_width + 2 * kWidth + 2))) {}
};

/// Adds what ranks send in one pass.
inline void add_pattern(Sent& sent, const RowLayout& layout, const RowBytes& row, bool is_backward,
                        const Needs& needs) {
  const auto rows_of = [&](Need need) {
    return [&layout, need](int to) { return need(layout, to); };
  };
  sent.rows(layout, rows_of(needs.keys), row.keys);
  if (is_backward) sent.rows(layout, rows_of(needs.queries), row.queries);
}

/// The costs if rows hardly see those of other ranks.
/// \param peers the number of ranks with visible rows, if there are that many
inline CostsOf near_costs(Index heads, std::function<double(double)> pairs, const Needs& needs,
                          double peers = 2) {
  return [=](bool is_backward) {
    Costs costs;
    costs.pairs = pairs;
    costs.add_sent = [=](Sent& sent, const RowLayout& layout) {
      add_pattern(sent, layout, RowBytes(heads), is_backward, needs);
    };
    // Each tensor and head is a separate message.
    const double tensors = static_cast<double>(heads) * (is_backward ? 7 : 2);
    costs.messages = [=](int ranks) {
      return tensors * std::min(ranks - 1.0, peers) + agreements(ranks);
    };
    return costs;
  };
}

/// The costs if rows see those of all ranks.
inline CostsOf pattern_costs(Index heads, std::function<double(double)> pairs,
                             const Needs& needs = {}) {
  return [of_all = near_costs(heads, std::move(pairs), needs, kAllRanks)](bool is_backward) {
    Costs costs = of_all(is_backward);
    if (is_backward) costs.shared_work = kSharedBackward;
    return costs;
  };
}

}  // namespace bench
