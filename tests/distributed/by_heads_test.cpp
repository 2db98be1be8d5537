// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// Reformer and Sinkhorn attention over ranks, which are computed by heads, have the bits of one
/// process.
#include <gtest/gtest.h>

#include "fovea/core/thread_pool.hpp"
#include "fovea/distributed/reformer.hpp"
#include "fovea/distributed/sinkhorn.hpp"
#include "support/executors.hpp"
#include "support/ranks.hpp"
#include "support/refusal.hpp"
#include "support/scalars.hpp"

namespace fovea_test::distributed_by_heads {

using fovea::FirstChunk;
using fovea::ReformerAttention;
using fovea::ReformerGrads;
using fovea::ReformerInputs;
using fovea::ReformerOptions;
using fovea::ReformerSaved;
using fovea::SinkhornAttention;
using fovea::SinkhornGrads;
using fovea::SinkhornInputs;
using fovea::SinkhornOptions;
using fovea::SoftmaxSaved;
using fovea::View;
using fovea::distributed::blocks_of;
using fovea::distributed::CommStats;

/// The sizes of a problem.
struct Sizes {
  Index batch = 1;
  Index heads = 1;
  Index key_heads = 1;
  Index rows = 0;
  Index width = 5;
  Index value_width = 3;
};

/// All tensors of a call of Reformer attention, of the whole sequence or of a rank's rows.
template <class T>
struct ReformerTensors {
  Tensor<T> qk, v, d_out;
  Tensor<T> out, lse, round_lse, d_qk, d_v;
  ReformerInputs<T> more = {};  // other inputs

  ReformerInputs<T> inputs() const {
    ReformerInputs<T> in = more;
    in.qk = qk.view();
    in.v = v.view();
    return in;
  }
  ReformerSaved<T> saved() const { return {lse.view(), round_lse.view()}; }
  ReformerGrads<T> grads() const { return {d_qk.view(), d_v.view()}; }
};

template <class T>
ReformerTensors<T> whole_reformer(const Sizes& s, Index rounds) {
  const auto of_width = [&](Index width) { return Tensor<T>({s.batch, s.heads, s.rows, width}); };
  ReformerTensors<T> t{
      of_width(s.width), of_width(s.value_width), of_width(s.value_width), of_width(s.value_width),
      of_width(1),       of_width(rounds),        of_width(s.width),       of_width(s.value_width)};
  t.qk.fill(gaussian(1));
  t.v.fill(gaussian(2));
  t.d_out.fill(gaussian(3));
  return t;
}

/// The rows of a rank, in another order of memory than those of the whole.
template <class T>
ReformerTensors<T> parts_of(const ReformerTensors<T>& w, const Sharding& rows) {
  const auto part = [&](const Tensor<T>& x) {
    return own_part(x, rows, {.order = {0, 2, 1, 3}, .offset = 3, .gap = 2});
  };
  ReformerTensors<T> own{part(w.qk),  part(w.v),         part(w.d_out), part(w.out),
                         part(w.lse), part(w.round_lse), part(w.d_qk),  part(w.d_v)};
  for (const Tensor<T>* x : {&own.out, &own.lse, &own.round_lse, &own.d_qk, &own.d_v}) {
    x->fill(constant(77));
  }
  own.more = w.more;
  return own;
}

template <class T>
void check(const std::string& name, const ReformerAttention& op, const ReformerTensors<T>& whole) {
  op.forward(whole.inputs(), whole.out.view(), whole.saved());
  op.backward(whole.inputs(), whole.out.view(), whole.saved(), whole.d_out.view(), whole.grads());
  fovea::ThreadPool pool(2);
  for (const RowLayout& layout : layouts_of(whole.qk.shape()[2], all_ranks().size())) {
    const Sharding rows(all_ranks(), layout);
    const ReformerTensors<T> own = parts_of(whole, rows);
    const std::string what = name + ", " + layout.text();
    fovea::distributed::forward(op, own.inputs(), own.out.view(), own.saved(), rows, pool);
    expect_own_part(own.out, whole.out, rows, what + ", out");
    expect_own_part(own.lse, whole.lse, rows, what + ", lse");
    expect_own_part(own.round_lse, whole.round_lse, rows, what + ", round_lse");
    ReformerSaved<T> saved = own.saved();
    for (const bool is_again : {false, true}) {
      if (is_again) saved.round_lse = {};
      own.d_qk.fill(constant(77));
      own.d_v.fill(constant(77));
      fovea::distributed::backward(op, own.inputs(), own.out.view(), saved, own.d_out.view(),
                                   own.grads(), rows, pool);
      expect_own_part(own.d_qk, whole.d_qk, rows, what + ", d_qk");
      expect_own_part(own.d_v, whole.d_v, rows, what + ", d_v");
    }
  }
}

TEST(DistributedReformer, EqualsOneProcess) {
  for (const Index heads : {1, 5}) {
    const Sizes sizes{.batch = 2, .heads = heads, .rows = 8 * 27};
    for (const FirstChunk first :
         {FirstChunk::wrap, FirstChunk::none, FirstChunk::previous_round}) {
      for (const bool is_plain : {true, false}) {
        const ReformerOptions options{.chunk = 8,
                                      .rounds = 3,
                                      .buckets = 16,
                                      .causal = !is_plain,
                                      .before_first = first,
                                      .correct_duplicates = !is_plain,
                                      .seed = 7};
        check("heads " + std::to_string(heads), ReformerAttention(options),
              whole_reformer<float>(sizes, 3));
      }
    }
  }
}

TEST(DistributedReformer, EqualsOneProcessInDouble) {
  check("another scalar", ReformerAttention{{.chunk = 20, .rounds = 2, .buckets = 4}},
        whole_reformer<OtherScalar>({.heads = 3, .rows = 240}, 2));
}

TEST(DistributedReformer, SupportsLengthsAndAProjection) {
  const std::vector<Index> lengths = {97, 0, 240};
  Tensor<float> projection({1, 2, 5, 4});
  projection.fill(gaussian(9));
  auto whole = whole_reformer<float>({.batch = 3, .heads = 4, .rows = 240}, 2);
  whole.more.key_lengths = lengths;
  whole.more.projection = projection.view();
  check("lengths", ReformerAttention{{.chunk = 12, .rounds = 2, .buckets = 8}}, whole);
}

/// All tensors of a call of Sinkhorn attention, of the whole sequence or of a rank's rows.
template <class T>
struct SinkhornTensors {
  Tensor<T> q, k, v, sorting, d_out;
  Tensor<T> out, lse, d_q, d_k, d_v, d_sorting;
  fovea::IndexSpan lengths = {};

