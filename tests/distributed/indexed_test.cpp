// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// Attention over lists of keys over ranks has the bits of one process.
#include <gtest/gtest.h>

#include <limits>

#include "fovea/core/thread_pool.hpp"
#include "fovea/distributed/indexed_backward.hpp"
#include "fovea/distributed/indexed_forward.hpp"
#include "support/executors.hpp"
#include "support/ranks.hpp"
#include "support/refusal.hpp"
#include "support/scalars.hpp"

namespace fovea_test::distributed_indexed {

using fovea::IndexedAttention;
using fovea::IndexedGrads;
using fovea::IndexedInputs;
using fovea::IndexedSaved;
using fovea::View;

/// All tensors of a call, of the whole sequence or of a rank's rows.
template <class T>
struct Tensors {
  Tensor<T> q, k, v, out, lse, d_out, d_q, d_k, d_v;
  Tensor<Index> lists;
  std::vector<Index> key_lengths = {};

  IndexedInputs<T> inputs() const {
    IndexedInputs<T> in;
    in.q = q.view();
    in.k = k.view();
    in.v = v.view();
    in.indices = lists.view();
    in.key_lengths = key_lengths;
    return in;
  }
  IndexedSaved<T> saved() const { return {lse.view()}; }
  IndexedGrads<T> grads() const { return {d_q.view(), d_k.view(), d_v.view()}; }
};

/// Lists of up to `length` keys: every third row lists neighbours, the others keys from everywhere,
/// and one in eleven none.
Tensor<Index> lists_of(Index batch, Index heads, Index rows, Index length) {
  Tensor<Index> lists({batch, heads, rows, length});
  for (Index b = 0; b < batch; ++b) {
    for (Index h = 0; h < heads; ++h) {
      for (Index n = 0; n < rows; ++n) {
        const Index step = n % 3 == 0 ? 1 : 1 + (n * 7 + h * 3 + b) % std::max<Index>(rows / 5, 1);
        Index key = n % 3 == 0 ? std::max<Index>(n - 2, 0) : (n * 31 + h * 17 + b) % rows;
        const Index count = n % 11 == 10 ? 0 : 1 + (n + h) % length;
        for (Index c = 0; c < length; ++c, key += step) {
          lists(b, h, n, c) = c < count && key < rows ? key : -1;
        }
      }
    }
  }
  return lists;
}

template <class T>
Tensors<T> whole_problem(Index batch, Index query_heads, Index key_heads, Index rows,
                         Index length) {
  const Shape queries = {batch, query_heads, rows, 5};
  const Shape keys = {batch, key_heads, rows, 5};
  const Shape values = {batch, key_heads, rows, 7};
  const Shape outs = {batch, query_heads, rows, 7};
  Tensors<T> t{Tensor<T>(queries),
               Tensor<T>(keys),
               Tensor<T>(values),
               Tensor<T>(outs),
               Tensor<T>({batch, query_heads, rows, 1}),
               Tensor<T>(outs),
               Tensor<T>(queries),
               Tensor<T>(keys),
               Tensor<T>(values),
               lists_of(batch, query_heads, rows, length)};
  t.q.fill(gaussian(1));
  t.k.fill(gaussian(2));
  t.v.fill(gaussian(3));
  t.d_out.fill(gaussian(4));
  return t;
}

template <class T>
Tensors<T> parts_of(const Tensors<T>& w, const Sharding& rows) {
  const auto part = [&](const Tensor<T>& x) { return own_part(x, rows); };
  Tensors<T> own{part(w.q),     part(w.k),   part(w.v),   part(w.out), part(w.lse),
                 part(w.d_out), part(w.d_q), part(w.d_k), part(w.d_v), own_part(w.lists, rows),
                 w.key_lengths};
  for (const Tensor<T>* x : {&own.out, &own.lse, &own.d_q, &own.d_k, &own.d_v}) {
    x->fill(constant(77));
  }
  return own;
}

template <class T>
void expect_same(const IndexedAttention& op, const Tensors<T>& whole, const RowLayout& layout) {
  const Sharding rows(all_ranks(), layout);
  const Tensors<T> own = parts_of(whole, rows);
  const View<const T> out(own.out.view());
  const View<const T> d_out(own.d_out.view());
  fovea::ThreadPool pool(2);
  fovea::distributed::forward(op, own.inputs(), own.out.view(), own.saved(), rows, pool);
  fovea::distributed::backward(op, own.inputs(), out, own.saved(), d_out, own.grads(), rows, pool);
  const std::string what = std::to_string(rows.count()) + " rows";
  expect_own_part(own.out, whole.out, rows, what + ", out");
  expect_own_part(own.lse, whole.lse, rows, what + ", lse");
  expect_own_part(own.d_q, whole.d_q, rows, what + ", d_q");
  expect_own_part(own.d_k, whole.d_k, rows, what + ", d_k");
  expect_own_part(own.d_v, whole.d_v, rows, what + ", d_v");
}

template <class T>
void check(const IndexedAttention& op, const Tensors<T>& whole) {
  op.forward(whole.inputs(), whole.out.view(), whole.saved());
  op.backward(whole.inputs(), View<const T>(whole.out.view()), whole.saved(),
              View<const T>(whole.d_out.view()), whole.grads());
  for (const RowLayout& layout : layouts_of(whole.q.shape()[2], all_ranks().size())) {
    expect_same(op, whole, layout);
  }
}

TEST(DistributedIndexed, EqualsOneProcess) {
  for (const bool causal : {false, true}) {
    for (const Index rows : {1, 6, 333}) {
      check(IndexedAttention{{.causal = causal}}, whole_problem<float>(2, 4, 2, rows, 13));
    }
    check(IndexedAttention{{.scale = 0.7, .causal = causal}},
          whole_problem<OtherScalar>(1, 2, 2, 1100, 40));
  }
}

TEST(DistributedIndexed, SupportsKeyLengths) {
  Tensors<float> whole = whole_problem<float>(3, 2, 1, 200, 20);
  whole.key_lengths = {200, 93, 0};
  check(IndexedAttention{}, whole);
  check(IndexedAttention{{.causal = true}}, whole);
}

/// With a large lse a second number of each row travels, since no other rank has all its keys.
TEST(DistributedIndexed, EqualsOneProcessIfLseIsLarge) {
  const Tensors<float> whole = whole_problem<float>(1, 4, 2, 333, 13);
  whole.q.fill(gaussian(1, 300));
  check(IndexedAttention{}, whole);
  Index large = 0;
  for (const float lse : whole.lse.values()) large += std::abs(lse) > fovea::kLargeLse ? 1 : 0;
  EXPECT_GT(large, 100);
}

/// Keys that lists name and that are not visible change nothing, and do not travel.
TEST(DistributedIndexed, InvisibleKeysMayContainAnything) {
  Tensors<float> whole = whole_problem<float>(1, 2, 2, 120, 4);
  for (Index h = 0; h < 2; ++h) {
    for (Index n = 0; n < 120; ++n) {
      whole.lists(0, h, n, 0) = n / 2;
      whole.lists(0, h, n, 1) = 119;
      whole.lists(0, h, n, 2) = -1;
      whole.lists(0, h, n, 3) = -1;
    }
    for (Index d = 0; d < 5; ++d) whole.k(0, h, 119, d) = std::numeric_limits<float>::quiet_NaN();
  }
  whole.key_lengths = {119};
  check(IndexedAttention{}, whole);
  if (all_ranks().size() != 2) GTEST_SKIP() << "bytes are counted for two ranks";
  const Sharding rows(all_ranks(), RowLayout::contiguous(120, 2));
  const Tensors<float> own = parts_of(whole, rows);
  const auto sent =
      fovea::distributed::forward(IndexedAttention{}, own.inputs(), own.out.view(), rows);
  // The rows from 60 on see keys from 30 on, of which the first rank has 30.
  EXPECT_EQ(sent.bytes_sent, all_ranks().rank() == 0 ? 30 * 2 * (5 + 7) * 4 : 0);
}

/// Ranks may want different gradients.
TEST(DistributedIndexed, WritesRequestedGradients) {
  const auto whole = whole_problem<float>(1, 2, 2, 100, 9);
  const IndexedAttention op{{.causal = true}};
  op.forward(whole.inputs(), whole.out.view(), whole.saved());
  op.backward(whole.inputs(), View<const float>(whole.out.view()), whole.saved(),
              View<const float>(whole.d_out.view()), whole.grads());
  const Sharding rows(all_ranks(), RowLayout::contiguous(100, all_ranks().size()));
  const Tensors<float> own = parts_of(whole, rows);
  fovea::distributed::forward(op, own.inputs(), own.out.view(), own.saved(), rows);
  const bool is_even = all_ranks().rank() % 2 == 0;
  IndexedGrads<float> wanted;
  if (is_even) wanted.v = own.d_v.view();
  if (!is_even) wanted.q = own.d_q.view();
  fovea::distributed::backward(op, own.inputs(), View<const float>(own.out.view()), own.saved(),
                               View<const float>(own.d_out.view()), wanted, rows);
  expect_if_wanted(!is_even, own.d_q, whole.d_q, rows);
  expect_if_wanted(false, own.d_k, whole.d_k, rows);
  expect_if_wanted(is_even, own.d_v, whole.d_v, rows);
}

TEST(DistributedIndexed, RefusesInvalidArgumentsOfOneRank) {
  const auto whole = whole_problem<float>(1, 2, 2, 70, 5);
  const Sharding rows(all_ranks(), RowLayout::contiguous(70, all_ranks().size()));
  const Tensors<float> own = parts_of(whole, rows);
  const int last = all_ranks().size() - 1;
  const bool is_last = all_ranks().rank() == last;
  const std::string begin = "rank " + std::to_string(last) + ": IndexedAttention: ";
  const auto refused = [&](const IndexedInputs<float>& in) {
    return refusal([&] {
      fovea::distributed::forward(IndexedAttention{}, in, own.out.view(), own.saved(), rows);
    });
  };
  const Tensor<Index> wrong = own_part(whole.lists, rows);
  IndexedInputs<float> in = own.inputs();
  if (is_last) {
    in.indices = wrong.view();
    wrong(0, 1, 2, 0) = 70;
  }
  EXPECT_EQ(refused(in), begin +
                             "indices[0, 1, 2, 0] is 70; expected 0 to 69, the keys of the "
                             "sequence, or -1 after the last one");
  if (is_last) in.indices = {};
  EXPECT_EQ(refused(in), begin + "indices is required: [B, Hq, Nq, K], the keys of each row");
  for (const float x : own.out.values()) EXPECT_EQ(x, 77);
  // Keys on other ranks are valid.
  EXPECT_EQ(refused(own.inputs()), "accepted");
}

/// A rank whose threads break still sends what others need.
TEST(DistributedIndexed, AnExceptionInATask) {
  const auto whole = whole_problem<float>(1, 8, 2, 3000, 64);
  const Sharding rows(all_ranks(), RowLayout::zigzag(3000, all_ranks().size()));
  const Tensors<float> own = parts_of(whole, rows);
  const int last = all_ranks().size() - 1;
  Breaking executor{all_ranks().rank() == last};
  try {
    fovea::distributed::forward(IndexedAttention{}, own.inputs(), own.out.view(), own.saved(), rows,
                                executor);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_EQ(error.what(), "rank " + std::to_string(last) + ": the thread broke");
  }
}

}  // namespace fovea_test::distributed_indexed
