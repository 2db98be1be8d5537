// SPDX-License-Identifier: MIT
/// \file
/// What each rank sends in a pass, in closed form: from the layout of the rows and from which rows
/// a rank needs, without enumerating a pattern, so that sequences of 10^8 rows on thousands of
/// ranks are counted at once. Test: tests/bench/fovea_scale_test.cpp compares it with what was
/// sent.
#pragma once

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "fovea/distributed/row_layout.hpp"

namespace bench {

using fovea::Index;
using fovea::Range;
using fovea::distributed::RowLayout;

inline double float_bytes(double count) { return count * sizeof(float); }

/// Some rows of a sequence: two ranges that do not meet, and the last `summary` of each `stride`
/// rows before an end.
struct SomeRows {
  std::array<Range, 2> ranges = {};
  Index stride = 1;
  Index summary = 0;
  Index end = 0;

  /// How many of them are in a range.
  Index within(const Range& range) const {
    const auto rows = [](const Range& r) { return std::max(Index{0}, r.end - r.begin); };
    const Range before_end = range.within({0, end});
    Index count = summaries(before_end);
    for (const Range& some : ranges) {
      count += rows(range.within(some)) - summaries(before_end.within(some));
    }
    return count;
  }

 private:
  Index summaries(const Range& range) const {
    const auto before = [&](Index row) {
      return row / stride * summary + std::max(Index{0}, row % stride - (stride - summary));
    };
    return summary == 0 || range.is_empty() ? 0 : before(range.end) - before(range.begin);
  }
};

/// Where segments of so many rows are whole: each is with the rank that holds its first row.
inline RowLayout whole_segments(const RowLayout& layout, Index length) {
  const auto up = [&](Index row) {
    return std::min((row + length - 1) / length * length, layout.rows());
  };
  std::vector<std::vector<Range>> of_ranks;
  for (int rank = 0; rank < layout.ranks(); ++rank) {
    of_ranks.emplace_back();
    for (const Range& own : layout.of(rank)) {
      of_ranks.back().push_back({up(own.begin), up(own.end)});
    }
  }
  return RowLayout(std::move(of_ranks));
}

/// How many segments a rank has where they are whole.
inline Index segments_of(const RowLayout& whole, int rank, Index length) {
  Index count = 0;
  for (const Range& own : whole.of(rank)) count += (own.end - own.begin + length - 1) / length;
  return count;
}

/// Which way a chain goes over the rows.
enum class Way { up, down };

/// The bytes of each rank, to which each way of travelling adds.
class Sent {
 public:
  explicit Sent(const RowLayout& layout) : of_ranks_(static_cast<std::size_t>(layout.ranks())) {}

  int ranks() const { return static_cast<int>(of_ranks_.size()); }
  double of(int rank) const { return of_ranks_[static_cast<std::size_t>(rank)]; }
  /// That of the rank with most.
  double most() const { return *std::max_element(of_ranks_.begin(), of_ranks_.end()); }
  double total() const { return std::accumulate(of_ranks_.begin(), of_ranks_.end(), 0.0); }

  Sent& add(int rank, double bytes) {
    of_ranks_[static_cast<std::size_t>(rank)] += bytes;
    return *this;
  }

  /// Each rank gives bytes(rank) to every other one.
  template <class Bytes>
  Sent& to_all(const Bytes& bytes) {
    for (int rank = 0; rank < ranks(); ++rank) add(rank, (ranks() - 1) * bytes(rank));
    return *this;
  }

  /// Rows go to each other rank that needs them. \param need need(rank) says SomeRows
  template <class Need>
  Sent& rows(const RowLayout& layout, const Need& need, double row_bytes) {
    for (int to = 0; to < ranks(); ++to) {
      const SomeRows needed = need(to);
      for (int rank = 0; rank < ranks(); ++rank) {
        if (rank == to) continue;
        Index count = 0;
        for (const Range& own : layout.of(rank)) count += needed.within(own);
        add(rank, static_cast<double>(count) * row_bytes);
      }
    }
    return *this;
  }

  /// Rows go from one layout to another.
  Sent& moved(const RowLayout& from, const RowLayout& to, double row_bytes) {
    const std::vector<Piece> a = pieces(from);
    const std::vector<Piece> b = pieces(to);
    for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
      const Range both = a[i].rows.within(b[j].rows);
      if (!both.is_empty() && a[i].rank != b[j].rank) {
        add(a[i].rank, static_cast<double>(both.end - both.begin) * row_bytes);
      }
      a[i].rows.end <= b[j].rows.end ? ++i : ++j;
    }
    return *this;
  }

  /// States go from range to range, and so over the sequence several times.
  Sent& chain(const RowLayout& layout, double state_bytes, Way way = Way::up, Index rounds = 1) {
    const std::vector<Piece> all = pieces(layout);
    const auto pass = [&](const Piece& from, const Piece& to, Index times) {
      if (from.rank != to.rank) add(from.rank, static_cast<double>(times) * state_bytes);
    };
    for (std::size_t n = 1; n < all.size(); ++n) {
      way == Way::up ? pass(all[n - 1], all[n], rounds) : pass(all[n], all[n - 1], rounds);
    }
    if (!all.empty()) pass(all.back(), all.front(), rounds - 1);
    return *this;
  }
  /// The same, upwards, and the last states go to all ranks.
  Sent& chain_to_all(const RowLayout& layout, double state_bytes, Index rounds = 1) {
    chain(layout, state_bytes, Way::up, rounds);
    return add(pieces(layout).back().rank, (ranks() - 1) * state_bytes);
  }

  /// Tensors are turned around, so that each rank has all rows of some channels.
  /// \param to_channels whether they are, or they are turned back
  /// \param channel_bytes channel_bytes(rank): of a row of the channels of a rank
  template <class Bytes>
  Sent& turned(const RowLayout& layout, bool to_channels, const Bytes& channel_bytes) {
    double all = 0;
    for (int rank = 0; rank < ranks(); ++rank) all += channel_bytes(rank);
    for (int rank = 0; rank < ranks(); ++rank) {
      const auto own = static_cast<double>(layout.count(rank));
      const double bytes = channel_bytes(rank);
      add(rank,
          to_channels ? own * (all - bytes) : (static_cast<double>(layout.rows()) - own) * bytes);
    }
    return *this;
  }

 private:
  struct Piece {
    Range rows;
    int rank;
  };

  /// All ranges, by their rows.
  static std::vector<Piece> pieces(const RowLayout& layout) {
    std::vector<Piece> all;
    for (int rank = 0; rank < layout.ranks(); ++rank) {
      for (const Range& rows : layout.of(rank)) all.push_back({rows, rank});
    }
    std::sort(all.begin(), all.end(),
              [](const Piece& a, const Piece& b) { return a.rows.begin < b.rows.begin; });
    return all;
  }

  std::vector<double> of_ranks_;
};

}  // namespace bench
