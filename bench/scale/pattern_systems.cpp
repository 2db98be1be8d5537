// SPDX-License-Identifier: MIT
/// \file
/// Softmax attention over patterns, as fovea_scale measures it.
#include <cmath>
#include <utility>

#include "bench/scale/calls.hpp"
#include "bench/scale/pattern_costs.hpp"
#include "fovea/attention/big_bird.hpp"
#include "fovea/attention/block_sparse.hpp"
#include "fovea/attention/fat.hpp"
#include "fovea/attention/fixed.hpp"
#include "fovea/attention/full.hpp"
#include "fovea/attention/local.hpp"
#include "fovea/attention/longformer.hpp"
#include "fovea/attention/strided.hpp"
#include "fovea/distributed/longformer.hpp"
#include "fovea/distributed/softmax_backward.hpp"
#include "fovea/distributed/softmax_forward.hpp"

namespace bench {
namespace {

constexpr Index kStride = 128;
constexpr Index kSummary = 8;  // of fixed attention
constexpr Index kGlobal = 64;  // of Longformer
constexpr Index kBlock = 64;

/// From the first row on to the last one of the rank, and from its first one on.
SomeRows up_to(const RowLayout& layout, int rank) { return {{{{0, layout.of(rank).back().end}}}}; }
SomeRows from(const RowLayout& layout, int rank) {
  return {{{{layout.of(rank).front().begin, layout.rows()}}}};
}
/// The window and the global rows, which see all keys.
SomeRows window_and_global(const RowLayout& layout, int rank) {
  const Range near = margin(layout, rank).ranges[0];
  if (layout.of(rank).front().begin < kGlobal) return every(layout, rank);
  return {{{near, {0, std::min(kGlobal, near.begin)}}}};
}
/// Keys of the rank's own blocks up to its last rows, and summaries before.
SomeRows blocks_and_summaries(const RowLayout& layout, int rank) {
  SomeRows rows{{}, kStride, kSummary, layout.of(rank).back().end};
  for (std::size_t n = 0; n < layout.of(rank).size(); ++n) {
    const Range& own = layout.of(rank)[n];
    rows.ranges[n] = {own.begin / kStride * kStride, own.end};
  }
  if (rows.ranges[1].begin < rows.ranges[0].end) rows.ranges[1].begin = rows.ranges[0].end;
  return rows;
}
/// The blocks of the rank and their neighbours.
SomeRows near_blocks(const RowLayout& layout, int rank) {
  return {{{{(layout.of(rank).front().begin / kBlock - 1) * kBlock,
             ((layout.of(rank).back().end - 1) / kBlock + 2) * kBlock}}}};
}

/// Random blocks: each block of keys is drawn three times by each head on average, and belongs to
/// the global rows, of rank 0, which see all keys; all ranks see the keys of these.
void add_big_bird(Sent& sent, const RowLayout& layout, Index heads, double row_bytes) {
  const double others = layout.ranks() - 1;
  const double drawn = 3 * static_cast<double>(heads);
  for (int rank = 0; rank < layout.ranks() && others > 0; ++rank) {
    const auto own = static_cast<double>(layout.count(rank));
    // For each block, the ranks that are hit by that many draws; and the global blocks of rank 0.
    const double random = own * others * -std::expm1(drawn * std::log1p(-1 / (others + 1)));
    const double rows = random + (rank > 0 ? own : std::min(own, 128.0) * others);
    sent.add(rank, row_bytes * std::min(own * others, rows));
  }
}

CostsOf big_bird_costs(Index heads) {
  return [=](bool is_backward) {
    const RowBytes row(heads);
    Costs costs = pattern_costs(heads, [](double n) { return 64 * 8 * n; })(is_backward);
    costs.basis = Basis::mean;
    costs.add_sent = [=](Sent& sent, const RowLayout& layout) {
      add_big_bird(sent, layout, heads, row.keys + (is_backward ? row.queries : 0));
    };
    return costs;
  };
}

/// Each block sees itself and its neighbours.
auto near_blocks_of(Index rows) {
  const Index blocks = (rows + kBlock - 1) / kBlock;
  fovea::BlockRows list{{0}, {}};
  for (Index n = 0; n < blocks; ++n) {
    for (Index key = std::max(Index{0}, n - 1); key < std::min(n + 2, blocks); ++key) {
      list.columns.push_back(key);
    }
    list.offsets.push_back(static_cast<Index>(list.columns.size()));
  }
  return fovea::BlockSparseAttention({.block = kBlock, .layouts = {list}});
}

}  // namespace

Systems pattern_systems(Index heads, bool saves) {
  using enum Taken;
  const auto all = Family::patterns;
  const auto merged = fovea::HeadAssignment::merged;
  constexpr LayoutOf zigzag = RowLayout::zigzag;
  constexpr LayoutOf contiguous = RowLayout::contiguous;
  const auto square = [](double n) { return n * n; };
  const auto half_square = [](double n) { return n * n / 2; };
  const auto of_window = [](double n) { return (2 * kBand + 1) * n; };
  const auto entry = [&](Look look, LayoutOf layout, const auto& op, const CostsOf& costs) {
    return system_of(std::move(look), layout, op, {saves}, costs);
  };
  return {
      entry({"full, causal", "full", all, always, true}, zigzag,
            fovea::FullAttention{{.causal = true}},
            pattern_costs(heads, half_square, {up_to, from})),
      entry({"full", "full", all, always}, contiguous, fovea::FullAttention{},
            pattern_costs(heads, square)),
      entry({"window 128 + 128", "local", all, always}, contiguous,
            fovea::LocalAttention{{.left = kBand, .right = kBand}},
            near_costs(heads, of_window, {margin, margin})),
      // Where a piece of the layout has a stride of rows, all rows before it are seen from there.
      entry({"strided 128", "strided", all, always, true}, zigzag,
            fovea::StridedAttention{{.stride = kStride, .heads = merged}},
            pattern_costs(heads, [](double n) { return n * (kStride + n / kStride / 2); },
                          {up_to, from})),
      entry({"BigBird", "bigbird", all, always}, contiguous, fovea::BigBirdAttention{},
            big_bird_costs(heads)),
      entry(
          {"fixed 128, 8", "fixed", all, usually, true}, zigzag,
          fovea::FixedAttention{{.stride = kStride, .summary = kSummary, .heads = merged}},
          pattern_costs(heads, [](double n) { return n * (kStride + n * kSummary / kStride) / 2; },
                        {blocks_and_summaries, from})),
      entry({"Longformer 128 + 128, 64", "longformer", all}, contiguous,
            fovea::LongformerAttention{{.left = kBand, .right = kBand, .first_global = kGlobal}},
            near_costs(
                heads, [](double n) { return (2 * (kBand + kGlobal) + 1) * n; },
                {window_and_global, window_and_global}, kAllRanks)),
      entry({"block-sparse 3 x 64", "local", all}, contiguous, &near_blocks_of,
            near_costs(heads, [](double n) { return 3 * kBlock * n; }, {near_blocks, near_blocks})),
      entry({"FAT", "fat", all, if_asked}, contiguous, fovea::FatAttention{},
            pattern_costs(heads, square)),
  };
}

}  // namespace bench
