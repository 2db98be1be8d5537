// SPDX-License-Identifier: MIT
// fovea_test(OPTIMISED HEAP)
/// \file
/// IndexedAttention beyond the conformance suite: padding and strides of lists change no bit, lists
/// that differ by batch and sequence, groups of heads in the backward pass, memory, sort_indices,
/// places of entries by key.
#include "fovea/attention/indexed.hpp"
#include "fovea/attention/indexed/check.hpp"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "attention/cases.hpp"
#include "attention/exact_workspace.hpp"
#include "attention/problem.hpp"
#include "fovea/attention/indexed/entry_places.hpp"
#include "fovea/core/eigen.hpp"
#include "fovea/core/thread_pool.hpp"
#include "support/between_fences.hpp"
#include "support/levels.hpp"
#include "support/scalars.hpp"

namespace fovea_test::attention_indexed {

using fovea::IndexedAttention;

static_assert(fovea::Attention<IndexedAttention, Eigen::bfloat16>);
static_assert(fovea::DifferentiableAttention<IndexedAttention, double>);
static_assert(!fovea::DifferentiableAttention<IndexedAttention, Eigen::half>);
static_assert(!fovea::IncrementalAttention<IndexedAttention, float>);

/// Lists of about `share` of the keys, in K places.
Tensor<Index> some_lists(const AttentionShape& s, double share, Index length,
                         const Layout& layout = {}) {
  Tensor<Index> lists({s.batch, s.query_heads, s.queries, length}, layout);
  for_each_index({s.batch, s.query_heads, s.queries, 1}, [&](Index b, Index h, Index i, Index) {
    Index n = 0;
    for (Index j = 0; j < s.keys && n < length; ++j) {
      if (uniform(hash(9, b, h, i, j)) < share) lists(b, h, i, n++) = j;
    }
    for (; n < length; ++n) lists(b, h, i, n) = -1;
  });
  return lists;
}

/// A call over lists. Other operators do not read these.
template <class T>
struct ListProblem {
  using Scalar = T;

  ListProblem(const AttentionShape& s, Tensor<Index> of_keys)
      : problem(make_problem(Case<T>{}, s)), lists(std::move(of_keys)), d_out(problem.out_shape()) {
    d_out.fill(gaussian(8));
  }

  AllInputs<T> inputs() const {
    AllInputs<T> in = problem.inputs();
    in.indices = lists.view();
    return in;
  }
  template <class Op>
  Shape saved_shape(const Op& /*op*/, const std::string& /*lse*/) const {
    return problem.row_shape();
  }
  CallResult<T> run(AnyExecutor* executor = nullptr) const {
    return run_call(IndexedAttention{}, *this, executor);
  }

