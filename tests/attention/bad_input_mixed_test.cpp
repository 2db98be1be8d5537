// SPDX-License-Identifier: MIT
/// \file
/// Refusals of Linformer and Nystroem attention: exact messages from forward and backward, with
/// nothing written.
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "attention/bad_input.hpp"

namespace fovea_test::attention_bad_input_mixed {

using fovea::LinformerAttention;
using fovea::NystroemAttention;

/// A call of either operator that is right, and that tests spoil: 2 sequences of 8 queries and 8
/// keys, 4 heads of 2 key heads, D = 5, Dv = 3, P = 6.
class BadMixedInput : public testing::Test {
 protected:
  BadMixedInput() { reset(); }

  void reset() {
    for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<float>(i % 13) / 6 - 1;
    in = {};
    in.q = {at(0), {2, 4, 8, 5}};
    in.k = {at(1000), {2, 2, 8, 5}};
    in.v = {at(2000), {2, 2, 8, 3}};
    in.key_projection = {at(3000), {1, 1, 6, 8}};
    in.value_projection = {at(3500), {1, 2, 6, 8}};
    out = {at(4000), {2, 4, 8, 3}};
    d_out = {at(4500), {2, 4, 8, 3}};
    saved = {};
    saved.lse = {at(5000), {2, 4, 8, 1}};
    grads = {{at(6000), {2, 4, 8, 5}}, {at(7000), {2, 2, 8, 5}}, {at(8000), {2, 2, 8, 3}}};
    grads.key_projection = {at(9000), {1, 1, 6, 8}};
    grads.value_projection = {at(9500), {1, 2, 6, 8}};
    lengths = cu_q = {};
  }

  float* at(Index offset) { return memory.data() + offset; }

  template <class Op>
  void expect_forward(const std::string& message, const Op& op) {
    in.key_lengths = lengths;
    in.cu_seqlens_q = cu_q;
    EXPECT_EQ(refusal_of_call(
                  memory, [&] { op.check(in, out, saved); }, [&] { op.forward(in, out, saved); }),
              whole_message<Op>(message));
  }
  template <class Op>
  void expect_backward(const std::string& message, const Op& op) {
    const View<const float> from = out;
    EXPECT_EQ(refusal_of_call(
                  memory, [&] { op.check_backward(in, from, saved, d_out, grads); },
                  [&] { op.backward(in, from, saved, d_out, grads); }),
              whole_message<Op>(message));
  }
  /// Both passes, and makes the call right again.
  template <class Op = LinformerAttention>
  void expect(const std::string& message, const Op& op = Op()) {
    expect_forward(message, op);
    expect_backward(message, op);
    reset();
  }

