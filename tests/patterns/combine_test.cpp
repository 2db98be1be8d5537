// SPDX-License-Identifier: MIT
/// \file
/// Tests of patterns/combine.hpp and patterns/passes.hpp: all pairs of patterns.
#include "fovea/patterns/combine.hpp"

#include <stdexcept>
#include <string>
#include <vector>

#include "fovea/patterns/block_list.hpp"
#include "fovea/patterns/fixed.hpp"
#include "fovea/patterns/global.hpp"
#include "fovea/patterns/random_blocks.hpp"
#include "patterns/erased_pattern.hpp"

namespace fovea_test::patterns_combine {

using namespace fovea;

const SequenceShape kShapes[] = {{75, 75, 0}, {33, 80, 47}, {80, 33, -47}, {80, 33, 0},
                                 {1, 75, 74}, {0, 5, 0},    {5, 0, -5}};

template <class... P>
std::vector<ErasedPattern> any_patterns(const P&... patterns) {
  return {ErasedPattern::of(patterns)...};
}

/// One of each kind. (A random pattern draws from the 10 blocks of 80 keys.)
const std::vector<ErasedPattern> kPatterns = any_patterns(
    Window{7, 3}, Causal{}, Dense{}, fixed_local(16), BlockWindow{8, 1, 1},
    GlobalTokens::at({0, 1, 2, 20, 40, 41}), GlobalTokens::first(5, true),
    RandomBlocks{8, 3, 10, 4, 0}, BlockList(8, 10, {{0, 2, 4, 4, 6}, {0, 3, 2, 8, 3, 5}}),
    FixedSummary{{8, 2, 1}}, FixedRemainder{{8, 2, 1, false}}, StridedKeys{8},
    StridedKeys{8, false}, DilatedWindow{2, 1, 8}, StridedKeys{5}, FixedSummary{{6, 2}},
    FixedSummary{{8, 8}});

template <class F>
void for_each_pair(F&& f) {
  for (std::size_t a = 0; a < kPatterns.size(); ++a) {
    for (std::size_t b = 0; b < kPatterns.size(); ++b) {
      SCOPED_TRACE(testing::Message() << "patterns " << a << " and " << b);
      f(kPatterns[a], kPatterns[b]);
    }
  }
}

/// Of the strided ranges: what the first can be cut by.
bool cuts(const ErasedPattern& by, const ErasedPattern& of) {
  const Intervals<ErasedPattern> a(of);
  const Intervals<ErasedPattern> b(by);
  for (Index s = 0; s < a.count(); ++s) {
    for (Index t = 0; t < b.count(); ++t) {
      const bool equal =
          a.row_step() == b.row_step() && a.strided_range(s, 0) == b.strided_range(t, 0);
      if (b.strided_range(t, 0).step != 1 && !equal) return false;
    }
  }
  return true;
}

bool same_rows(const ErasedPattern& a, const ErasedPattern& b) {
  return a.row_step() == b.row_step();
}

/// Holds a combination to its mask. \param make makes it \returns false if that is refused
template <class Make, class Mask>
bool expect_combined(const std::string& name, const Make& make, const Mask& mask) {
  try {
    const auto pattern = make();
    for (const SequenceShape& shape : kShapes) expect_mask(pattern, shape, name, mask);
    return true;
  } catch (const std::invalid_argument&) {
    return false;
  }
}

TEST(Combine, PairsMatchTheirReferenceMasksOrAreRefused) {
  Index differences = 0, unions = 0, intersections = 0;
  for_each_pair([&](const ErasedPattern& a, const ErasedPattern& b) {
    const bool is_difference = expect_combined(
        "difference", [&] { return subtract(a, b); },
        [&](Index i, Index j) { return a.allows(i, j) && !b.allows(i, j); });
    EXPECT_EQ(is_difference, cuts(b, a));
    const bool is_union = expect_combined(
        "union", [&] { return unite(a, b); },
        [&](Index i, Index j) { return a.allows(i, j) || b.allows(i, j); });
    const bool is_intersection = expect_combined(
        "intersection", [&] { return intersect(a, b); },
        [&](Index i, Index j) { return a.allows(i, j) && b.allows(i, j); });
    differences += is_difference ? 1 : 0;
    unions += is_union ? 1 : 0;
    intersections += is_intersection ? 1 : 0;
    if (!cuts(a, b)) return;
    EXPECT_EQ(is_union, same_rows(a, b));
    EXPECT_TRUE(is_intersection || !same_rows(a, b));
    for (const SequenceShape& shape : kShapes) expect_passes(in_passes(a, b), shape);
  });
  EXPECT_GT(differences, 150);
  EXPECT_GT(unions, 100);
  EXPECT_GT(intersections, 150);
}

/// Its only interval has the strided range of the only interval of the other.
TEST(Combine, ASummaryOfOneColumnExcludesItself) {
  const FixedSummary column{{8, 1}};
  for (const SequenceShape& shape : kShapes) {
    expect_mask(intersect(column, column), shape, "intersection",
                [&](Index i, Index j) { return column.allows(i, j); });
    expect_mask(subtract(column, column), shape, "difference", [](Index, Index) { return false; });
  }
}

/// Concrete types with fewer members than ErasedPattern: one slot without a span, and defaults.
TEST(Combine, ConcreteTypesMatchTheReferenceMask) {
  const Window window{7, 3};
  const StridedKeys strided{8};
  const FixedRemainder beyond{{8, 2, 1, false}};
  const BlockList list(8, 10, {{0, 2, 4, 4, 6}, {0, 3, 2, 8, 3, 5}});
  for (const SequenceShape& shape : kShapes) {
    expect_mask(subtract(Causal{}, list), shape, "causal, several intervals cut out",
                [&](Index i, Index j) { return j <= i && !list.allows(i, j); });
    expect_mask(unite(window, beyond), shape, "an interval, and strided ranges",
                [&](Index i, Index j) { return window.allows(i, j) || beyond.allows(i, j); });
    expect_mask(intersect(strided, window), shape, "rows of a residue in a window",
                [&](Index i, Index j) { return strided.allows(i, j) && window.allows(i, j); });
    expect_passes(in_passes(window, strided), shape);
  }
}

TEST(MultiPass, StridedMergedMatchesTheReferenceMask) {
  for (const Index l : {1, 2, 5, 8, 64, 100}) {
    for (const bool causal : {true, false}) {
      const StridedMerged merged = strided_merged(l, causal);
      const StridedMerged code = strided_merged(l, causal, StridedExtent::code);
      for (const Index n : {0, 1, 7, 64, 65, 129}) {
        const SequenceShape shape{n, n, 0};
        expect_passes(merged, shape);
        expect_passes(code, shape);
        for (Index i = 0; i < n; ++i) {
          for (Index j = 0; j < n; ++j) {
            const bool in_order = !causal || j <= i;
            const bool strided = (i - j) % l == 0;
            ASSERT_EQ(merged.allows(i, j), in_order && (strided || std::abs(i - j) <= l));
            ASSERT_EQ(code.allows(i, j), in_order && (strided || std::abs(i - j) < l));
          }
        }
      }
    }
  }
}

/// Strided keys beyond the window stay one interval on their strided range.
TEST(MultiPass, FixedMergedMatchesTheReferenceMask) {
  for (const FixedShape fixed : {FixedShape{1, 1}, {4, 1}, {8, 3, 1}, {8, 8}, {40, 5, 2, false}}) {
    const FixedMerged merged = fixed_merged(fixed);
    for (const Index n : {0, 1, 7, 64, 65, 129}) {
      expect_passes(merged, {n, n, 0});
      for (Index i = 0; i < n; ++i) {
        for (Index j = 0; j < n; ++j) {
          const Index column =
              j % fixed.stride - fixed.stride + (fixed.sub_block + 1) * fixed.summary;
          const bool in_summary = 0 <= column && column < fixed.summary;
          const bool in_order = !fixed.causal || j <= i;
          ASSERT_EQ(merged.allows(i, j),
                    in_order && (in_summary || i / fixed.stride == j / fixed.stride));
        }
      }
    }
  }
}

TEST(MultiPass, StridedBeyondTheWindowIsOneRun) {
  const SequenceShape shape{4096, 4096, 0};
  const auto beyond = strided_merged(64).pass<1>();
  const auto plan = beyond.plan(shape);
  BlockStorage storage(plan.most_runs());
  Index pairs = 0;
  for (Index b = 0; b < plan.block_count(); ++b) {
    const QueryBlock block = plan.block(b, storage);
    ASSERT_EQ(block.run_count, 1);
    EXPECT_EQ(block.runs[0].step, 64);
    EXPECT_EQ(block.step, 64);
  }
  for (Index i = 0; i < 4096; ++i) pairs += std::max(Index{0}, i / 64 - 1);
  EXPECT_EQ(plan.attended_pairs(), pairs);
}

TEST(MultiPass, APlainPatternIsItsOnlyPass) {
  Index passes = 0;
  for_each_pass(Window{3, 0}, [&](const Window& pass, auto number) {
    EXPECT_EQ(pass.left, 3);
    EXPECT_EQ(number(), 0u);
    ++passes;
  });
  EXPECT_EQ(passes, 1);
  static_assert(kPassCount<Window> == 1 && kPassCount<StridedMerged> == 2);
}

TEST(Combine, LongformerAndBigBird) {
  for (const Index n : {70, 200}) {
    const SequenceShape shape{n, n, 0};
    for (const bool causal : {true, false}) {
      const Window window{9, causal ? 0 : 9};
      expect_mask(unite(window, GlobalTokens::first(6, causal)), shape, "longformer",
                  [&](Index i, Index j) {
                    return (std::abs(i - j) <= 9 || i < 6 || j < 6) && (!causal || j <= i);
                  });
      const BlockWindow local{8, 1, causal ? 0 : 1, causal};
      const RandomBlocks random{8, 3, (n + 7) / 8, 1, 2, causal, 2, 1};
      const auto bird = join(unite(GlobalTokens::first(16, causal), local), random);
      expect_mask(bird, shape, "big bird", [&](Index i, Index j) {
        const bool near = std::abs(i / 8 - j / 8) <= 1;
        return (near || i < 16 || j < 16 || random.allows(i, j)) && (!causal || j <= i);
      });
    }
  }
}

TEST(Combine, WhatDoesNotFitIsRefused) {
  EXPECT_EQ(refusal([] {
              unite(Window{3, 0}, StridedKeys{4});
            }),
            "unite: the row steps of the patterns are 1 and 4; expected equal steps; in_passes "
            "supports any");
  EXPECT_EQ(refusal([] {
              subtract(Window{3, 0}, StridedKeys{4});
            }),
            "subtract: the patterns have keys at 0 + 1 t and at 0 + 4 t; expected all keys or "
            "equal keys; EnumeratedPattern supports any pattern");
  EXPECT_EQ(refusal([] { intersect(StridedKeys{3}, StridedKeys{4}); }),
            "intersect: the row steps of the patterns are 3 and 4; expected equal steps, or one "
            "that is 1; EnumeratedPattern supports any pattern");
}

}  // namespace fovea_test::patterns_combine
