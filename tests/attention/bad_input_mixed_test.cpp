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
using fovea::LinformerOptions;
using fovea::NystroemAttention;
using fovea::NystroemOptions;

/// A call of either operator that is right: 2 sequences of 8 queries and 8 keys, 4 heads of 2 key
/// heads, D = 5, Dv = 3, P = 6.
struct MixedCall {
  MixedCall() {
    for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<float>(i % 13) / 6 - 1;
    in.q = {at(0), {2, 4, 8, 5}};
    in.k = {at(1000), {2, 2, 8, 5}};
    in.v = {at(2000), {2, 2, 8, 3}};
    in.key_projection = {at(3000), {1, 1, 6, 8}};
    in.value_projection = {at(3500), {1, 2, 6, 8}};
    saved.lse = {at(5000), {2, 4, 8, 1}};
    grads = {{at(6000), {2, 4, 8, 5}}, {at(7000), {2, 2, 8, 5}}, {at(8000), {2, 2, 8, 3}}};
    grads.key_projection = {at(9000), {1, 1, 6, 8}};
    grads.value_projection = {at(9500), {1, 2, 6, 8}};
  }

  float* at(Index offset) { return memory.data() + offset; }

  template <class Op>
  void expect(const Op& op, const std::string& message, bool backward_too = true) {
    in.key_lengths = lengths;
    in.cu_seqlens_q = cu_q;
    const std::string whole =
        message == "accepted" ? message : std::string(Op::name()) + ": " + message;
    const std::vector<float> before = memory;
    const View<const float> from = out;
    EXPECT_EQ(refusal([&] { op.check(in, out, saved); }), whole);
    EXPECT_TRUE(same_bits(before, memory));
    EXPECT_EQ(refusal([&] { op.forward(in, out, saved); }), whole);
    EXPECT_TRUE(message == "accepted" || same_bits(before, memory));
    if (!backward_too) return;
    const std::vector<float> after = memory;
    EXPECT_EQ(refusal([&] { op.check_backward(in, from, saved, d_out, grads); }), whole);
    EXPECT_EQ(refusal([&] { op.backward(in, from, saved, d_out, grads); }), whole);
    EXPECT_TRUE(message == "accepted" || same_bits(after, memory));
  }

  std::vector<float> memory = std::vector<float>(12000);
  AllInputs<float> in;
  AllSaved<float> saved;
  AllGrads<float> grads;
  View<float> out{at(4000), {2, 4, 8, 3}};
  View<const float> d_out{at(4500), {2, 4, 8, 3}};
  std::vector<Index> lengths;
  std::vector<Index> cu_q;
};

/// Spoils a call and expects the message.
template <class Op, class F>
void refused(const Op& op, const std::string& message, F&& spoil, bool backward_too = true) {
  MixedCall call;
  spoil(call);
  call.expect(op, message, backward_too);
}

TEST(BadLinformerInput, Projections) {
  const LinformerAttention op;
  const auto accept = [](MixedCall&) {};
  refused(op, "accepted", accept);
  refused(op, "key_projection is required: [1, 1 or Hk, P, Nk], which projects Nk rows to P",
          [](MixedCall& c) { c.in.key_projection = {}; });
  refused(op, "value_projection is required: [1, 1 or Hk, P, Nk], which projects Nk rows to P",
          [](MixedCall& c) { c.in.value_projection = {}; });
  refused(op, "key_projection has batch 2; expected 1, since all sequences share it",
          [](MixedCall& c) {
            c.in.key_projection = {c.at(3000), {2, 1, 6, 8}};
          });
  refused(op, "key_projection has 4 heads; expected 1 or 2, the heads of k", [](MixedCall& c) {
    c.in.key_projection = {c.at(3000), {1, 4, 6, 8}};
  });
  refused(op, "key_projection has 0 rows; expected at least 1, the number of projected keys",
          [](MixedCall& c) {
            c.in.key_projection = {c.at(3000), {1, 1, 0, 8}};
          });
  refused(op, "value_projection has 5 rows; expected 6, the rows of key_projection",
          [](MixedCall& c) {
            c.in.value_projection = {c.at(3500), {1, 2, 5, 8}};
          });
  refused(op, "key_projection has width 9; expected 8, the rows of k", [](MixedCall& c) {
    c.in.key_projection = {c.at(3000), {1, 1, 6, 9}};
  });
  refused(op, "value_projection has width 7; expected 8, the rows of k", [](MixedCall& c) {
    c.in.value_projection = {c.at(3500), {1, 1, 6, 7}};
  });
}