  std::vector<float> memory = std::vector<float>(12000);
  AllInputs<float> in;
  AllSaved<float> saved;
  AllGrads<float> grads;
  View<float> out;
  View<const float> d_out;
  std::vector<Index> lengths, cu_q;
};

using BadLinformerInput = BadMixedInput;
using BadNystroemInput = BadMixedInput;

TEST_F(BadLinformerInput, Projections) {
  expect("accepted");
  in.key_projection = {};
  expect("key_projection is required: [1, 1 or Hk, P, Nk], which projects Nk rows to P");
  in.value_projection = {};
  expect("value_projection is required: [1, 1 or Hk, P, Nk], which projects Nk rows to P");
  in.key_projection = {at(3000), {2, 1, 6, 8}};
  expect("key_projection has batch 2; expected 1, since all sequences share it");
  in.key_projection = {at(3000), {1, 4, 6, 8}};
  expect("key_projection has 4 heads; expected 1 or 2, the heads of k");
  in.key_projection = {at(3000), {1, 1, 0, 8}};
  expect("key_projection has 0 rows; expected at least 1, the number of projected keys");
  in.value_projection = {at(3500), {1, 2, 5, 8}};
  expect("value_projection has 5 rows; expected 6, the rows of key_projection");
  in.key_projection = {at(3000), {1, 1, 6, 9}};
  expect("key_projection has width 9; expected 8, the rows of k");
  in.value_projection = {at(3500), {1, 1, 6, 7}};
  expect("value_projection has width 7; expected 8, the rows of k");
}

TEST_F(BadLinformerInput, OtherInputs) {
  cu_q = {0, 8};
  expect("cu_seqlens must not be given: the projections have a fixed length");
  lengths = {3, 9};
  expect("key_lengths[1] is 9; expected 0 to 8, the rows of k");
  in.k = {at(1000), {2, 3, 8, 5}};
  expect("k has 3 heads; expected a divisor of the 4 heads of q");
  expect("scale is inf; expected a finite number of the inputs' type",
         LinformerAttention({.scale = std::numeric_limits<double>::infinity()}));
}

TEST_F(BadLinformerInput, WrittenTensors) {
  const LinformerAttention op;
  in.key_projection = {at(4000), {1, 1, 6, 8}};
  expect_forward("out overlaps key_projection; outputs must not alias inputs or each other", op);
  reset();
  saved.projected_keys = {at(10000), {2, 2, 5, 5}};
  saved.projected_values = {at(11000), {2, 2, 6, 3}};
  expect("projected_keys has shape 2x2x5x5; expected 2x2x6x5, to match the inputs");
  saved.projected_values = {at(11000), {2, 2, 6, 4}};  // alone
  expect("projected_values has shape 2x2x6x4; expected 2x2x6x3, to match the inputs");
  grads.key_projection = {at(9000), {1, 2, 6, 8}};
  expect_backward(
      "the gradient of key_projection has shape 1x2x6x8; expected 1x1x6x8, to match the inputs",
      op);
  reset();
  saved.lse = {};
  expect_backward("lse is required: the lse that forward saved", op);
}

TEST_F(BadNystroemInput, Landmarks) {
  const auto with = [](Index landmarks, Index iterations = 6) {
    return NystroemAttention({.landmarks = landmarks, .iterations = iterations});
  };
  expect("accepted", with(4));
  expect("accepted", with(8));
  expect("q has 8 rows; expected a multiple of 3, the landmarks", with(3));
  expect("q has 8 rows; expected a multiple of 16, the landmarks", with(16));
  expect("landmarks is 0; expected 1 to 1048576", with(0));
  expect("landmarks is -4; expected 1 to 1048576", with(-4));
  expect("iterations is -1; expected 0 to 1048576", with(4, -1));
  saved.landmark_lse = {at(10000), {2, 4, 3, 1}};
  saved.landmark_values = {at(10500), {2, 4, 4, 3}};
  expect("landmark_lse has shape 2x4x3x1; expected 2x4x4x1, to match the inputs", with(4));
  saved.landmark_lse = {at(10000), {2, 4, 4, 1}};
  saved.landmark_values = {at(10500), {2, 4, 4, 2}};
  expect("landmark_values has shape 2x4x4x2; expected 2x4x4x3, to match the inputs", with(4));
}

TEST_F(BadNystroemInput, Sequences) {
  const NystroemAttention op({.landmarks = 4});
  const auto set_keys = [&](Index rows) {
    in.k = {at(1000), {2, 2, rows, 5}};
    in.v = {at(2000), {2, 2, rows, 3}};
    grads.k = {at(7000), {2, 2, rows, 5}};
    grads.v = {at(8000), {2, 2, rows, 3}};
  };
  set_keys(6);
  expect("k has 6 rows; expected a multiple of 4, the landmarks", op);
  lengths = {8, 6};
  expect("key_lengths[1] is 6; expected a multiple of 4, the landmarks", op);
  cu_q = {0, 8};
  expect("cu_seqlens must not be given: the operator does not support packed sequences", op);
  set_keys(4);
  lengths = {4, 4};
  expect("k has 4 rows; expected 8, the rows of q: key_lengths are the lengths of queries, too",
         op);
}

}  // namespace fovea_test::attention_bad_input_mixed
