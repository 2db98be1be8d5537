// SPDX-License-Identifier: MIT
/// \file
/// A window around each query, and global tokens (Longformer, Beltagy et al. 2020, section 3.1).
#pragma once

#include "fovea/patterns/global.hpp"
#include "fovea/patterns/window.hpp"

FOVEA_NAMESPACE_BEGIN

/// Which rows of a WindowAndTokens see keys.
enum class GlobalRows : unsigned char {
  with_others,  ///< all rows
  alone,        ///< only those of tokens
  left_out      ///< all except those of tokens
};

/// The union of a window and global tokens, equivalent to `unite(window, tokens)`, but with plans
/// that are built faster: a window cuts a run of tokens at one end at most, because the query in
/// its middle is not a token.
class WindowAndTokens {
 public:
  /// If the tokens are causal, the window is made causal as well.
  WindowAndTokens(const Window& window, const GlobalTokens& tokens,
                  GlobalRows rows = GlobalRows::with_others)
      : window_(window), tokens_(tokens), rows_(rows) {
    if (causal()) window_.right = (std::min<Index>)(window_.right, 0);
  }

  /// Whether the query at position i sees key j.
  bool allows(Index i, Index j) const {
    return !is_blind(tokens_.is_global(i)) && (window_.allows(i, j) || tokens_.allows(i, j));
  }

  /// The same pattern for a sequence of this many keys: tokens beyond them have no interval.
  WindowAndTokens up_to(Index keys) const { return {window_, tokens_.up_to(keys), rows_}; }
  /// The number of intervals: one for the window and one for each run of tokens.
  Index interval_count() const { return 1 + static_cast<Index>(tokens_.runs().size()); }

  /// Writes the window of position i, or all that it sees if it is a token itself; then the part of
  /// each run of tokens outside the window.
  void keys_of(Index i, std::span<Range> intervals) const {
    const bool is_global = tokens_.is_global(i);
    if (is_blind(is_global)) {
      std::ranges::fill(intervals.first(static_cast<std::size_t>(interval_count())), Range{});
      return;
    }
    intervals[0] =
        is_global ? Range{-kFarPosition, causal() ? i + 1 : kEverywhere.end} : window_.keys_of(i);
    std::size_t s = 0;
    for (const Range& run : tokens_.runs()) {
      Range& interval = intervals[++s];
      if (is_global || (causal() && run.begin > i)) {
        interval = {};
      } else if (run.begin > i) {
        interval = {(std::max)(run.begin, intervals[0].end), run.end};
      } else {
        interval = {run.begin, (std::min)(run.end, intervals[0].begin)};
      }
    }
  }

  /// Positions [i, same_until(i)) have the same intervals.
  Index same_until(Index i) const {
    const bool is_global = tokens_.is_global(i);
    return is_blind(is_global) || (is_global && !causal()) ? tokens_.next_cut(i) : i + 1;
  }

  /// Intervals move alike until the window starts or stops reaching a run of tokens.
  Index linear_until(Index i) const {
    Index until = tokens_.next_cut(i);
    if (tokens_.is_global(i) || rows_ == GlobalRows::alone) return until;
    const auto [before, after] = window_.receptive_field();
    for (const Range& run : tokens_.runs()) {
      const Index turn = run.begin > i ? run.begin - 1 - after : run.end + before;
      if (i < turn) until = (std::min)(until, turn + 1);
    }
    return until;
  }

  /// The first position after i where a run of tokens begins or ends.
  Index next_cut(Index i) const { return tokens_.next_cut(i); }

  /// A range that contains every position that sees one of the keys.
  Range seen_from(const Range& keys) const {
    const Range band = window_.seen_from(keys);
    const Range global = tokens_.seen_from(keys);
    if (global.is_empty()) return band;
    return {(std::min)(band.begin, global.begin), (std::max)(band.end, global.end)};
  }
  /// If this is false, no position of `rows` sees a key of `keys`.
  bool meets(const Range& rows, const Range& keys) const {
    return rows.meets(window_.seen_from(keys)) || tokens_.meets(rows, keys);
  }

  /// The plan for one sequence.
  IntervalPlan<WindowAndTokens> plan(const SequenceShape& shape) const { return {*this, shape}; }

 private:
  bool causal() const { return tokens_.causal_cut(); }
  /// Whether a row sees nothing.
  bool is_blind(bool is_global) const {
    return rows_ != GlobalRows::with_others && (rows_ == GlobalRows::alone) != is_global;
  }

  Window window_;
  GlobalTokens tokens_;
  GlobalRows rows_;
};

static_assert(Pattern<WindowAndTokens>);

FOVEA_NAMESPACE_END
