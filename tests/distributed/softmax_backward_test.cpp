// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// The backward pass over ranks has the bits of one process.
#include "fovea/distributed/softmax_backward.hpp"

#include <gtest/gtest.h>

#include "distributed/operators.hpp"
#include "fovea/core/thread_pool.hpp"
#include "fovea/distributed/softmax_forward.hpp"
#include "fovea/patterns/block_window.hpp"
#include "fovea/patterns/combine.hpp"
#include "fovea/patterns/fixed.hpp"
#include "support/compare.hpp"
#include "support/ranks.hpp"
#include "support/refusal.hpp"
#include "support/scalars.hpp"

namespace fovea_test::distributed_softmax_backward {

using fovea::FullAttention;
using fovea::SoftmaxGrads;
using fovea::SoftmaxInputs;
using fovea::SoftmaxOutGrads;
using fovea::SoftmaxSaved;
using fovea::View;

/// All tensors of a call, of the whole sequence or of a rank's rows.
template <class T>
struct Tensors {
  Tensor<T> q, k, v, out, lse, d_out, d_lse, d_q, d_k, d_v;
  bool has_d_lse = false;

  SoftmaxInputs<T> inputs() const {
    SoftmaxInputs<T> in;
    in.q = q.view();
    in.k = k.view();
    in.v = v.view();
    return in;
  }
  SoftmaxSaved<T> saved() const { return {lse.view()}; }
  SoftmaxOutGrads<T> out_grads() const {
    SoftmaxOutGrads<T> of{.d_out = d_out.view()};
    if (has_d_lse) of.d_lse = d_lse.view();
    return of;
  }
  SoftmaxGrads<T> grads() const {
    SoftmaxGrads<T> all;
    all.q = d_q.view();
    all.k = d_k.view();
    all.v = d_v.view();
    return all;
  }
};

template <class T>
Tensors<T> whole_problem(Index batch, Index query_heads, Index key_heads, Index rows,
                         double size_of_queries = 1) {
  const Shape queries = {batch, query_heads, rows, 5};
  const Shape values = {batch, query_heads, rows, 7};
  Tensors<T> t{Tensor<T>(queries),
               Tensor<T>({batch, key_heads, rows, 5}),
               Tensor<T>({batch, key_heads, rows, 7}),
               Tensor<T>(values),
               Tensor<T>({batch, query_heads, rows, 1}),
               Tensor<T>(values),
               Tensor<T>({batch, query_heads, rows, 1}),
               Tensor<T>(queries),
               Tensor<T>({batch, key_heads, rows, 5}),
               Tensor<T>({batch, key_heads, rows, 7})};
  t.q.fill(gaussian(1, size_of_queries));
  t.k.fill(gaussian(2));
  t.v.fill(gaussian(3));
  t.d_out.fill(gaussian(4));
  t.d_lse.fill(gaussian(5));
  return t;
}

template <class T>
Tensors<T> parts_of(const Tensors<T>& whole, const Sharding& rows) {
  const auto part = [&](const Tensor<T>& x) { return own_part(x, rows); };
  Tensors<T> own{part(whole.q),   part(whole.k),     part(whole.v),     part(whole.out),
                 part(whole.lse), part(whole.d_out), part(whole.d_lse), part(whole.d_q),
                 part(whole.d_k), part(whole.d_v),   whole.has_d_lse};
  for (const Tensor<T>* x : {&own.out, &own.lse, &own.d_q, &own.d_k, &own.d_v}) {
    x->fill(constant(77));
  }
  return own;
}

template <class Op, class T>
void check(const std::string& name, const Op& op, const Tensors<T>& whole) {
  op.forward(whole.inputs(), whole.out.view(), whole.saved());
  op.backward(whole.inputs(), View<const T>(whole.out.view()), whole.saved(), whole.out_grads(),
              whole.grads());
  for (const RowLayout& layout : layouts_of(whole.q.shape()[2], all_ranks().size())) {
    const Sharding rows(all_ranks(), layout);
    const Tensors<T> own = parts_of(whole, rows);
    fovea::distributed::forward(op, own.inputs(), own.out.view(), own.saved(), rows);
    fovea::distributed::backward(op, own.inputs(), View<const T>(own.out.view()), own.saved(),
                                 own.out_grads(), own.grads(), rows);
    const std::string what = name + ", " + std::to_string(layout.rows()) + " rows";
    expect_own_part(own.d_q, whole.d_q, rows, what + ", d_q");
    expect_own_part(own.d_k, whole.d_k, rows, what + ", d_k");
    expect_own_part(own.d_v, whole.d_v, rows, what + ", d_v");
  }
}

TEST(DistributedBackward, EqualsOneProcess) {
  for (const Index rows : {1, 6, 333}) {
    const auto whole = whole_problem<float>(2, 4, 2, rows);
    for_each_softmax_operator(
        rows, [&](const std::string& name, const auto& op) { check(name, op, whole); });
    check("FAT", fovea::FatAttention{}, whole);
  }
}

TEST(DistributedBackward, EqualsOneProcessInDouble) {
  const auto whole = whole_problem<OtherScalar>(1, 2, 2, 700);
  for_each_softmax_operator(
      700, [&](const std::string& name, const auto& op) { check(name, op, whole); });
}

/// The gradient with respect to lse travels with the rows of queries.
TEST(DistributedBackward, EqualsOneProcessThroughLse) {
  for (const Index rows : {6, 333}) {
    auto whole = whole_problem<float>(2, 4, 2, rows);
    whole.has_d_lse = true;
    for_each_softmax_operator(
        rows, [&](const std::string& name, const auto& op) { check(name, op, whole); });
    whole.d_out.fill(constant(0));
    check("lse alone", FullAttention{{.causal = true}}, whole);
  }
  auto large = whole_problem<float>(1, 2, 2, 333, 4000);
  large.has_d_lse = true;
  check("large", FullAttention{{.causal = true}}, large);
}

/// Where rows of a block see a key in different runs, a key of a rank gets the sums of a block's
/// runs as one number, however few rows of the block the keys of the rank are seen by.
TEST(DistributedBackward, EqualsOneProcessIfRunsShareKeys) {
  const auto near = fovea::intersect(fovea::BlockWindow{15, 1, 1}, fovea::fixed_local(14));
  const auto beyond =
      fovea::subtract(fovea::FixedSummary{{3, 1, 0, false}}, fovea::unite(near, fovea::Causal{}));
  check("difference", fovea::SparseAttention({.patterns = {beyond}}),
        whole_problem<OtherScalar>(1, 2, 1, 600));
}

/// With a large lse a second number of each row travels, which is found with the keys of its rank.
TEST(DistributedBackward, EqualsOneProcessIfLseIsLarge) {
  const auto whole = whole_problem<float>(1, 2, 2, 333, 4000);
  check("causal", FullAttention{{.causal = true}}, whole);
  check("strided, merged",
        fovea::StridedAttention{{.stride = 16, .heads = fovea::HeadAssignment::merged}}, whole);
  Index large = 0;
  for (const float lse : whole.lse.values()) large += std::abs(lse) > fovea::kLargeLse ? 1 : 0;
  EXPECT_GT(large, 100);
}

/// Of sinks every rank gets the gradients of the whole sequence.
template <class Op, class T>
void check_sinks(const Op& op, const Tensors<T>& whole) {
  const auto heads = as_size(whole.q.shape()[1]);
  const std::vector<T> sinks = {T{1}, T{-2}, T{0.5}, T{3}};
  SoftmaxInputs<T> inputs = whole.inputs();
  inputs.sink = std::span<const T>(sinks).first(heads);
  op.forward(inputs, whole.out.view(), whole.saved());
  std::vector<T> expected(heads);
  SoftmaxGrads<T> grads = whole.grads();
  grads.sink = expected;
  op.backward(inputs, View<const T>(whole.out.view()), whole.saved(), whole.out_grads(), grads);
  fovea::ThreadPool pool(3);
  for (const RowLayout& layout : layouts_of(whole.q.shape()[2], all_ranks().size())) {
    const Sharding rows(all_ranks(), layout);
    const Tensors<T> own = parts_of(whole, rows);
    inputs = own.inputs();
    inputs.sink = std::span<const T>(sinks).first(heads);
    fovea::distributed::forward(op, inputs, own.out.view(), own.saved(), rows);
    for (const bool has_threads : {false, true}) {
      std::vector<T> got(heads, T{77});
      SoftmaxGrads<T> wanted;
      wanted.sink = got;
      if (has_threads) wanted.q = own.d_q.view();
      const View<const T> out(own.out.view());
      const SoftmaxOutGrads<T> of = own.out_grads();
      if (has_threads) {
        fovea::distributed::backward(op, inputs, out, own.saved(), of, wanted, rows, pool);
        expect_own_part(own.d_q, whole.d_q, rows, "d_q");
      } else {
        fovea::distributed::backward(op, inputs, out, own.saved(), of, wanted, rows);
      }
      EXPECT_TRUE(same_bits(got.data(), expected.data(), heads, {1, 1, 1, whole.q.shape()[1]}))
          << rows.count() << " rows";
    }
  }
}

TEST(DistributedBackward, SinksEqualOneProcess) {
  for (const Index rows : {1, 64, 333}) {
    check_sinks(FullAttention{{.causal = true}}, whole_problem<float>(2, 4, 2, rows));
    auto through_lse = whole_problem<OtherScalar>(3, 2, 1, rows);
    through_lse.has_d_lse = true;
    check_sinks(fovea::LocalAttention{{.left = 3, .right = 0}}, through_lse);
  }
  check_sinks(fovea::StridedAttention{{.stride = 16, .heads = fovea::HeadAssignment::merged}},
              whole_problem<float>(1, 4, 4, 333, 4000));
}

/// Ranks may want different gradients.
TEST(DistributedBackward, WritesRequestedGradients) {
  const auto whole = whole_problem<float>(1, 2, 2, 100);
  const FullAttention op{{.causal = true}};
  op.forward(whole.inputs(), whole.out.view(), whole.saved());
  op.backward(whole.inputs(), View<const float>(whole.out.view()), whole.saved(),
              View<const float>(whole.d_out.view()), whole.grads());
  const Sharding rows(all_ranks(), RowLayout::contiguous(100, all_ranks().size()));
  const Tensors<float> own = parts_of(whole, rows);
  fovea::distributed::forward(op, own.inputs(), own.out.view(), own.saved(), rows);
  SoftmaxGrads<float> wanted;
  const bool is_even = all_ranks().rank() % 2 == 0;
  if (is_even) wanted.v = own.d_v.view();
  if (!is_even) wanted.q = own.d_q.view();
  fovea::distributed::backward(op, own.inputs(), View<const float>(own.out.view()), own.saved(),
                               View<const float>(own.d_out.view()), wanted, rows);
  expect_if_wanted(!is_even, own.d_q, whole.d_q, rows);
  expect_if_wanted(false, own.d_k, whole.d_k, rows);
  expect_if_wanted(is_even, own.d_v, whole.d_v, rows);
}

TEST(DistributedBackward, RefusesAGradientOfNothingAndOneRanksOwnWishes) {
  const auto whole = whole_problem<float>(1, 2, 2, 40);
  const Sharding rows(all_ranks(), RowLayout::contiguous(40, all_ranks().size()));
  const Tensors<float> own = parts_of(whole, rows);
  const bool is_last = all_ranks().rank() == all_ranks().size() - 1;
  const std::string begin = "rank " + std::to_string(all_ranks().size() - 1) + ": FullAttention: ";
  SoftmaxInputs<float> inputs = own.inputs();
  const auto refused = [&](const SoftmaxGrads<float>& grads) {
    return refusal([&] {
      fovea::distributed::backward(FullAttention{}, inputs, View<const float>(own.out.view()),
                                   own.saved(), View<const float>(own.d_out.view()), grads, rows);
    });
  };
  SoftmaxGrads<float> grads = own.grads();
  const Tensor<float> bias({1, 1, 1, 40});
  if (is_last) grads.bias = bias.view();
  EXPECT_EQ(refused(grads),
            begin + "the gradient of bias must not be given: the inputs have no bias");
  if (all_ranks().size() > 1) {
    grads = own.grads();
    const std::vector<float> sinks(2);
    std::vector<float> d_sinks(2);
    inputs.sink = sinks;
    if (is_last) grads.sink = d_sinks;
    const std::string text = refused(grads);
    EXPECT_NE(text.find(", gradients of sinks"), std::string::npos) << text;
    inputs.sink = {};
  }
  grads = own.grads();
  const Tensor<float> wrong({1, 3, rows.own_count(), 5});
  if (is_last) grads.q = wrong.view();
  const std::string text = refused(grads);
  EXPECT_TRUE(text.starts_with(begin + "the gradient of q has shape 1x3x")) << text;
  for (const float n : own.d_k.values()) EXPECT_EQ(n, 77);
}

TEST(DistributedBackward, RefusesAGradientOfLseThatDoesNotFit) {
  const auto whole = whole_problem<float>(1, 2, 2, 40);
  const Sharding rows(all_ranks(), RowLayout::contiguous(40, all_ranks().size()));
  const Tensors<float> own = parts_of(whole, rows);
  const int last = all_ranks().size() - 1;
  const auto refused = [&](const View<const float>& of_last, const View<const float>& of_others) {
    return refusal([&] {
      fovea::distributed::backward(
          FullAttention{}, own.inputs(), View<const float>(own.out.view()), own.saved(),
          {.d_out = own.d_out.view(), .d_lse = all_ranks().rank() == last ? of_last : of_others},
          own.grads(), rows);
    });
  };
  const std::string begin = "rank " + std::to_string(last) + ": FullAttention: ";
  const View<const float> right(own.d_lse.view());
  std::string text = refused(own.d_out.view(), right);
  EXPECT_TRUE(text.starts_with(begin + "d_lse has shape 1x2x")) << text;
  if (last > 0) {
    text = refused(right, {});
    EXPECT_NE(text.find(", d_lse, where rank 0 calls"), std::string::npos) << text;
    text = refused({}, right);
    EXPECT_TRUE(text.ends_with(", d_lse")) << text;
  }
  text = refused(own.d_q.view(), right);  // of another width
  EXPECT_TRUE(text.starts_with(begin + "d_lse has shape 1x2x")) << text;
  for (const Tensor<float>* x : {&own.d_q, &own.d_k, &own.d_v}) {
    for (const float n : x->values()) EXPECT_EQ(n, 77);
  }
  EXPECT_EQ(refused(right, right), "accepted");
}

}  // namespace fovea_test::distributed_softmax_backward
