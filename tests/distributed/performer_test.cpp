// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// Performer attention over ranks: segments, key lengths and running references have the bits of
/// one process (see also drawn_linear_test.cpp); what is sent; and what is refused.
#include <gtest/gtest.h>

#include <limits>

#include "distributed/rank_call.hpp"
#include "fovea/attention/linear/feature_stream.hpp"
#include "fovea/distributed/performer_backward.hpp"
#include "fovea/distributed/performer_forward.hpp"
#include "fovea/kernels/linear/grad.hpp"
#include "fovea/kernels/linear/random_features.hpp"
#include "support/scalars.hpp"

namespace fovea_test::distributed_performer {

using fovea::kFeatureRows;
using fovea::kLinearSegment;
using fovea::PerformerAttention;

constexpr Index kFeatures = OtherSizes{}.features;

/// Short keys have larger logits than long ones: where they become shorter, the running references
/// are raised.
template <class T = float>
struct Call : OperatorCall<PerformerAttention, T> {
  explicit Call(const SquareSequence& s) : OperatorCall<PerformerAttention, T>(s) {
    const auto rows = static_cast<double>(s.shape.keys);
    this->k.whole.fill([&, key = gaussian(2)](Index b, Index h, Index n, Index c) {
      return (1 + 12 * (rows - static_cast<double>(n)) / rows) * key(b, h, n, c);
    });
    fovea::draw_projection(7, this->projection.whole.view());
  }
};

template <class T>
void check(Call<T>&& call) {
  for (const bool causal : {true, false}) {
    SCOPED_TRACE(causal ? "causal" : "not causal");
    expect_one_process(PerformerAttention({.causal = causal}), call);
  }
}

/// Several segments: states with references go over them, and sums are folded in their order.
TEST(DistributedPerformer, EqualsOneProcessOverSegments) {
  check(Call(square(1, 4, 2, 5 * kLinearSegment + 77)));
}

/// Blocks of rows after the last token begin anywhere, and may be on two ranks.
TEST(DistributedPerformer, SupportsKeyLengths) {
  const Index count = 3 * kLinearSegment + 5;
  check(Call(square(5, 2, 1, count,
                    {count, kLinearSegment + 130, 0, 2 * kLinearSegment, kLinearSegment - 40})));
  check(Call<OtherScalar>(
      square(3, 2, 2, 2 * kLinearSegment + 40,
             {1, 2 * kLinearSegment - kFeatureRows / 2, 2 * kLinearSegment + 39})));
}

/// The first sequence and the last one cancel: of the one between them there is left in the
/// gradient of the projection what a sum in this order leaves.
TEST(DistributedPerformer, SumsInTheOrderOfOneProcess) {
  Call<float> call(square(3, 2, 1, kLinearSegment + 300));
  for (const auto* x : {&call.q, &call.k, &call.v, &call.d_out}) {
    x->whole.fill([&](Index b, Index h, Index n, Index c) { return x->whole(b % 2, h, n, c); });
  }
  call.d_out.whole.fill([&](Index b, Index h, Index n, Index c) {
    const float size = b == 0 ? 1e12F : b == 1 ? 1.0F : -1e12F;
    return size * call.d_out.whole(b, h, n, c);
  });
  check(std::move(call));
}

/// A NaN reaches the rows that it reaches in one process.
TEST(DistributedPerformer, PropagatesNaNAcrossRanges) {
  Call<float> call(square(1, 2, 1, 400));
  call.k.whole(0, 0, 210, 2) = std::numeric_limits<float>::quiet_NaN();
  call.k.whole(0, 0, 350, 1) = std::numeric_limits<float>::infinity();
  check(std::move(call));
}

TEST(DistributedPerformer, SumsNothingAsOneProcessDoes) { check(Call(square(2, 2, 1, 0))); }

/// The bytes that this rank sends of a pass over two ranks.
Index sent(bool in_backward, bool causal, const SquareSequence& s, bool wants_projection = true) {
  Call<float> call(s);
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
  const RankCall wrong(PerformerAttention({.causal = true}), call);
  auto a = wrong.arguments();
  if (wrong.is_last) a.inputs.projection = {};
  EXPECT_EQ(wrong.refused(a),
            wrong.begin + "projection is required: [1, 1, R, 5], the random features");
  const Tensor<float> fewer({1, 1, 20, 5});
  if (wrong.is_last) a.inputs.projection = fewer.view();
  const std::string other_features = wrong.last > 0 ? wrong.refused(a) : "";
  a = wrong.arguments();
  const Tensor<float> wide({1, 1, kFeatures, 6});
  if (wrong.is_last) a.grads.projection = wide.view();
  EXPECT_EQ(wrong.refused_backward(a),
            wrong.begin +
                "the gradient of projection has shape 1x1x21x6; expected "
                "1x1x21x5, to match the inputs");
  if (wrong.is_last) a.grads.projection = {};
  const std::string no_gradient = wrong.last > 0 ? wrong.refused_backward(a) : "";
  call.expect_untouched();
  if (wrong.last == 0) return;
  EXPECT_NE(other_features.find("20 features, options {true, 0}, where rank 0 calls"),
            std::string::npos)
      << other_features;
  EXPECT_NE(no_gradient.find("21 features, options {true, 0}, where rank 0 calls "
                             "PerformerAttention.backward"),
            std::string::npos)
      << no_gradient;
}

}  // namespace fovea_test::distributed_performer
