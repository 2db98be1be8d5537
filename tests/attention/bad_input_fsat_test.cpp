// SPDX-License-Identifier: MIT
/// \file
/// Refusals of FSAT attention: exact messages from forward and backward, with nothing written;
/// unusual valid inputs; and no other operator has dominant indices.
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "attention/bad_input.hpp"

namespace fovea_test::attention_bad_input_fsat {

using fovea::FsatAttention;
using fovea::FsatOptions;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// 9 tokens, 4 heads of 2 key heads, D = 5, Dv = 3, M = 2.
class BadFsatInput : public SpoiltCall<float> {
 protected:
  BadFsatInput() { reset(); }

  void reset() override {
    SpoiltCall::reset();
    call_.q = {call_.at(0), {2, 4, 9, 5}};
    call_.out = {call_.at(3000), {2, 4, 9, 3}};
    call_.lse = {call_.at(4000), {2, 4, 9, 1}};
    call_.d_out = {call_.at(5200), {2, 4, 9, 3}};
    call_.grads.q = {call_.at(6000), {2, 4, 9, 5}};
    dominant_.resize(2 * 4 * 9 * 2);
    for (std::size_t i = 0; i < dominant_.size(); ++i) {
      dominant_[i] = static_cast<float>(i % 19) / 2;
    }
    call_.dominant = {dominant_.data(), {2, 4, 9, 2}};
    call_.grads.dominant = {call_.at(8500), {2, 4, 9, 2}};
  }

  /// Slot m of token j of head 2 of batch entry 1.
  float& entry(Index j, Index m) { return dominant_[static_cast<std::size_t>((54 + j) * 2 + m)]; }

  /// Other dominant indices, without a gradient.
  void give(const View<const float>& dominant) {
    call_.dominant = dominant;
    call_.grads.dominant = {};
  }

  void expect(const std::string& message, const FsatOptions& options = {.max_length = 9}) {
    SpoiltCall::expect(message, FsatAttention(options));
  }

