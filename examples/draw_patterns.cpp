// SPDX-License-Identifier: MIT
/// \file
/// usage: draw_patterns [file.svg]     patterns.svg if none is given
/// Draws the visible pairs of each operator in a sequence of 64 tokens on one sheet.
#include <fovea/fovea.hpp>

#include "near_pixels.hpp"
#include "pattern_sheet.hpp"

using drawing::Part;
using drawing::Picture;
using fovea::HeadAssignment;
using fovea::Index;

namespace {

constexpr Index kTokens = 64;
constexpr Index kStride = 8;
constexpr Index kBlock = 4;  // of BigBird

/// How a picture is drawn.
struct Style {
  Index head = 0;
  Index grid = kStride;
  std::vector<Part> parts = {};
};

class Sheet {
 public:
  template <class Op>
  void add(const std::string& options, const Op& op, const Style& style = {}) {
    const drawing::Mask allows = drawing::mask_of(op, style.head, kTokens);
    add({Op::name(), options, allows, style.grid, style.parts});
    const fovea::AttentionShape shape{.query_heads = 4, .queries = kTokens, .keys = kTokens};
    counts_agree_ = counts_agree_ &&
                    drawing::count_visible(allows, kTokens) == op.attended_pairs(shape, style.head);
  }

  /// If the pattern of an operator depends on data, `allows` reads its choice.
  void add(const Picture& picture) { pictures_.push_back(picture); }

  /// Whether every plan has as many pairs as there are squares.
  bool counts_agree() const { return counts_agree_; }
  std::size_t size() const { return pictures_.size(); }
  std::string svg() const {
    return drawing::sheet(
        "Visible pairs of each operator, N = 64. Rows: queries, from the top; columns: keys, from "
        "the "
        "left. Below: the share of all pairs",
        pictures_, kTokens, 5);
  }

