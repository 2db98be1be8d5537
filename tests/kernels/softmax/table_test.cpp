// SPDX-License-Identifier: MIT
// fovea_test(HEAP LINK fovea_test_cases)
/// \file
/// The kernels of softmax attention in float and double, called by the operators, at every level.
/// Against the oracles: any widths, lengths, options and patterns, drawn ones too, and NaN. By
/// bits: rows alone and few at once, steps of decoders, levels, strides, and keys that rows do not
/// see.
#include "fovea/kernels/softmax/table.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "attention/decoding.hpp"
#include "attention/poisons.hpp"
#include "fovea/patterns/enumerated.hpp"
#include "fuzz/drawn_problem.hpp"
#include "kernels/through_operators.hpp"
#include "support/between_fences.hpp"

namespace fovea_test::kernels_softmax_table {

using fovea::kKeySegment;
using fovea::SparseAttention;

/// One operator for each path through the kernels: tiles, bands, several runs with steps, passes,
/// and every option.
template <class T>
const std::vector<Case<T>>& paths() {
  static const std::vector<Case<T>> all = [] {
    std::vector<Case<T>> cases = joined<T>({softmax_cases<T>(), sparse_cases<T>()});
    std::erase_if(cases, [](const Case<T>& op) { return !has_own_path(op.name); });
    return cases;
  }();
  return all;
}

template <class T>
class SoftmaxKernels : public testing::Test {};
TYPED_TEST_SUITE(SoftmaxKernels, BothScalars);

/// Rows [first, first + count) of all keys, at their positions.
template <class T>
AllInputs<T> rows_of(const Problem<T>& problem, Index first, Index count, const Index& position) {
  AllInputs<T> in = part_of(problem.inputs(), first, count, 0, problem.shape.keys);
  in.first_positions = {&position, 1};
  return in;
}

/// Expects of some rows at once the bits that they have among all.
template <class T>
void expect_same_rows(const Case<T>& op, const Problem<T>& problem, const Result<T>& all,
                      Index first, Index count) {
  const Index position = first + problem.shape.keys - problem.shape.queries;
  const Result<T> some = run(op, rows_of(problem, first, count, position));
  for (Index h = 0; h < problem.shape.query_heads; ++h) {
    for (Index n = 0; n < count; ++n) {
      EXPECT_TRUE(same_row(all, {0, h, first + n}, some, {0, h, n}))
          << op.name << ", " << count << " rows of " << describe(problem);
    }
  }
}

/// Few rows have kernels with keys in the lanes, and many with rows.
TYPED_TEST(SoftmaxKernels, FewRowsHaveTheBitsOfMany) {
  using T = TypeParam;
  for (const Case<T>& op : paths<T>()) {
    if (op.options.alignment != fovea::CausalAlignment::bottom_right) continue;
    for (const AttentionShape& s : {AttentionShape{1, 4, 2, 140, 300, 5, 7},
                                    {1, 8, 1, 140, 140, 64, 64},
                                    {1, 2, 2, 70, kKeySegment + 200, 3, 130}}) {
      const Problem<T> problem = make_problem(op, s);
      at_each_level([&] {
        const Result<T> all = run(op, problem);
        for (const Index count : {1, 2, 3, 5, 8, 17, 63, 64, 65}) {
          expect_same_rows(op, problem, all, (s.queries - count) / 2, count);
        }
      });
    }
  }
}

/// Compact caches of keys, and rings.
TYPED_TEST(SoftmaxKernels, StepsOfDecodersHaveTheBitsOfForward) {
  using fovea::FixedAttention;
  const std::vector<Index> steps = {70, 1, 2, 1, 9, 65};
  expect_forward<TypeParam>(fovea::FullAttention{{.causal = true}}, {1, 4, 2, 300, 300, 33, 16},
                            steps);
  expect_forward<TypeParam>(fovea::LocalAttention{{.left = 40}}, {1, 2, 1, 300, 300, 16, 9}, steps);
  for (const auto heads : {fovea::HeadAssignment::separate, fovea::HeadAssignment::merged}) {
    expect_forward<TypeParam>(FixedAttention{{.stride = 13, .summary = 3, .heads = heads}},
                              {1, 4, 2, 300, 300, 6, 4}, steps);
  }
}

/// NaN in a key and in a value reaches the rows that see it, and the gradients, and no others.
TYPED_TEST(SoftmaxKernels, VisibleNaNReachesItsRows) {
  using T = TypeParam;
  for (const Case<T>& op : paths<T>()) {
    for (const Index key : {0, 63, 64, 100}) {
      const Problem<T> problem = make_problem(op, sizes(90, 110, 5, 7));
      set_row(problem.k, 0, key, std::numeric_limits<T>::quiet_NaN());
      expect_both_conform(op, problem);
      set_row(problem.k, 0, key, T{1});
      problem.v(0, 0, key, 2) = std::numeric_limits<T>::quiet_NaN();
      expect_conforms(op, problem);
    }
  }
}

/// An operator over one drawn pattern, or over two in passes, with drawn options.
template <class T>
Case<T> drawn_case_of_pattern(Bytes& bytes) {
  const DrawnSparse drawn = drawn_sparse(bytes);
  const ReferenceMask mask = [masks = drawn.reference_masks](const Pair& p) {
    return masks[as_size(p.h) % masks.size()](p.i(), p.j);
  };
  return softmax_case<T>("drawn" + drawn.made, drawn.op, mask, drawn_extras(bytes));
}

/// Keys that no row sees, and some that rows see, become NaN: all other rows keep their bits.
template <class T>
void expect_blind(const Case<T>& op, const Problem<T>& problem, Bytes& bytes) {
  const AttentionShape& s = problem.shape;
  const Index period = bytes.once_in(2) ? 3 : 50;
  std::vector<bool> poisoned(as_size(s.keys));
  const Problem<T> dirty = problem.in({}, {}, {}, {});
  for (Index j = 0; j < s.keys; ++j) {
    bool is_seen = false;
    for_each_index(problem.row_shape(), [&](Index b, Index h, Index i, Index) {
      is_seen = is_seen || sees(op, problem, b, h, i, j);
    });
    if (is_seen && hash(7, j, 0, 0, 0) % static_cast<std::uint64_t>(period) != 0) continue;
    poisoned[as_size(j)] = true;
    set_row(dirty.k, 0, j, all_poisons<T>()[as_size(j % 7)]);
    set_row(dirty.v, 0, j, all_poisons<T>()[as_size((j + 1) % 7)]);
  }
  at_each_level([&] {
    const Result<T> clean = run(op, problem);
    const Result<T> got = run(op, dirty);
    for_each_index(problem.row_shape(), [&](Index b, Index h, Index i, Index) {
      for (Index j = 0; j < s.keys; ++j) {
        if (poisoned[as_size(j)] && sees(op, problem, b, h, i, j)) return;
      }
      EXPECT_TRUE(same_row(clean, {b, h, i}, got, {b, h, i})) << describe(problem);
    });
  });
}

/// Any widths, and lengths around tiles, now and then around segments.
AttentionShape drawn_sizes(Bytes& bytes) {
  AttentionShape s = drawn_shape(bytes);
  s.batch = 1;
  if (!bytes.once_in(12)) return s;
  return {1, 2, 1, bytes(1, 5), bytes(1, 2) * kKeySegment + bytes(0, 3), 4, 3};
}

/// Each path, and blocks of rows and keys that no window makes: with steps, several runs and bounds
/// of any kind.
TYPED_TEST(SoftmaxKernels, AnyPattern) {
  using T = TypeParam;
  each_drawn(100, 1, [](std::span<const std::uint8_t> data) {
    Bytes bytes(data);
    const Case<T> op =
        bytes.once_in(3) ? drawn_of(bytes, paths<T>()) : drawn_case_of_pattern<T>(bytes);
    const Problem<T> problem = make_problem(op, drawn_sizes(bytes));
    const AttentionShape& s = problem.shape;
    expect_both_conform(op, problem);
    expect_same_elsewhere(op, problem);
    expect_blind(op, problem, bytes);
    if (op.options.alignment != fovea::CausalAlignment::bottom_right) return;
    at_each_level([&] {
      const Result<T> all = run(op, problem);
      for (Index row = 0; row < s.queries; row += 7) expect_same_rows(op, problem, all, row, 1);
    });
  });
}

/// Intervals of few keys that go backwards.
struct Backwards {
  fovea::Range keys_of(Index i) const { return {140 - i, 149 - i}; }
  bool allows(Index i, Index j) const { return keys_of(i).holds(j); }
  Index most_keys() const { return 9; }
  fovea::IntervalPlan<Backwards> plan(const fovea::SequenceShape& shape) const {
    return {*this, shape};
  }
};

TYPED_TEST(SoftmaxKernels, BandsMayGoBackwards) {
  using T = TypeParam;
  const auto op = softmax_case<T>("backwards", SparseAttention{{.patterns = {Backwards{}}}},
                                  [](const Pair& p) { return Backwards{}.allows(p.i(), p.j); });
  for (const Index width : {32, 64, 128}) {
    const Problem<T> problem = make_problem(op, sizes(150, 150, width, width));
    expect_both_conform(op, problem);
    at_each_level([&] {
      const Result<T> all = run(op, problem);
      for (Index row = 0; row < 150; ++row) expect_same_rows(op, problem, all, row, 1);
    });
  }
}

/// A tile with few keys, which only late rows see, behind a whole one, whose gradients of logits
/// are still in scratch.
TYPED_TEST(SoftmaxKernels, AddsNothingBeyondTheLastKeyOfATile) {
  constexpr Index tile = fovea::kGradTile;
  const auto stairs = [](Index i, Index j) { return j < tile || j - tile <= i / 2; };
  const fovea::EnumeratedPattern listed(stairs, {tile, tile + 20, 20});
  const auto op = softmax_case<TypeParam>("stairs", SparseAttention{{.patterns = {listed}}},
                                          [=](const Pair& p) { return stairs(p.i(), p.j); });
  expect_both_conform(op, make_problem(op, sizes(tile, tile + 20, 16, 20)));
}

/// With large logits lse has a second number for each row.
TYPED_TEST(SoftmaxKernels, LargeLogitsStayWithinTheirMemory) {
  for (const auto& op : paths<TypeParam>()) {
    const auto problem = make_problem(op, {1, 2, 1, 70, 75, 8, 8}, 1,
                                      {gaussian(1, 60), gaussian(2, 60), gaussian(3)});
    between_fences([&] { run_backward(op, problem); });
  }
}

}  // namespace fovea_test::kernels_softmax_table
