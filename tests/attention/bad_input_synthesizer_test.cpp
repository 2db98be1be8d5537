// SPDX-License-Identifier: MIT
/// \file
/// Refusals of the Synthesizer's forms: exact messages, before anything is written.
#include <gtest/gtest.h>

#include "attention/synthesizer_problem.hpp"
#include "support/refusal.hpp"

namespace fovea_test::attention_bad_input_synthesizer {

/// The message of a forward pass, which must not write.
template <class P>
std::string message_of(const P& problem, const typename P::Inputs& inputs) {
  const Tensor<float> out(problem.d_out.shape());
  out.fill(constant(7));
  const std::string text = refusal([&] { problem.op.forward(inputs, out.view()); });
  if (text != "accepted") {
    for (const float x : out.values()) EXPECT_EQ(x, 7.0F) << "written before the refusal";
  }
  return text;
}

/// [first extents] of a tensor of that shape.
const View<const float> shaped(const Shape& shape) {
  static const std::vector<float> zeros(10000);
  return {zeros.data(), shape};
}

TEST(BadSynthesizerInput, Random) {
  const RandomProblem<float> problem({}, {3, 4, 2, 6, 6, 3, 5});
  const std::string name = "RandomSynthesizerAttention: ";
  auto in = problem.inputs();
  EXPECT_EQ(message_of(problem, in), "accepted");
  in.r = shaped({1, 4, 5, 6});
  EXPECT_EQ(message_of(problem, in), name + "r has 5 rows; expected 6, the rows of v");
  in.r = shaped({1, 4, 6, 7});
  EXPECT_EQ(message_of(problem, in), name + "r has width 7; expected 6, the rows of v");
  in.r = shaped({2, 4, 6, 6});
  EXPECT_EQ(message_of(problem, in), name + "r has batch 2; expected 1 or 3, the batch of v");
  in.r = shaped({1, 3, 6, 6});
  EXPECT_EQ(message_of(problem, in),
            name + "r has 3 heads; expected a multiple of 2, the heads of v");
  in.r = {};
  EXPECT_EQ(message_of(problem, in),
            name + "r is required: it was not given, or was passed without memory");
  in = problem.inputs();
  const std::vector<Index> lengths = {6, 7, 1};
  in.key_lengths = lengths;
  EXPECT_EQ(message_of(problem, in), name + "key_lengths[1] is 7; expected 0 to 6, the rows of v");
  in = problem.inputs();
  EXPECT_EQ(refusal([&] { problem.op.forward(in, View<float>(problem.view("v"))); }),
            name + "out has shape 3x2x6x5; expected 3x4x6x5, to match the inputs");
  EXPECT_EQ(refusal([&] {
              problem.op.check(in, View<float>(const_cast<float*>(in.r.data()), {3, 4, 6, 5}));
            }),
            name + "out overlaps r; outputs must not alias inputs or each other");
}

TEST(BadSynthesizerInput, Factorised) {
  const FactorisedProblem<float> problem({}, {3, 4, 2, 6, 6, 3, 5});
  const std::string name = "FactorisedSynthesizerAttention: ";
  auto in = problem.inputs();
  EXPECT_EQ(message_of(problem, in), "accepted");
  in.r1 = shaped({1, 4, 7, 3});
  EXPECT_EQ(message_of(problem, in), name + "r1 has 7 rows; expected 6, the rows of v");
  in = problem.inputs();
  in.r2 = shaped({1, 2, 5, 3});
  EXPECT_EQ(message_of(problem, in), name + "r2 has 5 rows; expected 6, the rows of v");
  in.r2 = shaped({1, 2, 6, 4});
  EXPECT_EQ(message_of(problem, in), name + "r2 has width 4; expected 3, the width of r1");
  in.r2 = shaped({1, 4, 6, 3});
  EXPECT_EQ(message_of(problem, in), name + "r2 has 4 heads; expected 2, the heads of v");
  in.r2 = shaped({2, 2, 6, 3});
  EXPECT_EQ(message_of(problem, in), name + "r2 has batch 2; expected 1 or 3, the batch of v");
  in = problem.inputs();
  in.r1 = shaped({1, 3, 6, 3});
  EXPECT_EQ(message_of(problem, in),
            name + "r1 has 3 heads; expected a multiple of 2, the heads of v");
  in = problem.inputs();
  const std::vector<Index> lengths = {6, 7, 1};
  in.key_lengths = lengths;
  EXPECT_EQ(message_of(problem, in), name + "key_lengths[1] is 7; expected 0 to 6, the rows of v");
}

TEST(BadSynthesizerInput, Dense) {
  const DenseProblem<float> problem({}, {3, 4, 2, 6, 6, 3, 5}, {{'x', 2}});
  const std::string name = "DenseSynthesizerAttention: ";
  auto in = problem.inputs();
  EXPECT_EQ(message_of(problem, in), "accepted");
  in.x = shaped({3, 2, 6, 3});
  EXPECT_EQ(message_of(problem, in), name + "x has 2 heads; expected 4, the heads of w1, or 1");
  in.x = shaped({3, 4, 6, 2});
  EXPECT_EQ(message_of(problem, in), name + "w1 has 3 rows; expected 2, the width of x");
  in.x = shaped({3, 4, 5, 3});
  EXPECT_EQ(message_of(problem, in), name + "x has 5 rows; expected 6, the rows of v");
  in = problem.inputs();
  in.w2 = shaped({1, 2, 4, 5});
  EXPECT_EQ(message_of(problem, in), name + "w2 has width 5; expected at least 6, the rows of v");
  in.w2 = shaped({1, 2, 5, 8});
  EXPECT_EQ(message_of(problem, in), name + "w2 has 5 rows; expected 4, the width of w1");
  in = problem.inputs();
  in.b1 = shaped({1, 4, 1, 5});
  EXPECT_EQ(message_of(problem, in), name + "b1 has width 5; expected 4, the width of w1");
  in = problem.inputs();
  in.b2 = shaped({1, 2, 1, 6});
  EXPECT_EQ(message_of(problem, in), name + "b2 has width 6; expected 8, the width of w2");
  in.b2 = shaped({1, 2, 2, 8});
  EXPECT_EQ(message_of(problem, in), name + "b2 has 2 rows; expected 1, one row of biases");
  in = problem.inputs();
  const std::vector<Index> lengths = {6, 7, 1};
  in.key_lengths = lengths;
  EXPECT_EQ(message_of(problem, in), name + "key_lengths[1] is 7; expected 0 to 6, the rows of v");
}

TEST(BadSynthesizerInput, Backward) {
  const DenseProblem<float> problem({}, {1, 1, 1, 6, 6, 3, 5}, {{'?', 0}});
  const Tensor<float> out(problem.d_out.shape());
  const Tensor<float> lse({1, 1, 6, 1});
  const Tensor<float> d_b1({1, 1, 1, 4});
  const Tensor<float> d_w1({1, 1, 4, 3});
  const std::string name = "DenseSynthesizerAttention: ";
  const auto message = [&](const fovea::SoftmaxSaved<float>& saved,
                           const fovea::DenseSynthesizerGrads<float>& grads) {
    return refusal([&] {
      problem.op.backward(problem.inputs(), out.view(), saved, problem.d_out.view(), grads);
    });
  };
  EXPECT_EQ(message({}, {}), name + "lse is required: the lse that forward saved");
  const Tensor<float> short_out({1, 1, 5, 5});
  EXPECT_EQ(refusal([&] {
              problem.op.backward(problem.inputs(), short_out.view(),
                                  fovea::SoftmaxSaved<float>{lse.view()}, problem.d_out.view(),
                                  fovea::DenseSynthesizerGrads<float>{});
            }),
            name + "out has shape 1x1x5x5; expected 1x1x6x5, to match the inputs");
  EXPECT_EQ(message({lse.view()}, {.b1 = d_b1.view()}),
            name + "the gradient of b1 must not be given: the inputs have no b1");
  EXPECT_EQ(message({lse.view()}, {.w1 = d_w1.view()}),
            name + "the gradient of w1 has shape 1x1x4x3; expected 1x1x3x4, to match the inputs");
  EXPECT_EQ(message({lse.view()}, {.x = problem.view("x")}),
            name + "the gradient of x overlaps x; outputs must not alias inputs or each other");
}

}  // namespace fovea_test::attention_bad_input_synthesizer
