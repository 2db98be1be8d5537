// SPDX-License-Identifier: MIT
/// \file
/// Refusals of linear attention, FMM attention and the delta rule: exact messages from forward and
/// backward, with nothing written.
#include <gtest/gtest.h>

#include <concepts>
#include <limits>
#include <string>

#include "attention/bad_input.hpp"
#include "fovea/attention/call/decoder_check.hpp"

namespace fovea_test::attention_bad_input_linear {

using fovea::DeltaRule;
using fovea::DeltaRuleAttention;
using fovea::Denominator;
using fovea::EluPlusOne;
using fovea::FmmAttention;
using fovea::LinearAttention;
using fovea::Tanh;

// A map that may be negative requires a policy, alone or among others; non-negative ones do not.
// tests/consumer checks the compiler's message.
static_assert(!std::default_initializable<LinearAttention<Tanh>>);
static_assert(!std::default_initializable<LinearAttention<EluPlusOne, Tanh>>);
static_assert(!std::default_initializable<FmmAttention<EluPlusOne, Tanh>>);
static_assert(!std::constructible_from<LinearAttention<Tanh>, fovea::LinearOptions<EluPlusOne>>);
static_assert(std::default_initializable<LinearAttention<EluPlusOne>>);
static_assert(std::default_initializable<LinearAttention<fovea::Relu>>);
static_assert(std::default_initializable<FmmAttention<EluPlusOne, DeltaRule<EluPlusOne>>>);
static_assert(std::default_initializable<DeltaRuleAttention<EluPlusOne>>);

static_assert(fovea::IncrementalAttention<LinearAttention<EluPlusOne>, float>);
static_assert(fovea::IncrementalAttention<FmmAttention<EluPlusOne>, double>);
static_assert(fovea::IncrementalAttention<DeltaRuleAttention<EluPlusOne>, float>);

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// 6 queries, 9 keys, 4 heads of 2 key heads, D = 5, Dv = 3.
class BadLinearInput : public SpoiltCall<float> {
 protected:
  using Plain = LinearAttention<EluPlusOne>;
  using Fmm = FmmAttention<EluPlusOne>;
  using Delta = DeltaRuleAttention<EluPlusOne>;

  BadLinearInput() { reset(); }

