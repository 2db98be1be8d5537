// SPDX-License-Identifier: MIT
/// \file
/// Tests of patterns/enumerated.hpp, and of patterns that a user writes.
#include "fovea/patterns/enumerated.hpp"

#include "fovea/patterns/strided.hpp"
#include "patterns/enumeration.hpp"
#include "support/fill.hpp"

namespace fovea_test::patterns_enumerated {

using fovea::EnumeratedPattern;
using fovea::IntervalPlan;
using fovea::Range;

/// As the README has it: every query sees the keys of the first half of its past.
struct FirstHalf {
  bool allows(Index i, Index j) const { return 0 <= j && 2 * j <= i; }
  Range keys_of(Index i) const { return {0, i < 0 ? 0 : i / 2 + 1}; }
  IntervalPlan<FirstHalf> plan(const SequenceShape& shape) const { return {*this, shape}; }
};
static_assert(fovea::Pattern<FirstHalf>);

/// Two slots and no optional members.
struct Ends {
  bool allows(Index i, Index j) const { return j < 2 || (j <= i && j >= i - 2); }
  Index interval_count() const { return 2; }
  void keys_of(Index i, std::span<Range> intervals) const {
    intervals[0] = {0, 2};
    intervals[1] = {std::max(Index{2}, i - 2), i + 1};
  }
  IntervalPlan<Ends> plan(const SequenceShape& shape) const { return {*this, shape}; }
};
static_assert(fovea::Pattern<Ends>);

TEST(UserPattern, CanBeUsedAsAPattern) {
  for_each_shape(200, [](const SequenceShape& shape) {
    expect_mask(FirstHalf{}, shape, "first half",
                [](Index i, Index j) { return j <= i / 2 && i >= 0; });
    expect_mask(Ends{}, shape, "ends",
                [](Index i, Index j) { return j < 2 || (j <= i && i - j <= 2); });
  });
}

TEST(EnumeratedPattern, MatchesItsReferenceMask) {
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    const auto reference_mask = [seed](Index i, Index j) {
      return hash(seed, i, j / 3, 0, 0) % 6 < seed;
    };
    for_each_shape(130, [&](const SequenceShape& shape) {
      expect_mask(EnumeratedPattern(reference_mask, shape), shape, "seed " + std::to_string(seed),
                  reference_mask);
    });
  }
}

/// It may look up a table that has no more.
TEST(EnumeratedPattern, CallsItsPredicateForPairsOfItsShapeAlone) {
  const SequenceShape shape{7, 5, 3};
  Index asked = 0;
  const EnumeratedPattern pattern(
      [&](Index i, Index j) {
        ++asked;
        EXPECT_TRUE(3 <= i && i < 10 && 0 <= j && j < 5) << i << ", " << j;
        return i == 9;
      },
      shape);
  EXPECT_EQ(asked, 7 * 5);
}

/// The message of unite's refusal.
TEST(EnumeratedPattern, UnitesAnyReferenceMasks) {
  const fovea::StridedKeys a{3};
  const fovea::StridedKeys b{4};
  const auto reference_mask = [&](Index i, Index j) { return a.allows(i, j) || b.allows(i, j); };
  const SequenceShape shape{90, 100, 10};
  expect_mask(EnumeratedPattern(reference_mask, shape), shape, "two strides",
              [](Index i, Index j) { return j <= i && ((i - j) % 3 == 0 || (i - j) % 4 == 0); });
}

/// Decoding asks for a part of the listed positions.
TEST(EnumeratedPattern, PlansPartsOfItsShape) {
  const auto reference_mask = [](Index i, Index j) { return j <= i && (i ^ j) % 5 != 0; };
  const EnumeratedPattern pattern(reference_mask, {40, 50, 10});
  for (Index i = 10; i < 50; ++i) expect_mask(pattern, {1, i + 1, i}, "one row", reference_mask);
  EXPECT_EQ(refusal([&] {
              pattern.plan({1, 10, 9});
            }),
            "EnumeratedPattern: the positions of the queries are 9; expected 10 to 49, the "
            "enumerated positions");
  EXPECT_EQ(refusal([&] {
              pattern.plan({2, 50, 49});
            }),
            "EnumeratedPattern: the positions of the queries are 49 to 50; expected 10 to 49, the "
            "enumerated positions");
  EXPECT_EQ(
      refusal([&] {
        pattern.plan({1, 51, 49});
      }),
      "EnumeratedPattern: the number of keys is 51; expected at most 50, the enumerated positions");
}

}  // namespace fovea_test::patterns_enumerated
