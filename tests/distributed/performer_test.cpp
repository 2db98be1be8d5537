// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// Performer attention over ranks beyond drawn_linear_test.cpp: NaN has the bits of one process;
/// what is sent; and what is refused.
#include <gtest/gtest.h>

#include <limits>

#include "distributed/rank_call.hpp"
#include "fovea/attention/linear/feature_stream.hpp"
#include "fovea/distributed/performer_backward.hpp"
#include "fovea/distributed/performer_forward.hpp"
#include "fovea/kernels/linear/grad.hpp"

namespace fovea_test::distributed_performer {

using fovea::kLinearSegment;
using fovea::PerformerAttention;

constexpr Index kFeatures = OtherSizes{}.features;

/// A NaN reaches the rows that it reaches in one process.
TEST(DistributedPerformer, PropagatesNaNAcrossRanges) {
  for (const bool causal : {true, false}) {
    OperatorCall<PerformerAttention, float> call(square(1, 2, 1, 400));
    call.k.whole(0, 0, 210, 2) = std::numeric_limits<float>::quiet_NaN();
    call.k.whole(0, 0, 350, 1) = std::numeric_limits<float>::infinity();
    expect_one_process(PerformerAttention({.causal = causal}), call);
  }
}

/// The bytes that this rank sends of a pass over two ranks.
Index sent(bool in_backward, bool causal, const SquareSequence& s, bool wants_projection = true) {
  OperatorCall<PerformerAttention, float> call(s);
  call.d_projection.is_wanted = wants_projection;
  const RankCall on_ranks(PerformerAttention({.causal = causal}), call);
  return in_backward ? on_ranks.backward() : on_ranks.forward();
}

/// Causal, a state with its reference goes over the end of a range; otherwise the other rank's
/// slice of the sums of each segment, the rank's own slice of the totals, and the references, if
/// ranges end with segments.
TEST(DistributedPerformer, SendsStatesAndNoRows) {
  if (all_ranks().size() != 2) GTEST_SKIP() << "counted for two ranks";
  constexpr Index number = sizeof(float);
  constexpr Index heads = 2;
  const auto sent_of = [](bool causal, Index count) {
    return sent(false, causal, square(1, heads, heads, count));
  };
  const bool is_first = all_ranks().rank() == 0;
  const Index state = fovea::FeatureStream<float>::state_elements(kFeatures, 7);
  EXPECT_EQ(sent_of(true, 400), is_first ? heads * state * number : 0);
  EXPECT_EQ(sent_of(true, 4000), sent_of(true, 400));
  // [features, 16] sums, 32 normalisers and 32 references are cut at 16: 12 pieces and 13.
  constexpr Index all = kFeatures * 16 + 64;
  const Index own = is_first ? 12 * 16 : 13 * 16;
  EXPECT_EQ(sent_of(false, 2 * kLinearSegment), heads * (all + 32) * number);
  EXPECT_EQ(sent_of(false, 4 * kLinearSegment), heads * (2 * (all - own) + own + 32) * number);
}

/// Where ranges end with segments, states and sums travel and no row does.
TEST(DistributedPerformer, SendsStatesAndNoRowsInBackward) {
  if (all_ranks().size() != 2) GTEST_SKIP() << "counted for two ranks";
  const auto sent_of = [](bool causal, Index count, bool wants_projection) {
    return sent(true, causal, square(1, 4, 2, count), wants_projection);
  };
  constexpr Index number = sizeof(float);
  const bool is_first = all_ranks().rank() == 0;
  const Index carried = fovea::linear_grad_carried<float>(kFeatures, 7);
  const Index part = 2 * kFeatures * fovea::padded_row<float>(5);
  const Index row = fovea::padded_row<float>(kFeatures);
  const Index segment = kLinearSegment;
  // Upwards four query heads, downwards two key heads.
  EXPECT_EQ(sent_of(true, 2 * segment, false),
            (is_first ? 4 * (carried + row) : 2 * carried) * number);
  EXPECT_EQ(sent_of(true, 8 * segment, false), sent_of(true, 2 * segment, false));
  // The last states, which contain parts of the projection's gradient, are sent to the other rank.
  const Index up = 4 * (carried + row + part);
  const Index down = 2 * (carried + part);
  EXPECT_EQ(sent_of(true, 2 * segment, true), (up + down) * number);
  EXPECT_GT(sent_of(true, 2 * segment + 100, false), sent_of(true, 2 * segment, false));
  // Its sum goes from the first rank to the second for each head, and back but for the last one.
  const Index rounds = 4 + 2;
  const Index others = rounds * part * number;
  EXPECT_EQ(sent_of(false, 2 * segment, true) - sent_of(false, 2 * segment, false), others);
}

TEST(DistributedPerformer, RefusesMismatches) {
  OperatorCall<PerformerAttention, float> call(square(1, 2, 2, 40));
  const RankCall own(PerformerAttention({.causal = true}), call);
  own.expect_refused([](auto& a) { a.inputs.projection = {}; },
                     "projection is required: [1, 1, R, 5], the random features");
  const Tensor<float> fewer({1, 1, 20, 5});
  own.expect_differs([&](auto& a) { a.inputs.projection = fewer.view(); },
                     "20 features, options {true, 0}, where rank 0 calls");
  const Tensor<float> wide({1, 1, kFeatures, 6});
  own.expect_refused_backward(
      [&](auto& a) { a.grads.projection = wide.view(); },
      "the gradient of projection has shape 1x1x21x6; expected 1x1x21x5, to match the inputs");
  own.expect_differs_backward(
      [](auto& a) { a.grads.projection = {}; },
      "21 features, options {true, 0}, where rank 0 calls PerformerAttention.backward");
}

}  // namespace fovea_test::distributed_performer
