// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// Luna attention over ranks has the bits of one process.
#include "fovea/distributed/luna.hpp"

#include <gtest/gtest.h>

#include "fovea/core/arena.hpp"
#include "fovea/core/thread_pool.hpp"
#include "fovea/distributed/softmax_backward.hpp"
#include "fovea/distributed/softmax_forward.hpp"
#include "support/executors.hpp"
#include "support/ranks.hpp"
#include "support/refusal.hpp"
#include "support/scalars.hpp"

namespace fovea_test::distributed_luna {

using fovea::kKeySegment;
using fovea::LunaPack;
using fovea::LunaUnpack;
using fovea::SoftmaxGrads;
using fovea::SoftmaxInputs;
using fovea::SoftmaxSaved;
using fovea::View;

/// Batch, heads, rows and widths of a step.
struct Sizes {
  Index batch, query_heads, key_heads, packed, rows;
  Index width = 5;
  Index value_width = 7;
};

/// All tensors of a step.
template <class T>
struct Step {
  Step(const Sizes& s, bool is_pack, double size_of_queries = 1)
      : Step({s.batch, s.query_heads, is_pack ? s.packed : s.rows, s.width},
             {s.batch, s.key_heads, is_pack ? s.rows : s.packed, s.width}, s.value_width) {
    q.fill(gaussian(1, size_of_queries));
    k.fill(gaussian(2));
    v.fill(gaussian(3));
    d_out.fill(gaussian(4));
    d_lse.fill(gaussian(5));
  }
  Step(const Shape& queries, const Shape& keys, Index value_width)
      : q(queries, {.order = {0, 2, 1, 3}, .gap = 3}),
        k(keys),
        v({keys[0], keys[1], keys[2], value_width}),
        out({queries[0], queries[1], queries[2], value_width}, {.order = {2, 0, 1, 3}, .gap = 1}),
        lse({queries[0], queries[1], queries[2], 1}),
        d_out(out.shape()),
        d_lse(lse.shape()),
        d_q(queries),
        d_k(keys, {.order = {0, 2, 1, 3}, .gap = 2}),
        d_v(v.shape()) {
    for (const Tensor<T>* x : {&out, &lse, &d_q, &d_k, &d_v}) x->fill(constant(77));
  }

  SoftmaxInputs<T> inputs() const {
    SoftmaxInputs<T> in;
    in.q = q.view();
    in.k = k.view();
    in.v = v.view();
    in.key_lengths = lengths;
    in.alibi_slopes = slopes;
    in.sink = sinks;
    return in;
  }
  SoftmaxSaved<T> saved() const { return {lse.view()}; }
  SoftmaxGrads<T> grads() const {
    SoftmaxGrads<T> all;
    all.q = d_q.view();
    all.k = d_k.view();
    all.v = d_v.view();
    return all;
  }

  fovea::SoftmaxOutGrads<T> out_grads() const {
    fovea::SoftmaxOutGrads<T> of{.d_out = d_out.view()};
    if (has_d_lse) of.d_lse = d_lse.view();
    return of;
  }

