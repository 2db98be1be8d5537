// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// Luna attention over ranks: what it sends, and refusals. (See also drawn_shared_test.cpp.)
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

/// Batch, heads and rows of a step.
struct Sizes {
  Index batch, query_heads, key_heads, packed, rows;
};

/// A step without slopes and sinks.
template <class Op>
struct Call : LunaCall<float> {
  static constexpr bool kIsPack = std::same_as<Op, LunaPack>;

  explicit Call(const Sizes& s)
      : LunaCall<float>(SquareSequence{{s.batch, s.query_heads, s.key_heads, s.rows, s.rows, 5, 7}},
                        gaussian_fills(1), kIsPack, s.packed) {
    slopes.role = sink.role = d_sink.role = Role::none;
  }
};

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
  call.sink.role = Role::read;
  call.d_sink.role = Role::gradient;
  const RankCall own(LunaPack(), call);
  const Tensor<float> bias({1, 1, 1, 1});
  own.expect_refused_backward(
      [&](auto& a) { a.grads.bias = bias.view(); },
      "the gradient of bias must not be given: the sequence is distributed over ranks");
  own.expect_differs_backward([](auto& a) { a.grads.q = {}; }, "6 packed rows, the gradient of q");
  own.expect_differs_backward([](auto& a) { a.grads.sink = {}; }, ", gradients of sinks");
  call.lse.is_wanted = false;
  const Tensor<float> fewer({1, 2, 5, 5}), out({1, 2, 5, 7});
  own.expect_differs(
      [&](auto& a) {
        a.inputs.q = fewer.view();
        a.out = out.view();
      },
      "5 packed rows, where rank 0 calls");
  // The gradient by lse belongs to all ranks or to none.
  call.lse.is_wanted = true;
  auto a = own.arguments();
  a.d_lse = own.is_last ? a.d_out : View<const float>(a.saved.lse);
  std::string text = own.refused_backward(a);
  EXPECT_TRUE(text.starts_with(own.begin + "d_lse has shape 1x2x6x7")) << text;
  own.expect_differs_backward([](auto& b) { b.d_lse = b.saved.lse; }, ", d_lse");
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
  const std::string reason = " must not be given: the sequence is distributed over ranks";
  const auto with_bias = [&](auto& b) { b.inputs.bias = bias.view(); };
  const auto with_mask = [&](auto& b) { b.inputs.mask = mask.view(); };
  own.expect_refused(with_bias, "bias" + reason);
  own.expect_refused_backward(with_bias, "bias" + reason);
  own.expect_refused(with_mask, "mask" + reason);
  own.expect_refused_backward(with_mask, "mask" + reason);
}
TEST(DistributedLuna, RefusesBiasAndMask) {
  check_refusal_of_logits(LunaPack());
  check_refusal_of_logits(LunaUnpack());
}

}  // namespace fovea_test::distributed_luna
