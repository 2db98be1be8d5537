// SPDX-License-Identifier: MIT
// fovea_test(OPTIMISED SHARDS 4)
/// \file
/// Every operator: invisible inputs have no effect, visible NaN and infinities follow IEEE rules,
/// and a row depends only on the keys that it sees.
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "attention/conformance.hpp"
#include "attention/poisons.hpp"
#include "support/scalars.hpp"

namespace fovea_test::attention_conformance_visibility {

class Visibility : public Conformance {};

TEST_P(Visibility, RowsWithoutKeysAreZero) {
  each_at_levels([]<class T>(const Case<T>& op) {
    for (const auto& [queries, keys] : edge_sizes(op)) {
      if (keys > 300 || queries > 700) continue;
      Problem<T> problem = make_problem(op, {3, 1, 1, queries, keys, 2, 3});
      problem.key_lengths = {0, keys / 3, keys};
      const Result<T> got = run(op, problem);
      const std::vector<T> zeros(3);
      for_each_index(problem.row_shape(), [&](Index b, Index, Index row, Index) {
        if (sees_any(op, problem, b, 0, row)) return;
        EXPECT_TRUE(same_bits(got.row(b, 0, row), zeros.data(), 3, {1, 1, 1, 3}))
            << describe(problem);
        if (!op.is_softmax) return;
        EXPECT_EQ(got.row_lse(b, 0, row), -std::numeric_limits<T>::infinity());
      });
    }
  });
}

/// Overwrites key j and its value; every row that does not see j must keep its bits.
template <class T>
void expect_blind(const Case<T>& op, const Problem<T>& problem, const Result<T>& clean, Index j,
                  T poison, int which) {
  const Restored k(problem.k);
  const Restored v(problem.v);
  for (Index b = 0; b < problem.shape.batch; ++b) {
    if (which != 1) set_row(problem.k, b, j, poison);
    if (which != 0) set_row(problem.v, b, j, poison);
  }
  const Result<T> poisoned = run(op, problem);
  for_each_index(problem.row_shape(), [&](Index b, Index h, Index row, Index) {
    if (sees(op, problem, b, h, row, j)) return;
    EXPECT_TRUE(same_row(clean, {b, h, row}, poisoned, {b, h, row}))
        << "key " << j << " set to " << poison << ", " << describe(problem);
  });
}

TEST_P(Visibility, InvisibleKeysDoNotChangeBits) {
  each_at_levels([]<class T>(const Case<T>& op) {
    Problem<T> problem = make_problem(op, {2, 1, 1, 37, 41, 3, 5});
    problem.key_lengths = {29, 41};
    const Result<T> clean = run(op, problem);
    for (Index j = 0; j < problem.shape.keys; ++j) {
      int which = static_cast<int>(j % 3);
      for (const T poison : all_poisons<T>()) {
        expect_blind(op, problem, clean, j, poison, which++ % 3);
      }
    }
  });
}

TEST_P(Visibility, InvisibleKeysOfOtherTilesDoNotChangeBits) {
  each_at_levels([]<class T>(const Case<T>& op) {
    for (const Index queries : {300, 180}) {
      Problem<T> problem = make_problem(op, {1, 1, 1, queries, 300, 3, 18});
      problem.key_lengths = {280};
      const Result<T> clean = run(op, problem);
      for (const Index j : {0, 63, 64, 127, 128, 129, 190, 255, 256, 279, 280, 299}) {
        expect_blind(op, problem, clean, j, nan_with<T>(0), 2);
        expect_blind(op, problem, clean, j, std::numeric_limits<T>::infinity(), 2);
      }
    }
  });
}

/// Everything from key j on, and everything before it.
TEST_P(Visibility, InvisibleRangesDoNotChangeBits) {
  each_at_levels([]<class T>(const Case<T>& op) {
    const Problem<T> problem = make_problem(op, sizes(210, 260, 4, 3));
    const Result<T> clean = run(op, problem);
    for (const Index cut : {1, 50, 127, 128, 129, 200, 256}) {
      for (const bool after : {true, false}) {
        const auto is_set = [=](Index j) { return after ? j >= cut : j < cut; };
        const Restored k(problem.k);
        const Restored v(problem.v);
        for (Index j = 0; j < problem.shape.keys; ++j) {
          if (!is_set(j)) continue;
          set_row(problem.k, 0, j, nan_with<T>(3));
          set_row(problem.v, 0, j, std::numeric_limits<T>::infinity());
        }
        const Result<T> poisoned = run(op, problem);
        for (Index row = 0; row < problem.shape.queries; ++row) {
          bool blind = true;
          for (Index j = 0; j < problem.shape.keys; ++j) {
            blind = blind && !(is_set(j) && sees(op, problem, 0, 0, row, j));
          }
          if (!blind) continue;
          EXPECT_TRUE(same_row(clean, {0, 0, row}, poisoned, {0, 0, row})) << cut << after;
        }
      }
    }
  });
}

/// Calls f for the elements of bias or mask x that serve no pair that `without` x would be visible.
template <class T, class U, class F>
void for_each_idle(const Case<T>& op, const Problem<T>& without, const Tensor<U>& x, F&& f) {
  const Tensor<bool> used(x.shape());
  const AttentionShape& s = without.shape;
  for_each_index({s.batch, s.query_heads, s.queries, s.keys},
                 [&](Index b, Index h, Index i, Index j) {
                   const Shape at = broadcast_index(x.view(), {b, h, i, j});
                   if (sees(op, without, b, h, i, j)) used(at[0], at[1], at[2], at[3]) = true;
                 });
  for_each_index(x.shape(), [&](Index b, Index h, Index i, Index j) {
    if (!used(b, h, i, j)) f(x(b, h, i, j));
  });
}

template <class T>
void expect_hidden_bias_and_mask_change_no_bit(const Case<T>& op, const Problem<T>& problem) {
  const Result<T> clean = run(op, problem);
  if (problem.bias) {
    const Problem<T> without = problem.in({}, {}, {}, {});
    const Problem<T> changed = problem.in({}, {}, {}, {});
    without.bias->fill(constant(0));
    for (const T poison : all_poisons<T>()) {
      for_each_idle(op, without, *changed.bias, [=](T& x) { x = poison; });
      EXPECT_TRUE(same_bits(clean, run(op, changed))) << poison << ", " << describe(problem);
    }
  }
  if (problem.mask) {
    const Problem<T> without = problem.in({}, {}, {}, {});
    const Problem<T> changed = problem.in({}, {}, {}, {});
    without.mask->fill(constant(1));
    for_each_idle(op, without, *changed.mask, [](bool& x) { x = !x; });
    EXPECT_TRUE(same_bits(clean, run(op, changed))) << describe(problem);
  }
}

/// A number of the bias for pairs that pattern, lengths and mask hide; a flag of the mask for pairs
/// that pattern, lengths and bias hide.
TEST_P(Visibility, HiddenBiasAndMaskDoNotChangeBits) {
  each_at_levels([]<class T>(const Case<T>& op) {
    for (const auto& [queries, keys] : {std::array<Index, 2>{70, 75}, {33, 270}, {140, 60}}) {
      Problem<T> problem = make_problem(op, {2, 2, 1, queries, keys, 3, 5});
      problem.key_lengths = {keys - 10, keys};
      expect_hidden_bias_and_mask_change_no_bit(op, problem);
    }
  });
}

TEST_P(Visibility, QueriesDoNotSeeEachOther) {
  each_at_levels([]<class T>(const Case<T>& op) {
    const Problem<T> problem = make_problem(op, sizes(70, 75, 5, 4));
    const Result<T> clean = run(op, problem);
    for (Index i = 0; i < 70; ++i) {
      const T poison = all_poisons<T>()[as_size(i % 7)];
      const Restored q(problem.q);
      set_row(problem.q, 0, i, poison);
      const Result<T> poisoned = run(op, problem);
      for (Index row = 0; row < 70; ++row) {
        if (row == i) continue;
        EXPECT_TRUE(same_row(clean, {0, 0, row}, poisoned, {0, 0, row})) << i << " " << poison;
      }
    }
  });
}

TEST_P(Visibility, VisibleNaNReachesTheRow) {
  each([]<class T>(const Case<T>& op) {
    const std::vector<T> nans = all_nans<T>();
    for (const T& nan : nans) {
      for (const auto& [queries, keys] : {std::array<Index, 2>{40, 40}, {70, 150}}) {
        if (queries > 40 && &nan != &nans[2]) continue;
        const Problem<T> problem = make_problem(op, sizes(queries, keys, 6, 7));
        const auto restore = [&](const Tensor<T>& x, const Fill& fill) {
          expect_conforms(op, problem);
          x.fill(fill);
        };
        const Fills clean = gaussian_fills(problem.seed);
        problem.q(0, 0, queries / 2, 4) = nan;
        restore(problem.q, clean.q);
        problem.k(0, 0, keys / 2 + 3, 1) = nan;
        restore(problem.k, clean.k);
        problem.v(0, 0, keys / 2 - 3, 2) = nan;
        restore(problem.v, clean.v);
        set_row(problem.k, 0, 0, nan);
        restore(problem.k, clean.k);
        if (problem.bias) {
          const Tensor<T>& bias = *problem.bias;
          bias(0, 0, bias.shape()[2] / 2, bias.shape()[3] / 2) = nan;
          restore(bias, bias_fill(problem.seed, op.extras));
        }
      }
    }
  });
}

TEST_P(Visibility, VisibleInfinityFollowsIeee) {
  each([]<class T>(const Case<T>& op) {
    constexpr T infinity = std::numeric_limits<T>::infinity();
    for (const T value : {infinity, -infinity}) {
      const Problem<T> problem = make_problem(op, sizes(150, 160, 3, 5));
      const Fills clean = gaussian_fills(problem.seed);
      problem.v(0, 0, 80, 1) = value;
      expect_conforms(op, problem);
      problem.v(0, 0, 83, 1) = -value;
      problem.v(0, 0, 20, 2) = value;
      expect_conforms(op, problem);
      problem.v.fill(clean.v);
      problem.k(0, 0, 81, 0) = value;  // logits of either infinity, by the sign of q
      expect_conforms(op, problem);
      problem.k.fill(clean.k);
      problem.q(0, 0, 77, 2) = value;
      expect_conforms(op, problem);
      problem.q.fill(clean.q);
      for (Index j = 0; j < 160; ++j) problem.k(0, 0, j, 0) = value;  // whole rows of -inf
      expect_conforms(op, problem);
      if (problem.bias) {
        problem.k.fill(clean.k);
        const Tensor<T>& bias = *problem.bias;
        bias(0, 0, bias.shape()[2] / 2, bias.shape()[3] / 2) = value;
        expect_conforms(op, problem);
      }
    }
  });
}

/// A row of a shorter sequence that sees the same keys has the same bits: prefixes (causality),
/// rows alone, and blocks of rows.
template <class T>
void expect_same_rows(const Case<T>& op, const Problem<T>& whole, const Result<T>& all, Index first,
                      Index queries, Index keys) {
  if (op.is_square && queries != keys) return;  // there is no such call
  AttentionShape shape = whole.shape;
  shape.queries = queries;
  shape.keys = keys;
  const Result<T> got = run(op, part_of(whole.inputs(), first, queries, 0, keys));
  for (Index row = 0; row < queries; ++row) {
    if (!same_keys(op, whole.shape, first + row, shape, row)) continue;
    EXPECT_TRUE(same_row(all, {0, 0, first + row}, got, {0, 0, row}))
        << "rows from " << first << ", " << queries << " of them, " << keys << " keys of "
        << describe(whole);
  }
}

TEST_P(Visibility, PrefixesHaveTheSameBits) {
  each([]<class T>(const Case<T>& op) {
    if (op.draws) GTEST_SKIP() << "it draws other keys in a shorter sequence";
    at_each_level([&] {
      const Problem<T> whole = make_problem(op, sizes(300, 300, 5, 18));
      const Result<T> all = run(op, whole);
      for (const Index n : {1, 2, 5, 31, 63, 64, 65, 100, 127, 128, 129, 200, 255, 256, 299}) {
        expect_same_rows(op, whole, all, 0, n, n);
      }
      const Problem<T> long_keys = make_problem(op, sizes(150, 2200, 4, 3));
      const Result<T> long_all = run(op, long_keys);
      for (const Index n : {1, 60, 149}) {
        expect_same_rows(op, long_keys, long_all, 0, n, 2050 + n);
      }
    });
  });
}

TEST_P(Visibility, SingleRowsHaveTheSameBits) {
  each_at_levels([]<class T>(const Case<T>& op) {
    for (const auto& [queries, keys] :
         {std::array<Index, 2>{150, 150}, {131, 300}, {3, 2100}, {150, 100}}) {
      const Problem<T> whole = make_problem(op, sizes(queries, keys, 5, 7));
      const Result<T> all = run(op, whole);
      for (Index row = 0; row < queries; ++row) {
        const Index last = row + keys - queries + 1;  // keys so that the row alone is at its place
        if (last >= 0 && last < keys) expect_same_rows(op, whole, all, row, 1, last);
        expect_same_rows(op, whole, all, row, 1, keys);
      }
      for (const Index first : {0, 1, 17, 64, 100}) {
        if (first + 20 <= queries) expect_same_rows(op, whole, all, first, 20, keys);
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(, Visibility, conforming_subjects(), test_name);

/// A window that reaches over the whole sequence is no window.
template <class T, class A, class B>
void expect_same_operator(const A& a, const B& b) {
  at_each_level([&] {
    for (const auto& [queries, keys] :
         {std::array<Index, 2>{200, 200}, {70, 300}, {140, 90}, {3, 2100}, {1, 1}}) {
      const Case<T> one = make_case<T>("a", a, all_pairs);
      const Case<T> other = make_case<T>("b", b, all_pairs);
      const Problem<T> problem = make_problem(one, sizes(queries, keys, 5, 6));
      EXPECT_TRUE(same_bits(run(one, problem), run(other, problem))) << describe(problem);
    }
  });
}

template <class T>
class Degenerate : public testing::Test {};
TYPED_TEST_SUITE(Degenerate, Scalars);

TYPED_TEST(Degenerate, WideWindowsEqualFullAttention) {
  using fovea::FullAttention;
  using fovea::LocalAttention;
  for (const Index wide : {2100, 1 << 20}) {
    expect_same_operator<TypeParam>(FullAttention{}, LocalAttention{{.left = wide, .right = wide}});
    expect_same_operator<TypeParam>(FullAttention{}, FullAttention{{.window = {wide, wide}}});
    expect_same_operator<TypeParam>(FullAttention{{.causal = true}},
                                    LocalAttention{{.left = wide}});
  }
}

}  // namespace fovea_test::attention_conformance_visibility
