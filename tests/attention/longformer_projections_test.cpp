// SPDX-License-Identifier: MIT
/// \file
/// Longformer with separate projections for global rows, beyond the conformance suite: equal
/// projections, rows that are not read, refusals.
#include <limits>

#include "attention/longformer_problem.hpp"
#include "support/refusal.hpp"
#include "support/scalars.hpp"

namespace fovea_test::attention_longformer_projections {

template <class T>
class LongformerProjections : public testing::Test {};
TYPED_TEST_SUITE(LongformerProjections, Scalars);

/// The projections of all rows in their place change nothing.
TYPED_TEST(LongformerProjections, EqualProjectionsDoNotChangeBits) {
  using T = TypeParam;
  for (const auto& one : CallCases<LongformerAttention>::conforming()) {
    const auto of = one.template problem<T>();
    for (const char* x : {"q", "k", "v"}) {
      of[std::string("global_") + x].fill(
          [&](Index b, Index h, Index n, Index d) { return of[x](b, h, n, d); });
    }
    const auto got = of.run();
    const Tensor<T> out(of.d_out.shape());
    one.op.forward(of.all_inputs(), out.view());
    EXPECT_TRUE(same_bits(got["out"], out.values()));
  }
}

/// q of global rows and global_q of the others are not read; nor is anything beyond the lengths.
TYPED_TEST(LongformerProjections, UnusedRowsDoNotChangeBits) {
  using T = TypeParam;
  const LongformerOptions options{.left = 9, .right = 5, .first_global = 3, .global = {40}};
  const std::vector<Index> lengths = {70, 50};
  const AttentionShape shape{2, 2, 2, 70, 70, 6, 5};
  LongformerProblem<T> of(LongformerAttention(options), shape);
  of.key_lengths = lengths;
  const auto expected = of.run();
  constexpr T nan = std::numeric_limits<T>::quiet_NaN();
  for_each_index(of["q"].shape(), [&](Index b, Index h, Index i, Index c) {
    of[is_global(options, i) ? "q" : "global_q"](b, h, i, c) = nan;
  });
  of.hide(nan);
  EXPECT_TRUE(same_bits(of.run(), expected));
}

TEST(LongformerProjectionsBadInput, IsReported) {
  const LongformerAttention op({.left = 2, .right = 2, .first_global = 1});
  const LongformerProblem<float> of(op, {1, 2, 1, 9, 9, 4, 3});
  const Tensor<float> out(of.d_out.shape());
  const Tensor<float> lse({1, 2, 9, 1});
  lse.fill(constant(0));
  out.fill(constant(7));
  const auto message = [&](const fovea::LongformerInputs<float>& in) {
    const std::string text = refusal([&] { op.forward(in, out.view()); });
    for (const float x : out.values()) EXPECT_EQ(x, 7.0F);
    return text;
  };
  const std::string name = "LongformerAttention: ";
  auto in = of.inputs();
  in.global_k = {};
  EXPECT_EQ(message(in),
            name + "global_k is required: global_q, global_k and global_v belong together");
  in.global_v = {};  // one of the three alone
  EXPECT_EQ(message(in),
            name + "global_k is required: global_q, global_k and global_v belong together");
  in.global_q = {};
  in.global_k = of.inputs().global_k;
  EXPECT_EQ(message(in),
            name + "global_q is required: global_q, global_k and global_v belong together");
  in.global_k = {};
  in.global_v = of.inputs().global_v;
  EXPECT_EQ(message(in),
            name + "global_q is required: global_q, global_k and global_v belong together");
  in = of.inputs();
  in.global_q = in.global_k;
  EXPECT_EQ(message(in), name + "global_q has shape 1x1x9x4; expected 1x2x9x4, the shape of q");
  in = of.inputs();
  in.global_v = in.global_k;
  EXPECT_EQ(message(in), name + "global_v has shape 1x1x9x4; expected 1x1x9x3, the shape of v");
  EXPECT_EQ(refusal([&] { op.forward(of.inputs(), View<float>(of.view("global_v"))); }),
            name + "out has shape 1x1x9x3; expected 1x2x9x3, to match the inputs");
  const Tensor<float> bias({1, 1, 1, 9});
  bias.fill(constant(0));
  in = of.inputs();
  in.bias = bias.view();
  const Tensor<float> d_bias(bias.shape());
  EXPECT_EQ(refusal([&] {
              op.backward(in, out.view(), {lse.view()}, of.d_out.view(), {.bias = d_bias.view()});
            }),
            name + "the gradient of bias must not be given: it is not defined with global_q");
  in = of.inputs();
  in.global_q = in.global_k = in.global_v = {};
  const Tensor<float> d_global(of["q"].shape());
  EXPECT_EQ(refusal([&] {
              op.backward(in, out.view(), {lse.view()}, of.d_out.view(),
                          {.global_q = d_global.view()});
            }),
            name + "the gradient of global_q must not be given: the inputs have no global_q");
  auto decoder = op.decoder<float>({.query_heads = 2, .width = 4, .value_width = 3});
  EXPECT_EQ(refusal([&] { decoder.step(of.inputs(), out.view()); }),
            name + "global_q must not be given: a decoder keeps one set of keys and values");
}

}  // namespace fovea_test::attention_longformer_projections
