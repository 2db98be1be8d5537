// SPDX-License-Identifier: MIT
/// \file
/// Tests of patterns/window.hpp and patterns/pattern.hpp: the plan, enumerated pair by pair,
/// against `allows`.
#include "fovea/patterns/window.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/fill.hpp"
#include "support/index.hpp"

namespace fovea_test {
namespace {

using fovea::BlockStorage;
using fovea::CausalAlignment;
using fovea::KeyRun;
using fovea::QueryBlock;
using fovea::SequenceShape;
using fovea::Window;

/// What a plan shows: how often each row stands in it, and each pair.
struct Shown {
  std::vector<int> rows;   // [queries]
  std::vector<int> pairs;  // [queries, keys]
  std::string fault;       // the first broken promise
};

std::string fault_of(const KeyRun& run, const QueryBlock& block, Index keys) {
  if (run.step < 1 || run.count < 0) return "step or count of a run";
  if (run.count > 0 && (run.first < 0 || run.first + run.step * (run.count - 1) >= keys)) {
    return "a run beyond the keys";
  }
  if ((run.lower == nullptr) != (run.upper == nullptr)) return "one bound without the other";
  if (run.lower == nullptr) return "";
  for (Index r = 0; r < block.count; ++r) {
    if (run.lower[r] < 0 || run.lower[r] > run.count) return "lower beyond the run";
    if (run.upper[r] < 0 || run.upper[r] > run.count) return "upper beyond the run";
  }
  return "";
}

template <class Plan>
Shown enumerate(const Plan& plan, Index queries, Index keys) {
  Shown shown{std::vector<int>(as_size(queries)), std::vector<int>(as_size(queries * keys)), ""};
  BlockStorage storage;
  for (Index b = 0; b < plan.block_count(); ++b) {
    const QueryBlock block = plan.block(b, storage);
    if (block.count < 1 || block.count > fovea::kMaxBlockRows) shown.fault = "rows of a block";
    for (Index n = 0; n < block.run_count; ++n) {
      const std::string fault = fault_of(block.runs[n], block, keys);
      if (!fault.empty()) shown.fault = fault;
    }
    if (!shown.fault.empty()) return shown;
    for (Index r = 0; r < block.count; ++r) {
      const Index row = block.first + block.step * r;
      if (row < 0 || row >= queries) {
        shown.fault = "a row beyond the queries";
        return shown;
      }
      ++shown.rows[as_size(row)];
      Index seen = 0;
      for (Index n = 0; n < block.run_count; ++n) {
        const KeyRun& run = block.runs[n];
        const Index low = run.lower == nullptr ? 0 : run.lower[r];
        const Index high = run.upper == nullptr ? run.count : run.upper[r];
        for (Index t = low; t < high; ++t, ++seen) {
          ++shown.pairs[as_size(row * keys + run.first + run.step * t)];
        }
      }
      if (seen > block.most_keys) shown.fault = "more than most_keys";
    }
  }
  return shown;
}

/// \param allows the law, from spec.md: whether position i sees key j
template <class Pattern, class Law>
void expect_law(const Pattern& pattern, const SequenceShape& shape, Law&& allows) {
  const auto plan = pattern.plan(shape);
  const Shown shown = enumerate(plan, shape.queries, shape.keys);
  std::ostringstream text;
  text << "queries " << shape.queries << ", keys " << shape.keys << ", first position "
       << shape.first_position << ", left " << pattern.left << ", right " << pattern.right;
  ASSERT_EQ(shown.fault, "") << text.str();
  Index pairs = 0;
  for (Index r = 0; r < shape.queries; ++r) {
    ASSERT_EQ(shown.rows[as_size(r)], 1) << "row " << r << ", " << text.str();
    const Index i = r + shape.first_position;
    for (Index j = 0; j < shape.keys; ++j) {
      ASSERT_EQ(pattern.allows(i, j), allows(i, j)) << i << " " << j << ", " << text.str();
      ASSERT_EQ(shown.pairs[as_size(r * shape.keys + j)], allows(i, j) ? 1 : 0)
          << "row " << r << ", key " << j << ", " << text.str();
      pairs += allows(i, j) ? 1 : 0;
    }
  }
  ASSERT_EQ(plan.visible_pairs(), pairs) << text.str();
}

void expect_window(const Window& window, const SequenceShape& shape) {
  expect_law(window, shape, [&](Index i, Index j) {
    const bool in_left = window.left == Window::kUnbounded || i - j <= window.left;
    const bool in_right = window.right == Window::kUnbounded || j - i <= window.right;
    return in_left && in_right;
  });
}

constexpr CausalAlignment kAlignments[] = {CausalAlignment::bottom_right,
                                           CausalAlignment::top_left};

TEST(Window, SmallOnesAllFollowTheLaw) {
  const Index sides[] = {0, 1, 2, 3, 5, 8, 11, Window::kUnbounded};
  for (const CausalAlignment alignment : kAlignments) {
    for (Index queries = 0; queries <= 9; ++queries) {
      for (Index keys = 0; keys <= 9; ++keys) {
        for (const Index left : sides) {
          for (const Index right : sides) {
            expect_window({left, right}, SequenceShape::of(queries, keys, alignment));
          }
        }
      }
    }
  }
}

TEST(Window, LargerOnesFollowTheLaw) {
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    const auto draw = [&](Index what, Index most) {
      return static_cast<Index>(hash(seed, what, 0, 0, 0) % static_cast<std::uint64_t>(most + 1));
    };
    const Index queries = draw(0, 700);
    const Index keys = draw(1, 500);
    const Index reach = draw(2, 3) == 0 ? 600 : 40;
    const Window window = {draw(3, 5) == 0 ? Window::kUnbounded : draw(4, reach),
                           draw(5, 3) == 0 ? Window::kUnbounded : draw(6, reach)};
    expect_window(window, SequenceShape::of(queries, keys, kAlignments[draw(7, 1)]));
  }
}

TEST(Window, BlocksOfLongSequencesFollowTheLaw) {
  for (const Index queries : {511, 512, 513, 4095, 4096, 4097, 5000}) {
    expect_window({3, 2}, SequenceShape::of(queries, 40, CausalAlignment::top_left));
    expect_window({3, 2}, SequenceShape::of(queries, 40, CausalAlignment::bottom_right));
    expect_window({Window::kUnbounded, 0},
                  SequenceShape::of(queries, 700, CausalAlignment::bottom_right));
  }
}

TEST(Window, NamedOnesAreWhatTheySay) {
  for (const Index queries : {1, 5, 70}) {
    for (const Index keys : {1, 6, 90}) {
      const SequenceShape shape = SequenceShape::of(queries, keys, CausalAlignment::bottom_right);
      expect_law(fovea::Dense{}, shape, [](Index, Index) { return true; });
      expect_law(fovea::Causal{}, shape, [](Index i, Index j) { return j <= i; });
    }
  }
}

TEST(Window, QueriesEndWhereKeysEndUnlessTopLeft) {
  EXPECT_EQ(SequenceShape::of(3, 10, CausalAlignment::bottom_right).first_position, 7);
  EXPECT_EQ(SequenceShape::of(10, 3, CausalAlignment::bottom_right).first_position, -7);
  EXPECT_EQ(SequenceShape::of(3, 10, CausalAlignment::top_left).first_position, 0);
}

TEST(Window, SidesOfAnySizeAreExact) {
  constexpr Index most = std::numeric_limits<Index>::max();
  for (const Index side :
       {most, most - 1, most / 2, most / 4 + 1, most / 4, most / 4 - 1, Index{1} << 40}) {
    const SequenceShape shape = SequenceShape::of(20, 30, CausalAlignment::bottom_right);
    expect_law(Window{side, 2}, shape, [](Index i, Index j) { return j <= i + 2; });
    expect_law(Window{2, side}, shape, [](Index i, Index j) { return i - 2 <= j; });
    expect_law(Window{side, side}, shape, [](Index, Index) { return true; });
  }
  // Positions as far out as an operator lets them be.
  const Index far = most / 8;
  EXPECT_TRUE((Window{5, 5}.allows(far, far - 5)));
  EXPECT_FALSE((Window{5, 5}.allows(far, far - 6)));
  EXPECT_TRUE((Window{most / 4 - 1, 0}.allows(far, 0)));
  EXPECT_FALSE((Window{0, most / 4 - 1}.allows(far, 0)));
}

/// Blocks without a partial row carry no bounds: no mask code runs for them.
TEST(Window, DenseBlocksHaveNoBounds) {
  BlockStorage storage;
  const auto dense = fovea::Dense{}.plan(SequenceShape::of(200, 300, CausalAlignment::top_left));
  for (Index b = 0; b < dense.block_count(); ++b) {
    const QueryBlock block = dense.block(b, storage);
    ASSERT_EQ(block.run_count, 1);
    EXPECT_EQ(block.runs[0].lower, nullptr);
    EXPECT_EQ(block.runs[0].count, 300);
  }
  const auto causal =
      fovea::Causal{}.plan(SequenceShape::of(200, 300, CausalAlignment::bottom_right));
  EXPECT_NE(causal.block(0, storage).runs[0].lower, nullptr);
}

TEST(Window, BlockRowsDependOnTheQueriesAlone) {
  for (Index queries = 0; queries < 10000; queries += 37) {
    const Index rows = fovea::block_rows(queries);
    EXPECT_GE(rows, 64);
    EXPECT_LE(rows, fovea::kMaxBlockRows);
    EXPECT_EQ(rows % 64, 0);
    EXPECT_GE(rows, fovea::block_rows(queries - 37));
  }
}

TEST(Window, NegativeSidesAreRefused) {
  const auto message = [](const Window& window) -> std::string {
    try {
      fovea::check_window("Op", window);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(message({-1, 4}), "Op: left is -1; expected at least 0 keys");
  EXPECT_EQ(message({4, -7}), "Op: right is -7; expected at least 0 keys");
  EXPECT_EQ(message({0, 0}), "accepted");
  EXPECT_EQ(message({}), "accepted");
}

}  // namespace
}  // namespace fovea_test
