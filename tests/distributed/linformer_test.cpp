// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// Linformer attention over ranks has the bits of one process: E and F of one head or of each, in
/// blocks of any number of rows.
#include "fovea/distributed/linformer_backward.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "fovea/core/arena.hpp"
#include "fovea/core/thread_pool.hpp"
#include "support/executors.hpp"
#include "support/ranks.hpp"
#include "support/refusal.hpp"
#include "support/scalars.hpp"

namespace fovea_test::distributed_linformer {

using fovea::kReductionBlock;
using fovea::LinformerAttention;
using fovea::LinformerGrads;
using fovea::LinformerInputs;
using fovea::LinformerSaved;
using fovea::View;

/// Sizes of a call, with what most tests want.
struct Sizes {
  Index batch = 1;
  Index query_heads = 4;
  Index key_heads = 2;
  Index rows = 333;
  Index projected = 7;
  Index key_sharing = 1;    // heads of E
  Index value_sharing = 1;  // heads of F
  Index width = 5;
  Index value_width = 7;
};

/// The columns of E or F for a rank's rows.
template <class T>
Tensor<T> own_columns(const Tensor<T>& whole, const Sharding& rows, const Layout& layout = {}) {
  Shape shape = whole.shape();
  shape[3] = rows.own_count();
  Tensor<T> part(shape, layout);
  Index at = 0;
  for (const Range& range : rows.own()) {
    for (Index n = range.begin; n < range.end; ++n, ++at) {
      for (Index h = 0; h < shape[1]; ++h) {
        for (Index p = 0; p < shape[2]; ++p) part(0, h, p, at) = whole(0, h, p, n);
      }
    }
  }
  return part;
}

/// All tensors of a call, of the whole sequence or of a rank's rows.
template <class T>
struct Tensors {
  explicit Tensors(const Sizes& s)
      : q({s.batch, s.query_heads, s.rows, s.width}),
        k({s.batch, s.key_heads, s.rows, s.width}),
        v({s.batch, s.key_heads, s.rows, s.value_width}),
        e({1, s.key_sharing, s.projected, s.rows}),
        f({1, s.value_sharing, s.projected, s.rows}),
        out({s.batch, s.query_heads, s.rows, s.value_width}),
        lse({s.batch, s.query_heads, s.rows, 1}),
        keys({s.batch, s.key_heads, s.projected, s.width}),
        values({s.batch, s.key_heads, s.projected, s.value_width}),
        d_out(out.shape()),
        d_q(q.shape()),
        d_k(k.shape()),
        d_v(v.shape()),
        d_e(e.shape()),
        d_f(f.shape()) {
    d_out.fill(gaussian(6));
    q.fill(gaussian(1));
    k.fill(gaussian(2));
    v.fill(gaussian(3));
    const double size = 1 / std::sqrt(static_cast<double>(s.rows));
    e.fill(gaussian(4, size));
    f.fill(gaussian(5, size));
  }
  Tensors(const Tensors& w, const Sharding& rows)
      : q(own_part(w.q, rows, {.order = {0, 2, 1, 3}, .gap = 3})),
        k(own_part(w.k, rows, {.order = {2, 0, 1, 3}, .gap = 1})),
        v(own_part(w.v, rows, {.innermost = 2})),
        e(own_columns(w.e, rows, {.gap = 2})),
        f(own_columns(w.f, rows, {.order = {0, 3, 2, 1}, .gap = 1})),
        out(own_part(w.out, rows, {.gap = 1})),
        lse(own_part(w.lse, rows)),
        keys(w.keys.shape(), {.order = {0, 2, 1, 3}, .gap = 2}),
        values(w.values.shape()),
        d_out(own_part(w.d_out, rows, {.order = {2, 0, 1, 3}, .gap = 1})),
        d_q(own_part(w.d_q, rows)),
        d_k(own_part(w.d_k, rows, {.order = {0, 2, 1, 3}, .gap = 2})),
        d_v(own_part(w.d_v, rows, {.innermost = 2})),
        d_e(own_columns(w.d_e, rows, {.order = {0, 3, 2, 1}, .gap = 1})),
        d_f(own_columns(w.d_f, rows)),
        lengths(w.lengths) {
    for (const Tensor<T>* x : {&out, &lse, &keys, &values, &d_q, &d_k, &d_v, &d_e, &d_f}) {
      x->fill(constant(77));
    }
  }