  /// The call is right for operators that read no beta.
  void reset() override {
    SpoiltCall::reset();
    call_.lse = {};
  }
  void give_beta() {
    for (Index i = 0; i < 36; ++i) *call_.at(9200 + i) = 0.5f;
    call_.beta = {call_.at(9200), {2, 2, 9, 1}};
  }
};

TEST_F(BadLinearInput, ValidCallIsAccepted) {
  expect("accepted", Plain{});
  expect("accepted", Plain{{.causal = true}});
  expect("accepted", Fmm{{.band = {.left = 2, .right = 2}}});
  give_beta();
  expect("accepted", Delta{});
  give_beta();
  expect("accepted", FmmAttention<DeltaRule<EluPlusOne>>{});
}

TEST_F(BadLinearInput, ShapesAndLengths) {
  call_.k = {call_.at(1000), {3, 2, 9, 5}};
  expect("k has batch 3; expected 2, the batch of q", Plain{});
  call_.k = {call_.at(1000), {2, 2, 9, 4}};
  expect("k has width 4; expected 5, the width of q", Fmm{});
  call_.lengths = {9, 10};
  expect("key_lengths[1] is 10; expected 0 to 9, the rows of k", Plain{});
  call_.out = {call_.at(3000), {2, 4, 6, 5}};
  expect("out has shape 2x4x6x5; expected 2x4x6x3, to match the inputs", Plain{});
  call_.cu_k = {0, 9};
  expect("cu_seqlens_q is required: cu_seqlens_k is given", Fmm{});
}

TEST_F(BadLinearInput, Rates) {
  expect("beta is required: 2x2x9x1, one rate for each token and key head", Delta{});
  expect("beta is required: 2x2x9x1, one rate for each token and key head",
         FmmAttention<DeltaRule<EluPlusOne>>{});
  call_.beta = {call_.at(9200), {2, 4, 9, 1}};
  expect("beta has 4 heads; expected 2, as in k", Delta{});
  call_.beta = {call_.at(9200), {2, 2, 6, 1}};
  expect("beta has 6 rows; expected 9, as in k", Delta{});
  call_.beta = {call_.at(9200), {2, 2, 9, 3}};
  expect("beta has width 3; expected 1, one rate for a token", Delta{});
  for (const float beta : {-0.25f, kNaN, kInfinity, -kInfinity}) {
    give_beta();
    *call_.at(9200 + 18 + 9 + 4) = beta;
    expect(
        "beta[1, 1, 4] is " + fovea::to_string(beta) + "; expected a finite number of at least 0",
        Delta{});
    give_beta();
    *call_.at(9200 + 18 + 9 + 4) = beta;
    call_.lengths = {9, 4};  // which hides it
    expect("accepted", Delta{{.alignment = fovea::CausalAlignment::key_length}});
  }
  give_beta();
  *call_.at(9200) = 0;
  *call_.at(9201) = 1.5f;  // beyond (0, 1), and right
  expect("accepted", Delta{});
}

TEST_F(BadLinearInput, BlendLogits) {
  const auto set = [&](const Shape& near_field, const Shape& far_field) {
    call_.near_logits = {call_.at(9300), near_field};
    call_.far_logits = {call_.at(9400), far_field};
  };
  set({1, 2, 1, 1}, {1, 1, 1, 1});
  expect("near_logits has 2 heads; expected 1 or 4, the heads of q", Fmm{});
  set({1, 1, 1, 1}, {1, 4, 1, 5});
  expect("far_logits has width 5; expected 1 or 3, the width of v", Fmm{});
  set({2, 4, 1, 1}, {1, 1, 1, 1});
  expect("near_logits has batch 2; expected 1, since all sequences share it", Fmm{});
  set({1, 1, 1, 1}, {1, 1, 6, 1});
  expect("far_logits has 6 rows; expected 1, since all rows share it", Fmm{});
  set({1, 4, 1, 3}, {1, 4, 1, 1});
  *call_.at(9300 + 2 * 3 + 1) = kNaN;
  expect("near_logits[2, 1] is nan; expected a number", Fmm{});
  set({1, 4, 1, 3}, {1, 4, 1, 1});
  *call_.at(9403) = kNaN;
  expect("far_logits[3, 0] is nan; expected a number", Fmm{});
  set({1, 4, 1, 3}, {1, 4, 1, 1});
  *call_.at(9300) = kInfinity;
  *call_.at(9400) = -kInfinity;
  expect("accepted", Fmm{});
  const Fmm normalised{{.band = {.left = 1}, .normalise_rows = true}};
  set({1, 1, 1, 1}, {1, 4, 1, 1});
  *call_.at(9300) = -kInfinity;
  *call_.at(9402) = -kInfinity;
  expect("the blend weights of head 2 are all 0; expected one above 0, since normalise_rows is set",
         normalised);
}

TEST_F(BadLinearInput, Options) {
  const auto with_floor = [](double tau) {
    return LinearAttention<Tanh>{{.causal = false,
                                  .alignment = fovea::CausalAlignment::bottom_right,
                                  .denominator = Denominator::signed_floor(tau)}};
  };
  for (const double tau : {0.0, -0.5, 1.5, std::nan(""), HUGE_VAL}) {
    expect("the tau of signed_floor is " + fovea::to_string(tau) +
               "; expected more than 0, and at most 1",
           with_floor(tau));
  }
  expect("accepted", with_floor(1));
  expect("accepted", with_floor(1e-6));
  expect("left is -1; expected at least 0 keys", Fmm{{.band = {.left = -1}}});
  expect("right is -2; expected at least 0 keys", Fmm{{.band = {.right = -2}}});
  expect("scale is nan; expected a finite number of the inputs' type",
         Fmm{{.band = {.left = 1}, .scale = std::nan("")}});
  give_beta();
  expect("causal is false; expected true: the delta rule is causal",
         FmmAttention<DeltaRule<EluPlusOne>>{{.band = {.left = 1}, .causal = false}});
}

TEST_F(BadLinearInput, Gradients) {
  call_.grads.near_logits = {call_.at(9500), {1, 1, 1, 1}};
  expect_backward("the gradient of near_logits must not be given: the inputs have no near_logits",
                  Fmm{});
  give_beta();
  call_.grads.beta = {call_.at(9500), {2, 4, 9, 1}};
  expect_backward("the gradient of beta has shape 2x4x9x1; expected 2x2x9x1, to match the inputs",
                  Delta{});
  give_beta();
  call_.grads.beta = {call_.at(9201), {2, 2, 9, 1}};
  expect_backward("the gradient of beta overlaps beta; outputs must not alias inputs or each other",
                  Delta{});
}

TEST_F(BadLinearInput, Decoders) {
  const fovea::DecoderShape shape{.query_heads = 4, .key_heads = 2, .width = 5, .value_width = 3};
  const auto message = [&](const auto& op, const fovea::DecoderShape& sizes) {
    return refusal([&] { static_cast<void>(op.template decoder<float>(sizes)); });
  };
  const Plain causal{{.causal = true}};
  EXPECT_EQ(message(Plain{}, shape),
            "LinearAttention: causal is false; expected true: a decoder is causal");
  fovea::DecoderShape spoilt = shape;
  spoilt.rollback_tokens = 3;
  EXPECT_EQ(message(causal, spoilt),
            "LinearAttention: rollback_tokens is 3; expected 0: tokens are added to the state at "
            "once (keep a fork or a save)");
  spoilt = shape;
  spoilt.key_heads = 3;
  EXPECT_NE(message(causal, spoilt), "accepted");
  EXPECT_EQ(message(causal, shape), "accepted");

  auto decoder = causal.decoder<float>(shape);
  const auto step = [&](Index rows, Index tokens) {
    const AllInputs<float> in{{call_.at(0), {1, 4, rows, 5}},
                              {call_.at(1000), {1, 2, tokens, 5}},
                              {call_.at(2000), {1, 2, tokens, 3}}};
    return refusal([&] { decoder.step(in, View<float>(call_.at(3000), {1, 4, rows, 3})); });
  };
  EXPECT_EQ(step(3, 2),
            "LinearAttention: q has 3 rows; expected at most 2, the tokens in the decoder");
  EXPECT_EQ(step(2, 2), "accepted");
  EXPECT_EQ(step(4, 2),
            "LinearAttention: q has 4 rows; expected at most 3: the state already contains earlier "
            "tokens");
  EXPECT_EQ(decoder.length(), 2);
  // As many tokens as an empty decoder would take.
  const Index most = fovea::kMostDecoderTokens;
  AllInputs<float> many{{call_.at(0), {1, 4, 2, 5}, {0, 0, 0, 1}},
                        {call_.at(1000), {1, 2, most, 5}, {0, 0, 0, 1}},
                        {call_.at(2000), {1, 2, most, 3}, {0, 0, 0, 1}}};
  EXPECT_EQ(refusal([&] {
              decoder.step(many, View<float>(call_.at(3000), {1, 4, 2, 3}));
            }),
            "LinearAttention: k has " + std::to_string(most) + " rows; expected at most " +
                std::to_string(most - 2));
}

}  // namespace fovea_test::attention_bad_input_linear
