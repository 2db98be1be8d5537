// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// Luna attention over ranks has the bits of one process.
#include "fovea/distributed/luna.hpp"

#include <gtest/gtest.h>

#include "distributed/rank_call.hpp"
#include "fovea/distributed/softmax_backward.hpp"
#include "fovea/distributed/softmax_forward.hpp"

namespace fovea_test::distributed_luna {

using fovea::kKeySegment;
using fovea::LunaPack;
using fovea::LunaUnpack;
using fovea::SoftmaxGrads;
using fovea::SoftmaxInputs;
using fovea::View;

/// Batch, heads, rows and widths of a step.
struct Sizes {
  Index batch, query_heads, key_heads, packed, rows;
  Index width = 5;
  Index value_width = 7;
};

/// A step without slopes and sinks.
template <class Op>
struct Call : LunaCall<float> {
  static constexpr bool kIsPack = std::same_as<Op, LunaPack>;

  explicit Call(const Sizes& s, const std::vector<Index>& lengths = {})
      : LunaCall<float>(SquareSequence{{s.batch, s.query_heads, s.key_heads, s.rows, s.rows,
                                        s.width, s.value_width},
                                       lengths},
                        gaussian_fills(1), kIsPack, s.packed) {
    slopes.role = sink.role = d_sink.role = Role::none;
  }
};

template <class Op>
void check(Call<Op>&& call) {
  const Index rows = call.sequence.shape.queries;
  std::vector<RowLayout> layouts = layouts_of(rows, all_ranks().size());
  layouts.push_back(RowLayout::contiguous(rows, all_ranks().size(), kKeySegment));
  expect_one_process(Op(), call, layouts);
}

void check_steps(const Sizes& sizes) {
  check(Call<LunaPack>(sizes));
  check(Call<LunaUnpack>(sizes));
}

TEST(DistributedLuna, EqualsOneProcess) {
  for (const Index rows : {1, 6, 40, 333}) check_steps({2, 4, 2, 5, rows});
  check_steps({1, 2, 2, 1, 100});
  check_steps({1, 2, 1, 200, 150});
  check_steps({1, 2, 1, 16, 700});
}

/// Several segments of keys, whose running softmaxes are merged in their order.
TEST(DistributedLuna, EqualsOneProcessOverSegments) {
  check_steps({1, 4, 2, 9, 4 * kKeySegment + 77});
  check_steps({1, 1, 1, 70, 2 * kKeySegment});
}

TEST(DistributedLuna, SupportsKeyLengths) {
  const Index rows = 3 * kKeySegment + 5;
  check(Call<LunaPack>({4, 2, 2, 5, rows}, {rows, 0, kKeySegment, 2 * kKeySegment + 1}));
  check(Call<LunaUnpack>({3, 2, 2, 40, 300}, {40, 0, 7}));
}

template <class Op>
void check_slopes_and_sinks() {
  for (const Role d_lse : {Role::none, Role::read}) {
    Call<Op> call({1, 4, 2, 6, 2 * kKeySegment + 9});
    call.slopes.role = call.sink.role = Role::read;
    call.d_sink.role = Role::gradient;
    call.d_lse.role = d_lse;
    check(std::move(call));
  }
}

TEST(DistributedLuna, SupportsSlopesAndSinks) {
  check_slopes_and_sinks<LunaPack>();
  check_slopes_and_sinks<LunaUnpack>();
}

/// The rounding error of a large lse is computed over all keys.
template <class Op>
void check_large_lse(const std::vector<Index>& lengths) {
  Call<Op> call({2, 2, 1, 70, 2 * kKeySegment + 300}, lengths);
  call.q.whole.fill(gaussian(1, 4000));
  call.sink.whole.fill(gaussian(2, 30));
  call.sink.role = call.d_lse.role = Role::read;
  call.d_sink.role = Role::gradient;
  expect_one_process(Op(), call);
  EXPECT_GT(large_count(call.lse), 100);
}

TEST(DistributedLuna, EqualsOneProcessIfLseIsLarge) {
  check_large_lse<LunaPack>({2 * kKeySegment + 300, kKeySegment + 3});
  check_large_lse<LunaUnpack>({});
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
  Call<Op> call(sizes);
  const RankCall on_ranks(op, call, layout);
  const Index forward = on_ranks.forward();
  return {forward, on_ranks.backward()};
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
  const LunaPack op;
  Call<LunaPack> call({1, 2, 1, 6, 40});
  const RankCall own(op, call, RowLayout::contiguous(40, ranks));
  const auto forward = [&](const SoftmaxInputs<float>& in) { return own.refused(in, {}); };
  const auto backward = [&](const SoftmaxInputs<float>& in, const SoftmaxGrads<float>& grads) {
    return own.refused(in, own.saved(), grads);
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
  const View<const float> d_out = call.d_out.in(Where::ranks);
  const View<const float> lse_like = call.lse.in(Where::ranks);
  const auto through_lse = [&](const View<const float>& d_lse) {
    return refusal([&] {
      fovea::distributed::backward(op, in, View<const float>(call.out.in(Where::ranks)),
                                   own.saved(), {.d_out = d_out, .d_lse = d_lse}, grads, own.rows);
    });
  };
  text = through_lse(is_last ? d_out : lse_like);
  EXPECT_TRUE(text.starts_with(begin + "d_lse has shape 1x2x6x7")) << text;
  if (ranks > 1) {
    text = through_lse(is_last ? View<const float>() : lse_like);
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
    text = refusal([&] {
      fovea::distributed::forward(op, in, is_last ? out.view() : call.out.in(Where::ranks),
                                  own.rows);
    });
    EXPECT_NE(text.find("5 packed rows, where rank 0 calls"), std::string::npos) << text;
  }
  own.expect_untouched();
}

/// They would have columns of this rank's keys, or rows of its queries, which kernels look for at
/// the places of the whole sequence.
template <class Op>
void check_refusal_of_logits(const Op& op) {
  Call<Op> call({1, 2, 1, 6, 40});
  const RankCall own(op, call, RowLayout::contiguous(40, all_ranks().size()));
  const Shape of_pairs = {1, 1, own.inputs().q.rows(), own.inputs().k.rows()};
  const Tensor<float> bias(of_pairs);
  const Tensor<bool> mask(of_pairs);
  SoftmaxInputs<float> with_bias = own.inputs();
  SoftmaxInputs<float> with_mask = own.inputs();
  if (all_ranks().rank() == 0) {
    with_bias.bias = bias.view();
    with_mask.mask = mask.view();
  }
  for (const auto& with : {std::pair{&with_bias, "bias"}, std::pair{&with_mask, "mask"}}) {
    const auto* const in = with.first;
    const char* const name = with.second;
    const std::string expected = std::string("rank 0: ") + op.name() + ": " + name +
                                 " must not be given: the sequence is distributed over ranks";
    EXPECT_EQ(own.refused(*in, {}), expected);
    EXPECT_EQ(own.refused(*in, own.saved(), own.grads()), expected);
  }
}

TEST(DistributedLuna, RefusesBiasAndMask) {
  check_refusal_of_logits(LunaPack());
  check_refusal_of_logits(LunaUnpack());
}

/// The other ones of keys and values are read nevertheless: an lse depends on keys alone.
TEST(DistributedLuna, SupportsKeysOrValuesOfWidth0) {
  for (const Index rows : {Index{90}, 2 * kKeySegment + 30}) {
    check_steps({1, 2, 1, 6, rows, 5, 0});
    check_steps({1, 2, 1, 6, rows, 0, 7});
  }
}

TEST(DistributedLuna, SupportsNoPackedRows) { check_steps({2, 2, 1, 0, 90}); }

}  // namespace fovea_test::distributed_luna
