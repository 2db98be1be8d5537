// SPDX-License-Identifier: MIT
// fovea_test(OPTIMISED HEAP LEVELS)
/// \file
/// Long sequences of IndexedAttention, which are computed in phases: the bits of the same rows in
/// calls of a few rows each, which are not. With all options, batches, groups of heads, strides,
/// packed sequences, blocks of keys, slices of values and rows at once, and any threads. Their
/// memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "attention/conformance.hpp"
#include "fovea/attention/indexed.hpp"
#include "fovea/attention/indexed/phase_sizes.hpp"
#include "fovea/core/arena.hpp"
#include "fovea/core/thread_pool.hpp"
#include "fovea/core/workspace.hpp"
#include "support/between_fences.hpp"
#include "support/compare.hpp"
#include "support/levels.hpp"
#include "support/memory.hpp"

namespace fovea_test::attention_indexed_phases {

using fovea::IndexedAttention;
using fovea::IndexedOptions;

/// Lists of at most K keys, spread over all of them; some rows have none.
Tensor<Index> sharded_lists(const AttentionShape& s, Index length) {
  Tensor<Index> lists({s.batch, s.query_heads, s.queries, length});
  for_each_index({s.batch, s.query_heads, s.queries, 1}, [&](Index b, Index h, Index i, Index) {
    const Index step = std::max<Index>(1, 2 * s.keys / length);
    Index key = static_cast<Index>(hash(3, b, h, i, 0)) & 15;
    const Index most = i % 11 == 4 ? 0 : i % 5 == 1 ? length / 2 : length;
    for (Index n = 0; n < length; ++n) {
      const bool is_there = n < most && key < s.keys;
      lists(b, h, i, n) = is_there ? key : -1;
      key += 1 + (static_cast<Index>(hash(4, b, h, i, n)) & 0xffff) % step;
    }
  });
  return lists;
}

/// The lists without what options and lengths hide.
template <class T>
Tensor<Index> visible_lists(const Tensor<Index>& lists, const Problem<T>& problem, bool causal) {
  Tensor<Index> visible(lists.shape());
  const Index offset = problem.shape.keys - problem.shape.queries;
  visible.fill([&](Index b, Index h, Index i, Index n) {
    const Index key = lists(b, h, i, n);
    const bool is_seen = key < problem.keys_of_batch(b) && !(causal && key > i + offset);
    return is_seen ? key : -1;
  });
  return visible;
}

/// The same elements, contiguous from the start of a cache line.
template <class T>
View<const T> aligned_copy(const View<const T>& x, fovea::Workspace& memory) {
  memory = fovea::Workspace(x.batch() * x.heads() * x.rows() * x.width(), Index{sizeof(T)});
  const View<T> to(memory.data<T>(), x.shape());
  for_each_index(x.shape(),
                 [&](Index b, Index h, Index n, Index d) { to(b, h, n, d) = x(b, h, n, d); });
  return to;
}

template <class T>
class IndexedPhasesOf : public testing::Test {
 protected:
  static Index bytes_of(const AttentionShape& s, Index length, Index workers = 1) {
    const auto shape = bench::shape_for<IndexedAttention>(s, length);
    return IndexedAttention{}.workspace_bytes<T>(shape, workers);
  }

  /// All rows in calls of so few that a copy would not be worth it.
  static Result<T> few_rows_at_once(const Problem<T>& problem, const Tensor<Index>& lists) {
    const AttentionShape& s = problem.shape;
    const Index length = lists.shape()[3];
    const Index most =
        fovea::PhaseSizes<T>::kLeastReads * s.keys / (s.query_heads / s.key_heads * length) - 1;
    AttentionShape part = s;
    part.queries = most;
    EXPECT_FALSE(fovea::PhaseSizes<T>::are_worth_it(part, length));
    EXPECT_TRUE(fovea::PhaseSizes<T>::are_worth_it(s, length));
    const Written<T> to(Case<T>{}, problem.out_shape());
    for (Index r = 0; r < s.queries; r += most) {
      const Index rows = std::min(most, s.queries - r);
      AllInputs<T> in = part_of(problem.inputs(), r, rows, 0, s.keys);
      in.indices = cut(View<const Index>(lists.view()), 2, r, rows);
      IndexedAttention{}.forward(in, cut(to.out.view(), 2, r, rows),
                                 AllSaved<T>{cut(to.lse.view(), 2, r, rows)});
    }
    return to.result();
  }