  Tensor<T> q, k, v, out, lse, d_out, d_lse, d_q, d_k, d_v;
  bool has_d_lse = false;
  std::vector<Index> lengths;
  std::vector<T> slopes, sinks;
};

/// A tensor of packed rows, which every rank has.
template <class T>
Tensor<T> copy_of(const Tensor<T>& whole) {
  Tensor<T> copy(whole.shape());
  copy.fill([&](Index b, Index h, Index n, Index c) { return whole(b, h, n, c); });
  return copy;
}

/// A rank's tensors of a step.
template <class T>
Step<T> own_step(const Step<T>& whole, const Sharding& rows, bool is_pack) {
  Shape queries = whole.q.shape();
  Shape keys = whole.k.shape();
  (is_pack ? keys : queries)[2] = rows.own_count();
  Step<T> own(queries, keys, whole.v.shape()[3]);
  const auto part = [&](const Tensor<T>& x, bool is_sharded) {
    return is_sharded ? own_part(x, rows, {.order = {0, 2, 1, 3}, .gap = 2}) : copy_of(x);
  };
  own.q = part(whole.q, !is_pack);
  own.k = part(whole.k, is_pack);
  own.v = part(whole.v, is_pack);
  own.d_out = part(whole.d_out, !is_pack);
  own.d_lse = part(whole.d_lse, !is_pack);
  own.has_d_lse = whole.has_d_lse;
  own.lengths = whole.lengths;
  own.slopes = whole.slopes;
  own.sinks = whole.sinks;
  return own;
}

/// Expects the bits of the whole: of its rows if they are spread, or else of all.
template <class T>
void expect_bits(const Tensor<T>& got, const Tensor<T>& whole, bool is_sharded,
                 const Sharding& rows, const std::string& what) {
  if (is_sharded) return expect_own_part(got, whole, rows, what);
  const std::vector<T> a = got.values();
  const std::vector<T> b = whole.values();
  EXPECT_TRUE(a.size() == b.size() &&
              (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0))
      << what << " of rank " << rows.ranks().rank();
}

std::vector<RowLayout> layouts(Index rows) {
  std::vector<RowLayout> all = layouts_of(rows, all_ranks().size());
  all.push_back(RowLayout::contiguous(rows, all_ranks().size(), kKeySegment));
  return all;
}

template <class Op, class T>
void check(const Op& op, const Step<T>& whole, const AnyExecutor& executor = in_this_thread()) {
  constexpr bool is_pack = std::same_as<Op, LunaPack>;
  op.forward(whole.inputs(), whole.out.view(), whole.saved());
  SoftmaxGrads<T> wanted = whole.grads();
  std::vector<T> d_sinks(whole.sinks.size());
  wanted.sink = d_sinks;
  op.backward(whole.inputs(), View<const T>(whole.out.view()), whole.saved(), whole.out_grads(),
              wanted);
  const Index count = (is_pack ? whole.k : whole.q).shape()[2];
  for (const RowLayout& layout : layouts(count)) {
    const Sharding rows(all_ranks(), layout);
    const Step<T> own = own_step(whole, rows, is_pack);
    fovea::distributed::forward(op, own.inputs(), own.out.view(), own.saved(), rows, executor);
    const std::string what = std::string(op.name()) + ", " + layout.text();
    expect_bits(own.out, whole.out, !is_pack, rows, what + ", out");
    expect_bits(own.lse, whole.lse, !is_pack, rows, what + ", lse");
    EXPECT_EQ(own.out.changed_gaps(), 0);
    wanted = own.grads();
    std::vector<T> own_d_sinks(d_sinks.size());
    wanted.sink = own_d_sinks;
    fovea::distributed::backward(op, own.inputs(), View<const T>(own.out.view()), own.saved(),
                                 own.out_grads(), wanted, rows, executor);
    for (std::size_t n = 0; n < d_sinks.size(); ++n) {
      EXPECT_EQ(std::memcmp(&own_d_sinks[n], &d_sinks[n], sizeof(T)), 0) << what << ", d_sink";
    }
    expect_bits(own.d_q, whole.d_q, !is_pack, rows, what + ", d_q");
    expect_bits(own.d_k, whole.d_k, is_pack, rows, what + ", d_k");
    expect_bits(own.d_v, whole.d_v, is_pack, rows, what + ", d_v");
    EXPECT_EQ(own.d_k.changed_gaps(), 0);
  }
}

template <class T>
void check_steps(const Sizes& sizes, const AnyExecutor& executor = in_this_thread()) {
  check(LunaPack(), Step<T>(sizes, true), executor);
  check(LunaUnpack(), Step<T>(sizes, false), executor);
}

TEST(DistributedLuna, EqualsOneProcess) {
  for (const Index rows : {1, 6, 40, 333}) check_steps<float>({2, 4, 2, 5, rows});
  check_steps<float>({1, 2, 2, 1, 100});
  check_steps<float>({1, 2, 1, 200, 150});
}

TEST(DistributedLuna, EqualsOneProcessForLongerSequences) {
  check_steps<OtherScalar>({1, 2, 1, 16, 700});
}

/// Several segments of keys, whose running softmaxes are merged in their order.
TEST(DistributedLuna, EqualsOneProcessOverSegments) {
  check_steps<float>({1, 4, 2, 9, 4 * kKeySegment + 77});
  check_steps<OtherScalar>({1, 1, 1, 70, 2 * kKeySegment});
}

TEST(DistributedLuna, SupportsKeyLengths) {
  Step<float> pack({4, 2, 2, 5, 3 * kKeySegment + 5}, true);
  pack.lengths = {3 * kKeySegment + 5, 0, kKeySegment, 2 * kKeySegment + 1};
  check(LunaPack(), pack);
  Step<float> unpack({3, 2, 2, 40, 300}, false);
  unpack.lengths = {40, 0, 7};
  check(LunaUnpack(), unpack);
}

TEST(DistributedLuna, SupportsSlopesAndSinks) {
  for (const bool is_pack : {true, false}) {
    Step<float> step({1, 4, 2, 6, 2 * kKeySegment + 9}, is_pack);
    step.slopes = {0.5F, 0.25F, 0.01F, 0.001F};
    step.sinks = {1, -2, 0.5F, 3};
    for (const bool has_d_lse : {false, true}) {
      step.has_d_lse = has_d_lse;
      if (is_pack) check(LunaPack(), step);
      if (!is_pack) check(LunaUnpack(), step);
    }
  }
}

TEST(DistributedLuna, RunsOnThreads) {
  fovea::ThreadPool pool(3);
  check_steps<float>({1, 8, 4, 100, 2 * kKeySegment + 300}, AnyExecutor::of(pool));
}

/// The rounding error of a large lse is computed over all keys.
TEST(DistributedLuna, EqualsOneProcessIfLseIsLarge) {
  const Sizes sizes = {2, 2, 1, 70, 2 * kKeySegment + 300};
  Step<float> pack(sizes, true, 4000);
  pack.lengths = {2 * kKeySegment + 300, kKeySegment + 3};
  Step<float> unpack(sizes, false, 4000);
  pack.sinks = unpack.sinks = {50, -20};
  pack.has_d_lse = unpack.has_d_lse = true;
  check(LunaPack(), pack);
  check(LunaUnpack(), unpack);
  for (const Step<float>* step : {&pack, &unpack}) {
    Index large = 0;
    for (const float lse : step->lse.values()) large += std::abs(lse) > fovea::kLargeLse ? 1 : 0;
    EXPECT_GT(large, 100);
  }
}

/// Ranks may want different gradients, but for q of LunaPack.
template <class Op>
void check_wishes(const Op& op) {
  constexpr bool is_pack = std::same_as<Op, LunaPack>;
  const Step<float> whole({1, 2, 1, 6, 700}, is_pack);
  op.forward(whole.inputs(), whole.out.view(), whole.saved());
  op.backward(whole.inputs(), View<const float>(whole.out.view()), whole.saved(),
              View<const float>(whole.d_out.view()), whole.grads());
  const Sharding rows(all_ranks(), RowLayout::zigzag(700, all_ranks().size()));
  const Step<float> own = own_step(whole, rows, is_pack);
  fovea::distributed::forward(op, own.inputs(), own.out.view(), own.saved(), rows);
  SoftmaxGrads<float> wanted;
  const bool is_even = all_ranks().rank() % 2 == 0;
  (is_even ? wanted.k : wanted.v) = (is_even ? own.d_k : own.d_v).view();
  fovea::distributed::backward(op, own.inputs(), View<const float>(own.out.view()), own.saved(),
                               View<const float>(own.d_out.view()), wanted, rows);
  if (is_even) expect_bits(own.d_k, whole.d_k, is_pack, rows, "d_k");
  if (!is_even) expect_bits(own.d_v, whole.d_v, is_pack, rows, "d_v");
  for (const float x : own.d_q.values()) EXPECT_EQ(x, 77);
  for (const float x : (is_even ? own.d_v : own.d_k).values()) EXPECT_EQ(x, 77);
}

TEST(DistributedLuna, WritesRequestedGradients) {
  check_wishes(LunaPack());
  check_wishes(LunaUnpack());
}

/// The passes of operators of one sequence are not those of Luna.
static_assert(!fovea::distributed::PatternAttention<LunaPack, float>);
static_assert(!fovea::distributed::PatternAttention<LunaUnpack, double>);

/// The bytes that a rank sends in both passes.
struct Sent {
  Index forward, backward;
};

template <class Op>
Sent sent(const Op& op, const Sizes& sizes, const RowLayout& layout) {
  constexpr bool is_pack = std::same_as<Op, LunaPack>;
  const Sharding rows(all_ranks(), layout);
  const Step<float> own = own_step(Step<float>(sizes, is_pack), rows, is_pack);
  const Index forward =
      fovea::distributed::forward(op, own.inputs(), own.out.view(), own.saved(), rows).bytes_sent;
  const Index backward =
      fovea::distributed::backward(op, own.inputs(), View<const float>(own.out.view()), own.saved(),
                                   View<const float>(own.d_out.view()), own.grads(), rows)
          .bytes_sent;
  return {forward, backward};
}

/// However many rows there are, sums of packed rows go to the next range and to all.
TEST(DistributedLuna, SendsSumsOfPackedRows) {
  const int ranks = all_ranks().size();
  const bool is_last = all_ranks().rank() == ranks - 1;
  const auto of_sums = [&](Index numbers, Index rounds) {
    // The last range sends to the first one for the next round, and at last to all.
    const Index messages = is_last ? (ranks > 1 ? rounds - 1 : 0) + ranks - 1 : rounds;
    return messages * numbers * Index{sizeof(float)};
  };
  for (const Index segments : {1, 3}) {
    const Sizes sizes = {2, 4, 2, 6, ranks * segments * kKeySegment};
    const RowLayout layout = RowLayout::contiguous(sizes.rows, ranks);
    const Sent pack = sent(LunaPack(), sizes, layout);
    EXPECT_EQ(pack.forward, of_sums(2 * 4 * 6 * (7 + 3), 1));
    EXPECT_EQ(pack.backward, of_sums(2 * 4 * 6 * 5, 1));
    const Sent unpack = sent(LunaUnpack(), sizes, layout);
    EXPECT_EQ(unpack.forward, 0);
    EXPECT_EQ(unpack.backward, of_sums(2 * 2 * 6 * 2 * fovea::padded_size(Index{7}), 2));
  }
}

/// Keys and values of a segment on two ranks are sent to the first, and their gradients back.
TEST(DistributedLuna, SendsRowsOfDividedSegments) {
  if (all_ranks().size() != 2) GTEST_SKIP() << "counted for two ranks";
  const Index rows = 2 * kKeySegment;
  const Sizes sizes = {2, 4, 2, 6, rows};
  const Index row = 2 * 2 * (5 + 7) * Index{sizeof(float)};
  const Index pack = 2 * 4 * 6 * Index{sizeof(float)};
  const RowLayout odd({{{0, kKeySegment - 10}}, {{kKeySegment - 10, rows}}});
  const Sent got = sent(LunaPack(), sizes, odd);
  const bool is_first = all_ranks().rank() == 0;
  EXPECT_EQ(got.forward, pack * (7 + 3) + (is_first ? 0 : 10 * row));
  EXPECT_EQ(got.backward, pack * 5 + 10 * row);
}

TEST(DistributedLuna, RefusesMismatches) {
  const int ranks = all_ranks().size();
  const bool is_last = all_ranks().rank() == ranks - 1;
  const std::string begin = "rank " + std::to_string(ranks - 1) + ": LunaPack: ";
  const Sharding rows(all_ranks(), RowLayout::contiguous(40, ranks));
  const Step<float> own = own_step(Step<float>({1, 2, 1, 6, 40}, true), rows, true);
  const LunaPack op;
  const auto forward = [&](const SoftmaxInputs<float>& in) {
    return refusal([&] { fovea::distributed::forward(op, in, own.out.view(), rows); });
  };
  const auto backward = [&](const SoftmaxInputs<float>& in, const SoftmaxGrads<float>& grads) {
    return refusal([&] {
      fovea::distributed::backward(op, in, View<const float>(own.out.view()), own.saved(),
                                   View<const float>(own.d_out.view()), grads, rows);
    });
  };
  SoftmaxInputs<float> in = own.inputs();
  const Tensor<float> wrong({1, 1, 41, 5});
  if (is_last) in.k = wrong.view();
  std::string text = forward(in);
  EXPECT_EQ(text.substr(0, text.find(';')), begin + "k has 41 rows") << text;
  in = own.inputs();
  const std::vector<Index> ends = {0, 6};
  if (is_last) in.cu_seqlens_q = ends;
  EXPECT_EQ(forward(in),
            begin + "cu_seqlens must not be given: the sequence is distributed over ranks");
  in = own.inputs();
  const std::vector<Index> lengths = {41};
  if (is_last) in.key_lengths = lengths;
  text = forward(in);
  EXPECT_EQ(text.substr(0, text.find(';')), begin + "key_lengths[0] is 41") << text;
  in = own.inputs();
  SoftmaxGrads<float> grads = own.grads();
  const Tensor<float> bias({1, 1, 1, 1});
  if (is_last) grads.bias = bias.view();
  EXPECT_EQ(
      backward(in, grads),
      begin + "the gradient of bias must not be given: the sequence is distributed over ranks");
  grads = own.grads();
  const auto through_lse = [&](const View<const float>& d_lse) {
    return refusal([&] {
      fovea::distributed::backward(op, in, View<const float>(own.out.view()), own.saved(),
                                   {.d_out = own.d_out.view(), .d_lse = d_lse}, grads, rows);
    });
  };
  text = through_lse(is_last ? own.d_out.view() : own.d_lse.view());
  EXPECT_TRUE(text.starts_with(begin + "d_lse has shape 1x2x6x7")) << text;
  if (ranks > 1) {
    text = through_lse(is_last ? View<const float>() : own.d_lse.view());
    EXPECT_TRUE(text.ends_with(", d_lse")) << text;
    if (is_last) grads.q = {};
    text = backward(in, grads);
    EXPECT_NE(text.find("6 packed rows, the gradient of q"), std::string::npos) << text;
    grads = own.grads();
    const std::vector<float> sinks(2);
    std::vector<float> d_sinks(2);
    in.sink = sinks;
    if (is_last) grads.sink = d_sinks;
    text = backward(in, grads);
    EXPECT_NE(text.find(", gradients of sinks"), std::string::npos) << text;
    in = own.inputs();
    const Tensor<float> fewer({1, 2, 5, 5});
    const Tensor<float> out({1, 2, 5, 7});
    if (is_last) in.q = fewer.view();
    text = refusal(
        [&] { fovea::distributed::forward(op, in, is_last ? out.view() : own.out.view(), rows); });
    EXPECT_NE(text.find("5 packed rows, where rank 0 calls"), std::string::npos) << text;
  }
  for (const Tensor<float>* x : {&own.out, &own.d_q, &own.d_k, &own.d_v}) {
    for (const float n : x->values()) EXPECT_EQ(n, 77);
  }
}

/// They would have columns of this rank's keys, or rows of its queries, which kernels look for at
/// the places of the whole sequence.
template <class Op>
void check_refusal_of_logits(const Op& op) {
  constexpr bool is_pack = std::same_as<Op, LunaPack>;
  const Sharding rows(all_ranks(), RowLayout::contiguous(40, all_ranks().size()));
  const Step<float> own = own_step(Step<float>({1, 2, 1, 6, 40}, is_pack), rows, is_pack);
  const Shape of_pairs = {1, 1, own.q.shape()[2], own.k.shape()[2]};
  const Tensor<float> bias(of_pairs);
  const Tensor<bool> mask(of_pairs);
  SoftmaxInputs<float> with_bias = own.inputs();
  SoftmaxInputs<float> with_mask = own.inputs();
  if (all_ranks().rank() == 0) {
    with_bias.bias = bias.view();
    with_mask.mask = mask.view();
  }
  for (const auto& call : {std::pair{&with_bias, "bias"}, std::pair{&with_mask, "mask"}}) {
    const auto* const in = call.first;
    const char* const name = call.second;
    const std::string expected = std::string("rank 0: ") + op.name() + ": " + name +
                                 " must not be given: the sequence is distributed over ranks";
    EXPECT_EQ(refusal([&] { fovea::distributed::forward(op, *in, own.out.view(), rows); }),
              expected);
    EXPECT_EQ(refusal([&] {
                fovea::distributed::backward(op, *in, View<const float>(own.out.view()),
                                             own.saved(), View<const float>(own.d_out.view()),
                                             own.grads(), rows);
              }),
              expected);
  }
}

TEST(DistributedLuna, RefusesBiasAndMask) {
  check_refusal_of_logits(LunaPack());
  check_refusal_of_logits(LunaUnpack());
}

TEST(DistributedLuna, AllocatesInAnArena) {
  fovea::Arena arena(Index{1} << 27);
  fovea::ThreadPool pool(2);
  const AnyExecutor executor = AnyExecutor::of(pool, &arena);
  check_steps<float>({1, 4, 2, 20, 2 * kKeySegment + 30}, executor);
  const int last = all_ranks().size() - 1;
  fovea::Arena small(all_ranks().rank() == last ? 64 : Index{1} << 24);
  auto short_of_memory = small.on(pool);
  const Sharding rows(all_ranks(), RowLayout::contiguous(40, all_ranks().size()));
  const Step<float> own = own_step(Step<float>({1, 2, 1, 6, 40}, true), rows, true);
  const std::string begin = "rank " + std::to_string(last) + ": Arena: size_bytes is 64;";
  std::string text = refusal([&] {
    fovea::distributed::forward(LunaPack(), own.inputs(), own.out.view(), own.saved(), rows,
                                short_of_memory);
  });
  EXPECT_EQ(text.substr(0, begin.size()), begin) << text;
  text = refusal([&] {
    fovea::distributed::backward(LunaPack(), own.inputs(), View<const float>(own.out.view()),
                                 own.saved(), View<const float>(own.d_out.view()), own.grads(),
                                 rows, short_of_memory);
  });
  EXPECT_EQ(text.substr(0, begin.size()), begin) << text;
}

TEST(DistributedLuna, SupportsSequencesWithoutRows) {
  check_steps<float>({2, 2, 1, 3, 0});
  check_steps<float>({2, 2, 1, 0, 90});
}

/// The other ones of keys and values are read nevertheless: an lse depends on keys alone.
TEST(DistributedLuna, SupportsKeysOrValuesOfWidth0) {
  for (const Index rows : {Index{90}, 2 * kKeySegment + 30}) {
    check_steps<float>({.batch = 1,
                        .query_heads = 2,
                        .key_heads = 1,
                        .packed = 6,
                        .rows = rows,
                        .value_width = 0});
    check_steps<float>(
        {.batch = 1, .query_heads = 2, .key_heads = 1, .packed = 6, .rows = rows, .width = 0});
  }
}

}  // namespace fovea_test::distributed_luna
