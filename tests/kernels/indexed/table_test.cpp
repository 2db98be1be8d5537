// SPDX-License-Identifier: MIT
/// \file
/// The kernels of attention over lists of keys in float and double, called by the operators, at
/// every level, against the oracles and by bits between the levels and for any strides: any length
/// of list, any width, keys that many rows list, and edges with confidences. (The phases of long
/// sequences are tested by tests/attention/indexed_phases_test.cpp.)
#include "fovea/kernels/indexed/table.hpp"

#include <gtest/gtest.h>

#include "attention/fsat_problem.hpp"
#include "attention/indexed_case.hpp"
#include "kernels/through_operators.hpp"

namespace fovea_test::kernels_indexed_table {

/// Every third key, but some rows list half of them or none.
bool is_listed(const Pair& p) {
  if (p.i() % 7 == 2) return false;
  return p.j % 3 == p.i() % 3 && (p.i() % 7 != 3 || 2 * p.j < p.keys);
}

template <class T>
Case<T> third_of_keys(bool causal) {
  return indexed_case<T>("indexed", fovea::IndexedAttention{{.scale = 0.37, .causal = causal}},
                         is_listed,
                         [=](const Pair& p) { return is_listed(p) && (!causal || p.j <= p.i()); });
}

template <class T>
class IndexedKernels : public testing::Test {
 protected:
  /// Both passes against the oracle and with other strides, and the bits of v3 and v4.
  static void expect_all(const Case<T>& op, const AttentionShape& shape) {
    const Problem<T> problem = make_problem(op, shape);
    expect_both_conform(op, problem);
    expect_same_elsewhere(op, problem);
  }

  /// The same for edges with confidences, in consecutive lists.
  static void expect_fsat(const AttentionShape& shape, Index slots, EdgeSource edges) {
    SCOPED_TRACE(slots);
    const FsatOptions options{.max_length = shape.keys, .variance = 200, .edges = edges};
    const FsatProblem<T> problem(FsatAttention(options), shape, {{'M', slots}});
    const auto judge = judge_of_call(problem);
    at_each_level([&] { judge(problem.run(), "fsat"); });
    expect_levels_agree([&] { return problem.run(); });
  }
};
TYPED_TEST_SUITE(IndexedKernels, BothScalars);

TYPED_TEST(IndexedKernels, AnyLengthOfLists) {
  for (const Index length : {0, 1, 2, 3, 4, 5, 7, 8, 9, 12, 16, 17, 20, 40, 64, 65, 100}) {
    this->expect_all(third_of_keys<TypeParam>(false), sizes(7, 3 * length, 64, 64));
    this->expect_all(third_of_keys<TypeParam>(true), sizes(7, 3 * length, 5, 3));
  }
}

TYPED_TEST(IndexedKernels, AnyWidth) {
  for (const Index width : {0, 1, 3, 4, 8, 15, 16, 17, 20, 32, 33, 64, 80, 128}) {
    this->expect_all(third_of_keys<TypeParam>(false), sizes(7, 60, width, 128 - width));
    this->expect_all(third_of_keys<TypeParam>(true), sizes(9, 150, width, width));
  }
}

/// A key that is in more lists than a reduction block of its gradient has.
TYPED_TEST(IndexedKernels, ManyRowsOfAKey) {
  for (const Index rows : {63, 64, 65, 300}) {
    this->expect_all(third_of_keys<TypeParam>(false), {2, 4, 2, rows, 9, 20, 6});
  }
}

/// Rows with more entries than weights in a cache line among short ones.
TYPED_TEST(IndexedKernels, EdgesWithConfidences) {
  for (const Index slots : {1, 2, 3, 4, 5, 7, 8, 9, 15, 17, 20, 40}) {
    for (const EdgeSource edges : {EdgeSource::predicted, EdgeSource::both}) {
      this->expect_fsat({1, 2, 2, 75, 75, 64, 64}, slots, edges);
    }
  }
  for (const Index width : {0, 1, 5, 16, 20, 32, 33, 128}) {
    this->expect_fsat({1, 2, 2, 40, 40, width, 128 - width}, 4, EdgeSource::both);
  }
}

}  // namespace fovea_test::kernels_indexed_table