  SinkhornInputs<T> inputs() const {
    return {q.view(), k.view(), v.view(), lengths, sorting.view()};
  }
  SoftmaxSaved<T> saved() const { return {lse.view()}; }
  SinkhornGrads<T> grads() const { return {d_q.view(), d_k.view(), d_v.view(), d_sorting.view()}; }
};

template <class T>
SinkhornTensors<T> whole_sinkhorn(const Sizes& s, Index block) {
  const auto of_queries = [&](Index width) { return Tensor<T>({s.batch, s.heads, s.rows, width}); };
  const auto of_keys = [&](Index width) {
    return Tensor<T>({s.batch, s.key_heads, s.rows, width});
  };
  const Index blocks = s.rows / block;
  const Tensor<T> logits({s.batch, s.key_heads, blocks, blocks});
  SinkhornTensors<T> t{of_queries(s.width),
                       of_keys(s.width),
                       of_keys(s.value_width),
                       Tensor<T>(logits.shape()),
                       of_queries(s.value_width),
                       of_queries(s.value_width),
                       of_queries(1),
                       of_queries(s.width),
                       of_keys(s.width),
                       of_keys(s.value_width),
                       Tensor<T>(logits.shape())};
  unsigned seed = 10;
  for (const Tensor<T>* x : {&t.q, &t.k, &t.v, &t.sorting, &t.d_out}) x->fill(gaussian(++seed));
  return t;
}

template <class T>
SinkhornTensors<T> parts_of(const SinkhornTensors<T>& w, const Sharding& rows,
                            const Sharding& blocks) {
  const Layout turned{.order = {0, 2, 1, 3}, .offset = 3, .gap = 2};
  const auto part = [&](const Tensor<T>& x) { return own_part(x, rows, turned); };
  SinkhornTensors<T> own{part(w.q),
                         part(w.k),
                         part(w.v),
                         own_part(w.sorting, blocks, turned),
                         part(w.d_out),
                         part(w.out),
                         part(w.lse),
                         part(w.d_q),
                         part(w.d_k),
                         part(w.d_v),
                         own_part(w.d_sorting, blocks, turned)};
  for (const Tensor<T>* x : {&own.out, &own.lse, &own.d_q, &own.d_k, &own.d_v, &own.d_sorting}) {
    x->fill(constant(77));
  }
  own.lengths = w.lengths;
  return own;
}

template <class T>
void check(const std::string& name, const SinkhornAttention& op, const SinkhornTensors<T>& whole) {
  op.forward(whole.inputs(), whole.out.view(), whole.saved());
  op.backward(whole.inputs(), whole.out.view(), whole.saved(), whole.d_out.view(), whole.grads());
  fovea::ThreadPool pool(2);
  for (const RowLayout& layout : layouts_of(whole.q.shape()[2], all_ranks().size())) {
    const Sharding rows(all_ranks(), layout);
    const Sharding blocks(all_ranks(), blocks_of(layout, op.options.block));
    const SinkhornTensors<T> own = parts_of(whole, rows, blocks);
    const std::string what = name + ", " + layout.text();
    fovea::distributed::forward(op, own.inputs(), own.out.view(), own.saved(), rows, pool);
    fovea::distributed::backward(op, own.inputs(), own.out.view(), own.saved(), own.d_out.view(),
                                 own.grads(), rows, pool);
    expect_own_part(own.out, whole.out, rows, what + ", out");
    expect_own_part(own.lse, whole.lse, rows, what + ", lse");
    expect_own_part(own.d_q, whole.d_q, rows, what + ", d_q");
    expect_own_part(own.d_k, whole.d_k, rows, what + ", d_k");
    expect_own_part(own.d_v, whole.d_v, rows, what + ", d_v");
    expect_own_part(own.d_sorting, whole.d_sorting, blocks, what + ", d_sorting");
  }
}

TEST(DistributedSinkhorn, EqualsOneProcess) {
  for (const Index iterations : {0, 5}) {
    for (const auto& [heads, key_heads] : {std::pair<Index, Index>{1, 1}, {6, 3}, {4, 4}}) {
      const Sizes sizes{.batch = 2, .heads = heads, .key_heads = key_heads, .rows = 12 * 19};
      check("key heads " + std::to_string(key_heads),
            SinkhornAttention{{.block = 12, .iterations = iterations}},
            whole_sinkhorn<float>(sizes, 12));
    }
  }
}

TEST(DistributedSinkhorn, EqualsOneProcessInDouble) {
  check("another scalar", SinkhornAttention{{.block = 20}},
        whole_sinkhorn<OtherScalar>({.heads = 2, .key_heads = 2, .rows = 240}, 20));
}

TEST(DistributedSinkhorn, SupportsLengths) {
  const std::vector<Index> lengths = {96, 0, 240};
  auto whole = whole_sinkhorn<float>({.batch = 3, .heads = 4, .key_heads = 2, .rows = 240}, 12);
  whole.lengths = lengths;
  check("lengths", SinkhornAttention{{.block = 12}}, whole);
}

TEST(DistributedSinkhorn, BlocksAreWithTheirFirstRows) {
  const RowLayout rows({{{0, 5}, {12, 13}}, {{5, 12}}, {{13, 24}}, {}});
  const RowLayout blocks = blocks_of(rows, 6);
  EXPECT_EQ(blocks, RowLayout({{{0, 1}, {2, 3}}, {{1, 2}}, {{3, 4}}, {}}));
}

/// Heads without a width are heads: they have an lse, and the other tensors' widths.
TEST(DistributedByHeads, SupportsZeroWidths) {
  for (const auto& [width, value_width] : {std::pair<Index, Index>{0, 3}, {5, 0}, {0, 0}}) {
    const Sizes sizes{.batch = 2,
                      .heads = 4,
                      .key_heads = 2,
                      .rows = 72,
                      .width = width,
                      .value_width = value_width};
    const std::string name = std::to_string(width) + " and " + std::to_string(value_width);
    check(name, ReformerAttention{{.chunk = 12, .rounds = 2, .buckets = 4}},
          whole_reformer<float>(sizes, 2));
    check(name, SinkhornAttention{{.block = 12}}, whole_sinkhorn<float>(sizes, 12));
  }
}

/// Of every tensor the rank's rows of the others' heads travel, once.
TEST(DistributedByHeads, SendsRowsOfOtherRanksHeads) {
  const Index ranks = all_ranks().size();
  const Sizes sizes{.heads = ranks, .key_heads = ranks, .rows = 16 * ranks};
  const Sharding rows(all_ranks(), RowLayout::contiguous(sizes.rows, all_ranks().size()));
  const auto own = parts_of(whole_reformer<float>(sizes, 2), rows);
  const ReformerAttention op{{.chunk = 16, .rounds = 2, .buckets = 4}};
  const CommStats all =
      fovea::distributed::forward(op, own.inputs(), own.out.view(), ReformerSaved<float>{}, rows);
  EXPECT_EQ(all.bytes_sent,
            Index{sizeof(float)} * 16 * (ranks - 1) * (sizes.width + 2 * sizes.value_width));
}

TEST(DistributedByHeads, RefusesInvalidArgumentsOfOneRank) {
  const Sizes sizes{.heads = 2, .key_heads = 2, .rows = 72};
  const Sharding rows(all_ranks(), RowLayout::contiguous(72, all_ranks().size()));
  const Sharding blocks(all_ranks(), blocks_of(rows.layout(), 12));
  const auto own = parts_of(whole_reformer<float>(sizes, 2), rows);
  const auto sorted = parts_of(whole_sinkhorn<float>(sizes, 12), rows, blocks);
  const int last = all_ranks().size() - 1;
  const bool is_last = all_ranks().rank() == last;
  const Index last_rows = rows.layout().count(last);
  const Index last_blocks = blocks.layout().count(last);
  const std::string begin = "rank " + std::to_string(last) + ": ";
  const auto of_reformer = [&](const ReformerInputs<float>& in, Index chunk = 12,
                               const ReformerSaved<float>& saved = {}) {
    return refusal([&] {
      fovea::distributed::forward(ReformerAttention{{.chunk = chunk, .rounds = 2, .buckets = 4}},
                                  in, own.out.view(), saved, rows);
    });
  };
  const auto of_sinkhorn = [&](const SinkhornInputs<float>& in, Index block = 12) {
    return refusal([&] {
      fovea::distributed::forward(SinkhornAttention{{.block = block}}, in, sorted.out.view(), rows);
    });
  };
  EXPECT_EQ(of_reformer(own.inputs(), 7),
            "rank 0: ReformerAttention: chunk is 7; expected a divisor of the 72 rows of qk");
  EXPECT_EQ(of_sinkhorn(sorted.inputs(), 7),
            "rank 0: SinkhornAttention: block is 7; expected a divisor of the 72 rows of q");
  const std::vector<Index> lengths = {73};
  ReformerInputs<float> in = own.inputs();
  if (is_last) in.key_lengths = lengths;
  EXPECT_EQ(
      of_reformer(in),
      begin +
          "ReformerAttention: key_lengths[0] is 73; expected 0 to 72, the rows of the sequence");
  in = own.inputs();
  const Tensor<float> wide({1, 2, rows.own_count() + 1, 3});
  if (is_last) in.v = wide.view();
  const std::string of_rows = of_reformer(in);
  EXPECT_EQ(of_rows.substr(0, of_rows.find(';')),
            begin + "ReformerAttention: v has " + std::to_string(last_rows + 1) + " rows");
  SinkhornInputs<float> logits = sorted.inputs();
  const Tensor<float> many({1, 2, blocks.own_count() + 1, 6});
  if (is_last) logits.sorting = many.view();
  EXPECT_EQ(of_sinkhorn(logits), begin + "SinkhornAttention: sorting has " +
                                     std::to_string(last_blocks + 1) + " rows; expected " +
                                     std::to_string(last_blocks) + ", the blocks of q");
  for (const Tensor<float>* out : {&own.out, &sorted.out}) {
    for (const float x : out->values()) EXPECT_EQ(x, 77);
  }
  if (last == 0) GTEST_SKIP() << "nobody to differ from";
  ReformerSaved<float> saved;
  if (is_last) saved.lse = own.lse.view();
  const std::string differ = of_reformer(own.inputs(), 12, saved);
  EXPECT_NE(differ.find(", lse"), std::string::npos) << differ;
}

/// All ranks throw the exception of a rank that computes its heads, and nothing is written.
TEST(DistributedByHeads, AnExceptionInATask) {
  const Index ranks = all_ranks().size();
  const Sizes sizes{.heads = ranks, .key_heads = ranks, .rows = 1200};
  const Sharding rows(all_ranks(), RowLayout::zigzag(1200, all_ranks().size()));
  const auto own = parts_of(whole_reformer<float>(sizes, 4), rows);
  const int last = all_ranks().size() - 1;
  Breaking executor{all_ranks().rank() == last};
  try {
    fovea::distributed::forward(ReformerAttention{{.chunk = 60, .buckets = 8}}, own.inputs(),
                                own.out.view(), own.saved(), rows, executor);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_EQ(error.what(), "rank " + std::to_string(last) + ": the thread broke");
  }
  for (const float x : own.out.values()) EXPECT_EQ(x, 77);
}

}  // namespace fovea_test::distributed_by_heads