  Problem<T> problem;
  Tensor<Index> lists;
  Tensor<T> d_out;
};

template <class T>
class Indexed : public testing::Test {};
TYPED_TEST_SUITE(Indexed, Scalars);

/// Longer lists, and lists with other strides.
TYPED_TEST(Indexed, PaddingAndStridesOfListsDoNotChangeBits) {
  using T = TypeParam;
  const AttentionShape s{2, 4, 2, 40, 60, 16, 9};
  const auto run = [&](Index length, const Layout& layout = {}) {
    return ListProblem<T>(s, some_lists(s, 0.2, length, layout)).run();
  };
  at_each_level([&] {
    const CallResult<T> expected = run(40);
    EXPECT_TRUE(same_bits(expected, run(60)));
    EXPECT_TRUE(same_bits(expected, run(97)));
    EXPECT_TRUE(same_bits(expected, run(40, {.order = {3, 1, 0, 2}, .innermost = 2, .gap = 3})));
    const Layout reversed{.reversed = {true, false, true, true}, .guard = Guard::behind};
    EXPECT_TRUE(same_bits(expected, run(40, reversed)));
  });
}

/// One head, and more heads than are computed at once; lists of any length, packed sequences, and
/// keys that no row lists.
TYPED_TEST(Indexed, ThreadsDoNotChangeBits) {
  using T = TypeParam;
  std::vector<ListProblem<T>> problems;
  for (const AttentionShape& s :
       {AttentionShape{1, 1, 1, 700, 500, 16, 16}, AttentionShape{2, 4, 2, 2100, 300, 2, 2}}) {
    problems.emplace_back(s, some_lists(s, 0.5, 200));
  }
  Tensor<Index> lists({1, 1, 1500, 90});
  lists.fill([](Index, Index, Index i, Index n) {
    const bool is_listed = n < static_cast<Index>(hash(3, i, 0, 0, 0) % 90);
    return is_listed && (i != 1100 || n < 20) ? (i < 40 ? n : 3 * n + i % 2) : -1;
  });
  problems.emplace_back(AttentionShape{1, 1, 1, 1500, 1300, 24, 8}, std::move(lists));
  problems.back().problem.cu_q = {0, 40, 40, 1100, 1101, 1500};
  problems.back().problem.cu_k = {0, 90, 100, 700, 760, 1300};
  for (const int threads : {2, 3}) {
    fovea::ThreadPool pool(threads);
    AnyExecutor executor = AnyExecutor::of(pool);
    for (const ListProblem<T>& p : problems) EXPECT_TRUE(same_bits(p.run(), p.run(&executor)));
  }
}

/// Groups of heads are no part of a result: each batch entry and key head alone has its bits.
TYPED_TEST(Indexed, SingleHeadsHaveTheSameBits) {
  using T = TypeParam;
  const AttentionShape s{2, 4, 2, 1500, 400, 2, 3};
  const ListProblem<T> all(s, some_lists(s, 1, 400));  // 600 000 entries a head
  const std::vector<T> whole = all.run()["out"];
  const Tensor<T> out({1, 2, s.queries, s.value_width});
  for (Index b = 0; b < 2; ++b) {
    for (Index g = 0; g < 2; ++g) {
      AllInputs<T> in = all.inputs();
      in.q = cut(cut(in.q, 0, b, 1), 1, 2 * g, 2);
      in.k = cut(cut(in.k, 0, b, 1), 1, g, 1);
      in.v = cut(cut(in.v, 0, b, 1), 1, g, 1);
      in.indices = cut(cut(in.indices, 0, b, 1), 1, 2 * g, 2);
      IndexedAttention{}.forward(in, out.view());
      const std::size_t size = out.values().size();
      EXPECT_TRUE(same_bits(whole.data() + as_size(b * 2 + g) * size, out.values().data(), size,
                            out.shape()));
    }
  }
}

fovea::IndexedShape with_lists(const AttentionShape& s, Index keys_per_row) {
  return bench::shape_for<IndexedAttention>(s, keys_per_row);
}

TYPED_TEST(Indexed, AllocatesExactlyItsWorkspace) {
  for (const Index n : {300, 9000}) {
    const AttentionShape s{2, 2, 1, n, n, 8, 8};
    const ListProblem<TypeParam> p(s, some_lists({2, 2, 1, n, 60, 0, 0}, 0.5, 20));
    expect_exact_workspace(IndexedAttention{}, p, with_lists(s, 20), {8, 16});
  }
}

/// Lists have no more keys than there are, however many places they have.
TEST(IndexedMemory, DependsOnKeysNotOnTheWidthOfLists) {
  const IndexedAttention op;
  const AttentionShape s{1, 2, 1, 50, 50, 8, 8};
  const Index none = -1;
  const ListProblem<float> p(s, Tensor<Index>());
  AllInputs<float> in = p.inputs();
  in.indices = View<const Index>(&none, {1, 2, 50, 1 << 18}, {0, 0, 0, 0});
  const WrittenTensors<IndexedAttention, ListProblem<float>> to(op, p);
  const auto saved = to.saved();
  const auto grads = to.grads();
  const Index limit = 50 * (4 << 10);
  std::ptrdiff_t before = heap().reset();
  op.forward(in, to.out().view(), saved);
  EXPECT_LE(heap().peak - before, limit);
  before = heap().reset();
  op.backward(in, to.out().view(), saved, p.d_out.view(), grads);
  EXPECT_LE(heap().peak - before, limit);
  const fovea::IndexedShape many = with_lists(s, 1 << 30);
  const fovea::IndexedShape fifty = with_lists(s, 50);
  EXPECT_EQ(op.workspace_bytes<float>(many), op.workspace_bytes<float>(fifty));
  EXPECT_EQ(op.backward_workspace_bytes<float>(many), op.backward_workspace_bytes<float>(fifty));
  EXPECT_EQ(to.result()["out"], std::vector<float>(2 * 50 * 8));
  EXPECT_EQ(to.result()["d_v"], std::vector<float>(50 * 8));
}

/// The gradient of q alone needs no memory for entries.
TEST(IndexedMemory, GradientOfQueriesAlone) {
  const IndexedAttention op;
  const AttentionShape s{1, 1, 1, 20'000, 60, 4, 4};
  const ListProblem<float> p(s, some_lists(s, 0.5, 20));
  const WrittenTensors<IndexedAttention, ListProblem<float>> to(op, p);
  op.forward(p.inputs(), to.out().view(), to.saved());
  const auto grads = to.grads([](const std::string& name) { return name == "d_q"; });
  const std::ptrdiff_t before = heap().reset();
  op.backward(p.inputs(), to.out().view(), to.saved(), p.d_out.view(), grads);
  EXPECT_LE(heap().peak - before, 4096);
}

TEST(SortIndices, SortsKeysAndKeepsRepetitions) {
  std::vector<Index> lists = {5, -1, 3, 0, 2, 2, -1, -1, -1, -1, -1, -1, 7, 6, 5, 4};
  fovea::sort_indices({lists.data(), {1, 2, 2, 4}});
  EXPECT_EQ(lists, (std::vector<Index>{0, 3, 5, -1, 2, 2, -1, -1, -1, -1, -1, -1, 4, 5, 6, 7}));
  fovea::sort_indices({lists.data() + 3, {1, 1, 1, 4}, {0, 0, 0, -1}});
  EXPECT_EQ(lists[0], -1);
  EXPECT_EQ(lists[3], 0);
  fovea::sort_indices({lists.data(), {1, 1, 4, 0}});
  EXPECT_THROW(fovea::sort_indices({lists.data(), {1, 1, 2, 2}, {0, 0, 0, 1}}),
               std::invalid_argument);
}

/// More places than a sort compares one by one, all of them equal.
TEST(SortIndices, OfEqualPlaces) {
  std::vector<Index> lists(200, -1);
  lists[0] = 7;
  const std::vector<Index> sorted = lists;
  std::swap(lists[0], lists[150]);
  fovea::sort_indices({lists.data(), {1, 1, 1, 200}});
  EXPECT_EQ(lists, sorted);
}

TEST(SortIndices, WritesNothingBeyondTheLastHead) {
  std::vector<Index> lists = {1, 0, 3, 2, 9, 8};
  fovea::sort_indices({lists.data(), {1, 2, 1, 2}});
  EXPECT_EQ(lists, (std::vector<Index>{0, 1, 2, 3, 9, 8}));
}

/// Lists of rows that see the keys of others: those of every sequence are looked at, and no more.
TEST(CheckIndices, ChecksExistingListsOnly) {
  const std::vector<float> zeros(4);
  const View<const float> q(zeros.data(), {2, 1, 2, 1});
  std::vector<Index> lists = {0, 6, 1, 2, 9, 9};
  const auto check = [&] {
    fovea::check_indices("op", q, View<const Index>(lists.data(), {2, 1, 2, 1}), 7);
  };
  EXPECT_NO_THROW(check());
  lists[3] = 7;
  EXPECT_THROW(check(), std::invalid_argument);
}

/// If keys exceed the caches, the next row's keys are prefetched; nothing is prefetched for the
/// last row.
TEST(IndexedMemory, IsNotReadBeyondTheLastList) {
  const AttentionShape s{1, 1, 1, 3, 20000, 208, 16};
  between_fences([&] {
    Tensor<Index> lists({1, 1, 3, 100});
    lists.fill([](Index, Index, Index i, Index n) { return 150 * n + i; });
    const ListProblem<float> p(s, std::move(lists));
    const Tensor<float> out(p.d_out.shape());
    IndexedAttention{}.forward(p.inputs(), out.view());
  });
}

/// In one piece and in several, some without rows; key 4 is invisible, and no row lists key 1.
TEST(EntryPlaces, AreOrderedByKeyAndRow) {
  const std::vector<Index> lists = {0, 2, 3, 2, -1, -1, -1, -1, -1, 0, 2, 4};
  fovea::KeyLists all;
  all.data = lists.data();
  all.row = all.length = 3;
  all.key_end = 4;
  for (const Index pieces : {1, 2, 3, 4, 7}) {
    const auto first_row = [&](Index piece) { return piece * 4 / pieces; };
    std::vector<Index> begin(as_size(pieces * 5) + 1, 99);
    const fovea::EntryPlaces places{begin.data(), 5, pieces};
    for (Index p = 0; p < pieces; ++p) {
      places.count_entries(all, p, first_row(p), first_row(p + 1) - first_row(p));
    }
    places.place_entries();
    std::vector<Index> rows(6, 99);
    for (Index p = pieces - 1; p >= 0; --p) {  // in any order
      for (Index r = first_row(p); r < first_row(p + 1); ++r) {
        for (Index n = 0; n < all.visible(r); ++n) {
          rows[as_size(places.next(p)[all.of(r)[n]]++)] = r;
        }
      }
    }
    begin.resize(6);
    EXPECT_EQ(begin, (std::vector<Index>{0, 2, 2, 5, 6, 6})) << pieces;
    EXPECT_EQ(rows, (std::vector<Index>{0, 3, 0, 1, 3, 0})) << pieces;
  }
}

}  // namespace fovea_test::attention_indexed