TEST(BadLinformerInput, OtherInputs) {
  const LinformerAttention op;
  refused(op, "cu_seqlens must not be given: the projections have a fixed length",
          [](MixedCall& c) {
            c.cu_q = {0, 8};
          });
  refused(op, "key_lengths[1] is 9; expected 0 to 8, the rows of k", [](MixedCall& c) {
    c.lengths = {3, 9};
  });
  refused(op, "k has 3 heads; expected a divisor of the 4 heads of q", [](MixedCall& c) {
    c.in.k = {c.at(1000), {2, 3, 8, 5}};
  });
  refused(LinformerAttention({.scale = std::numeric_limits<double>::infinity()}),
          "scale is inf; expected a finite number of the inputs' type", [](MixedCall&) {});
  refused(
      op, "out overlaps key_projection; outputs must not alias inputs or each other",
      [](MixedCall& c) {
        c.in.key_projection = {c.at(4000), {1, 1, 6, 8}};
      },
      false);
  refused(
      op, "projected_keys has shape 2x2x5x5; expected 2x2x6x5, to match the inputs",
      [](MixedCall& c) {
        c.saved.projected_keys = {c.at(10000), {2, 2, 5, 5}};
        c.saved.projected_values = {c.at(11000), {2, 2, 6, 3}};
      },
      false);
}

TEST(BadLinformerInput, Gradients) {
  MixedCall call;
  call.grads.key_projection = {call.at(9000), {1, 2, 6, 8}};
  const LinformerAttention op;
  const View<const float> from = call.out;
  const std::string got =
      refusal([&] { op.check_backward(call.in, from, call.saved, call.d_out, call.grads); });
  EXPECT_EQ(got.substr(0, 63), "LinformerAttention: the gradient of key_projection has shape 1x");
  call.grads.key_projection = {};
  call.saved.lse = {};
  EXPECT_EQ(refusal([&] { op.check_backward(call.in, from, call.saved, call.d_out, call.grads); }),
            "LinformerAttention: lse is required: the lse that forward saved");
}

TEST(BadNystroemInput, Landmarks) {
  const auto with = [](Index landmarks, Index iterations = 6) {
    NystroemOptions options;
    options.landmarks = landmarks;
    options.iterations = iterations;
    return NystroemAttention(options);
  };
  const auto accept = [](MixedCall&) {};
  refused(with(4), "accepted", accept);
  refused(with(8), "accepted", accept);
  refused(with(3), "q has 8 rows; expected a multiple of 3, the landmarks", accept);
  refused(with(16), "q has 8 rows; expected a multiple of 16, the landmarks", accept);
  refused(with(0), "landmarks is 0; expected 1 to 1048576", accept);
  refused(with(-4), "landmarks is -4; expected 1 to 1048576", accept);
  refused(with(4, -1), "iterations is -1; expected 0 to 1048576", accept);
  refused(with(4), "landmark_lse has shape 2x4x3x1; expected 2x4x4x1, to match the inputs",
          [](MixedCall& c) {
            c.saved.landmark_lse = {c.at(10000), {2, 4, 3, 1}};
            c.saved.landmark_values = {c.at(10500), {2, 4, 4, 3}};
          });
  refused(with(4), "landmark_values has shape 2x4x4x2; expected 2x4x4x3, to match the inputs",
          [](MixedCall& c) {
            c.saved.landmark_lse = {c.at(10000), {2, 4, 4, 1}};
            c.saved.landmark_values = {c.at(10500), {2, 4, 4, 2}};
          });
  refused(with(4), "k has 6 rows; expected a multiple of 4, the landmarks", [](MixedCall& c) {
    c.in.k = {c.at(1000), {2, 2, 6, 5}};
    c.in.v = {c.at(2000), {2, 2, 6, 3}};
    c.grads.k = {c.at(7000), {2, 2, 6, 5}};
    c.grads.v = {c.at(8000), {2, 2, 6, 3}};
  });
  refused(with(4), "key_lengths[1] is 6; expected a multiple of 4, the landmarks",
          [](MixedCall& c) {
            c.lengths = {8, 6};
          });
  refused(with(4), "cu_seqlens must not be given: the operator does not support packed sequences",
          [](MixedCall& c) {
            c.cu_q = {0, 8};
          });
  refused(with(4),
          "k has 4 rows; expected 8, the rows of q: key_lengths are the lengths of queries, too",
          [](MixedCall& c) {
            c.in.k = {c.at(1000), {2, 2, 4, 5}};
            c.in.v = {c.at(2000), {2, 2, 4, 3}};
            c.grads.k = {c.at(7000), {2, 2, 4, 5}};
            c.grads.v = {c.at(8000), {2, 2, 4, 3}};
            c.lengths = {4, 4};
          });
}

}  // namespace fovea_test::attention_bad_input_mixed
