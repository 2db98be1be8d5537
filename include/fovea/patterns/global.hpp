// SPDX-License-Identifier: MIT
/// \file
/// Global tokens: positions that see every key and that every query sees (Longformer, Beltagy et
/// al. 2020, section 3.1).
#pragma once

#include <string>
#include <vector>

#include "fovea/core/error.hpp"
#include "fovea/patterns/interval_plan.hpp"

FOVEA_NAMESPACE_BEGIN

/// Some positions, the tokens, see all keys and are seen by all queries; if causal, only where j <=
/// i. Adjacent tokens are best: they share one interval, and their rows a block. Cheap to copy.
class GlobalTokens {
 public:
  /// The positions [0, count) are global.
  /// \throws std::invalid_argument if count is negative or too large for positions
  static GlobalTokens first(Index count, bool causal = false, const char* op = "GlobalTokens") {
    return first_and(count, {}, causal, op);
  }

  /// The positions in `tokens` are global. They must be strictly ascending.
  /// \throws std::invalid_argument if they are not strictly ascending from 0 on
  static GlobalTokens at(const std::vector<Index>& tokens, bool causal = false,
                         const char* op = "GlobalTokens") {
    return first_and(0, tokens, causal, op);
  }

  /// The positions [0, count) are global, and after them those in `tokens`.
  /// \throws std::invalid_argument if count is negative or too large for positions, or if the
  /// tokens do not ascend from `count` on
  static GlobalTokens first_and(Index count, const std::vector<Index>& tokens, bool causal = false,
                                const char* op = "GlobalTokens") {
    if (count < 0 || count > kFarPosition) {
      refuse(op, "the number of global tokens", std::to_string(count),
             range_text<Index>(0, kFarPosition));
    }
    Runs runs;
    if (count > 0) runs.push_back({0, count});
    for (std::size_t n = 0; n < tokens.size(); ++n) {
      const Index token = tokens[n];
      const Index least = runs.empty() ? 0 : runs.back().end;
      if (token < least || token >= kFarPosition) {
        refuse(op, "global token " + std::to_string(n), std::to_string(token),
               token >= kFarPosition ? "less than " + std::to_string(kFarPosition)
               : least == 0          ? "at least 0"
                            : "more than " + std::to_string(least - 1) + ", the one before");
      }
      if (!runs.empty() && token == least) {
        runs.back().end = token + 1;
      } else {
        runs.push_back({token, token + 1});
      }
    }
    return GlobalTokens(std::move(runs), causal);
  }

  /// The positions [0, count) and [last, end) are global; `last` may be below `count`.
  /// \throws std::invalid_argument if count is negative or too large for positions
  static GlobalTokens first_and_last(Index count, Index last, Index end, bool causal = false,
                                     const char* op = "GlobalTokens") {
    GlobalTokens tokens = first_and(count, {}, causal, op);
    Runs runs = *tokens.runs_;
    const Index begin = (std::max)(count, last);
    if (count > 0 && begin == count) {
      runs.back().end = (std::max)(count, end);
    } else if (begin < end) {
      runs.push_back({begin, end});
    }
    return GlobalTokens(std::move(runs), causal);
  }

  /// Whether the query at position i sees key j.
  bool allows(Index i, Index j) const {
    return (is_global(i) || is_global(j)) && (!causal_ || j <= i);
  }
  /// Whether a position is one of the tokens.
  bool is_global(Index position) const {
    const auto run = run_behind(position);
    return run != runs_->end() && run->begin <= position;
  }

  /// The same pattern for a sequence of this many keys. Tokens beyond the keys have no interval; as
  /// queries they see all keys nevertheless.
  GlobalTokens up_to(Index keys) const {
    GlobalTokens cut = *this;
    const auto behind = std::ranges::lower_bound(*runs_, keys, {}, &Range::begin);
    cut.shown_ = static_cast<std::size_t>(behind - runs_->begin());
    return cut;
  }

  /// The tokens that have an interval, as runs of adjacent tokens, ascending.
  std::span<const Range> runs() const { return {runs_->data(), shown_}; }

  /// One past the last token; 0 if there is none.
  Index end() const { return runs_->empty() ? 0 : runs_->back().end; }

  /// The number of intervals: one for each run of tokens, and at least 1.
  Index interval_count() const { return (std::max<Index>)(1, static_cast<Index>(shown_)); }

  /// Writes all keys if i is a token; otherwise the runs of tokens.
  void keys_of(Index i, std::span<Range> intervals) const {
    intervals = intervals.first(static_cast<std::size_t>(interval_count()));
    std::ranges::fill(intervals, Range{});
    if (is_global(i)) {
      intervals[0] = kEverywhere;
    } else {
      std::ranges::copy(runs(), intervals.begin());
    }
  }

  /// Whether the intervals still need the causal cut, to keys up to the query.
  bool causal_cut() const { return causal_; }
  /// Positions [i, same_until(i)) have the same intervals: they are all tokens, or none is.
  Index same_until(Index i) const { return next_cut(i); }

  /// The next position after i where a run of tokens begins or ends. A block of rows must begin
  /// there, because a block that contains a token computes all keys for its other rows as well.
  Index next_cut(Index i) const {
    const auto run = run_behind(i);
    if (run == runs_->end()) return kUnboundedKeys;
    return i < run->begin ? run->begin : run->end;
  }

  /// A range that contains every position that sees one of the keys.
  Range seen_from(const Range& keys) const {
    if (runs_->empty()) return {};
    const Range rows = any_global(keys) ? kEverywhere : Range{runs_->front().begin, end()};
    return causal_ ? rows.within({keys.begin, kFarPosition}) : rows;
  }

  /// If this is false, no position of `rows` sees a key of `keys`.
  bool meets(const Range& rows, const Range& keys) const {
    return (!causal_ || keys.begin < rows.end) && (any_global(rows) || any_global(keys));
  }

  /// The plan for one sequence.
  IntervalPlan<GlobalTokens> plan(const SequenceShape& shape) const { return {*this, shape}; }

 private:
  using Runs = std::vector<Range>;

  GlobalTokens(Runs runs, bool causal)
      : runs_(std::make_shared<const Runs>(std::move(runs))),
        shown_(runs_->size()),
        causal_(causal) {}

  /// The first run of tokens that ends after a position.
  Runs::const_iterator run_behind(Index position) const {
    return std::ranges::upper_bound(*runs_, position, {}, &Range::end);
  }

  bool any_global(const Range& positions) const {
    const auto run = run_behind(positions.begin);
    return run != runs_->end() && run->meets(positions);
  }

  std::shared_ptr<const Runs> runs_;  // runs of neighbouring tokens, ascending
  std::size_t shown_;                 // number of leading runs that have an interval
  bool causal_;
};

/// Checks that the tokens are positions of the sequence.
/// \throws std::invalid_argument if a token is beyond the keys
inline void check_global(const char* op, const GlobalTokens& tokens, Index keys) {
  if (tokens.end() > keys) {
    refuse(op, "the last global token", std::to_string(tokens.end() - 1),
           "less than " + std::to_string(keys) + ", the number of keys");
  }
}

static_assert(Pattern<GlobalTokens>);

FOVEA_NAMESPACE_END
