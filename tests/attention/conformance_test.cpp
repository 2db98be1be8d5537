// SPDX-License-Identifier: MIT
// fovea_test(OPTIMISED SHARDS 4 LEVELS)
/// \file
/// Every operator against its oracle: sizes, logits, and where the result is known exactly; with
/// its gradients widths, heads and key lengths (see backward_test.cpp).
#include "attention/conformance.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "attention/gradients.hpp"

namespace fovea_test::attention_conformance {

class IsaLevels : public testing::TestWithParam<IsaLevel> {};

// A level that this machine lacks is one skipped test, by name.
TEST_P(IsaLevels, RunsHere) {
  if (!has_level(GetParam())) GTEST_SKIP() << "no " << fovea::name(GetParam());
}
INSTANTIATE_TEST_SUITE_P(, IsaLevels,
                         testing::Values(IsaLevel::baseline, IsaLevel::v3, IsaLevel::v4),
                         [](const auto& level) { return fovea::name(level.param); });

/// A case that is gone would leave what it covered untried.
TEST(CoveredCases, AndTheirRepresentativesExist) {
  const auto exists = [](const std::string& name) {
    return std::ranges::any_of(all_cases<float>(),
                               [&](const Case<float>& op) { return op.name == name; });
  };
  for (const auto& [covered, by] : covered_cases()) {
    EXPECT_TRUE(exists(covered)) << covered;
    EXPECT_TRUE(exists(by)) << by;
    EXPECT_FALSE(covered_cases().contains(by)) << by << " is covered itself";
  }
}

TEST_P(Conformance, EdgeSizes) {
  each([]<class T>(const Case<T>& op) {
    std::uint64_t seed = 1;
    for (const auto& [queries, keys] : edge_sizes(op)) {
      expect_conforms(op, make_problem(op, sizes(queries, keys, 8, 5), seed++));
    }
  });
}

/// The count does not take as long as there are rows, and does not overflow.
TEST_P(Conformance, CountsPairsOfHugeSequences) {
  each([]<class T>(const Case<T>& op) {
    if (op.makes_lists) GTEST_SKIP() << "their tests count pairs";
    const Index some = op.attended_pairs(sizes(8192, 8192, 8, 5));
    for (const Index rows : {Index{1} << 62, (Index{1} << 62) - 1}) {
      const Index pairs = op.attended_pairs({.batch = 1,
                                             .query_heads = 4,
                                             .key_heads = 2,
                                             .queries = rows,
                                             .keys = rows,
                                             .width = 8,
                                             .value_width = 5});
      if (some > 2 * 8192) {
        EXPECT_EQ(pairs, std::numeric_limits<Index>::max());
      } else {
        EXPECT_GT(pairs, 0);
      }
    }
    // The pairs of one row are, but for its window and the like, a share of the keys.
    const auto grown = [&](Index keys) {
      const auto pairs = [&](Index n) { return op.attended_pairs(sizes(1, n, 8, 5)); };
      return pairs(keys) - pairs(keys / 4);
    };
    const Index last = grown(Index{1} << 62);
    EXPECT_NEAR(static_cast<double>(last), 4 * static_cast<double>(grown(Index{1} << 60)), 1e5);
  });
}

TEST_P(Arithmetic, LongSequences) {
  each([]<class T>(const Case<T>& op) {
    const AttentionShape shape = sizes(4200, 4200, 3, 2);
    if (op.attended_pairs(shape) > 2'000'000 || op.has_pairs()) {
      GTEST_SKIP() << "too many pairs for the oracle";
    }
    expect_conforms(op, make_problem(op, shape));
  });
}

TEST_P(Arithmetic, Widths) {
  each([]<class T>(const Case<T>& op) {
    std::vector<Index> widths = {59, 64, 80, 111, 128, 256};
    for (Index width = 0; width <= 33; ++width) widths.push_back(width);
    for (std::size_t i = 0; i < widths.size(); ++i) {
      const Index value_width = widths[(i * 7 + 3) % widths.size()];
      expect_both_conform(op, make_problem(op, sizes(19, 37, widths[i], value_width), i));
      expect_conforms(op, make_problem(op, sizes(3, 133, value_width, widths[i]), i));
    }
  });
}

TEST_P(Arithmetic, WidthsOfWholeRegisters) {
  each([]<class T>(const Case<T>& op) {
    for (const Index width : register_widths()) {
      expect_both_conform(op, make_problem(op, sizes(35, 40, width, width), 3));
    }
  });
}

TEST_P(Conformance, GroupedHeads) {
  each([]<class T>(const Case<T>& op) {
    for (const Index key_heads : {1, 2, 3, 6}) {
      expect_both_conform(op, make_problem(op, {2, 6, key_heads, 70, 33, 12, 7}));
      expect_conforms(op, make_problem(op, {3, 6, key_heads, 9, 40, 5, 17}));
    }
  });
}

TEST_P(Conformance, KeyLengths) {
  each([]<class T>(const Case<T>& op) {
    for (const auto& [queries, keys] : {std::array<Index, 2>{40, 40}, {300, 257}, {5, 300}}) {
      Problem<T> problem = make_problem(op, {6, 2, 1, queries, keys, 7, 9});
      problem.key_lengths = {0, 1, keys / 2, keys - 1, keys, std::min<Index>(keys, 128)};
      expect_both_conform(op, problem);
    }
  });
}

/// Keys of one head whose logits are value(j) times the scale.
template <class T, class F>
Problem<T> with_logits(const Case<T>& op, Index width, Index keys, F value) {
  const AttentionShape shape = sizes(40, keys, width, 6);
  return make_problem(op, shape, 5, {constant(1), first_column(value), gaussian(5)});
}

TEST_P(SoftmaxArithmetic, LogitExtremes) {
  each([]<class T>(const Case<T>& op) {
    for (const double size : {1.0, 20.0, 88.0, 104.0, 709.0, 1e4, 1e30, 3e38}) {
      for (const Index width : {1, 16}) {
        const auto sign = [=](Index j) { return hash(3, j, 0, 0, 0) % 2 == 0 ? size : -size; };
        expect_conforms(op, with_logits(op, width, 150, sign));
        const auto some = [=](Index j) { return j % 7 == 3 ? size : j % 7 == 5 ? -size : 0; };
        expect_conforms(op, with_logits(op, width, 150, some));
        expect_conforms(op, with_logits(op, width, 150, [=](Index) { return -size; }));
      }
    }
  });
}

TEST_P(Arithmetic, AscendingLogits) {
  each([]<class T>(const Case<T>& op) {
    for (const double step : {1e-3, 0.01, 0.3, 2.0, -0.01, -2.0}) {
      const auto value = [=](Index j) { return step * static_cast<double>(j); };
      expect_conforms(op, with_logits(op, 1, 4500, value));
    }
  });
}

TEST_P(Arithmetic, CancellingLogitsAndValues) {
  each([]<class T>(const Case<T>& op) {
    const AttentionShape shape = sizes(40, 150, 32, 6);
    for (const double size : {10.0, 1e3, 1e6}) {
      expect_conforms(
          op, make_problem(op, shape, 7, {constant(1), cancelling(7, size), gaussian(9, size)}));
      expect_conforms(
          op, make_problem(op, shape, 8, {gaussian(8), cancelling(8, size), cancelling(9, size)}));
    }
  });
}

/// Equal data is the worst for long chains of sums: every rounding errs the same way.
TEST_P(Arithmetic, ConstantData) {
  each([]<class T>(const Case<T>& op) {
    const double just_above = 1 + 63 * std::numeric_limits<T>::epsilon() / 2;
    for (const double c : {0.1, just_above, 1.7}) {
      expect_conforms(
          op, make_problem(op, sizes(40, 300, 4, 3), 1, {constant(0), constant(1), constant(c)}),
          " constant data");
      const Fill pairs = [=](Index, Index, Index n, Index d) {
        return 3 * c + (n % 2 == 0 ? 0 : d % 2 == 0 ? 1 : -1);
      };
      expect_conforms(op,
                      make_problem(op, sizes(5, 40, 256, 3), 1, {constant(1), pairs, gaussian(2)}),
                      " constant data");
    }
  });
}

Index count_visible(const ReferenceMask& reference_mask, const AttentionShape& s, Index row) {
  Index seen = 0;
  for (Index j = 0; j < s.keys; ++j)
    seen += reference_mask(Pair{0, 0, row, j, s.queries, s.keys}) ? 1 : 0;
  return seen;
}

/// Equal logits and small integers: the mean, exactly where the number of keys is a power of two.
TEST_P(PlainConformance, EqualLogitsGiveTheMean) {
  each([]<class T>(const Case<T>& op) {
    const AttentionShape shape = sizes(300, 300, 6, 5);
    const Problem<T> problem =
        make_problem(op, shape, 2, {constant(0.75), constant(-1.25), integers(2, 50)});
    expect_conforms(op, problem);
    const Expected<T> expected = op.oracle(problem.inputs());
    at_each_level([&] {
      const Result<T> got = run(op, problem);
      for (Index row = 0; row < shape.queries; ++row) {
        const Index seen = count_visible(op.visible, shape, row);
        if (seen == 0 || (seen & (seen - 1)) != 0) continue;
        for (Index c = 0; c < shape.value_width; ++c) {
          const Wide<T> mean = expected.out.value[as_size(row * shape.value_width + c)];
          ASSERT_EQ(got.row(0, 0, row)[c], static_cast<T>(mean)) << "row " << row;
        }
      }
    });
  });
}

/// One key more than 104 (double: 746) above the others: its value, bit for bit.
TEST_P(PlainConformance, OneHotGivesTheValueExactly) {
  each([]<class T>(const Case<T>& op) {
    const double gap = std::is_same_v<T, float> ? 104.5 : 746;
    const AttentionShape shape = sizes(200, 200, 1, 5);
    for (const Index hot : {0, 5, 127, 128, 199}) {
      const double logit = gap / op.options.scale.value_or(1);
      const auto value = [=](Index j) { return j == hot ? logit : 0; };
      const Problem<T> problem =
          make_problem(op, shape, 4, {constant(1), first_column(value), gaussian(4)});
      at_each_level([&] {
        const Result<T> got = run(op, problem);
        for (Index row = 0; row < shape.queries; ++row) {
          if (!op.sees(shape, 0, 0, row, hot)) continue;
          ASSERT_TRUE(same_bits(got.row(0, 0, row), &problem.v(0, 0, hot, 0), 5, {1, 1, 1, 5}))
              << "row " << row << ", key " << hot;
        }
      });
    }
  });
}

/// Weights sum to 1 within 2 u, and the output stays in the hull of the visible values.
TEST_P(PlainConformance, WeightsSumToOne) {
  each([]<class T>(const Case<T>& op) {
    const AttentionShape shape = sizes(140, 2100, 8, 3);
    Problem<T> problem = make_problem(op, shape);
    const T slack = 4 * static_cast<T>(kRoundoff<T>);
    at_each_level([&] {
      problem.v.fill(gaussian(12));
      const Result<T> mixed = run(op, problem);
      problem.v.fill(constant(1));
      const Result<T> ones = run(op, problem);
      for (Index row = 0; row < shape.queries; ++row) {
        T low = std::numeric_limits<T>::infinity();
        T high = -low;
        for (Index j = 0; j < shape.keys; ++j) {
          if (!op.sees(shape, 0, 0, row, j)) continue;
          const auto v = static_cast<T>(gaussian(12)(0, 0, j, 1));
          low = std::min(low, v);
          high = std::max(high, v);
        }
        if (low > high) continue;
        const T reach = slack * std::max(std::abs(low), std::abs(high));
        ASSERT_GE(mixed.row(0, 0, row)[1], low - reach) << row;
        ASSERT_LE(mixed.row(0, 0, row)[1], high + reach) << row;
        ASSERT_LE(std::abs(ones.row(0, 0, row)[0] - 1), slack / 2) << row;
      }
    });
  });
}

INSTANTIATE_TEST_SUITE_P(, Conformance, conforming_subjects(), test_name);
INSTANTIATE_TEST_SUITE_P(, Arithmetic, arithmetic_subjects(), test_name);
INSTANTIATE_TEST_SUITE_P(, SoftmaxArithmetic, softmax_arithmetic_subjects(), test_name);
INSTANTIATE_TEST_SUITE_P(, PlainConformance, plain_subjects(), test_name);

}  // namespace fovea_test::attention_conformance
