// SPDX-License-Identifier: MIT
/// \file
/// usage: draw_ranks [file.svg]     ranks.svg if none is given
/// Draws what four ranks send in a forward pass of each family: from the plans that ranks compute,
/// or as a sketch if the messages are not rows. It needs no MPI.
#include <cstdio>
#include <fovea/attention/full.hpp>
#include <fovea/attention/local.hpp>
#include <fovea/attention/strided.hpp>
#include <fovea/core/philox.hpp>

#include "rank_sheet.hpp"

using namespace drawing;
using fovea::distributed::RowSet;

namespace {

constexpr Index kTokens = 64;
constexpr Index kBlock = 16;

Ink here(const Range& /*rows*/) { return Ink::here; }

/// What each rank sends and receives for a pattern.
template <class Op>
std::function<ExchangePlan(int)> plans_of(const Op& op, const RowLayout& layout) {
  return [&op, &layout](int rank) {
    const fovea::HeadPlans plans(op, 1, {kTokens, kTokens, 0});
    return ExchangePlan::of(layout, rank, [&](int to) {
      return fovea::distributed::keys_seen(plans, layout.of(to), kTokens);
    });
  };
}

Panel window() {
  Panel panel("Window: margins", {"LocalAttention, 4 keys on each side, contiguous rows.",
                                  "A rank receives the rows next to its own, for any N."});
  const RowLayout layout = RowLayout::contiguous(kTokens, kRanks);
  const fovea::LocalAttention op{{.left = 4, .right = 4}};
  draw_holders(panel, layout);
  draw_received(panel, layout, plans_of(op, layout), here);
  return panel;
}

Panel causal() {
  Panel panel("Causal: zigzag rows",
              {"FullAttention, causal. Rank r holds pieces r and 7 - r, so all have",
               "the same number of pairs; each receives the rows before its last."});
  const RowLayout layout = RowLayout::zigzag(kTokens, kRanks);
  const fovea::FullAttention op{{.causal = true}};
  draw_holders(panel, layout);
  draw_received(panel, layout, plans_of(op, layout), here);
  return panel;
}

/// The moment in which the second of four blocks is computed.
Panel stages() {
  Panel panel("Full attention: two blocks at a time",
              {"FullAttention. Keys arrive in blocks of 2048 rows: one is processed while",
               "the next is received (dashed). The others are released or not yet requested."});
  const RowLayout layout = RowLayout::contiguous(kTokens, kRanks);
  const fovea::FullAttention op;
  const auto whole = plans_of(op, layout);
  draw_holders(panel, layout);
  const auto in_blocks = [&](int rank) {
    ExchangePlan all;
    for (Index first = 0; first < kTokens; first += kBlock) {
      const ExchangePlan part = whole(rank).within({first, first + kBlock});
      all.receives.insert(all.receives.end(), part.receives.begin(), part.receives.end());
    }
    return all;
  };
  draw_received(panel, layout, in_blocks, [](const Range& rows) {
    const Index block = rows.begin / kBlock;
    return block == 1 ? Ink::here : block == 2 ? Ink::coming : Ink::later;
  });
  return panel;
}

/// The rows of one residue have a mark: a block of the plan.
Panel strided() {
  constexpr Index stride = 8;
  Panel panel("Strided: residues on all ranks",
              {"StridedAttention, l = 8, zigzag rows. Rows r, r + l, ... (marked) see each",
               "other: a rank has some of each residue, and receives those before its last row."});
  const RowLayout layout = RowLayout::zigzag(kTokens, kRanks);
  const fovea::StridedAttention op{{.stride = stride, .heads = fovea::HeadAssignment::merged}};
  draw_holders(panel, layout);
  draw_received(panel, layout, plans_of(op, layout), here);
  for (int rank = 0; rank < kRanks; ++rank) {
    for (Index row = 3; row < layout.of(rank).back().end; row += stride) {
      panel.line(x_of(row, kTokens) + kRowBlocks / kTokens / 2, top_of(rank) + 3, "v9");
    }
  }
  return panel;
}

/// A random number in [0, below) for a row.
Index drawn(Index row, Index n, Index below) {
  const auto words = fovea::philox4x32_10(
      {static_cast<std::uint32_t>(row), static_cast<std::uint32_t>(n), 7, 0}, {1, 0});
  return static_cast<Index>(words[0] % static_cast<std::uint32_t>(below));
}

/// What ranks need if `needs(rank, set)` adds rows to a set.
std::function<ExchangePlan(int)> plans_of_sets(const RowLayout& layout,
                                               const std::function<void(int, RowSet&)>& needs) {
  return [&layout, needs](int rank) {
    return ExchangePlan::of(layout, rank, [&](int to) {
      RowSet set(kTokens);
      needs(to, set);
      return set.ranges();
    });
  };
}

Panel smart_bird() {
  Panel panel("Smart Bird: the sketch, then lists",
              {"All ranks receive the few columns of the sketch (thin lines); then each",
               "requests the keys that its rows chose: here 2 random ones per row."});
  const RowLayout layout = RowLayout::contiguous(kTokens, kRanks);
  draw_holders(panel, layout);
  draw_received(panel, layout,
                plans_of_sets(layout,
                              [&](int rank, RowSet& set) {
                                for (const Range& own : layout.of(rank)) {
                                  for (Index row = own.begin; row < own.end; ++row) {
                                    for (Index n = 0; n < 2; ++n)
                                      set.add(drawn(row, n, kTokens / 2) * 2);
                                  }
                                }
                              }),
                here);
  for (int to = 0; to < kRanks; ++to) {
    for (int rank = 0; rank < kRanks; ++rank) {
      draw_ranges(panel, top_of(to) - 4, 2, layout.of(rank), kTokens, rank, Ink::own);
    }
  }
  return panel;
}

Panel fsat() {
  Panel panel("FSAT: keys are sent along their edges",
              {"Each key knows the queries of its edges, here one random query: its row",
               "is sent to their ranks, which build the graph of their own queries."});
  const RowLayout layout = RowLayout::contiguous(kTokens, kRanks);
  draw_holders(panel, layout);
  draw_received(panel, layout,
                plans_of_sets(layout,
                              [&](int rank, RowSet& set) {
                                for (Index key = 0; key < kTokens; ++key) {
                                  const Index query = drawn(key, 5, kTokens);
                                  for (const Range& own : layout.of(rank)) {
                                    if (own.begin <= query && query < own.end) set.add(key);
                                  }
                                }
                              }),
                here);
  return panel;
}

Panel chain() {
  Panel panel("Linear, causal: a pipelined scan of states",
              {"Also FMM attention and the delta rule. A head's state is passed from rank to",
               "rank: while one adds its rows, the previous rank processes the next head."});
  constexpr double cell = kRowBlocks / 8;
  for (int rank = 0; rank < kRanks; ++rank) {
    const double top = top_of(rank);
    panel.text(0, top + 12, with("rank ", rank));
    panel.frame(kLabels, top, kRowBlocks, kThick);
    for (int head = 0; head < 5; ++head) {
      const double x = kLabels + cell * (rank + head);
      panel.box(x + 1, top, cell - 2, kThick, rank, Ink::own);
      panel.text(x + cell / 2, top + 12, with("h", head),
                 " fill=\"#FFFFFF\" text-anchor=\"middle\"");
      if (rank + 1 < kRanks) {
        panel.arrow(x + cell - 6, top + kThick, with("l13 ", kStep - 1 - kThick));
      }
    }
  }
  panel.text(kLabels + kRowBlocks + 8, top_of(0) + 12, "5 heads", " fill=\"#606060\"");
  panel.text(kLabels + kRowBlocks, top_of(3) + kThick + 12, "time",
             " fill=\"#606060\" text-anchor=\"end\"");
  panel.arrow(kLabels, top_of(3) + kThick + 8, with("h", kRowBlocks - 30));
  return panel;
}

/// The slice of the sums that a rank adds: all ranks send it, and receive the totals.
Panel sums() {
  Panel panel("Linear: slices of sums",
              {"Not causal. Each rank sums its segments of 1024 rows, and sends every rank",
               "a slice of the sums; all ranks receive the reduced slices."});
  constexpr double side = 26;
  const double top = kHeld + 14;
  const auto grid = [&](double left, const char* title, bool by_columns) {
    panel.text(left, top - 8, title, " fill=\"#606060\"");
    for (int i = 0; i < kRanks; ++i) {
      for (int j = 0; j < kRanks; ++j) {
        panel.box(left + side * j + 1, top + side * i + 1, side - 2, side - 2, by_columns ? j : i,
                  by_columns ? Ink::here : Ink::own);
      }
    }
  };
  grid(kLabels, "sums of segments", false);
  grid(kLabels + 160, "reduced by", true);
  panel.text(kLabels + 300, top - 8, "totals", " fill=\"#606060\"");
  for (int i = 0; i < kRanks; ++i) {
    const double middle = top + side * (i + 0.5);
    panel.text(0, middle + 4, with("rank ", i));
    for (int j = 0; j < kRanks; ++j) {
      panel.box(kLabels + 300 + 17 * j, middle - 8, 16, 16, j, Ink::here);
    }
  }
  const double middle = top + 2 * side;
  panel.arrow(kLabels + 4 * side + 8, middle, "h38");
  panel.arrow(kLabels + 160 + 4 * side + 6, middle, "h22");
  return panel;
}

/// Rows of ranks and columns of ranks, between which all numbers are exchanged.
void draw_turned(Panel& panel, const char* columns) {
  constexpr double side = 104;
  const double top = kHeld + 14;
  const auto square = [&](double left, const char* title, bool by_columns) {
    panel.text(left, top - 8, title, " fill=\"#606060\"");
    for (int rank = 0; rank < kRanks; ++rank) {
      const double at = side / kRanks * rank;
      panel.box(by_columns ? left + at + 1 : left, by_columns ? top : top + at + 1,
                by_columns ? side / kRanks - 2 : side, by_columns ? side : side / kRanks - 2, rank,
                Ink::own);
    }
  };
  square(kLabels, "rows of ranks", false);
  square(kLabels + 160, columns, true);
  for (int rank = 0; rank < kRanks; ++rank) {
    panel.text(0, top + side / kRanks * (rank + 0.5) + 4, with("rank ", rank));
  }
  panel.arrow(kLabels + side + 8, top + side / 2 - 10, "h38");
  panel.arrow(kLabels + 152, top + side / 2 + 10, "h-38");
  panel.text(kLabels + 160 + side + 12, top + side / 2 - 3, "all numbers", " fill=\"#606060\"");
  panel.text(kLabels + 160 + side + 12, top + side / 2 + 12, "are sent twice", " fill=\"#606060\"");
}

Panel cross() {
  Panel panel("Fourier cross: rows to channels and back",
              {"HiddenStateCross. A transform needs all rows of a channel: each rank receives",
               "all rows of its channels, transforms them, and sends the rows back."});
  draw_turned(panel, "channels of ranks");
  return panel;
}

Panel heads() {
  Panel panel("By heads: rows to heads and back",
              {"Reformer, Sinkhorn. The keys of a row depend on all rows: each rank",
               "receives all rows of some heads, and sends its results back."});
  draw_turned(panel, "heads of ranks");
  return panel;
}

/// All ranks compute at the same time; only merging proceeds from one to the next.
Panel merged() {
  Panel panel("Rows shared by all ranks: merged in order",
              {"LunaPack, Nystroem. Each rank computes the running softmaxes of these rows",
               "over its segments; they are merged from rank to rank, and then sent to all."});
  constexpr double side = 26;
  const double top = kHeld + 14;
  panel.text(kLabels, top - 8, "over segments", " fill=\"#606060\"");
  panel.text(kLabels + 160, top - 8, "merged", " fill=\"#606060\"");
  panel.text(kLabels + 240, top - 8, "of all keys", " fill=\"#606060\"");
  for (int i = 0; i < kRanks; ++i) {
    const double at = top + side * i;
    panel.text(0, at + side / 2 + 4, with("rank ", i));
    for (int j = 0; j < kRanks; ++j) {
      panel.box(kLabels + side * j + 1, at + 1, side - 2, 16, i, Ink::own);
    }
    panel.arrow(kLabels + 4 * side + 8, at + 9, "h38");
    panel.box(kLabels + 160, at + 1, 40, 16, i, Ink::own);
    if (i + 1 < kRanks) panel.arrow(kLabels + 180, at + 17, with("v", side - 17));
    panel.box(kLabels + 260, at + 1, 16, 16, kRanks - 1, Ink::here);
  }
  panel.arrow(kLabels + 206, top + 3 * side + 9, "h46");
  return panel;
}

Panel legend() {
  Panel panel("How to read it",
              {"64 rows on 4 ranks. A line shows the keys and values that a rank has in a",
               "forward pass; colours show which rank holds the rows."});
  const std::pair<const char*, Ink> kinds[] = {{"its own rows", Ink::own},
                                               {"received rows", Ink::here},
                                               {"rows being received", Ink::coming},
                                               {"rows released, or not yet requested", Ink::later}};
  double top = kHeld - 8;
  for (const auto& [what, ink] : kinds) {
    panel.box(0, top, 40, kThick, 0, ink);
    panel.text(kLabels, top + 12, what);
    top += kStep;
  }
  panel.text(0, top + 14, "receives 8: the number of rows from other ranks, each sent once.");
  return panel;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string file = argc > 1 ? argv[1] : "ranks.svg";
  const std::vector<Panel> panels = [] {
    std::vector<Panel> all;
    all.push_back(legend());
    all.push_back(window());
    all.push_back(causal());
    all.push_back(stages());
    all.push_back(strided());
    all.push_back(chain());
    all.push_back(sums());
    all.push_back(smart_bird());
    all.push_back(fsat());
    all.push_back(cross());
    all.push_back(merged());
    all.push_back(heads());
    return all;
  }();
  std::ofstream out(file, std::ios::binary);
  out << sheet_of("What ranks send in a forward pass", panels);
  out.close();
  if (out.fail()) {
    std::fprintf(stderr, "%s: cannot be written\n", file.c_str());
    return 1;
  }
  std::printf("%s: %zu pictures\n", file.c_str(), panels.size());
  return 0;
}
