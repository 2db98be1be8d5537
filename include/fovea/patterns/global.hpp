// SPDX-License-Identifier: MIT
/// \file
/// Global tokens: positions that see every key and that every query sees (Longformer, Beltagy et
/// al. 2020, section 3.1).
#pragma once

#include <string>
#include <vector>

#include "fovea/core/error.hpp"
#include "fovea/patterns/slot_plan.hpp"

FOVEA_NAMESPACE_BEGIN

/// Some positions see all and are seen by all; causal: j <= i. Cheap to copy. Best where they stand
/// together: neighbours share a slot, and their rows a block of their own.
class GlobalTokens {
 public:
  /// The positions [0, count). \throws std::invalid_argument count < 0
  static GlobalTokens first(Index count, bool causal = false, const char* op = "GlobalTokens") {
    return first_and(count, {}, causal, op);
  }

  /// \param tokens positions, ascending, each once   \throws std::invalid_argument they are not
  static GlobalTokens at(const std::vector<Index>& tokens, bool causal = false,
                         const char* op = "GlobalTokens") {
    return first_and(0, tokens, causal, op);
  }

  /// The positions [0, count) and, behind them, those of `tokens`.
  /// \throws std::invalid_argument count < 0, or tokens that do not ascend from there
  static GlobalTokens first_and(Index count, const std::vector<Index>& tokens, bool causal = false,
                                const char* op = "GlobalTokens") {
    if (count < 0 || count > kFarPosition) {
      refuse(op, "count of global tokens", std::to_string(count), "at least 0");
    }
    Runs runs;
    if (count > 0) runs.push_back({0, count});
    for (std::size_t n = 0; n < tokens.size(); ++n) {
      const Index token = tokens[n];
      const Index least = runs.empty() ? 0 : runs.back().end;
      if (token < least || token >= kFarPosition) {
        refuse(op, "global token " + std::to_string(n), std::to_string(token),
               least == 0 ? "a position"
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

  bool allows(Index i, Index j) const {
    return (is_global(i) || is_global(j)) && (!causal_ || j <= i);
  }
  bool is_global(Index position) const {
    const auto run = run_behind(position);
    return run != runs_->end() && run->begin <= position;
  }

  /// Without a slot for tokens behind the keys, which see all keys nevertheless.
  GlobalTokens up_to(Index keys) const {
    GlobalTokens cut = *this;
    const auto behind = std::ranges::lower_bound(*runs_, keys, {}, &Range::begin);
    cut.shown_ = static_cast<std::size_t>(behind - runs_->begin());
    return cut;
  }

  /// Neighbouring tokens that have a slot, ascending.
  std::span<const Range> runs() const { return {runs_->data(), shown_}; }

  /// One past the last token.
  Index end() const { return runs_->empty() ? 0 : runs_->back().end; }

  Index slot_count() const { return (std::max<Index>)(1, static_cast<Index>(shown_)); }

  void keys_of(Index i, std::span<Range> slots) const {
    slots = slots.first(static_cast<std::size_t>(slot_count()));
    std::ranges::fill(slots, Range{});
    if (is_global(i)) {
      slots[0] = kEverywhere;
    } else {
      std::ranges::copy(runs(), slots.begin());
    }
  }

  bool causal_cut() const { return causal_; }
  Index same_until(Index i) const { return next_cut(i); }

  /// Tokens begin and end a block: it would compute all keys for its other rows, too.
  Index next_cut(Index i) const {
    const auto run = run_behind(i);
    if (run == runs_->end()) return kFarPosition;
    return i < run->begin ? run->begin : run->end;
  }

  Range seen_from(const Range& keys) const {
    if (runs_->empty()) return {};
    const Range rows = any_global(keys) ? kEverywhere : Range{runs_->front().begin, end()};
    return causal_ ? rows.within({keys.begin, kFarPosition}) : rows;
  }

  bool meets(const Range& rows, const Range& keys) const {
    return (!causal_ || keys.begin < rows.end) && (any_global(rows) || any_global(keys));
  }

  SlotPlan<GlobalTokens> plan(const SequenceShape& shape) const { return {*this, shape}; }

 private:
  using Runs = std::vector<Range>;

  GlobalTokens(Runs runs, bool causal)
      : runs_(std::make_shared<const Runs>(std::move(runs))),
        shown_(runs_->size()),
        causal_(causal) {}

  /// The first run that ends behind a position.
  Runs::const_iterator run_behind(Index position) const {
    return std::ranges::upper_bound(*runs_, position, {}, &Range::end);
  }

  bool any_global(const Range& positions) const {
    const auto run = run_behind(positions.begin);
    return run != runs_->end() && run->meets(positions);
  }

  std::shared_ptr<const Runs> runs_;  // of neighbouring tokens, ascending
  std::size_t shown_;                 // the first so many have a slot
  bool causal_;
};

/// \throws std::invalid_argument a token beyond the keys
inline void check_global(const char* op, const GlobalTokens& tokens, Index keys) {
  if (tokens.end() > keys) {
    refuse(op, "last global token", std::to_string(tokens.end() - 1),
           "less than " + std::to_string(keys) + ", the keys");
  }
}

static_assert(Pattern<GlobalTokens>);

FOVEA_NAMESPACE_END
