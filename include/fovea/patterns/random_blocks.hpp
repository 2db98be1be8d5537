// SPDX-License-Identifier: MIT
/// \file
/// Random key blocks for each query block (BigBird, Zaheer et al. 2020, section 2). Philox draws
/// them as a function of seed, head and query block.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>

#include "fovea/core/error.hpp"
#include "fovea/core/philox.hpp"
#include "fovea/patterns/interval_plan.hpp"

FOVEA_NAMESPACE_BEGIN

/// Each query block sees `count` distinct key blocks, or all candidates if there are fewer. The
/// candidates are all key blocks except the first `skip_first`, the last `skip_last` and those
/// within `skip_near` blocks of the query's own. If causal, blocks after the query's own are not
/// candidates either and `skip_last` is not read, so that a draw does not depend on the sequence's
/// length. Queries of the skipped first and last blocks see no random blocks, because global blocks
/// are placed there.
struct RandomBlocks {
  /// The value of skip_near for which no block near the query is skipped, not even its own.
  static constexpr Index kSkipNone = -1;
  /// The largest number of blocks that a query block can draw.
  static constexpr Index kMostBlocks = 64;

  Index block = 64;        ///< positions in a block, at least 1
  Index count = 3;         ///< blocks to draw, in [0, kMostBlocks]
  Index key_blocks = 0;    ///< key blocks in the whole sequence; causal draws do not depend on it
  std::uint64_t seed = 0;  ///< the seed of the draws
  Index head = 0;          ///< the head; heads have different draws
  bool causal = false;     ///< whether a position sees keys up to itself only
  Index skip_first = 0;    ///< number of leading key blocks that are not candidates
  Index skip_near = kSkipNone;  ///< blocks at most this far from the query's own are not candidates
  Index skip_last = 0;          ///< number of trailing key blocks that are not candidates

  /// Whether the query at position i sees key j.
  bool allows(Index i, Index j) const {
    if (causal && j > i) return false;
    const Draws draws = draw(floor_div(i, block));
    return std::ranges::binary_search(draws.sorted(), floor_div(j, block));
  }

  /// The number of intervals: one for each block drawn, and at least 1.
  Index interval_count() const { return std::clamp(count, Index{1}, kMostBlocks); }

  /// Writes the blocks that position i sees. Adjacent blocks are merged into one interval, because
  /// long runs are faster.
  void keys_of(Index i, std::span<Range> intervals) const {
    intervals = intervals.first(static_cast<std::size_t>(interval_count()));
    std::ranges::fill(intervals, Range{});
    const Draws draws = draw(floor_div(i, block));
    std::size_t used = 0;
    for (const Index drawn : draws.sorted()) {
      const Index end = (drawn + 1) * block;
      if (used > 0 && intervals[used - 1].end == end - block) {
        intervals[used - 1].end = end;
      } else {
        intervals[used++] = {end - block, end};
      }
    }
  }

  /// Whether the intervals still need the causal cut, to keys up to the query.
  bool causal_cut() const { return causal; }
  /// The end of i's block: up to there positions have the same intervals.
  Index same_until(Index i) const { return (floor_div(i, block) + 1) * block; }
  /// The positions in a block: at multiples of it the intervals change.
  Index row_block() const { return block; }

  /// A range that contains every position that sees one of the keys.
  Range seen_from(const Range& keys) const {
    return {causal ? keys.begin : -kFarPosition, kFarPosition};
  }

  /// If this is false, no position of `rows` sees a key of `keys`. O(count) for each query block.
  bool meets(const Range& rows, const Range& keys) const {
    if (rows.is_empty() || keys.is_empty() || (causal && keys.begin >= rows.end)) return false;
    const Index last = floor_div(rows.end - 1, block);
    for (Index own = floor_div(rows.begin, block); own <= last; ++own) {
      const Draws draws = draw(own);
      for (const Index drawn : draws.sorted()) {
        if (keys.meets({drawn * block, (drawn + 1) * block})) return true;
      }
    }
    return false;
  }

  /// The plan for one sequence.
  IntervalPlan<RandomBlocks> plan(const SequenceShape& shape) const { return {*this, shape}; }

 private:
  /// The key blocks that one query block draws.
  struct Draws {
    std::array<Index, kMostBlocks> blocks;
    std::size_t size = 0;

    std::span<const Index> sorted() const { return {blocks.data(), size}; }
  };

  /// Draws distinct numbers below the number of candidates by Floyd's sampling (Bentley and Floyd
  /// 1987): each draw is a number in [0, last], or `last` itself if that number was drawn before.
  /// O(count^2).
  Draws draw(Index own) const {
    Draws draws;
    const Index end = causal ? own + 1 : key_blocks - skip_last;
    if (own < skip_first || end <= skip_first) return draws;
    if (skip_last > 0 && !causal && own >= end) return draws;
    const Index near_first = std::clamp(own - skip_near, skip_first, end);
    const Index near_candidates = std::clamp(own + skip_near + 1, near_first, end) - near_first;
    const Index candidates = end - skip_first - near_candidates;
    std::array<std::uint32_t, 4> words{};
    const Index wanted = (std::min)({count, kMostBlocks, candidates});
    for (Index last = candidates - wanted; last < candidates; ++last) {
      const std::size_t n = draws.size;
      if (n % 4 == 0) words = random_words(own, n / 4);
      const auto product = std::uint64_t{words[n % 4]} * static_cast<std::uint64_t>(last + 1);
      const Index drawn = static_cast<Index>(product >> 32);
      const auto before = draws.sorted();
      draws.blocks[draws.size++] = std::ranges::find(before, drawn) == before.end() ? drawn : last;
    }
    // The draws number the candidates only; map them past the skipped blocks.
    for (Index& drawn : std::span(draws.blocks.data(), draws.size)) {
      drawn += skip_first;
      if (drawn >= near_first) drawn += near_candidates;
    }
    std::sort(draws.blocks.data(), draws.blocks.data() + draws.size);
    return draws;
  }

  std::array<std::uint32_t, 4> random_words(Index own, std::size_t n) const {
    // Separates these draws from dropout's with the same seed.
    constexpr std::uint32_t kPurpose = 0x626C6F63;
    return philox4x32_10(
        {static_cast<std::uint32_t>(head), static_cast<std::uint32_t>(own),
         static_cast<std::uint32_t>(n), kPurpose},
        {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  }
};

/// Checks the sizes of RandomBlocks.
/// \throws std::invalid_argument if block < 1, if count is not in [0, kMostBlocks], if
/// skip_first < 0, or if skip_near is negative and not kSkipNone
inline void check_random_blocks(const char* op, const RandomBlocks& blocks) {
  if (blocks.block < 1) refuse(op, "block", std::to_string(blocks.block), "at least 1");
  if (blocks.count < 0 || blocks.count > RandomBlocks::kMostBlocks) {
    refuse(op, "the number of random blocks", std::to_string(blocks.count),
           "0 to " + std::to_string(RandomBlocks::kMostBlocks));
  }
  if (blocks.skip_first < 0) {
    refuse(op, "skip_first", std::to_string(blocks.skip_first), "at least 0 blocks");
  }
  if (blocks.skip_near < RandomBlocks::kSkipNone) {
    refuse(op, "skip_near", std::to_string(blocks.skip_near), "at least 0 blocks, or kSkipNone");
  }
}

static_assert(Pattern<RandomBlocks>);

FOVEA_NAMESPACE_END