 private:
  std::vector<Picture> pictures_;
  bool counts_agree_ = true;
};

/// A part is a pattern, too.
template <class P>
Part part(const std::string& name, const std::string& colour, const P& pattern) {
  return {name, colour, [pattern](Index i, Index j) { return pattern.allows(i, j); }};
}

void add_plain(Sheet& sheet) {
  using fovea::DilatedWindow, fovea::SparseAttention;
  sheet.add("every key", fovea::FullAttention{}, {.grid = 0});
  sheet.add("causal", fovea::FullAttention{{.causal = true}}, {.grid = 0});
  sheet.add("left = right = 4", fovea::LocalAttention{{.left = 4, .right = 4}}, {.grid = 0});
  sheet.add("DilatedWindow: left = right = 3, dilation 3",
            SparseAttention{{.patterns = {DilatedWindow{3, 3, 3}}}}, {.grid = 0});
  fovea::BlockRows butterfly;
  butterfly.offsets.push_back(0);
  for (Index row = 0; row < kTokens / kStride; ++row) {
    std::vector<Index> columns = {row, row ^ 1, row ^ 2, row ^ 4};
    std::sort(columns.begin(), columns.end());
    butterfly.columns.insert(butterfly.columns.end(), columns.begin(), columns.end());
    butterfly.offsets.push_back(static_cast<Index>(butterfly.columns.size()));
  }
  sheet.add("listed blocks of 8: a butterfly",
            fovea::BlockSparseAttention{{.block = kStride, .layouts = {butterfly}}});
}

/// Sparse Transformer, Figure 3.
void add_strided(Sheet& sheet) {
  using fovea::StridedAttention, fovea::strided_local, fovea::StridedKeys;
  const std::vector<Part> parts = {part("A1", drawing::kBlue, strided_local(kStride)),
                                   part("A2", drawing::kOrange, StridedKeys{kStride})};
  const StridedAttention separate{{.stride = kStride}};
  sheet.add("l = 8; heads 0, 2, ...: A1", separate, {.head = 0, .parts = {parts[0]}});
  sheet.add("l = 8; heads 1, 3, ...: A2", separate, {.head = 1, .parts = {parts[1]}});
  sheet.add("l = 8, merged", StridedAttention{{.stride = kStride, .heads = HeadAssignment::merged}},
            {.parts = parts});
  sheet.add("l = 8, A2, not causal", StridedAttention{{.stride = kStride, .causal = false}},
            {.head = 1, .parts = {part("A2", drawing::kOrange, StridedKeys{kStride, false})}});
  sheet.add("l = 8, merged, not causal",
            StridedAttention{{.stride = kStride, .heads = HeadAssignment::merged, .causal = false}},
            {.parts = {part("A1", drawing::kBlue, strided_local(kStride, false)),
                       part("A2", drawing::kOrange, StridedKeys{kStride, false})}});
}

/// The same figure.
void add_fixed(Sheet& sheet) {
  using fovea::FixedAttention, fovea::fixed_local, fovea::FixedSummary;
  const auto parts = [](Index sub_block) -> std::vector<Part> {
    return {part("A1", drawing::kBlue, fixed_local(kStride)),
            part("A2", drawing::kOrange, FixedSummary{{kStride, 2, sub_block, true}})};
  };
  const FixedAttention separate{{.stride = kStride, .summary = 2}};
  sheet.add("l = 8; heads 0, 2, ...: A1", separate, {.head = 0, .parts = {parts(0)[0]}});
  sheet.add("l = 8, c = 2; heads 1, 3, ...: A2", separate, {.head = 1, .parts = {parts(0)[1]}});
  fovea::FixedOptions options{.stride = kStride, .summary = 2, .heads = HeadAssignment::merged};
  sheet.add("l = 8, c = 2, merged", FixedAttention{options}, {.parts = parts(0)});
  options.sub_block_per_head = true;
  const FixedAttention per_head{options};
  sheet.add("merged, sub-block per head: head 1", per_head, {.head = 1, .parts = parts(1)});
  sheet.add("merged, sub-block per head: head 3", per_head, {.head = 3, .parts = parts(3)});
}

/// Longformer, Figure 2 (d).
void add_longformer(Sheet& sheet) {
  fovea::LongformerOptions options{.left = 4, .right = 4, .first_global = 2, .global = {21, 43}};
  for (const bool causal : {false, true}) {
    options.causal = causal;
    sheet.add(
        causal ? "the same, causal" : "window 4 + 1 + 4, global 0, 1, 21, 43",
        fovea::LongformerAttention{options},
        {.grid = 0,
         .parts = {part("window", drawing::kBlue, fovea::Window{4, 4}),
                   part("global", drawing::kOrange, fovea::GlobalTokens::at({0, 1, 21, 43}))}});
  }
}

/// BigBird, Figure 1 (d).
void add_big_bird(Sheet& sheet) {
  fovea::BigBirdOptions options{.block = kBlock, .random_blocks = 2};
  for (const bool causal : {false, true}) {
    options.causal = causal;
    sheet.add(causal ? "the same, causal" : "blocks of 4: window 3, global 2, random 2",
              fovea::BigBirdAttention{options},
              {.grid = kBlock,
               .parts = {part("window", drawing::kBlue, fovea::BlockWindow{kBlock, 1, 1}),
                         part("global", drawing::kOrange, fovea::GlobalTokens::first(2 * kBlock)),
                         {"random", drawing::kGreen, [](Index, Index) { return true; }}}});
  }
}

/// Reformer, Figure 2, and Sparse Sinkhorn Attention, Figure 1. Their visible pairs depend on data:
/// here tokens of 8 kinds in random order, and sorting logits that pair each block with another.
void add_sorted(Sheet& sheet) {
  using drawing::kBlue, drawing::kOrange;
  constexpr Index width = 8;
  std::vector<float> rows(kTokens * width);
  for (Index n = 0; n < kTokens; ++n) {
    const Index kind = (n * n * 5 + n / 3) % width;
    rows[static_cast<std::size_t>(n * width + kind)] = 1;
  }
  const fovea::View<const float> qk(rows.data(), {1, 1, kTokens, width});
  const fovea::ReformerAttention reformer{{.chunk = kStride, .rounds = 1, .buckets = 8, .seed = 3}};
  std::vector<Index> buckets(kTokens);
  reformer.buckets<float>({qk, qk}, fovea::View<Index>(buckets.data(), {1, 1, 1, kTokens}));
  const auto bucket = [buckets](Index n) { return buckets[static_cast<std::size_t>(n)]; };
  const auto chunk = [bucket](Index n) {
    Index before = 0;
    for (Index j = 0; j < kTokens; ++j) {
      before += bucket(j) < bucket(n) || (bucket(j) == bucket(n) && j < n) ? 1 : 0;
    }
    return before / kStride;
  };
  const auto sees = [chunk](Index i, Index j) {
    return chunk(j) == chunk(i) || chunk(j) == (chunk(i) + kStride - 1) % kStride;
  };
  const auto same = [bucket](Index i, Index j) { return bucket(i) == bucket(j); };
  const std::vector<Part> parts = {{"same bucket", kBlue, same}, {"another", kOrange, sees}};
  sheet.add({"ReformerAttention", "one round, chunks of 8", sees, kStride, parts});
  const auto causal = [sees](Index i, Index j) { return j <= i && sees(i, j); };
  sheet.add({"ReformerAttention", "the same, causal", causal, kStride, parts});
  const auto own = [](Index i, Index j) { return i / kStride == j / kStride; };
  const auto sorted = [](Index i, Index j) { return (i / kStride * 3 + 2) % 8 == j / kStride; };
  sheet.add({"SinkhornAttention",
             "blocks of 8, sorted by a permutation",
             [own, sorted](Index i, Index j) { return own(i, j) || sorted(i, j); },
             kStride,
             {{"own block", kBlue, own}, {"sorted block", kOrange, sorted}}});
}

}  // namespace

int main(int argc, char** argv) {
  const std::string file = argc > 1 ? argv[1] : "patterns.svg";
  Sheet sheet;
  add_plain(sheet);
  add_strided(sheet);
  add_fixed(sheet);
  add_longformer(sheet);
  add_big_bird(sheet);
  add_sorted(sheet);
  sheet.add("your own: near pixels of 8 x 8",
            fovea::SparseAttention{{.patterns = {NearPixels{.width = 8, .radius = 2}}}});

  if (!drawing::write(file, sheet.svg())) {
    std::fprintf(stderr, "draw_patterns: cannot write %s\n", file.c_str());
    return 1;
  }
  std::printf("%s: %zu pictures, pairs equal those of the plans: %s\n", file.c_str(), sheet.size(),
              sheet.counts_agree() ? "yes" : "no");
  return sheet.counts_agree() ? 0 : 1;
}
