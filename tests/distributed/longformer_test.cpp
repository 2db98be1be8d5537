// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// Longformer attention over ranks has the bits of one process, with and without projections of
/// global rows.
#include "fovea/distributed/longformer.hpp"

#include <gtest/gtest.h>

#include "fovea/core/thread_pool.hpp"
#include "support/executors.hpp"
#include "support/ranks.hpp"
#include "support/refusal.hpp"
#include "support/scalars.hpp"

namespace fovea_test::distributed_longformer {

using fovea::LongformerAttention;
using fovea::LongformerGrads;
using fovea::LongformerInputs;
using fovea::LongformerOptions;
using fovea::SoftmaxSaved;
using fovea::View;

/// All tensors of a call, of the whole sequence or of a rank's rows.
template <class T>
struct Tensors {
  Tensor<T> q, k, v, global_q, global_k, global_v, out, lse, d_out, d_lse;
  Tensor<T> d_q, d_k, d_v, d_global_q, d_global_k, d_global_v;
  LongformerInputs<T> more = {};  // other inputs
  bool has_global = true;
  bool has_d_lse = false;

  LongformerInputs<T> inputs() const {
    LongformerInputs<T> in = more;
    in.q = q.view();
    in.k = k.view();
    in.v = v.view();
    if (!has_global) return in;
    in.global_q = global_q.view();
    in.global_k = global_k.view();
    in.global_v = global_v.view();
    return in;
  }
  SoftmaxSaved<T> saved() const { return {lse.view()}; }
  fovea::SoftmaxOutGrads<T> out_grads() const {
    fovea::SoftmaxOutGrads<T> of{.d_out = d_out.view()};
    if (has_d_lse) of.d_lse = d_lse.view();
    return of;
  }
  LongformerGrads<T> grads() const {
    LongformerGrads<T> all;
    all.q = d_q.view();
    all.k = d_k.view();
    all.v = d_v.view();
    if (!has_global) return all;
    all.global_q = d_global_q.view();
    all.global_k = d_global_k.view();
    all.global_v = d_global_v.view();
    return all;
  }
};

template <class T>
Tensors<T> whole_problem(Index batch, Index query_heads, Index key_heads, Index rows,
                         bool has_global) {
  const Tensor<T> queries({batch, query_heads, rows, 5});
  const Tensor<T> keys({batch, key_heads, rows, 5});
  const Tensor<T> values({batch, key_heads, rows, 7});
  const Tensor<T> outs({batch, query_heads, rows, 7});
  const Tensor<T> numbers({batch, query_heads, rows, 1});
  const auto like = [](const Tensor<T>& x) { return Tensor<T>(x.shape()); };
  Tensors<T> t{like(queries), like(keys),    like(values),  like(queries),
               like(keys),    like(values),  like(outs),    like(numbers),
               like(outs),    like(numbers), like(queries), like(keys),
               like(values),  like(queries), like(keys),    like(values)};
  unsigned seed = 0;
  for (Tensor<T>* x :
       {&t.q, &t.k, &t.v, &t.global_q, &t.global_k, &t.global_v, &t.d_out, &t.d_lse}) {
    x->fill(gaussian(++seed));
  }
  t.has_global = has_global;
  return t;
}

template <class T>
Tensors<T> parts_of(const Tensors<T>& w, const Sharding& rows) {
  const auto part = [&](const Tensor<T>& x) { return own_part(x, rows); };
  Tensors<T> own{part(w.q),        part(w.k),          part(w.v),          part(w.global_q),
                 part(w.global_k), part(w.global_v),   part(w.out),        part(w.lse),
                 part(w.d_out),    part(w.d_lse),      part(w.d_q),        part(w.d_k),
                 part(w.d_v),      part(w.d_global_q), part(w.d_global_k), part(w.d_global_v)};
  for (const Tensor<T>* x : {&own.out, &own.lse, &own.d_q, &own.d_k, &own.d_v, &own.d_global_q,
                             &own.d_global_k, &own.d_global_v}) {
    x->fill(constant(77));
  }
  own.more = w.more;
  own.has_global = w.has_global;
  own.has_d_lse = w.has_d_lse;
  return own;
}

template <class T>
void expect_same(const std::string& what, const LongformerAttention& op, const Tensors<T>& whole,
                 const RowLayout& layout) {
  const Sharding rows(all_ranks(), layout);
  const Tensors<T> own = parts_of(whole, rows);
  const View<const T> out(own.out.view());
  fovea::ThreadPool pool(2);
  fovea::distributed::forward(op, own.inputs(), own.out.view(), own.saved(), rows, pool);
  fovea::distributed::backward(op, own.inputs(), out, own.saved(), own.out_grads(), own.grads(),
                               rows, pool);
  expect_own_part(own.out, whole.out, rows, what + ", out");
  expect_own_part(own.lse, whole.lse, rows, what + ", lse");
  expect_own_part(own.d_q, whole.d_q, rows, what + ", d_q");
  expect_own_part(own.d_k, whole.d_k, rows, what + ", d_k");
  expect_own_part(own.d_v, whole.d_v, rows, what + ", d_v");
  if (!whole.has_global) return;
  expect_own_part(own.d_global_q, whole.d_global_q, rows, what + ", d_global_q");
  expect_own_part(own.d_global_k, whole.d_global_k, rows, what + ", d_global_k");
  expect_own_part(own.d_global_v, whole.d_global_v, rows, what + ", d_global_v");
}

template <class T>
void check(const std::string& name, const LongformerAttention& op, const Tensors<T>& whole) {
  op.forward(whole.inputs(), whole.out.view(), whole.saved());
  op.backward(whole.inputs(), View<const T>(whole.out.view()), whole.saved(), whole.out_grads(),
              whole.grads());
  const Index rows = whole.q.shape()[2];
  for (const RowLayout& layout : layouts_of(rows, all_ranks().size())) {
    expect_same(name + ", " + std::to_string(rows) + " rows", op, whole, layout);
  }
}

/// Options that differ in what is global. \param rows of the sequence
std::vector<LongformerOptions> all_options(Index rows) {
  std::vector<LongformerOptions> all;
  all.push_back({.left = 9, .right = 5, .first_global = std::min<Index>(rows, 3)});
  all.push_back({.left = 20, .right = 0, .first_global = 1, .causal = true});
  all.push_back({.left = 3, .right = 3});  // none is
  if (rows > 200) {
    all.push_back({.left = 30, .right = 40, .first_global = 2, .global = {70, 71, 199}});
    all.push_back({.left = 30,
                   .right = 0,
                   .global = {rows - 1},
                   .causal = true,
                   .soft_cap = 2.5,
                   .dropout = {.probability = 0.3, .seed = 99}});
  }
  return all;
}

TEST(DistributedLongformer, EqualsOneProcess) {
  for (const Index rows : {1, 6, 333}) {
    for (const bool has_global : {false, true}) {
      const auto whole = whole_problem<float>(2, 4, 2, rows, has_global);
      Index n = 0;
      for (const LongformerOptions& options : all_options(rows)) {
        check("options " + std::to_string(n++), LongformerAttention(options), whole);
      }
    }
  }
}

TEST(DistributedLongformer, EqualsOneProcessInDouble) {
  auto whole = whole_problem<OtherScalar>(1, 2, 2, 250, true);
  for (const LongformerOptions& options : all_options(250)) {
    for (const bool has_d_lse : {false, true}) {
      whole.has_d_lse = has_d_lse;
      check(has_d_lse ? "another scalar, through lse" : "another scalar",
            LongformerAttention(options), whole);
    }
  }
}

/// The keys of global rows come in stages where there are many.
TEST(DistributedLongformer, EqualsOneProcessInStages) {
  const auto whole = whole_problem<float>(1, 1, 1, 4 * fovea::kKeySegment + 100, true);
  check("long", LongformerAttention{{.left = 9, .right = 5, .global = {0, 5000}}}, whole);
}

TEST(DistributedLongformer, SupportsLengthsAndSlopes) {
  const std::vector<float> slopes = {0.5F, 0.25F, 0.125F, 0.0625F};
  const std::vector<Index> lengths = {250, 97};
  auto whole = whole_problem<float>(2, 4, 2, 250, true);
  whole.more.alibi_slopes = slopes;
  whole.more.key_lengths = lengths;
  check("lengths", LongformerAttention{{.left = 9, .right = 5, .global = {60, 120}}}, whole);
}

TEST(DistributedLongformer, SinksEqualOneProcess) {
  auto whole = whole_problem<float>(1, 2, 2, 200, false);
  const std::vector<float> sinks = {1, -2};
  whole.more.sink = sinks;
  const LongformerAttention op{{.left = 9, .right = 5, .first_global = 2}};
  check("sinks", op, whole);
  std::vector<float> expected(2);
  LongformerGrads<float> wanted;
  wanted.sink = expected;
  op.backward(whole.inputs(), View<const float>(whole.out.view()), whole.saved(),
              View<const float>(whole.d_out.view()), wanted);
  const Sharding rows(all_ranks(), RowLayout::zigzag(200, all_ranks().size()));
  const auto own = parts_of(whole, rows);
  std::vector<float> got(2, 77.0F);
  wanted.sink = got;
  fovea::distributed::forward(op, own.inputs(), own.out.view(), own.saved(), rows);
  fovea::distributed::backward(op, own.inputs(), View<const float>(own.out.view()), own.saved(),
                               View<const float>(own.d_out.view()), wanted, rows);
  EXPECT_EQ(got, expected);
}

TEST(DistributedLongformer, RefusesInvalidArgumentsOfOneRank) {
  const auto whole = whole_problem<float>(1, 2, 2, 70, true);
  const Sharding rows(all_ranks(), RowLayout::contiguous(70, all_ranks().size()));
  const auto own = parts_of(whole, rows);
  const int last = all_ranks().size() - 1;
  const bool is_last = all_ranks().rank() == last;
  const std::string begin = "rank " + std::to_string(last) + ": LongformerAttention: ";
  const auto refused = [&](const LongformerInputs<float>& in, LongformerOptions options = {}) {
    return refusal([&] {
      fovea::distributed::forward(LongformerAttention(options), in, own.out.view(), rows);
    });
  };
  LongformerInputs<float> in = own.inputs();
  const Tensor<float> wide({1, 2, rows.own_count(), 6});
  if (is_last) in.global_k = wide.view();
  const std::string text = refused(in);
  EXPECT_TRUE(text.starts_with(begin + "global_k has shape 1x2x")) << text;
  in = own.inputs();
  if (is_last) in.global_q = {};
  EXPECT_EQ(refused(in),
            begin + "global_q is required: global_q, global_k and global_v belong together");
  in = own.inputs();
  EXPECT_EQ(refused(in, {.global = {70}}),
            "rank 0: LongformerAttention: the last global token is 70; expected less than 70, the "
            "number of keys");
  EXPECT_EQ(refused(in, {.global = {69}}), "accepted");
  if (last == 0) GTEST_SKIP() << "nobody to differ from";
  if (is_last) {
    in.global_q = {};
    in.global_k = {};
    in.global_v = {};
  }
  const std::string differ = refused(in);
  EXPECT_NE(differ.find(", projections of global rows"), std::string::npos) << differ;
}

/// A rank whose threads break in the first pass still sends what others need in the second.
TEST(DistributedLongformer, AnExceptionInATask) {
  const auto whole = whole_problem<float>(1, 8, 2, 3000, true);
  const Sharding rows(all_ranks(), RowLayout::zigzag(3000, all_ranks().size()));
  const auto own = parts_of(whole, rows);
  const int last = all_ranks().size() - 1;
  Breaking executor{all_ranks().rank() == last};
  try {
    fovea::distributed::forward(LongformerAttention{{.left = 9, .right = 5, .first_global = 1}},
                                own.inputs(), own.out.view(), own.saved(), rows, executor);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_EQ(error.what(), "rank " + std::to_string(last) + ": the thread broke");
  }
}

}  // namespace fovea_test::distributed_longformer
