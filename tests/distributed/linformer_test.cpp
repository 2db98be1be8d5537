// SPDX-License-Identifier: MIT
/// \file
/// Linformer attention over ranks has the bits of one process: E and F of one head or of each, in
/// blocks of any number of rows.
#include "fovea/distributed/linformer_forward.hpp"

#include <gtest/gtest.h>

#include "fovea/core/arena.hpp"
#include "fovea/core/thread_pool.hpp"
#include "support/executors.hpp"
#include "support/ranks.hpp"
#include "support/refusal.hpp"

namespace fovea_test::distributed_linformer {

using fovea::kChain;
using fovea::LinformerAttention;
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

/// The columns of E or F that a rank's rows meet.
template <class T>
Tensor<T> own_columns(const Tensor<T>& whole, const Rows& rows, const Layout& layout = {}) {
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
        values({s.batch, s.key_heads, s.projected, s.value_width}) {
    q.fill(gaussian(1));
    k.fill(gaussian(2));
    v.fill(gaussian(3));
    const double size = 1 / std::sqrt(static_cast<double>(s.rows));
    e.fill(gaussian(4, size));
    f.fill(gaussian(5, size));
  }
  Tensors(const Tensors& w, const Rows& rows)
      : q(own_part(w.q, rows, {.order = {0, 2, 1, 3}, .gap = 3})),
        k(own_part(w.k, rows, {.order = {2, 0, 1, 3}, .gap = 1})),
        v(own_part(w.v, rows, {.innermost = 2})),
        e(own_columns(w.e, rows, {.gap = 2})),
        f(own_columns(w.f, rows, {.order = {0, 3, 2, 1}, .gap = 1})),
        out(own_part(w.out, rows, {.gap = 1})),
        lse(own_part(w.lse, rows)),
        keys(w.keys.shape(), {.order = {0, 2, 1, 3}, .gap = 2}),
        values(w.values.shape()),
        lengths(w.lengths) {
    for (const Tensor<T>* x : {&out, &lse, &keys, &values}) x->fill(constant(77));
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

  Tensor<T> q, k, v, e, f, out, lse, keys, values;
  std::vector<Index> lengths;
};

template <class T, class... Executor>
void expect_same(const LinformerAttention& op, const Tensors<T>& whole, bool keeps,
                 const RowLayout& layout, Executor&... executor) {
  const Rows rows(all_ranks(), layout);
  const Tensors<T> own(whole, rows);
  fovea::distributed::forward(op, own.inputs(), own.out.view(), own.saved(keeps), rows,
                              executor...);
  const std::string what = layout.text();
  expect_own_part(own.out, whole.out, rows, what + ", out");
  expect_own_part(own.lse, whole.lse, rows, what + ", lse");
  EXPECT_EQ(own.out.changed_gaps() + own.keys.changed_gaps(), 0) << what;
  if (!keeps) return;
  EXPECT_EQ(own.keys.values(), whole.keys.values()) << what;
  EXPECT_EQ(own.values.values(), whole.values.values()) << what;
}

/// Over every layout. \param keeps whether the projected keys and values are saved
template <class T, class... Executor>
void check(const LinformerAttention& op, const Tensors<T>& whole, bool keeps,
           Executor&... executor) {
  op.forward(whole.inputs(), whole.out.view(), whole.saved(true));
  const Index count = whole.q.shape()[2];
  std::vector<RowLayout> layouts = layouts_of(count, all_ranks().size());
  layouts.push_back(RowLayout::zigzag(count, all_ranks().size(), kChain));
  for (const RowLayout& layout : layouts) expect_same(op, whole, keeps, layout, executor...);
}

TEST(DistributedLinformer, HasTheBitsOfOneProcess) {
  for (const Index rows : {1, 6, 333}) {
    check(LinformerAttention(), Tensors<float>({.batch = 2, .rows = rows, .value_sharing = 2}),
          true);
    check(LinformerAttention(), Tensors<float>({.batch = 2, .rows = rows, .key_sharing = 2}),
          false);
  }
}

/// More projected keys than go along at once, and more chains than a product takes.
TEST(DistributedLinformer, HasTheBitsOfOneProcessInBlocks) {
  check(LinformerAttention(),
        Tensors<float>({.batch = 3, .rows = 1700, .projected = 150, .value_sharing = 2}), true);
  check(LinformerAttention({.scale = -0.3}),
        Tensors<float>({.rows = 70, .projected = 200, .width = 33, .value_width = 16}), true);
}

TEST(DistributedLinformer, HasTheBitsOfOneProcessInDouble) {
  check(LinformerAttention(), Tensors<double>({.rows = 400, .projected = 70}), true);
}

TEST(DistributedLinformer, TakesKeyLengths) {
  Tensors<float> whole({.batch = 5, .rows = 300, .key_sharing = 2});
  whole.lengths = {300, 130, 0, 1, 128};
  check(LinformerAttention(), whole, true);
}

TEST(DistributedLinformer, RunsOnThreads) {
  fovea::ThreadPool pool(3);
  const Tensors<float> whole(
      {.batch = 3, .query_heads = 6, .key_heads = 3, .rows = 1500, .projected = 130});
  check(LinformerAttention(), whole, true, pool);
  fovea::Arena arena(Index{1} << 22);
  auto executor = arena.on(pool);
  check(LinformerAttention(), whole, true, executor);
}

/// Where ranges begin with chains, the projected keys and values travel: from range to range, and
/// to all. Rows travel where a chain lies on two ranks.
TEST(DistributedLinformer, SendsProjectedKeysAndNoRows) {
  const Index ranks = all_ranks().size();
  const auto sent = [&](Index count, Index multiple) {
    const Tensors<float> whole({.rows = count, .projected = 70});
    const Rows rows(all_ranks(), RowLayout::contiguous(count, all_ranks().size(), multiple));
    const Tensors<float> own(whole, rows);
    return fovea::distributed::forward(LinformerAttention(), own.inputs(), own.out.view(), rows)
        .bytes_sent;
  };
  const Index sums = 2 * 70 * (5 + 7) * 4;
  const bool is_last = all_ranks().rank() + 1 == ranks;
  const Index expected = sums * (is_last ? ranks - 1 : 1);
  EXPECT_EQ(sent(ranks * kChain, kChain), ranks == 1 ? 0 : expected);
  EXPECT_EQ(sent(5 * ranks * kChain, kChain), ranks == 1 ? 0 : expected);
  // Rank r begins r rows behind a chain.
  const Index row = (2 * (5 + 7) + 2 * 70) * 4;
  const Index moved = all_ranks().rank() == 0 ? 0 : kChain - all_ranks().rank();
  EXPECT_EQ(sent(ranks * (kChain + 1), 1), ranks == 1 ? 0 : expected + moved * row);
}

TEST(DistributedLinformer, NothingIsASumOfNothing) {
  check(LinformerAttention(), Tensors<float>({.rows = 0}), true);
  check(LinformerAttention(), Tensors<float>({.batch = 0, .rows = 70}), true);
}

TEST(DistributedLinformer, RefusesWhatOneRankBrings) {
  const Tensors<float> whole({.rows = 70});
  const Rows rows(all_ranks(), RowLayout::contiguous(70, all_ranks().size()));
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
            begin +
                "key_projection is missing; expected [1, 1 or Hk, P, Nk], what makes P keys "
                "of Nk");
  in = own.inputs();
  const Tensor<float> all(whole.e.shape());
  if (is_last) in.value_projection = all.view();
  EXPECT_EQ(refused(in, own.saved(true)),
            last == 0
                ? "accepted"
                : begin + "width of value_projection is 70; expected " + count + ", the rows of k");
  in = own.inputs();
  const std::vector<Index> ends = {0, 70};
  if (is_last) in.cu_seqlens_q = ends;
  EXPECT_EQ(refused(in, own.saved(true)),
            begin +
                "cu_seqlens is given; expected none, since the sequence is "
                "spread over ranks");
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

/// A rank whose threads break still sends what others wait for.
TEST(DistributedLinformer, AThreadThatBreaks) {
  const Tensors<float> whole({.query_heads = 8, .key_heads = 8, .rows = 300});
  const Rows rows(all_ranks(), RowLayout::zigzag(300, all_ranks().size()));
  const Tensors<float> own(whole, rows);
  const int last = all_ranks().size() - 1;
  Breaking executor{all_ranks().rank() == last};
  try {
    fovea::distributed::forward(LinformerAttention(), own.inputs(), own.out.view(), own.saved(true),
                                rows, executor);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_EQ(error.what(), "rank " + std::to_string(last) + ": the thread broke");
  }
}

}  // namespace fovea_test::distributed_linformer
