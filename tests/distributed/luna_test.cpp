// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// Luna attention over ranks: the bits of one process over segments and with a large lse (see also
/// drawn_shared_test.cpp), what it sends, and refusals.
#include "fovea/distributed/luna.hpp"

#include <gtest/gtest.h>

#include "distributed/operator_calls.hpp"
#include "distributed/rank_call.hpp"
#include "fovea/distributed/softmax_backward.hpp"
#include "fovea/distributed/softmax_forward.hpp"

namespace fovea_test::distributed_luna {

using fovea::kKeySegment;
using fovea::LunaPack;
using fovea::LunaUnpack;
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

/// Several segments of keys, whose running softmaxes are merged in their order.
TEST(DistributedLuna, EqualsOneProcessOverSegments) {
  for (const Sizes& sizes :
       {Sizes{1, 4, 2, 9, 4 * kKeySegment + 77}, Sizes{1, 1, 1, 70, 2 * kKeySegment}}) {
    check(Call<LunaPack>(sizes));
    check(Call<LunaUnpack>(sizes));
  }
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
  Call<LunaPack> call({1, 2, 1, 6, 40});
  const RankCall own(LunaPack(), call);
  auto a = own.arguments();
  const Tensor<float> wrong({1, 1, 41, 5});
  if (own.is_last) a.inputs.k = wrong.view();
  std::string text = own.refused(a);
  EXPECT_TRUE(text.starts_with(own.begin + "k has 41 rows;")) << text;
  a = own.arguments();
  const std::vector<Index> ends = {0, 6};
  if (own.is_last) a.inputs.cu_seqlens_q = ends;
  EXPECT_EQ(own.refused(a),
            own.begin + "cu_seqlens must not be given: the sequence is distributed over ranks");
  a = own.arguments();
  const std::vector<Index> lengths = {41};
  if (own.is_last) a.inputs.key_lengths = lengths;
  text = own.refused(a);
  EXPECT_TRUE(text.starts_with(own.begin + "key_lengths[0] is 41;")) << text;
  a = own.arguments();
  const Tensor<float> bias({1, 1, 1, 1});
  if (own.is_last) a.grads.bias = bias.view();
  EXPECT_EQ(
      own.refused_backward(a),
      own.begin + "the gradient of bias must not be given: the sequence is distributed over ranks");
  a = own.arguments();
  a.d_lse = own.is_last ? a.d_out : View<const float>(a.saved.lse);
  text = own.refused_backward(a);
  EXPECT_TRUE(text.starts_with(own.begin + "d_lse has shape 1x2x6x7")) << text;
  if (own.last > 0) {
    a.d_lse = own.is_last ? View<const float>() : View<const float>(a.saved.lse);
    text = own.refused_backward(a);
    EXPECT_TRUE(text.ends_with(", d_lse")) << text;
    a = own.arguments();
    if (own.is_last) a.grads.q = {};
    text = own.refused_backward(a);
    EXPECT_NE(text.find("6 packed rows, the gradient of q"), std::string::npos) << text;
    a = own.arguments();
    const std::vector<float> sinks(2);
    std::vector<float> d_sinks(2);
    a.inputs.sink = sinks;
    if (own.is_last) a.grads.sink = d_sinks;
    text = own.refused_backward(a);
    EXPECT_NE(text.find(", gradients of sinks"), std::string::npos) << text;
    a = own.arguments();
    a.saved = {};
    const Tensor<float> fewer({1, 2, 5, 5});
    const Tensor<float> out({1, 2, 5, 7});
    if (own.is_last) {
      a.inputs.q = fewer.view();
      a.out = out.view();
    }
    text = own.refused(a);
    EXPECT_NE(text.find("5 packed rows, where rank 0 calls"), std::string::npos) << text;
  }
  call.expect_untouched();
}

/// They would have columns of this rank's keys, or rows of its queries, which kernels look for at
/// the places of the whole sequence.
template <class Op>
void check_refusal_of_logits(const Op& op) {
  Call<Op> call({1, 2, 1, 6, 40});
  const RankCall own(op, call);
  const auto a = own.arguments();
  const Shape of_pairs = {1, 1, a.inputs.q.rows(), a.inputs.k.rows()};
  const Tensor<float> bias(of_pairs);
  const Tensor<bool> mask(of_pairs);
  auto with_bias = a;
  auto with_mask = a;
  if (all_ranks().rank() == 0) {
    with_bias.inputs.bias = bias.view();
    with_mask.inputs.mask = mask.view();
  }
  for (const auto& [with, name] : {std::pair{&with_bias, "bias"}, std::pair{&with_mask, "mask"}}) {
    const std::string expected = std::string("rank 0: ") + op.name() + ": " + name +
                                 " must not be given: the sequence is distributed over ranks";
    EXPECT_EQ(own.refused(*with), expected);
    EXPECT_EQ(own.refused_backward(*with), expected);
  }
}

TEST(DistributedLuna, RefusesBiasAndMask) {
  check_refusal_of_logits(LunaPack());
  check_refusal_of_logits(LunaUnpack());
}

}  // namespace fovea_test::distributed_luna