  template <class... E>
  static Result<T> at_once(const IndexedOptions& options, const Problem<T>& problem,
                           const Tensor<Index>& lists, E&&... executor) {
    const Written<T> to(Case<T>{}, problem.out_shape());
    AllInputs<T> in = problem.inputs();
    in.indices = lists.view();
    IndexedAttention{options}.forward(in, to.out.view(), AllSaved<T>{to.lse.view()}, executor...);
    return to.result();
  }

  static void expect_same(const Result<T>& a, const Result<T>& b) { EXPECT_TRUE(same_bits(a, b)); }
};
// Both scalars in every suite: this is the test of the kernels' phases.
using BothScalars = testing::Types<float, double>;
TYPED_TEST_SUITE(IndexedPhasesOf, BothScalars);

TYPED_TEST(IndexedPhasesOf, KeysAndValuesReadInPlace) {
  using T = TypeParam;
  const AttentionShape s{2, 4, 2, 1100, 5301, 64, 96};  // whole cache lines, blocks of odd sizes
  const Tensor<Index> lists = sharded_lists(s, 20);
  const Problem<T> problem = make_problem(Case<T>{}, s);
  AllInputs<T> in = problem.inputs();
  in.indices = lists.view();
  fovea::Workspace keys, values;
  in.k = aligned_copy(in.k, keys);
  in.v = aligned_copy(in.v, values);
  at_each_level([&] {
    const Written<T> to(Case<T>{}, problem.out_shape());
    IndexedAttention{}.forward(in, to.out.view(), AllSaved<T>{to.lse.view()});
    this->expect_same(this->few_rows_at_once(problem, lists), to.result());
  });
}

TYPED_TEST(IndexedPhasesOf, LongSequencesMatchFewRowsBitwise) {
  using T = TypeParam;
  const AttentionShape s{2, 4, 2, 1100, 4300, 40, 25};
  const Tensor<Index> lists = sharded_lists(s, 20);
  const Problem<T> problem = make_problem(Case<T>{}, s);
  at_each_level([&] {
    this->expect_same(this->few_rows_at_once(problem, lists), this->at_once({}, problem, lists));
  });
}

TYPED_TEST(IndexedPhasesOf, OptionsHideKeys) {
  using T = TypeParam;
  const AttentionShape s{2, 4, 2, 1100, 4300, 40, 25};
  const Tensor<Index> lists = sharded_lists(s, 20);
  Problem<T> problem = make_problem(Case<T>{}, s);
  for (const bool causal : {false, true}) {
    for (const std::vector<Index>& lengths :
         {std::vector<Index>{}, std::vector<Index>{4299, 1500}, std::vector<Index>{0, 4300}}) {
      problem.key_lengths = lengths;
      const Result<T> got = this->at_once({.causal = causal}, problem, lists);
      const Tensor<Index> visible = visible_lists(lists, problem, causal);
      problem.key_lengths = {};
      this->expect_same(this->few_rows_at_once(problem, visible), got);
    }
  }
}

TYPED_TEST(IndexedPhasesOf, StridesDoNotChangeBits) {
  using T = TypeParam;
  const AttentionShape s{2, 2, 1, 1000, 4300, 33, 32};
  const Tensor<Index> lists = sharded_lists(s, 20);
  const Problem<T> problem = make_problem(Case<T>{}, s);
  const Result<T> expected = this->few_rows_at_once(problem, lists);
  const Layout by_token{.order = {0, 2, 1, 3}};
  const Layout apart{.order = {3, 1, 0, 2}, .innermost = 2, .gap = 3};
  Layout reversed;
  reversed.reversed = {true, false, true, true};
  reversed.guard = Guard::behind;
  for (const Layout& layout : {by_token, apart, reversed}) {
    this->expect_same(
        expected, this->at_once({}, problem.in(layout, layout, layout, layout), lists.in(layout)));
  }
}

/// Keys of more than one block, and values of more slices than are copied at once.
TYPED_TEST(IndexedPhasesOf, RowsOfManyColumns) {
  using T = TypeParam;
  const Index width = 2000 / Index{sizeof(T)};
  const AttentionShape s{1, 2, 1, 900, 4200, width, width};
  ASSERT_LT(fovea::PhaseSizes<T>(s, 20).block, s.keys);
  ASSERT_LT(fovea::PhaseSizes<T>(s, 20).slices_at_once, fovea::PhaseSizes<T>(s, 20).slices);
  const Tensor<Index> lists = sharded_lists(s, 20);
  const Problem<T> problem = make_problem(Case<T>{}, s);
  this->expect_same(this->few_rows_at_once(problem, lists), this->at_once({}, problem, lists));
}

/// Values of which a part of the slices is copied at a time, up to the last column and no further.
TEST(IndexedPhases, StayWithinTheValues) {
  const AttentionShape s{1, 1, 1, 2600, 40000, 4, 56};
  const fovea::PhaseSizes<float> sizes(s, 64);
  ASSERT_TRUE(fovea::PhaseSizes<float>::are_worth_it(s, 64));
  ASSERT_LT(sizes.slices_at_once, sizes.slices);
  ASSERT_NE(s.value_width % sizes.slice, 0);
  const Tensor<Index> lists = sharded_lists(s, 64);
  between_fences([&] {
    const Problem<float> problem = make_problem(Case<float>{}, s);
    AllInputs<float> in = problem.inputs();
    in.indices = lists.view();
    const Tensor<float> out(problem.out_shape());
    IndexedAttention{}.forward(in, out.view());
  });
}

/// Keys that are not listed have no effect, and nothing beyond the last key is read, even if there
/// are half as many keys as are computed at once.
TYPED_TEST(IndexedPhasesOf, ReadsOnlyListedKeys) {
  using T = TypeParam;
  for (const Index width : {8, 16, 24, 40, 48}) {
    SCOPED_TRACE(width);
    AttentionShape s{1, 2, 1, 1100, 2052, width, 64};
    const Tensor<Index> lists = sharded_lists(s, 20);
    lists.fill([&](Index b, Index h, Index i, Index n) {
      const Index key = lists(b, h, i, n);
      return key < 0 ? key : 2 * key;
    });
    s.keys *= 2;
    const Problem<T> problem = make_problem(Case<T>{}, s);
    // They start at a cache line, and a guard page follows.
    Problem<T> poisoned = make_problem(Case<T>{}, s);
    poisoned.k = problem.k.in({.guard = Guard::behind});
    for (Index n = 1; n < s.keys; n += 2) {
      for (Index c = 0; c < width; ++c) {
        poisoned.k(0, 0, n, c) = std::numeric_limits<T>::quiet_NaN();
      }
    }
    at_each_level([&] {
      this->expect_same(this->few_rows_at_once(problem, lists), this->at_once({}, poisoned, lists));
    });
  }
}

/// More entries than there is memory for at once, and for each thread count other heads at once.
TYPED_TEST(IndexedPhasesOf, ManyEntriesAndManyThreads) {
  using T = TypeParam;
  const AttentionShape many{1, 4, 1, 3100, 4100, 40, 25};
  const AttentionShape heads{1, 6, 6, 420, 4100, 40, 25};
  ASSERT_LT(fovea::PhaseSizes<T>(many, 200).pieces_at_once, fovea::PhaseSizes<T>(many, 200).pieces);
  ASSERT_GT(fovea::PhaseSizes<T>(heads, 80).heads_at_once(heads, 3), 1);
  fovea::ThreadPool pool(3);
  for (const auto& [s, length] : {std::pair{many, Index{200}}, std::pair{heads, Index{80}}}) {
    const Tensor<Index> lists = sharded_lists(s, length);
    const Problem<T> problem = make_problem(Case<T>{}, s);
    const Result<T> expected = this->few_rows_at_once(problem, lists);
    this->expect_same(expected, this->at_once({}, problem, lists));
    this->expect_same(expected, this->at_once({}, problem, lists, pool));
    fovea::Arena arena(this->bytes_of(s, length, 3));
    this->expect_same(expected, this->at_once({}, problem, lists, arena.on(pool)));
  }
}

/// Of packed sequences only the long ones are computed in phases.
TYPED_TEST(IndexedPhasesOf, PackedSequences) {
  using T = TypeParam;
  const std::vector<Index> queries = {1100, 50, 0, 1450};
  const std::vector<Index> keys = {4200, 100, 30, 4700};
  const AttentionShape shape{1, 4, 2, 0, 0, 40, 25};
  const Problem<T> problem = make_packed(Case<T>{}, shape, queries, keys);
  const Index rows = problem.q.shape()[2];
  const Tensor<Index> lists({1, 4, rows, 20});
  Index first = 0;
  for (std::size_t n = 0; n < queries.size(); ++n) {
    const Tensor<Index> own = sharded_lists({1, 4, 2, queries[n], keys[n], 0, 0}, 20);
    for_each_index(own.shape(), [&](Index b, Index h, Index i, Index e) {
      lists(b, h, first + i, e) = own(b, h, i, e);
    });
    first += queries[n];
  }
  const Tensor<T> out({1, 4, rows, 25});
  AllInputs<T> in = problem.inputs();
  in.indices = lists.view();
  fovea::ThreadPool pool(2);
  fovea::Arena arena(IndexedAttention{}.workspace_bytes<T>(
      bench::shape_for<IndexedAttention>({1, 4, 2, rows, problem.k.shape()[2], 40, 25}, 20), 2));
  IndexedAttention{}.forward(in, out.view(), AllSaved<T>{}, arena.on(pool));
  for (std::size_t n = 0; n < queries.size(); ++n) {
    const Index at = problem.cu_q[n];
    for (Index r = 0; r < queries[n]; r += 100) {
      const Index count = std::min<Index>(100, queries[n] - r);
      AllInputs<T> part = part_of(problem.inputs(), at + r, count, problem.cu_k[n], keys[n]);
      part.indices = cut(View<const Index>(lists.view()), 2, at + r, count);
      const Tensor<T> alone({1, 4, count, 25});
      IndexedAttention{}.forward(part, alone.view());
      for_each_index(alone.shape(), [&](Index b, Index h, Index i, Index c) {
        ASSERT_EQ(alone(b, h, i, c), out(b, h, at + r + i, c)) << n << ", " << h << ", " << i;
      });
    }
  }
}

/// A call allocates workspace_bytes, in few pieces, and more rows or keys need no more than a block
/// of them.
TYPED_TEST(IndexedPhasesOf, AllocateExactlyTheirWorkspace) {
  using T = TypeParam;
  const AttentionShape s{1, 2, 1, 1100, 4300, 40, 25};
  const Tensor<Index> lists = sharded_lists(s, 20);
  const Problem<T> problem = make_problem(Case<T>{}, s);
  AllInputs<T> in = problem.inputs();
  in.indices = lists.view();
  const Tensor<T> out(problem.out_shape());
  const std::ptrdiff_t before = heap().reset();
  IndexedAttention{}.forward(in, out.view(), AllSaved<T>{});
  const Index bytes = this->bytes_of(s, 20);
  EXPECT_LE(heap().peak - before, bytes + 1024);
  EXPECT_GE(heap().peak - before, bytes - (16 << 10));
  EXPECT_LE(heap().allocations, 8);
  const auto bytes_of_tokens = [&](Index n) { return this->bytes_of({1, 2, 2, n, n, 64, 64}, 20); };
  EXPECT_EQ(bytes_of_tokens(1 << 18), bytes_of_tokens(1 << 24));
  // Threads share most of it.
  const Index most = sizeof(T) == 4 ? 32'000'000 : 58'000'000;
  for (const Index length : {1, 20, 300, 5000, 100'000}) {
    for (const Index n : {2048, 8192, 1 << 24}) {
      const Index slot = fovea::indexed_logits_scratch(64, length) * Index{sizeof(T)};
      EXPECT_LE(this->bytes_of({1, 64, 64, n, n, 64, 64}, length, 100), most + 200 * slot);
    }
  }
}

}  // namespace fovea_test::attention_indexed_phases
