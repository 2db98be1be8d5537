// SPDX-License-Identifier: MIT
/// \file
/// Every operator: what is not visible changes no bit, what is visible and not finite comes out by
/// IEEE rules, a row depends on the keys that it sees and on nothing else.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "attention/conformance.hpp"

namespace fovea_test {
namespace {

/// A NaN with these bits in the low part of its payload.
template <class T>
T nan_with(std::uint32_t payload, bool negative = false) {
  if constexpr (sizeof(T) == 4) {
    return std::bit_cast<float>((negative ? 0xffc00000u : 0x7fc00000u) | payload);
  } else {
    const std::uint64_t quiet = negative ? 0xfff8000000000000u : 0x7ff8000000000000u;
    return std::bit_cast<double>(quiet | payload);
  }
}

template <class T>
std::vector<T> all_nans() {
  std::vector<T> nans = {nan_with<T>(0),       nan_with<T>(0, true), nan_with<T>(1),
                         nan_with<T>(1, true), nan_with<T>(0x155),   nan_with<T>(0x3fffff, true)};
  return nans;
}

template <class T>
std::vector<T> all_poisons() {
  using Limits = std::numeric_limits<T>;
  return {nan_with<T>(0),      nan_with<T>(0x3fffff, true),
          Limits::infinity(),  -Limits::infinity(),
          Limits::max(),       Limits::lowest(),
          Limits::denorm_min()};
}

template <class T>
void set_row(const Tensor<T>& x, Index b, Index j, T value) {
  for (Index h = 0; h < x.shape()[1]; ++h) {
    for (Index c = 0; c < x.shape()[3]; ++c) x(b, h, j, c) = value;
  }
}

template <class T>
bool sees(const Case<T>& op, const Problem<T>& p, Index b, Index row, Index j) {
  return j < p.keys_of_batch(b) && op.sees(p.shape, b, 0, row, j);
}

TEST_P(Conformance, RowsWithoutKeysAreZero) {
  each([]<class T>(const Case<T>& op) {
    at_each_level([&] {
      for (const auto& [queries, keys] : edge_sizes()) {
        if (keys > 300 || queries > 700) continue;
        Problem<T> problem = make_problem<T>({3, 1, 1, queries, keys, 2, 3});
        problem.key_lengths = {0, keys / 3, keys};
        const Result<T> got = run(op, problem);
        const std::vector<T> zeros(3);
        for_each_index(problem.row_shape(), [&](Index b, Index, Index row, Index) {
          for (Index j = 0; j < problem.shape.keys; ++j) {
            if (sees(op, problem, b, row, j)) return;
          }
          EXPECT_TRUE(same_bits(got.row(b, 0, row), zeros.data(), 3, {1, 1, 1, 3}))
              << describe(problem);
          EXPECT_EQ(got.row_lse(b, 0, row), -std::numeric_limits<T>::infinity());
        });
      }
    });
  });
}

/// Overwrites key j and its value; every row that does not see j must keep its bits.
template <class T>
void expect_blind(const Case<T>& op, const Problem<T>& problem, const Result<T>& clean, Index j,
                  T poison, int which) {
  for (Index b = 0; b < problem.shape.batch; ++b) {
    if (which != 1) set_row(problem.k, b, j, poison);
    if (which != 0) set_row(problem.v, b, j, poison);
  }
  const Result<T> poisoned = run(op, problem);
  for_each_index(problem.row_shape(), [&](Index b, Index h, Index row, Index) {
    if (sees(op, problem, b, row, j)) return;
    EXPECT_TRUE(same_row(clean, {b, h, row}, poisoned, {b, h, row}))
        << "key " << j << " set to " << poison << ", " << describe(problem);
  });
  problem.k.fill(gaussian_fills(problem.seed).k);
  problem.v.fill(gaussian_fills(problem.seed).v);
}

TEST_P(Conformance, InvisibleKeysChangeNoBit) {
  each([]<class T>(const Case<T>& op) {
    at_each_level([&] {
      Problem<T> problem = make_problem<T>({2, 1, 1, 37, 41, 3, 5});
      problem.key_lengths = {29, 41};
      const Result<T> clean = run(op, problem);
      for (Index j = 0; j < problem.shape.keys; ++j) {
        int which = static_cast<int>(j % 3);
        for (const T poison : all_poisons<T>()) {
          expect_blind(op, problem, clean, j, poison, which++ % 3);
        }
      }
    });
  });
}

TEST_P(Conformance, InvisibleKeysOfOtherTilesChangeNoBit) {
  each([]<class T>(const Case<T>& op) {
    at_each_level([&] {
      for (const Index queries : {300, 180}) {
        Problem<T> problem = make_problem<T>({1, 1, 1, queries, 300, 3, 18});
        problem.key_lengths = {280};
        const Result<T> clean = run(op, problem);
        for (const Index j : {0, 63, 64, 127, 128, 129, 190, 255, 256, 279, 280, 299}) {
          expect_blind(op, problem, clean, j, nan_with<T>(0), 2);
          expect_blind(op, problem, clean, j, std::numeric_limits<T>::infinity(), 2);
        }
      }
    });
  });
}

/// Everything from key j on, and everything before it.
TEST_P(Conformance, InvisibleRangesChangeNoBit) {
  each([]<class T>(const Case<T>& op) {
    at_each_level([&] {
      const Problem<T> problem = make_problem<T>(sizes(210, 260, 4, 3));
      const Result<T> clean = run(op, problem);
      for (const Index cut : {1, 50, 127, 128, 129, 200, 256}) {
        for (const bool after : {true, false}) {
          const auto is_set = [=](Index j) { return after ? j >= cut : j < cut; };
          for (Index j = 0; j < problem.shape.keys; ++j) {
            if (!is_set(j)) continue;
            set_row(problem.k, 0, j, nan_with<T>(3));
            set_row(problem.v, 0, j, std::numeric_limits<T>::infinity());
          }
          const Result<T> poisoned = run(op, problem);
          for (Index row = 0; row < problem.shape.queries; ++row) {
            bool blind = true;
            for (Index j = 0; j < problem.shape.keys; ++j) {
              blind = blind && !(is_set(j) && op.sees(problem.shape, 0, 0, row, j));
            }
            if (!blind) continue;
            EXPECT_TRUE(same_row(clean, {0, 0, row}, poisoned, {0, 0, row})) << cut << after;
          }
          problem.k.fill(gaussian_fills(problem.seed).k);
          problem.v.fill(gaussian_fills(problem.seed).v);
        }
      }
    });
  });
}

TEST_P(Conformance, QueriesDoNotSeeEachOther) {
  each([]<class T>(const Case<T>& op) {
    at_each_level([&] {
      const Problem<T> problem = make_problem<T>(sizes(70, 75, 5, 4));
      const Result<T> clean = run(op, problem);
      for (Index i = 0; i < 70; ++i) {
        const T poison = all_poisons<T>()[as_size(i % 7)];
        set_row(problem.q, 0, i, poison);
        const Result<T> poisoned = run(op, problem);
        problem.q.fill(gaussian_fills(problem.seed).q);
        for (Index row = 0; row < 70; ++row) {
          if (row == i) continue;
          EXPECT_TRUE(same_row(clean, {0, 0, row}, poisoned, {0, 0, row})) << i << " " << poison;
        }
      }
    });
  });
}

TEST_P(Conformance, VisibleNaNReachesTheRow) {
  each([]<class T>(const Case<T>& op) {
    const std::vector<T> nans = all_nans<T>();
    for (const T& nan : nans) {
      for (const auto& [queries, keys] : {std::array<Index, 2>{40, 40}, {70, 150}}) {
        if (queries > 40 && &nan != &nans[2]) continue;
        const Problem<T> problem = make_problem<T>(sizes(queries, keys, 6, 7));
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
      }
    }
  });
}

TEST_P(Conformance, VisibleInfinityFollowsIeee) {
  each([]<class T>(const Case<T>& op) {
    constexpr T infinity = std::numeric_limits<T>::infinity();
    for (const T value : {infinity, -infinity}) {
      const Problem<T> problem = make_problem<T>(sizes(150, 160, 3, 5));
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
    }
  });
}

/// A row of a shorter sequence that sees the same keys has the same bits: prefixes (causality),
/// rows alone, and blocks of rows.
template <class T>
void expect_same_rows(const Case<T>& op, const Problem<T>& whole, const Result<T>& all, Index first,
                      Index queries, Index keys) {
  AttentionShape shape = whole.shape;
  shape.queries = queries;
  shape.keys = keys;
  const Inputs<T> in = whole.inputs();
  const Result<T> got = run(
      op, Inputs<T>{rows_of(in.q, first, queries), rows_of(in.k, 0, keys), rows_of(in.v, 0, keys)});
  for (Index row = 0; row < queries; ++row) {
    if (!same_keys(op, whole.shape, first + row, shape, row)) continue;
    EXPECT_TRUE(same_row(all, {0, 0, first + row}, got, {0, 0, row}))
        << "rows from " << first << ", " << queries << " of them, " << keys << " keys of "
        << describe(whole);
  }
}

TEST_P(Conformance, PrefixesHaveTheSameBits) {
  each([]<class T>(const Case<T>& op) {
    at_each_level([&] {
      const Problem<T> whole = make_problem<T>(sizes(300, 300, 5, 18));
      const Result<T> all = run(op, whole);
      for (const Index n : {1, 2, 5, 31, 63, 64, 65, 100, 127, 128, 129, 200, 255, 256, 299}) {
        expect_same_rows(op, whole, all, 0, n, n);
      }
      const Problem<T> long_keys = make_problem<T>(sizes(150, 2200, 4, 3));
      const Result<T> long_all = run(op, long_keys);
      for (const Index n : {1, 60, 149}) {
        expect_same_rows(op, long_keys, long_all, 0, n, 2050 + n);
      }
    });
  });
}

TEST_P(Conformance, RowsAloneHaveTheSameBits) {
  each([]<class T>(const Case<T>& op) {
    at_each_level([&] {
      for (const auto& [queries, keys] :
           {std::array<Index, 2>{150, 150}, {131, 300}, {3, 2100}, {150, 100}}) {
        const Problem<T> whole = make_problem<T>(sizes(queries, keys, 5, 7));
        const Result<T> all = run(op, whole);
        for (Index row = 0; row < queries; ++row) {
          const Index last =
              row + keys - queries + 1;  // keys so that the row alone is at its place
          if (last >= 0 && last < keys) expect_same_rows(op, whole, all, row, 1, last);
          expect_same_rows(op, whole, all, row, 1, keys);
        }
        for (const Index first : {0, 1, 17, 64, 100}) {
          if (first + 20 <= queries) expect_same_rows(op, whole, all, first, 20, keys);
        }
      }
    });
  });
}

/// Where all rows see the same keys, their order means nothing.
TEST_P(Conformance, PermutedQueriesPermuteTheRows) {
  each([]<class T>(const Case<T>& op) {
    const AttentionShape shape = sizes(131, 140, 6, 5);
    for (Index row = 1; row < shape.queries; ++row) {
      if (!same_keys(op, shape, 0, shape, row)) return;
    }
    at_each_level([&] {
      const Problem<T> problem = make_problem<T>(shape);
      Problem<T> permuted = make_problem<T>(shape);
      const auto place = [](Index row) { return row * 37 % 131; };
      permuted.q.fill([&](Index, Index, Index n, Index d) { return problem.q(0, 0, place(n), d); });
      const Result<T> a = run(op, problem);
      const Result<T> b = run(op, permuted);
      for (Index n = 0; n < 131; ++n) EXPECT_TRUE(same_row(a, {0, 0, place(n)}, b, {0, 0, n}));
    });
  });
}

INSTANTIATE_TEST_SUITE_P(, Conformance, conforming_subjects(), test_name);

/// A window that reaches over the whole sequence is no window.
template <class T, class A, class B>
void expect_same_operator(const A& a, const B& b) {
  const Law any = [](const Pair&) { return true; };
  at_each_level([&] {
    for (const auto& [queries, keys] :
         {std::array<Index, 2>{200, 200}, {70, 300}, {140, 90}, {3, 2100}, {1, 1}}) {
      const Problem<T> problem = make_problem<T>(sizes(queries, keys, 5, 6));
      EXPECT_TRUE(same_bits(run(make_case<T>("a", a, any), problem),
                            run(make_case<T>("b", b, any), problem)))
          << describe(problem);
    }
  });
}

template <class T>
class Degenerate : public testing::Test {};
using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(Degenerate, Scalars);

TYPED_TEST(Degenerate, WideWindowsAreFullAttention) {
  using fovea::FullAttention;
  using fovea::LocalAttention;
  for (const Index wide : {2100, 1 << 20}) {
    expect_same_operator<TypeParam>(FullAttention{}, LocalAttention{{.left = wide, .right = wide}});
    expect_same_operator<TypeParam>(FullAttention{}, FullAttention{{.window = {wide, wide}}});
    expect_same_operator<TypeParam>(FullAttention{{.causal = true}},
                                    LocalAttention{{.left = wide}});
  }
}

}  // namespace
}  // namespace fovea_test
