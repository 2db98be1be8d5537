// SPDX-License-Identifier: MIT
/// \file
/// Refusals of Linformer and Nystroem attention: exact messages from forward and backward, with
/// nothing written.
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "attention/bad_input.hpp"

namespace fovea_test::attention_bad_input_mixed {

using fovea::LinformerAttention;
using fovea::NystroemAttention;

/// 8 queries, 8 keys, 4 heads of 2 key heads, D = 5, Dv = 3, P = 6.
class BadMixedInput : public SpoiltCall<float> {
 protected:
  BadMixedInput() { reset(); }

  void reset() override {
    SpoiltCall::reset();
    call_.q = {at(0), {2, 4, 8, 5}};
    call_.out = {at(3000), {2, 4, 8, 3}};
    call_.lse = {at(4000), {2, 4, 8, 1}};
    call_.d_out = {at(5200), {2, 4, 8, 3}};
    call_.grads.q = {at(6000), {2, 4, 8, 5}};
    set_keys(8);
    call_.key_projection = {at(9000), {1, 1, 6, 8}};
    call_.value_projection = {at(9100), {1, 2, 6, 8}};
    call_.grads.key_projection = {at(9300), {1, 1, 6, 8}};
    call_.grads.value_projection = {at(9500), {1, 2, 6, 8}};
  }
  void set_keys(Index rows) {
    call_.k = {at(1000), {2, 2, rows, 5}};
    call_.v = {at(2000), {2, 2, rows, 3}};
    call_.grads.k = {at(7000), {2, 2, rows, 5}};
    call_.grads.v = {at(8000), {2, 2, rows, 3}};
  }

  float* at(Index offset) { return call_.at(offset); }

  template <class Op = LinformerAttention>
  void expect(const std::string& message, const Op& op = Op()) {
    SpoiltCall::expect(message, op);
  }
};

using BadLinformerInput = BadMixedInput;
using BadNystroemInput = BadMixedInput;

TEST_F(BadLinformerInput, Projections) {
  expect("accepted");
  call_.key_projection = {};
  expect("key_projection is required: [1, 1 or Hk, P, Nk], which projects Nk rows to P");
  call_.value_projection = {};
  expect("value_projection is required: [1, 1 or Hk, P, Nk], which projects Nk rows to P");
  call_.key_projection = {at(9000), {2, 1, 6, 8}};
  expect("key_projection has batch 2; expected 1, since all sequences share it");
  call_.key_projection = {at(9000), {1, 4, 6, 8}};
  expect("key_projection has 4 heads; expected 1 or 2, the heads of k");
  call_.key_projection = {at(9000), {1, 1, 0, 8}};
  expect("key_projection has 0 rows; expected at least 1, the number of projected keys");
  call_.value_projection = {at(9100), {1, 2, 5, 8}};
  expect("value_projection has 5 rows; expected 6, the rows of key_projection");
  call_.key_projection = {at(9000), {1, 1, 6, 9}};
  expect("key_projection has width 9; expected 8, the rows of k");
  call_.value_projection = {at(9100), {1, 1, 6, 7}};
  expect("value_projection has width 7; expected 8, the rows of k");
}

TEST_F(BadLinformerInput, OtherInputs) {
  call_.cu_q = {0, 8};
  expect("cu_seqlens must not be given: the projections have a fixed length");
  call_.lengths = {3, 9};
  expect("key_lengths[1] is 9; expected 0 to 8, the rows of k");
  call_.k = {at(1000), {2, 3, 8, 5}};
  expect("k has 3 heads; expected a divisor of the 4 heads of q");
  expect("scale is inf; expected a finite number of the inputs' type",
         LinformerAttention({.scale = std::numeric_limits<double>::infinity()}));
}

TEST_F(BadLinformerInput, WrittenTensors) {
  const LinformerAttention op;
  call_.key_projection = {at(3000), {1, 1, 6, 8}};
  expect_forward("out overlaps key_projection; outputs must not alias inputs or each other", op);
  call_.saved.projected_keys = {at(10000), {2, 2, 5, 5}};
  call_.saved.projected_values = {at(11000), {2, 2, 6, 3}};
  expect("projected_keys has shape 2x2x5x5; expected 2x2x6x5, to match the inputs");
  call_.saved.projected_values = {at(11000), {2, 2, 6, 4}};  // alone
  expect("projected_values has shape 2x2x6x4; expected 2x2x6x3, to match the inputs");
  call_.grads.key_projection = {at(9300), {1, 2, 6, 8}};
  expect_backward(
      "the gradient of key_projection has shape 1x2x6x8; expected 1x1x6x8, to match the inputs",
      op);
  call_.lse = {};
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
  call_.saved.landmark_lse = {at(10000), {2, 4, 3, 1}};
  call_.saved.landmark_values = {at(10500), {2, 4, 4, 3}};
  expect("landmark_lse has shape 2x4x3x1; expected 2x4x4x1, to match the inputs", with(4));
  call_.saved.landmark_lse = {at(10000), {2, 4, 4, 1}};
  call_.saved.landmark_values = {at(10500), {2, 4, 4, 2}};
  expect("landmark_values has shape 2x4x4x2; expected 2x4x4x3, to match the inputs", with(4));
}

TEST_F(BadNystroemInput, Sequences) {
  const NystroemAttention op({.landmarks = 4});
  set_keys(6);
  expect("k has 6 rows; expected a multiple of 4, the landmarks", op);
  call_.lengths = {8, 6};
  expect("key_lengths[1] is 6; expected a multiple of 4, the landmarks", op);
  call_.cu_q = {0, 8};
  expect("cu_seqlens must not be given: the operator does not support packed sequences", op);
  set_keys(4);
  call_.lengths = {4, 4};
  expect("k has 4 rows; expected 8, the rows of q: key_lengths are the lengths of queries, too",
         op);
}

}  // namespace fovea_test::attention_bad_input_mixed
