// SPDX-License-Identifier: MIT
/// \file
/// Refusals of Smart Bird attention: exact messages, before anything is written.
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "attention/sketch_problem.hpp"
#include "support/compare.hpp"
#include "support/refusal.hpp"

namespace fovea_test::attention_bad_input_smart_bird {

constexpr Index kMost = std::numeric_limits<Index>::max();

/// One call that is right; a test spoils one thing of `in`, `out` or `saved`.
class BadSmartBird : public testing::Test {
 protected:
  void expect(const std::string& message, const SmartBirdOptions& options = {.keys_per_row = 4}) {
    const SmartBirdAttention op(options);
    const std::vector<float> before = memory_.values();
    const std::string checked = refusal([&] { op.check(in, out, saved); });
    EXPECT_EQ(checked, message == "accepted" ? message : "SmartBirdAttention: " + message);
    EXPECT_EQ(checked, refusal([&] { op.forward(in, out, saved); }));
    if (message != "accepted") {
      EXPECT_TRUE(same_bits(before, memory_.values())) << "written";
      EXPECT_EQ(values_of(indices_.view()), std::vector<Index>(2 * 3 * 6 * 4, -1)) << "written";
    }
    in = problem_.inputs();
    out = memory_.view();
    saved = {{}, indices_.view()};
  }

  const BirdProblem<float> problem_{{.batch = 2, .queries = 6, .keys = 9}};
  Tensor<float> memory_{problem_.out_shape()};
  IndexTensor indices_{{2, 3, 6, 4}};

 public:
  AllInputs<float> in = problem_.inputs();
  View<float> out = memory_.view();
  AllSaved<float> saved{{}, indices_.view()};
};

TEST_F(BadSmartBird, Options) {
  expect("keys_per_row is 0; expected at least 1", {.keys_per_row = 0});
  expect("keys_per_row is -3; expected at least 1", {.keys_per_row = -3});
  expect("search is 3; expected automatic, exhaustive or blocks",
         {.keys_per_row = 4, .search = static_cast<fovea::SketchSearch>(3)});
  expect("scale is nan; expected a finite number of the inputs' type",
         {.keys_per_row = 4, .scale = std::numeric_limits<double>::quiet_NaN()});
  expect("sketch_scale is inf; expected a finite number of the inputs' type",
         {.keys_per_row = 4, .sketch_scale = std::numeric_limits<double>::infinity()});
}

TEST_F(BadSmartBird, Sketch) {
  const View<const float> q = in.sketch_q;
  const View<const float> k = in.sketch_k;
  in.sketch_q = {};
  expect("sketch_q is required: [B, 1, N, d], of the sketch");
  in.sketch_k = {};
  expect("sketch_k is required: [B, 1, N, d], of the sketch");
  in.sketch_q = {q.data(), {2, 2, 3, 4}};
  expect("sketch_q has 2 heads; expected 1, since all heads share the sketch");
  in.sketch_k = {k.data(), {2, 3, 3, 4}};
  expect("sketch_k has 3 heads; expected 1, since all heads share the sketch");
  in.sketch_q = cut(q, 2, 0, 5);
  expect("sketch_q has 5 rows; expected 6, the rows of q");
  in.sketch_k = cut(k, 2, 0, 8);
  expect("sketch_k has 8 rows; expected 9, the rows of k");
  in.sketch_k = cut(k, 3, 0, 3);
  expect("sketch_k has width 3; expected 4, the width of sketch_q");
  in.sketch_k = cut(k, 0, 0, 1);
  expect("sketch_k has batch 1; expected 2, the batch of sketch_q");
  in.sketch_q = cut(q, 0, 0, 1);
  in.sketch_k = cut(k, 0, 0, 1);
  expect("sketch_q has batch 1; expected 2, the batch of q");
}

TEST_F(BadSmartBird, Draws) {
  const std::vector<float> draws(2 * 3 * 6 * 9, 0.5F);
  in.draws = {draws.data(), {2, 3, 6, 9}};
  expect("accepted");
  indices_ = IndexTensor({2, 3, 6, 4});
  in.draws = {draws.data(), {2, 3, 6, 8}};
  expect("draws has width 8; expected 9, one for each pair");
  in.draws = {draws.data(), {2, 1, 6, 9}};
  expect("draws has 1 head; expected 3, one for each pair");
}

TEST_F(BadSmartBird, WrittenTensors) {
  saved.indices = View<Index>(indices_.view().data(), {2, 3, 6, 3});
  expect("indices has shape 2x3x6x3; expected 2x3x6x4, to match the inputs");
  saved.indices = View<Index>(indices_.view().data(), {2, 3, 6, 4}, {72, 24, 4, 0});
  expect(
      "indices has strides [72, 24, 4, 0] for 2x3x6x4; the elements of an output need different "
      "addresses");
  out = View<float>(memory_.view().data(), {2, 3, 5, 12});
  expect("out has shape 2x3x5x12; expected 2x3x6x12, to match the inputs");
}

TEST_F(BadSmartBird, Selection) {
  const SmartBirdAttention op({.keys_per_row = 4});
  const auto refused = [&](const View<Index>& to) {
    const std::string message = refusal([&] { op.select(in.sketch(), to); });
    in = problem_.inputs();
    return message;
  };
  EXPECT_EQ(refused(indices_.view()), "accepted");
  EXPECT_EQ(refused(View<Index>(indices_.view().data(), {2, 3, 6, 3})),
            "SmartBirdAttention: indices has shape 2x3x6x3; expected 2x3x6x4, to match the inputs");
  in.sketch_q = {};
  EXPECT_EQ(refused(indices_.view()),
            "SmartBirdAttention: sketch_q is required: [B, 1, N, d], of the sketch");
  EXPECT_EQ(refusal([&] { static_cast<void>(op.select(in.sketch(), -1)); }),
            "View: shape has -1 heads; expected at least 0");
  const std::vector<Index> lengths = {9, 10};
  in.key_lengths = lengths;
  EXPECT_EQ(refused(indices_.view()),
            "SmartBirdAttention: key_lengths[1] is 10; expected 0 to 9, the rows of k");
  in.cu_seqlens_q = lengths;
  EXPECT_EQ(refused(indices_.view()),
            "SmartBirdAttention: q has batch 2; expected 1, since cu_seqlens_q is given");
  EXPECT_EQ(refusal([&] {
              IndexTensor({kMost, 2, 2, 2});
            }),
            "View: shape is " + std::to_string(kMost) +
                "x2x2x2; expected a number of elements that fits std::ptrdiff_t");
}

}  // namespace fovea_test::attention_bad_input_smart_bird