  LinformerInputs<T> inputs() const {
    LinformerInputs<T> in;
    in.q = q.view();
    in.k = k.view();
    in.v = v.view();
    in.key_lengths = lengths;
    in.key_projection = e.view();
    in.value_projection = f.view();
    return in;
  }
  LinformerSaved<T> saved(bool keeps) const {
    if (!keeps) return {.lse = lse.view()};
    return {lse.view(), keys.view(), values.view()};
  }

  LinformerGrads<T> grads() const {
    return {d_q.view(), d_k.view(), d_v.view(), d_e.view(), d_f.view()};
  }

  Tensor<T> q, k, v, e, f, out, lse, keys, values;
  Tensor<T> d_out, d_q, d_k, d_v, d_e, d_f;
  std::vector<Index> lengths;
};

/// Both passes over ranks.
template <class T>
void run(const LinformerAttention& op, const Tensors<T>& own, bool keeps,
         const LinformerGrads<T>& grads, const Sharding& rows,
         const AnyExecutor& executor = in_this_thread()) {
  fovea::distributed::forward(op, own.inputs(), own.out.view(), own.saved(keeps), rows, executor);
  fovea::distributed::backward(op, own.inputs(), View<const T>(own.out.view()), own.saved(keeps),
                               View<const T>(own.d_out.view()), grads, rows, executor);
}

template <class T>
void expect_same(const LinformerAttention& op, const Tensors<T>& whole, bool keeps,
                 const RowLayout& layout, const AnyExecutor& executor = in_this_thread()) {
  const Sharding rows(all_ranks(), layout);
  const Tensors<T> own(whole, rows);
  run(op, own, keeps, own.grads(), rows, executor);
  const std::string what = layout.text();
  expect_own_part(own.out, whole.out, rows, what + ", out");
  expect_own_part(own.lse, whole.lse, rows, what + ", lse");
  expect_own_part(own.d_q, whole.d_q, rows, what + ", d_q");
  expect_own_part(own.d_k, whole.d_k, rows, what + ", d_k");
  expect_own_part(own.d_v, whole.d_v, rows, what + ", d_v");
  EXPECT_EQ(own.d_e.values(), own_columns(whole.d_e, rows).values()) << what;
  EXPECT_EQ(own.d_f.values(), own_columns(whole.d_f, rows).values()) << what;
  for (const Tensor<T>* x : {&own.out, &own.keys, &own.d_k, &own.d_v, &own.d_e}) {
    EXPECT_EQ(x->changed_gaps(), 0) << what;
  }
  if (!keeps) return;
  EXPECT_EQ(own.keys.values(), whole.keys.values()) << what;
  EXPECT_EQ(own.values.values(), whole.values.values()) << what;
}

/// Over every layout. \param keeps whether the projected keys and values are saved
template <class T>
void check(const LinformerAttention& op, const Tensors<T>& whole, bool keeps,
           const AnyExecutor& executor = in_this_thread()) {
  op.forward(whole.inputs(), whole.out.view(), whole.saved(true));
  op.backward(whole.inputs(), View<const T>(whole.out.view()), whole.saved(true),
              View<const T>(whole.d_out.view()), whole.grads());
  const Index count = whole.q.shape()[2];
  std::vector<RowLayout> layouts = layouts_of(count, all_ranks().size());
  layouts.push_back(RowLayout::zigzag(count, all_ranks().size(), kReductionBlock));
  for (const RowLayout& layout : layouts) expect_same(op, whole, keeps, layout, executor);
}

TEST(DistributedLinformer, EqualsOneProcess) {
  for (const Index rows : {1, 6, 333}) {
    check(LinformerAttention(), Tensors<float>({.batch = 2, .rows = rows, .value_sharing = 2}),
          true);
    check(LinformerAttention(), Tensors<float>({.batch = 2, .rows = rows, .key_sharing = 2}),
          false);
  }
}

/// More projected keys than go along at once, and more chains than a product takes.
TEST(DistributedLinformer, EqualsOneProcessInBlocks) {
  check(LinformerAttention(),
        Tensors<float>({.batch = 3, .rows = 1700, .projected = 150, .value_sharing = 2}), true);
  check(LinformerAttention({.scale = -0.3}),
        Tensors<float>({.rows = 70, .projected = 200, .width = 33, .value_width = 16}), true);
}

TEST(DistributedLinformer, EqualsOneProcessInDouble) {
  check(LinformerAttention(), Tensors<OtherScalar>({.rows = 400, .projected = 70}), true);
}

TEST(DistributedLinformer, SupportsKeyLengths) {
  Tensors<float> whole({.batch = 5, .rows = 300, .key_sharing = 2});
  whole.lengths = {300, 130, 0, 1, 128};
  check(LinformerAttention(), whole, true);
}

TEST(DistributedLinformer, RunsOnThreads) {
  fovea::ThreadPool pool(3);
  const Tensors<float> whole(
      {.batch = 3, .query_heads = 6, .key_heads = 3, .rows = 1500, .projected = 130});
  check(LinformerAttention(), whole, true, AnyExecutor::of(pool));
  fovea::Arena arena(Index{1} << 24);
  const AnyExecutor executor = AnyExecutor::of(pool, &arena);
  check(LinformerAttention(), whole, true, executor);
}

/// A large lse has a low part, which the rank of a row finds and that of its block reads.
TEST(DistributedLinformer, SupportsLargeLogits) {
  const Tensors<float> whole({.rows = 333, .projected = 70});
  whole.q.fill(gaussian(1, 9));
  whole.k.fill(gaussian(2, 30));
  check(LinformerAttention(), whole, true);
  Index large = 0;
  for (const float lse : whole.lse.values()) large += std::abs(lse) > fovea::kLargeLse ? 1 : 0;
  EXPECT_GT(large, 0);
}

/// Ranks may want different gradients.
TEST(DistributedLinformer, WritesRequestedGradients) {
  const Tensors<float> whole({.rows = 300});
  const LinformerAttention op;
  op.forward(whole.inputs(), whole.out.view(), whole.saved(true));
  op.backward(whole.inputs(), View<const float>(whole.out.view()), whole.saved(true),
              View<const float>(whole.d_out.view()), whole.grads());
  const Sharding rows(all_ranks(), RowLayout::block_cyclic(300, all_ranks().size(), 50));
  const Tensors<float> own(whole, rows);
  LinformerGrads<float> wanted = own.grads();
  const bool is_even = all_ranks().rank() % 2 == 0;
  (is_even ? wanted.q : wanted.k) = {};
  (is_even ? wanted.value_projection : wanted.key_projection) = {};
  run(op, own, true, wanted, rows);
  expect_if_wanted(!is_even, own.d_q, whole.d_q, rows);
  expect_if_wanted(is_even, own.d_k, whole.d_k, rows);
  expect_if_wanted(true, own.d_v, whole.d_v, rows);
  const std::vector<float> d_e = own_columns(whole.d_e, rows).values();
  EXPECT_EQ(own.d_e.values(), is_even ? d_e : std::vector<float>(d_e.size(), 77));
  const std::vector<float> d_f = own_columns(whole.d_f, rows).values();
  EXPECT_EQ(own.d_f.values(), is_even ? std::vector<float>(d_f.size(), 77) : d_f);
}

/// If ranges begin at reduction blocks, only projected keys and values are sent, from range to
/// range and then to all ranks. Rows are sent if a reduction block is on two ranks.
TEST(DistributedLinformer, SendsProjectedKeysAndNoRows) {
  const Index ranks = all_ranks().size();
  const auto sent = [&](Index count, Index multiple) {
    const Tensors<float> whole({.rows = count, .projected = 70});
    const Sharding rows(all_ranks(), RowLayout::contiguous(count, all_ranks().size(), multiple));
    const Tensors<float> own(whole, rows);
    return fovea::distributed::forward(LinformerAttention(), own.inputs(), own.out.view(), rows)
        .bytes_sent;
  };
  const Index sums = 2 * 70 * (5 + 7) * 4;
  const bool is_last = all_ranks().rank() + 1 == ranks;
  const Index expected = sums * (is_last ? ranks - 1 : 1);
  EXPECT_EQ(sent(ranks * kReductionBlock, kReductionBlock), ranks == 1 ? 0 : expected);
  EXPECT_EQ(sent(5 * ranks * kReductionBlock, kReductionBlock), ranks == 1 ? 0 : expected);
  // Rank r begins r rows after a reduction block.
  const Index row = (2 * (5 + 7) + 2 * 70) * 4;
  const Index moved = all_ranks().rank() == 0 ? 0 : kReductionBlock - all_ranks().rank();
  EXPECT_EQ(sent(ranks * (kReductionBlock + 1), 1), ranks == 1 ? 0 : expected + moved * row);
}

/// Their gradients go over the sequence once for each query head of a key head. Where blocks of
/// queries begin with ranges, no row travels.
TEST(DistributedLinformer, SendsGradientsOfProjectedKeysAndNoRows) {
  const Index ranks = all_ranks().size();
  const Index rank = all_ranks().rank();
  const auto sent = [&](Index count) {
    const Tensors<float> whole({.rows = count, .projected = 64});
    const Sharding rows(all_ranks(), RowLayout::contiguous(count, all_ranks().size()));
    const Tensors<float> own(whole, rows);
    fovea::distributed::forward(LinformerAttention(), own.inputs(), own.out.view(), own.saved(true),
                                rows);
    return fovea::distributed::backward(LinformerAttention(), own.inputs(),
                                        View<const float>(own.out.view()), own.saved(true),
                                        View<const float>(own.d_out.view()), own.grads(), rows)
        .bytes_sent;
  };
  const Index sums = 2 * 64 * (fovea::padded_size(5) + fovea::padded_size(7)) * 4;
  const Index expected = ranks == 1 ? 0 : sums * (rank + 1 == ranks ? 1 + ranks - 1 : 2);
  const Index block = fovea::block_rows(ranks * 64);
  EXPECT_EQ(block, 64);
  EXPECT_EQ(sent(ranks * block), expected);
  // Rank r begins r rows after a block, whose gradients are sent back.
  const Index read = rank == 0 ? 0 : (block - rank) * 4 * (5 + 7 + 7 + 1) * 4;
  const Index made = rank + 1 == ranks ? 0 : (block - rank - 1) * 4 * 5 * 4;
  EXPECT_EQ(sent(ranks * (block + 1)), expected + read + made);
}

TEST(DistributedLinformer, SumsOfNothingAreZero) {
  check(LinformerAttention(), Tensors<float>({.rows = 0}), true);
  check(LinformerAttention(), Tensors<float>({.batch = 0, .rows = 70}), true);
}

TEST(DistributedLinformer, RefusesInvalidArgumentsOfOneRank) {
  const Tensors<float> whole({.rows = 70});
  const Sharding rows(all_ranks(), RowLayout::contiguous(70, all_ranks().size()));
  const Tensors<float> own(whole, rows);
  const int last = all_ranks().size() - 1;
  const bool is_last = all_ranks().rank() == last;
  const std::string begin = "rank " + std::to_string(last) + ": LinformerAttention: ";
  const auto refused = [&](const LinformerInputs<float>& in, const LinformerSaved<float>& saved) {
    return refusal([&] {
      fovea::distributed::forward(LinformerAttention(), in, own.out.view(), saved, rows);
    });
  };
  const std::string count = std::to_string(rows.layout().count(last));
  LinformerInputs<float> in = own.inputs();
  if (is_last) in.key_projection = {};
  EXPECT_EQ(refused(in, own.saved(true)),
            begin + "key_projection is required: [1, 1 or Hk, P, Nk], which projects Nk rows to P");
  in = own.inputs();
  const Tensor<float> all(whole.e.shape());
  if (is_last) in.value_projection = all.view();
  EXPECT_EQ(refused(in, own.saved(true)),
            last == 0
                ? "accepted"
                : begin + "value_projection has width 70; expected " + count + ", the rows of k");
  in = own.inputs();
  const std::vector<Index> ends = {0, 70};
  if (is_last) in.cu_seqlens_q = ends;
  EXPECT_EQ(refused(in, own.saved(true)),
            begin + "cu_seqlens must not be given: the sequence is distributed over ranks");
  in = own.inputs();
  const std::vector<Index> lengths = {71};
  in.key_lengths = lengths;
  EXPECT_EQ(refused(in, own.saved(true)),
            "rank 0: LinformerAttention: key_lengths[0] is 71; expected 0 to 70, the rows of the "
            "sequence");
  in = own.inputs();
  const Tensor<float> more({1, 1, 8, rows.own_count()});
  if (is_last) in.key_projection = in.value_projection = more.view();
  const std::string differ = refused(in, {});
  if (last > 0) {
    EXPECT_NE(differ.find(", key_projection 1x8, value_projection 1x8 (heads, rows), where rank 0"),
              std::string::npos)
        << differ;
    for (const float x : own.out.values()) EXPECT_EQ(x, 77);
    for (const float x : own.keys.values()) EXPECT_EQ(x, 77);
  }
}

TEST(DistributedLinformer, RefusesMismatchedGradients) {
  const Tensors<float> whole({.rows = 70});
  const Sharding rows(all_ranks(), RowLayout::contiguous(70, all_ranks().size()));
  const Tensors<float> own(whole, rows);
  const int last = all_ranks().size() - 1;
  const bool is_last = all_ranks().rank() == last;
  const std::string begin = "rank " + std::to_string(last) + ": LinformerAttention: ";
  const auto refused = [&](const LinformerSaved<float>& saved, const LinformerGrads<float>& grads) {
    return refusal([&] {
      fovea::distributed::backward(LinformerAttention(), own.inputs(),
                                   View<const float>(own.out.view()), saved,
                                   View<const float>(own.d_out.view()), grads, rows);
    });
  };
  LinformerSaved<float> saved = own.saved(true);
  if (is_last) saved.lse = {};
  EXPECT_EQ(refused(saved, own.grads()), begin + "lse is required: the lse that forward saved");
  LinformerGrads<float> grads = own.grads();
  const Tensor<float> wide({1, 1, 7, 71});
  if (is_last) grads.key_projection = wide.view();
  EXPECT_EQ(refused(own.saved(true), grads),
            begin + "the gradient of key_projection has shape 1x1x7x71; expected 1x1x7x" +
                std::to_string(rows.layout().count(last)) + ", to match the inputs");
  // Whether the projected keys and values are saved is the same on all ranks.
  if (last > 0) {
    const std::string differ = refused(own.saved(!is_last), own.grads());
    EXPECT_NE(differ.find(", projected keys and values saved"), std::string::npos) << differ;
  }
  for (const float x : own.d_q.values()) EXPECT_EQ(x, 77);
  for (const float x : own.d_e.values()) EXPECT_EQ(x, 77);
}

/// A rank whose threads break still sends what others wait for.
TEST(DistributedLinformer, AnExceptionInATask) {
  const Tensors<float> whole({.query_heads = 8, .key_heads = 8, .rows = 300});
  const Sharding rows(all_ranks(), RowLayout::zigzag(300, all_ranks().size()));
  const Tensors<float> own(whole, rows);
  const int last = all_ranks().size() - 1;
  Breaking executor{all_ranks().rank() == last};
  const auto thrown = [&](const auto& call) {
    try {
      call();
    } catch (const std::runtime_error& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  const LinformerAttention op;
  const std::string expected = "rank " + std::to_string(last) + ": the thread broke";
  EXPECT_EQ(thrown([&] {
              fovea::distributed::forward(op, own.inputs(), own.out.view(), own.saved(true), rows,
                                          executor);
            }),
            expected);
  fovea::distributed::forward(op, own.inputs(), own.out.view(), own.saved(true), rows);
  for (const bool keeps : {true, false}) {
    EXPECT_EQ(thrown([&] {
                fovea::distributed::backward(op, own.inputs(), View<const float>(own.out.view()),
                                             own.saved(keeps), View<const float>(own.d_out.view()),
                                             own.grads(), rows, executor);
              }),
              expected);
  }
}

}  // namespace fovea_test::distributed_linformer
