// SPDX-License-Identifier: MIT
/// \file
/// Refusals of Performer attention: exact messages from forward and backward, with nothing written;
/// and unusual valid inputs.
#include <gtest/gtest.h>

#include <string>

#include "attention/bad_input.hpp"
#include "support/refusal.hpp"

namespace fovea_test::attention_bad_input_performer {

using fovea::PerformerAttention;

/// 6 queries, 9 keys, 4 heads of 2 key heads, D = 5, Dv = 3, R = 7.
class BadPerformerInput : public SpoiltCall<float> {
 protected:
  BadPerformerInput() { reset(); }

  void reset() override {
    SpoiltCall::reset();
    call_.lse = {};
    project({1, 1, 7, 5});
  }
  void project(const Shape& shape) { call_.projection = {call_.at(9000), shape}; }

  void expect(const std::string& message, const PerformerAttention& op = PerformerAttention{}) {
    SpoiltCall::expect(message, op);
  }
};

TEST_F(BadPerformerInput, ValidCallIsAccepted) {
  expect("accepted");
  expect("accepted", PerformerAttention({.causal = true}));
  call_.grads.projection = {call_.at(9500), {1, 1, 7, 5}};
  expect("accepted");
  project({1, 1, 1, 5});
  expect("accepted");
}

TEST_F(BadPerformerInput, Projection) {
  call_.projection = {};
  expect("projection is required: [1, 1, R, 5], the random features");
  project({1, 1, 7, 4});
  expect("projection has width 4; expected 5, the width of q");
  project({1, 1, 0, 5});
  expect("projection has 0 rows; expected at least 1 random feature");
  project({1, 4, 7, 5});
  expect("projection has 4 heads; expected 1, since all heads share it");
  project({2, 1, 7, 5});
  expect("projection has batch 2; expected 1, since all sequences share it");
}

TEST_F(BadPerformerInput, SharedWithOtherOperators) {
  call_.lengths = {9, 10};
  expect("key_lengths[1] is 10; expected 0 to 9, the rows of k");
  call_.k = {call_.at(1000), {2, 3, 9, 5}};
  expect("k has 3 heads; expected a divisor of the 4 heads of q");
  call_.out = {call_.at(3000), {2, 4, 6, 5}};
  const PerformerAttention op;
  expect_forward("out has shape 2x4x6x5; expected 2x4x6x3, to match the inputs", op);
  call_.out = {call_.at(9010), {2, 4, 6, 3}};
  expect_forward("out overlaps projection; outputs must not alias inputs or each other", op);
}

TEST_F(BadPerformerInput, Gradients) {
  call_.grads.projection = {call_.at(9500), {1, 1, 8, 5}};
  expect_backward(
      "the gradient of projection has shape 1x1x8x5; expected 1x1x7x5, to match the inputs",
      PerformerAttention{});
}

TEST_F(BadPerformerInput, Decoders) {
  const fovea::PerformerDecoderShape shape{
      .query_heads = 4, .key_heads = 2, .width = 5, .value_width = 3, .features = 7};
  const auto message = [](const PerformerAttention& op, const fovea::PerformerDecoderShape& s) {
    return refusal([&] { static_cast<void>(op.decoder<float>(s)); });
  };
  const PerformerAttention causal({.causal = true});
  EXPECT_EQ(message(causal, shape), "accepted");
  EXPECT_EQ(message(PerformerAttention{}, shape),
            "PerformerAttention: causal is false; expected true: a decoder is causal");
  fovea::PerformerDecoderShape spoilt = shape;
  spoilt.features = 0;
  EXPECT_EQ(message(causal, spoilt), "PerformerAttention: features is 0; expected at least 1");
  spoilt = shape;
  spoilt.rollback_tokens = 3;
  EXPECT_EQ(message(causal, spoilt),
            "PerformerAttention: rollback_tokens is 3; expected 0: tokens are added to the state "
            "at once (keep a fork)");
  auto decoder = causal.decoder<float>(shape);
  const View<const float> k(call_.at(1000), {1, 2, 3, 5});
  const View<const float> v(call_.at(2000), {1, 2, 3, 3});
  const auto append = [&](const View<const float>& projection) {
    return refusal([&] { decoder.append(k, v, projection); });
  };
  EXPECT_EQ(append({}),
            "PerformerAttention: projection is required: [1, 1, R, 5], the random features");
  EXPECT_EQ(append({call_.at(9000), {1, 1, 6, 5}}),
            "PerformerAttention: projection has 6 rows; expected 7, the features of the decoder");
  EXPECT_EQ(append({call_.at(9000), {1, 1, 7, 5}}), "accepted");
  EXPECT_EQ(refusal([&] { decoder.rollback(4); }),
            "PerformerAttention: rollback is 4; expected 1 to 3, or 0: the state already contains "
            "earlier tokens (keep a fork)");
  EXPECT_EQ(decoder.length(), 3);
}

}  // namespace fovea_test::attention_bad_input_performer
