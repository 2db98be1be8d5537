// SPDX-License-Identifier: MIT
/// \file
/// A window around each query, and global tokens (Longformer, Beltagy et al. 2020, section 3.1).
#pragma once

#include "fovea/patterns/global.hpp"
#include "fovea/patterns/window.hpp"

FOVEA_NAMESPACE_BEGIN

/// What the window or the tokens show. The same as `unite(window, tokens)`, whose plans take longer
/// to build: here a window cuts a run of tokens at one end at most, since a query beside it is
/// none.
class WindowAndTokens {
 public:
  /// If the tokens are causal, so is the window.
  WindowAndTokens(const Window& window, const GlobalTokens& tokens)
      : window_(window), tokens_(tokens) {
    if (causal()) window_.right = (std::min<Index>)(window_.right, 0);
  }

  bool allows(Index i, Index j) const { return window_.allows(i, j) || tokens_.allows(i, j); }

  WindowAndTokens up_to(Index keys) const { return {window_, tokens_.up_to(keys)}; }
  Index slot_count() const { return 1 + static_cast<Index>(tokens_.runs().size()); }

  /// The window, or what a token sees; then each run of tokens without the window.
  void keys_of(Index i, std::span<Range> slots) const {
    const bool is_global = tokens_.is_global(i);
    slots[0] =
        is_global ? Range{-kFarPosition, causal() ? i + 1 : kFarPosition} : window_.keys_of(i);
    std::size_t s = 0;
    for (const Range& run : tokens_.runs()) {
      Range& slot = slots[++s];
      if (is_global || (causal() && run.begin > i)) {
        slot = {};
      } else if (run.begin > i) {
        slot = {(std::max)(run.begin, slots[0].end), run.end};
      } else {
        slot = {run.begin, (std::min)(run.end, slots[0].begin)};
      }
    }
  }

  Index same_until(Index i) const {
    return tokens_.is_global(i) && !causal() ? tokens_.next_cut(i) : i + 1;
  }

  /// Until the window begins to reach a run of tokens, or ceases to.
  Index linear_until(Index i) const {
    Index until = tokens_.next_cut(i);
    if (tokens_.is_global(i)) return until;
    const auto [before, after] = window_.reach();
    for (const Range& run : tokens_.runs()) {
      const Index turn = run.begin > i ? run.begin - 1 - after : run.end + before;
      if (i < turn) until = (std::min)(until, turn + 1);
    }
    return until;
  }

  Index next_cut(Index i) const { return tokens_.next_cut(i); }

  Range seen_from(const Range& keys) const {
    const Range near = window_.seen_from(keys);
    const Range global = tokens_.seen_from(keys);
    if (global.is_empty()) return near;
    return {(std::min)(near.begin, global.begin), (std::max)(near.end, global.end)};
  }
  bool meets(const Range& rows, const Range& keys) const {
    return rows.meets(window_.seen_from(keys)) || tokens_.meets(rows, keys);
  }

  SlotPlan<WindowAndTokens> plan(const SequenceShape& shape) const { return {*this, shape}; }

 private:
  bool causal() const { return tokens_.causal_cut(); }

  Window window_;
  GlobalTokens tokens_;
};

static_assert(Pattern<WindowAndTokens>);

FOVEA_NAMESPACE_END
