// SPDX-License-Identifier: MIT
/// \file
/// Every refusal of what the options of softmax attention take: packed sequences, bias, mask,
/// ALiBi, sink, soft cap, dropout. The exact message, and nothing written.
#include <gtest/gtest.h>

#include <concepts>
#include <limits>
#include <string>
#include <vector>

#include "attention/bad_input.hpp"

namespace fovea_test::attention_bad_input_options {

TYPED_TEST_SUITE(BadInput, Kinds);

constexpr bool kFlags[432] = {};

TYPED_TEST(BadInput, PackedSequences) {
  auto& call = this->call_;
  const auto expect = [&](const std::vector<Index>& cu_q, const std::vector<Index>& cu_k,
                          const std::string& message) {
    call.pack(cu_q, cu_k);
    this->expect(message);
  };
  expect({0, 2, 6}, {0, 9, 9}, "accepted");
  expect({0, 6}, {0, 9}, "accepted");
  expect({1, 2, 6}, {0, 4, 9}, "cu_seqlens_q[0] is 1; expected 0, where the first sequence begins");
  expect({-1, 6}, {0, 9}, "cu_seqlens_q[0] is -1; expected 0, where the first sequence begins");
  expect({0, 4, 3, 6}, {0, 4, 5, 9},
         "cu_seqlens_q[2] is 3; expected at least 4: the ends must ascend");
  expect({0, 2, 5}, {0, 4, 9}, "cu_seqlens_q[2] is 5; expected 6, the rows of q");
  expect({0, 2, 7}, {0, 4, 9}, "cu_seqlens_q[2] is 7; expected 6, the rows of q");
  expect({0, 7, 6}, {0, 4, 9}, "cu_seqlens_q[1] is 7; expected at most 6, the rows of q");
  expect({0, kMost, 6}, {0, 4, 9},
         "cu_seqlens_q[1] is 9223372036854775807; expected at most 6, the rows of q");
  expect({0, 2, 6}, {3, 4, 9}, "cu_seqlens_k[0] is 3; expected 0, where the first sequence begins");
  expect({0, 2, 6}, {0, -4, 9}, "cu_seqlens_k[1] is -4; expected at least 0: the ends must ascend");
  expect({0, 2, 6}, {0, 4, 8}, "cu_seqlens_k[2] is 8; expected 9, the rows of k");
  expect({0, 2, 6}, {0, 10, 9}, "cu_seqlens_k[1] is 10; expected at most 9, the rows of k");
  expect({0, 2, 6}, {0, 9},
         "the number of cu_seqlens_k is 2; expected 3, the number of cu_seqlens_q");
  expect({}, {0, 9}, "cu_seqlens_q is required: cu_seqlens_k is given");
  expect({0, 2, 6}, {},
         "cu_seqlens_q[2] is 6; expected 9, the rows of k, since there is no cu_seqlens_k");
  expect({0}, {0}, "cu_seqlens_q[0] is 0; expected 6, the rows of q");
}

TYPED_TEST(BadInput, PackedSequencesWithConflictingInputs) {
  auto& call = this->call_;
  call.cu_q = {0, 2, 6};
  call.cu_k = {0, 4, 9};
  this->expect("q has batch 2; expected 1, since cu_seqlens_q is given");
  call.pack({0, 2, 6}, {0, 4, 9});
  call.lengths = {9};
  this->expect("key_lengths must not be given: cu_seqlens_q determines the lengths");
}

TYPED_TEST(BadInput, NoSequencesAreAccepted) {
  using T = typename TypeParam::Scalar;
  auto& call = this->call_;
  call.q = View<const T>(nullptr, {1, 4, 0, 5});
  call.k = View<const T>(nullptr, {1, 2, 0, 5});
  call.v = View<const T>(nullptr, {1, 2, 0, 3});
  call.out = View<T>(nullptr, {1, 4, 0, 3});
  call.lse = View<T>(nullptr, {1, 4, 0, 1});
  call.cu_q = {0};
  call.cu_k = {0};
  this->expect("accepted");
}

TYPED_TEST(BadInput, BiasThatDoesNotBroadcast) {
  auto& call = this->call_;
  const auto expect = [&](const Shape& shape, const std::string& message) {
    call.bias = {call.at(5000), shape};
    this->expect(message);
  };
  for (int full = 0; full < 16; ++full) {
    const auto extent = [=](int bit, Index n) { return (full >> bit & 1) != 0 ? n : 1; };
    expect({extent(0, 2), extent(1, 4), extent(2, 6), extent(3, 9)}, "accepted");
  }
  expect({3, 4, 6, 9}, "bias has batch 3; expected 1 or 2, the batch of q");
  expect({2, 2, 6, 9}, "bias has 2 heads; expected 1 or 4, the heads of q");
  expect({2, 4, 9, 9}, "bias has 9 rows; expected 1 or 6, the rows of q");
  expect({2, 4, 6, 6}, "bias has width 6; expected 1 or 9, the rows of k");
  expect({0, 4, 6, 9}, "bias has batch 0; expected 1 or 2, the batch of q");
  expect({1, 1, 1, 0}, "bias has width 0; expected 1 or 9, the rows of k");
}

TYPED_TEST(BadInput, MaskThatDoesNotBroadcast) {
  auto& call = this->call_;
  const auto expect = [&](const Shape& shape, const std::string& message) {
    call.mask = {kFlags, shape};
    this->expect(message);
  };
  for (int full = 0; full < 16; ++full) {
    const auto extent = [=](int bit, Index n) { return (full >> bit & 1) != 0 ? n : 1; };
    expect({extent(0, 2), extent(1, 4), extent(2, 6), extent(3, 9)}, "accepted");
  }
  expect({3, 1, 6, 9}, "mask has batch 3; expected 1 or 2, the batch of q");
  expect({1, 2, 6, 9}, "mask has 2 heads; expected 1 or 4, the heads of q");
  expect({1, 1, 5, 9}, "mask has 5 rows; expected 1 or 6, the rows of q");
  expect({1, 1, 6, 10}, "mask has width 10; expected 1 or 9, the rows of k");
}

/// Columns may be left out of keys that no row sees.
TYPED_TEST(BadInput, BiasAndMaskOfTheVisibleKeys) {
  auto& call = this->call_;
  const auto expect = [&](Index columns, const std::vector<Index>& lengths,
                          const std::string& expected) {
    // A window needs to know where its rows are if keys are hidden.
    const bool is_window = std::same_as<typename TypeParam::Operator, fovea::LocalAttention>;
    if (is_window && expected == "accepted" && lengths != std::vector<Index>{9, 9}) return;
    const auto message = [&](const char* tensor) {
      return expected == "accepted" ? expected
                                    : std::string(tensor) + " has width " +
                                          std::to_string(columns) + "; expected " + expected;
    };
    call.lengths = lengths;
    call.bias = {call.at(9000), {1, 1, 6, columns}};
    this->expect(message("bias"));
    call.lengths = lengths;
    call.mask = {kFlags, {1, 1, 6, columns}};
    this->expect(message("mask"));
    call.lengths = lengths;
    call.bias = {call.at(9000), {1, 1, 6, columns}};
    call.grads.bias = {call.at(9100), {1, 1, 6, columns}};
    this->expect_backward(message("bias"));
  };
  for (Index columns = 4; columns <= 9; ++columns) expect(columns, {4, 2}, "accepted");
  expect(2, {1, 0}, "accepted");
  expect(1, {9, 9}, "accepted");
  expect(3, {4, 2}, "1 or 9, the rows of k, or at least 4, the largest of key_lengths");
  expect(10, {4, 2}, "1 or 9, the rows of k, or at least 4, the largest of key_lengths");
  expect(0, {0, 0}, "1 or 9, the rows of k, or at least 1, the largest of key_lengths");
  expect(8, {4, 9}, "1 or 9, the rows of k");
  expect(8, {}, "1 or 9, the rows of k");
}

TYPED_TEST(BadInput, NumbersPerHead) {
  using T = typename TypeParam::Scalar;
  auto& call = this->call_;
  for (const std::size_t count : {1u, 3u, 5u, 8u}) {
    call.slope_count = count;
    this->expect("the number of alibi_slopes is " + std::to_string(count) +
                 "; expected 4, the heads of q, or 0");
    call.sink_count = count;
    this->expect("the number of sinks is " + std::to_string(count) +
                 "; expected 4, the heads of q, or 0");
  }
  for (const T slope : {std::numeric_limits<T>::infinity(), -std::numeric_limits<T>::infinity(),
                        std::numeric_limits<T>::quiet_NaN()}) {
    call.slope_count = 4;
    *call.at(5002) = slope;
    this->expect("alibi_slopes[2] is " + fovea::to_string(slope) + "; expected a finite number");
  }
  call.slope_count = 4;
  call.sink_count = 4;
  *call.at(5101) = std::numeric_limits<T>::infinity();  // a logit like any other
  this->expect("accepted");
}

TYPED_TEST(BadInput, SoftCap) {
  using Op = typename TypeParam::Operator;
  using T = typename TypeParam::Scalar;
  const auto expect = [&](double cap, bool fits) {
    const std::string refusal = "soft_cap is " + fovea::to_string(cap) +
                                "; expected more than 0 and finite in the inputs' type";
    this->expect(fits ? "accepted" : refusal, Op({.soft_cap = cap}));
  };
  constexpr bool is_double = std::is_same_v<T, double>;
  expect(0, false);
  expect(-0.0, false);
  expect(-30, false);
  expect(std::numeric_limits<double>::infinity(), false);
  expect(std::numeric_limits<double>::quiet_NaN(), false);
  expect(1e39, is_double);
  expect(std::numeric_limits<T>::max(), true);
  expect(std::numeric_limits<T>::min(), true);
  expect(1e-40, is_double);
  expect(30, true);
}

TYPED_TEST(BadInput, DropoutProbability) {
  using Op = typename TypeParam::Operator;
  const auto expect = [&](double p, bool is_one) {
    const std::string refusal =
        "dropout.probability is " + fovea::to_string(p) + "; expected at least 0 and less than 1";
    this->expect(is_one ? "accepted" : refusal, Op({.dropout = {.probability = p, .seed = 7}}));
  };
  expect(-0.1, false);
  expect(1, false);
  expect(1.5, false);
  expect(std::numeric_limits<double>::infinity(), false);
  expect(std::numeric_limits<double>::quiet_NaN(), false);
  expect(0, true);
  expect(0.999, true);
}

TYPED_TEST(BadInput, OutputsOverlappingLogitModifiers) {
  auto& call = this->call_;
  const auto expect = [&](const char* name, auto&& spoil) {
    for (const bool in_out : {true, false}) {
      spoil(in_out ? Index{3000} : Index{4000});
      this->expect(std::string(in_out ? "out" : "lse") + " overlaps " + name +
                   "; outputs must not alias inputs or each other");
    }
  };
  expect("bias", [&](Index offset) { call.bias = {call.at(offset), {1, 1, 6, 9}}; });
  expect("bias", [&](Index offset) { call.bias = {call.at(offset + 10), {1, 1, 1, 1}}; });
  expect("mask", [&](Index offset) {
    call.mask = {reinterpret_cast<const bool*>(call.at(offset + 1)), {1, 1, 6, 9}};
  });
  expect("sink", [&](Index offset) {
    call.sinks = call.at(offset + 20);
    call.sink_count = 4;
  });
  expect("alibi_slopes", [&](Index offset) {
    call.slopes = call.at(offset + 20);
    call.slope_count = 4;
  });
}

TYPED_TEST(BadInput, CombinedOptionsAreAccepted) {
  using Op = typename TypeParam::Operator;
  auto& call = this->call_;
  call.bias = {call.at(5300), {1, 4, 6, 9}};
  call.mask = {kFlags, {2, 1, 6, 9}};
  call.slope_count = 4;
  call.sink_count = 4;
  call.lengths = {9, 9};
  this->expect("accepted", Op({.soft_cap = 5.0, .dropout = {.probability = 0.5}}));
  call.pack({0, 2, 6}, {0, 4, 9});
  call.bias = {call.at(5300), {1, 4, 6, 9}};
  call.mask = {kFlags, {1, 1, 6, 9}};
  call.slope_count = 4;
  call.sink_count = 4;
  this->expect("accepted", Op({.soft_cap = 5.0, .dropout = {.probability = 0.5}}));
}

}  // namespace fovea_test::attention_bad_input_options