  std::vector<float> dominant_;
};

TEST_F(BadFsatInput, Options) {
  expect("accepted");
  const std::string tokens = "; expected at least 9, the tokens of the longest sequence";
  expect("max_length is 0" + tokens, {});
  expect("max_length is 8" + tokens, {.max_length = 8});
  expect("max_length is -5" + tokens, {.max_length = -5});
  expect("accepted", {.max_length = 1 << 20});
  const std::string positive = "; expected more than 0 and finite in the inputs' type";
  expect("variance is 0" + positive, {.max_length = 9, .variance = 0});
  expect("variance is -1" + positive, {.max_length = 9, .variance = -1});
  expect("variance is inf" + positive, {.max_length = 9, .variance = kInfinity});
  expect("variance is nan" + positive, {.max_length = 9, .variance = kNan});
  expect("variance is 1e-300" + positive, {.max_length = 9, .variance = 1e-300});
  expect("accepted", {.max_length = 9, .variance = std::numeric_limits<float>::max()});
  expect("accepted", {.max_length = 9, .variance = std::numeric_limits<float>::min()});
  expect("scale is inf; expected a finite number of the inputs' type",
         {.max_length = 9, .scale = kInfinity});
}

TEST_F(BadFsatInput, ShapesOfDominantIndices) {
  give({});
  expect("dominant is required: [B, Hq, Nk, M], the dominant indices of each key");
  give({dominant_.data(), {2, 4, 9, 0}});
  expect("dominant has width 0; expected at least 1, the number of dominant queries of a key");
  give({dominant_.data(), {1, 4, 9, 2}});
  expect("dominant has batch 1; expected 2, the batch of q");
  give({dominant_.data(), {2, 2, 9, 2}});
  expect("dominant has 2 heads; expected 4, the heads of q");
  give({dominant_.data(), {2, 4, 8, 2}});
  expect("dominant has 8 rows; expected 9, the rows of k");
}

TEST_F(BadFsatInput, EntriesOfDominantIndices) {
  const std::string number = "; expected a finite number of at least 0";
  entry(3, 1) = static_cast<float>(kNan);
  expect("dominant[1, 2, 3, 1] is nan" + number);
  entry(0, 0) = static_cast<float>(kInfinity);
  entry(1, 0) = -1;  // not the first
  expect("dominant[1, 2, 0, 0] is inf" + number);
  entry(8, 1) = -static_cast<float>(kInfinity);
  expect("dominant[1, 2, 8, 1] is -inf" + number);
  entry(8, 0) = -0.5F;
  expect("dominant[1, 2, 8, 0] is -0.5" + number);
  dominant_.assign(2 * 4 * 9 * 3, 1);  // rows with gaps
  dominant_[dominant_.size() - 2] = -1;
  give({dominant_.data(), {2, 4, 9, 2}, {4 * 9 * 3, 9 * 3, 3, 1}});
  expect("dominant[1, 3, 8, 1] is -1" + number);
}

TEST_F(BadFsatInput, UnusualValidInputs) {
  entry(4, 0) = 1e30F;  // as Lmax: the last token
  entry(5, 1) = -0.0F;
  expect("accepted");
  call_.lengths = {9, 3};  // what follows is not read
  entry(3, 0) = static_cast<float>(kNan);
  entry(8, 1) = -1;
  expect("accepted");
  call_.lengths = {9, 4};
  entry(3, 0) = static_cast<float>(kNan);
  expect("dominant[1, 2, 3, 0] is nan; expected a finite number of at least 0");
  give({dominant_.data(), {2, 4, 9, 2}, {0, 0, 0, 1}});  // broadcast
  expect("accepted");
}

TEST_F(BadFsatInput, QueriesAndKeysAreTheSameTokens) {
  const std::string token = ": queries and keys are the same tokens";
  call_.q = {call_.at(0), {2, 4, 6, 5}};
  expect("k has 9 rows; expected 6, the rows of q" + token);
  const auto pack = [&](const std::vector<Index>& ends_k = {}) {
    call_.pack({0, 3, 9}, ends_k);
    give({dominant_.data(), {1, 4, 9, 2}});
  };
  pack();
  expect("accepted", {.max_length = 6});
  pack();
  expect("max_length is 5; expected at least 6, the tokens of the longest sequence",
         {.max_length = 5});
  pack({0, 3, 9});
  expect("accepted");
  pack({0, 4, 9});
  expect("cu_seqlens_k[1] is 4; expected 3, as cu_seqlens_q" + token);
}

TEST_F(BadFsatInput, WrittenTensors) {
  const FsatAttention op({.max_length = 9});
  call_.out = {call_.at(3000), {2, 4, 9, 2}};
  expect_forward("out has shape 2x4x9x2; expected 2x4x9x3, to match the inputs", op);
  call_.d_out = {call_.at(5200), {2, 4, 8, 3}};
  expect_backward("d_out has shape 2x4x8x3; expected 2x4x9x3, to match the inputs", op);
  call_.lse = {};
  expect_backward("lse is required: the lse that forward saved", op);
  call_.grads.dominant = {call_.at(8500), {2, 4, 9, 1}};
  expect_backward(
      "the gradient of dominant has shape 2x4x9x1; expected 2x4x9x2, to match the inputs", op);
  call_.grads.dominant = {dominant_.data(), {2, 4, 9, 2}};
  expect_backward(
      "the gradient of dominant overlaps dominant; outputs must not alias inputs or each other",
      op);
}

TEST(BadFatInput, ScaleIsFinite) {
  const fovea::FatAttention op({.scale = kInfinity});
  EXPECT_EQ(Call<float>().refusal(op),
            "FatAttention: scale is inf; expected a finite number of the inputs' type");
  EXPECT_EQ(Call<float>().refusal(fovea::FatAttention{}), "accepted");
}

}  // namespace fovea_test::attention_bad_input_fsat
