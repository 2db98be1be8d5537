// SPDX-License-Identifier: MIT
/// \file
/// Tests of patterns/any_pattern.hpp: the erased pattern has the properties of the original one.
#include "fovea/patterns/any_pattern.hpp"

#include "fovea/patterns/fixed.hpp"
#include "fovea/patterns/global.hpp"
#include "patterns/enumeration.hpp"

namespace fovea_test::patterns_any_pattern {

using fovea::AnyPattern;
using fovea::AnyPlan;
using fovea::ReceptiveField;

const SequenceShape kShapes[] = {{75, 75, 0}, {33, 80, 47}, {80, 33, 0}, {1, 75, 74}, {0, 5, 0}};

template <class P>
void expect_same(const P& pattern) {
  const AnyPattern any = pattern;
  ASSERT_EQ(any.pass_count(), 1);
  for (const SequenceShape& shape : kShapes) {
    struct Pass {
      const AnyPattern& any;
      bool allows(Index i, Index j) const { return any.allows(i, j); }
      AnyPlan plan(const SequenceShape& s) const { return any.plan(0, s); }
    };
    expect_mask(Pass{any}, shape, "any", [&](Index i, Index j) { return pattern.allows(i, j); });
    EXPECT_EQ(any.attended_pairs(shape), pattern.plan(shape).attended_pairs());
  }
}

TEST(AnyPattern, MatchesItsPattern) {
  expect_same(fovea::Window{7, 3});
  expect_same(fovea::Causal{});
  expect_same(fovea::StridedKeys{8});
  expect_same(fovea::FixedSummary{{8, 2, 1}});
  expect_same(fovea::GlobalTokens::at({0, 1, 20}));
}

/// Each stage has its own, which differ here.
TEST(AnyPattern, HasTheKeyColumnsOfEachPass) {
  const auto merged = fovea::fixed_merged({8, 2});
  const AnyPattern any = merged;
  Index differ = 0;
  fovea::for_each_pass(merged, [&](const auto& pass, auto number) {
    const fovea::KeyColumns expected = fovea::key_columns_of(pass);
    const fovea::KeyColumns got = any.key_columns(static_cast<Index>(number));
    EXPECT_EQ(got.stride, expected.stride);
    EXPECT_EQ(got.columns, expected.columns);
    differ += expected.are_all() ? 1 : 0;
  });
  EXPECT_EQ(differ, 1);
}

TEST(AnyPattern, HasThePasses) {
  const AnyPattern any = fovea::strided_merged(8);
  const SequenceShape shape{70, 70, 0};
  ASSERT_EQ(any.pass_count(), 2);
  std::vector<int> times(as_size(70 * 70));
  Index pairs = 0;
  for (Index pass = 0; pass < 2; ++pass) {
    const Shown shown = enumerate(any.plan(pass, shape), 70, 70);
    ASSERT_EQ(shown.fault, "");
    for (std::size_t n = 0; n < times.size(); ++n) times[n] += shown.pairs[n];
  }
  for (Index i = 0; i < 70; ++i) {
    for (Index j = 0; j < 70; ++j) {
      const bool sees = j <= i && (i - j <= 8 || (i - j) % 8 == 0);
      EXPECT_EQ(any.allows(i, j), sees);
      EXPECT_EQ(times[as_size(i * 70 + j)], sees ? 1 : 0);
      pairs += sees ? 1 : 0;
    }
  }
  EXPECT_EQ(any.attended_pairs(shape), pairs);
}

TEST(AnyPattern, KnowsTheReceptiveFieldOfItsPasses) {
  constexpr Index far = fovea::kFarPosition;
  const auto expect = [](const ReceptiveField& receptive_field, Index before, Index after) {
    EXPECT_EQ(receptive_field.before, before);
    EXPECT_EQ(receptive_field.after, after);
  };
  expect(AnyPattern(fovea::Window{7, 3}).receptive_field(0), 7, 3);
  expect(AnyPattern(fovea::Window{}).receptive_field(0), far, far);
  expect(AnyPattern(fovea::Causal{}).receptive_field(0), far, 0);
  expect(AnyPattern(fovea::DilatedWindow{7, 3, 10}).receptive_field(0), 70, 30);
  expect(AnyPattern(fovea::fixed_local(16)).receptive_field(0), 15, 0);
  expect(AnyPattern(fovea::BlockWindow{16, 1, 2}).receptive_field(0), 31, 47);
  expect(AnyPattern(fovea::GlobalTokens::first(3)).receptive_field(0), far, far);
  const AnyPattern merged = fovea::strided_merged(8);
  expect(merged.receptive_field(0), 8, 0);
  expect(merged.receptive_field(1), far, far);
}

/// No visible key is beyond a pattern's reach.
TEST(AnyPattern, SeesNothingBeyondItsReach) {
  for (const AnyPattern& pattern :
       {AnyPattern(fovea::Window{7, 3}), AnyPattern(fovea::DilatedWindow{3, 2, 5}),
        AnyPattern(fovea::fixed_local(16)), AnyPattern(fovea::fixed_local(16, false)),
        AnyPattern(fovea::BlockWindow{4, 1, 2})}) {
    const ReceptiveField receptive_field = pattern.receptive_field(0);
    for (Index i = 0; i < 90; ++i) {
      for (Index j = 0; j < 90; ++j) {
        if (pattern.allows(i, j)) {
          EXPECT_LE(i - j, receptive_field.before);
          EXPECT_LE(j - i, receptive_field.after);
        }
      }
    }
  }
}

TEST(AnyPlan, IsEmptyWithoutBlocks) {
  const AnyPlan none;
  EXPECT_EQ(none.block_count(), 0);
  EXPECT_EQ(none.key_block_count(), 0);
  EXPECT_EQ(none.most_runs(), 0);
  EXPECT_EQ(none.attended_pairs(), 0);
}

}  // namespace fovea_test::patterns_any_pattern
