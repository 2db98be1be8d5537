// SPDX-License-Identifier: MIT
/// \file
/// What each rank sends in a pass, in closed form: from the layout of the rows and from which rows
/// a rank needs, without enumerating a pattern, so that sequences of 10^8 rows on thousands of
/// ranks are counted at once. Test: tests/bench/fovea_scale_test.cpp compares it with what was
/// sent.
#pragma once

#include <algorithm>
#include <array>
#include <iterator>
#include <numeric>
#include <utility>
#include <vector>

#include "fovea/distributed/row_layout.hpp"

namespace bench {

using fovea::Index;
using fovea::Range;
using fovea::distributed::RowLayout;

inline double float_bytes(double count) { return count * sizeof(float); }
inline double float_bytes(Index count) { return float_bytes(static_cast<double>(count)); }

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
    return range.is_empty() ? 0 : summaries_before(range.end) - summaries_before(range.begin);
  }
  Index summaries_before(Index row) const {
    if (summary == 0) return 0;
    return row / stride * summary + std::max(Index{0}, row % stride - (stride - summary));
  }

  friend class Demand;
};

/// How often the rows of a sequence are needed, by all ranks together: ranges of rows, each with a
/// count, and the same for summaries. It takes a sort, and no step for each pair of ranks.
class Demand {
 public:
  /// \param needs [ranks] with the same stride and summary
  Demand(const std::vector<SomeRows>& needs, Index rows) : summaries_of_(needs.front()) {
    for (const SomeRows& need : needs) {
      const Range before_end = Range{0, need.end}.within({0, rows});
      of_summaries_.add(before_end, 1);
      for (const Range& range : need.ranges) {
        of_rows_.add(range.within({0, rows}), 1);
        of_summaries_.add(range.within(before_end), -1);
      }
    }
    of_rows_.finish([](Index row) { return row; });
    of_summaries_.finish([&](Index row) { return summaries_of_.summaries_before(row); });
  }

  /// How many of the rows of a range are needed, each as often as it is.
  double within(const Range& range) const { return before(range.end) - before(range.begin); }

 private:
  /// A function of the row that goes up and down in steps, and its sum over a measure.
  class Steps {
   public:
    void add(const Range& range, Index times) {
      if (range.is_empty()) return;
      steps_.push_back({range.begin, times, 0});
      steps_.push_back({range.end, -times, 0});
    }
    template <class Measure>
    void finish(const Measure& measure) {
      std::sort(steps_.begin(), steps_.end(),
                [](const Step& a, const Step& b) { return a.row < b.row; });
      for (std::size_t n = 1; n < steps_.size(); ++n) {
        const Step& last = steps_[n - 1];
        steps_[n].height += last.height;
        steps_[n].sum =
            last.sum + static_cast<double>(last.height) *
                           static_cast<double>(measure(steps_[n].row) - measure(last.row));
      }
    }
    template <class Measure>
    double before(Index row, const Measure& measure) const {
      const auto next = std::partition_point(steps_.begin(), steps_.end(),
                                             [&](const Step& step) { return step.row < row; });
      if (next == steps_.begin()) return 0;
      const Step& last = *std::prev(next);
      return last.sum + static_cast<double>(last.height) *
                            static_cast<double>(measure(row) - measure(last.row));
    }

   private:
    struct Step {
      Index row;
      Index height;  // from this row on, once it is finished
      double sum;    // of all before
    };
    std::vector<Step> steps_;
  };

  double before(Index row) const {
    return of_rows_.before(row, [](Index r) { return r; }) +
           of_summaries_.before(row, [&](Index r) { return summaries_of_.summaries_before(r); });
  }

  SomeRows summaries_of_;
  Steps of_rows_;
  Steps of_summaries_;
};

/// Segments of that many rows, each on the rank that has its first row.
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

/// How many of `count` things are a rank's, if each has as many.
inline Index share_of(Index count, int rank, int ranks) {
  return count * (rank + 1) / ranks - count * rank / ranks;
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
    std::vector<SomeRows> needs;
    for (int to = 0; to < ranks(); ++to) needs.push_back(need(to));
    const Demand all(needs, layout.rows());
    for (int rank = 0; rank < ranks(); ++rank) {
      for (const Range& own : layout.of(rank)) {
        const Index of_itself = needs[static_cast<std::size_t>(rank)].within(own);
        add(rank, (all.within(own) - static_cast<double>(of_itself)) * row_bytes);
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
  /// The same of channels, or heads, of which each rank has as many. \param numbers of each in a
  /// row
  Sent& turned(const RowLayout& layout, bool to_channels, Index channels, Index numbers) {
    return turned(layout, to_channels, [&](int rank) {
      return float_bytes(share_of(channels, rank, ranks()) * numbers);
    });
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
