// SPDX-License-Identifier: MIT
/// \file
/// Every refusal of backward: the exact message, from `check_backward` and from `backward`, with
/// nothing written; and similar calls that must work.
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "attention/bad_input.hpp"
#include "attention/zero_sizes.hpp"
#include "support/levels.hpp"

namespace fovea_test::attention_bad_input_backward {

TYPED_TEST_SUITE(BadInput, Kinds);

TYPED_TEST(BadInput, ValidBackwardCallIsAccepted) { this->expect_backward("accepted"); }

/// Everything that forward refuses of its inputs and options.
TYPED_TEST(BadInput, BackwardRefusesInputsLikeForward) {
  using Op = typename TypeParam::Operator;
  auto& call = this->call_;
  call.k = {call.at(1000), {3, 2, 9, 5}};
  this->expect_backward("k has batch 3; expected 2, the batch of q");
  call.lengths = {9, 10};
  this->expect_backward("key_lengths[1] is 10; expected 0 to 9, the rows of k");
  call.cu_k = {0, 9};
  this->expect_backward("cu_seqlens_q is required: cu_seqlens_k is given");
  call.bias = {call.at(9000), {1, 1, 5, 1}};
  this->expect_backward("bias has 5 rows; expected 1 or 6, the rows of q");
  call.sink_count = 3;
  this->expect_backward("the number of sinks is 3; expected 4, the heads of q, or 0");
  this->expect_backward("soft_cap is -1; expected more than 0 and finite in the inputs' type",
                        Op({.soft_cap = -1.0}));
  this->expect_backward("dropout.probability is 1; expected at least 0 and less than 1",
                        Op({.dropout = {.probability = 1.0}}));
}

TYPED_TEST(BadInput, InputsOfBackward) {
  auto& call = this->call_;
  call.lse = {};
  this->expect_backward("lse is required: the lse that forward saved");
  call.lse = {call.at(4000), {2, 4, 5, 1}};
  this->expect_backward("lse has shape 2x4x5x1; expected 2x4x6x1, to match the inputs");
  call.lse = {call.at(4000), {2, 4, 6, 3}};
  this->expect_backward("lse has shape 2x4x6x3; expected 2x4x6x1, to match the inputs");
  const std::string rest = "; expected 2x4x6x3, to match the inputs";
  call.out = {call.at(3000), {2, 4, 6, 5}};
  this->expect_backward("out has shape 2x4x6x5" + rest);
  call.out = {};
  this->expect_backward("out is empty: it was passed without memory" + rest);
  call.d_out = {call.at(5200), {1, 4, 6, 3}};
  this->expect_backward("d_out has shape 1x4x6x3" + rest);
  call.d_out = {call.at(5200), {2, 2, 6, 3}};
  this->expect_backward("d_out has shape 2x2x6x3" + rest);
  call.d_out = {};
  this->expect_backward("d_out is empty: it was passed without memory" + rest);
}

TYPED_TEST(BadInput, ShapesOfGradients) {
  auto& call = this->call_;
  call.grads.q = {call.at(6000), {2, 4, 6, 4}};
  this->expect_backward(
      "the gradient of q has shape 2x4x6x4; expected 2x4x6x5, to match the inputs");
  call.grads.k = {call.at(7000), {2, 4, 9, 5}};
  this->expect_backward(
      "the gradient of k has shape 2x4x9x5; expected 2x2x9x5, to match the inputs");
  call.grads.v = {call.at(8000), {2, 2, 6, 3}};
  this->expect_backward(
      "the gradient of v has shape 2x2x6x3; expected 2x2x9x3, to match the inputs");
  call.bias = {call.at(9000), {1, 4, 6, 1}};
  call.grads.bias = {call.at(9100), {2, 4, 6, 9}};
  this->expect_backward(
      "the gradient of bias has shape 2x4x6x9; expected 1x4x6x1, to match the inputs");
  call.grads.bias = {call.at(9100), {1, 1, 1, 1}};
  this->expect_backward("the gradient of bias must not be given: the inputs have no bias");
  call.grads.sink = {call.at(9500), 4};
  this->expect_backward(
      "the number of sinks in the gradients is 4; expected 0, the number of sinks of the inputs");
  call.sink_count = 4;
  call.grads.sink = {call.at(9500), 3};
  this->expect_backward(
      "the number of sinks in the gradients is 3; expected 4, the number of sinks of the inputs");
}

TYPED_TEST(BadInput, LayoutsOfGradients) {
  auto& call = this->call_;
  call.grads.q = {call.at(6000 + 25), {2, 4, 6, 5}, {120, 30, -5, 1}};
  this->expect_backward(
      "stride of rows of the gradient of q is -5; expected at least 0 in an output");
  call.grads.k = {call.at(7000), {2, 2, 9, 5}, {0, 45, 5, 1}};
  this->expect_backward(
      "the gradient of k has strides [0, 45, 5, 1] for 2x2x9x5; the elements of an output need "
      "different addresses");
  call.grads.v = {call.at(8000), {2, 2, 9, 3}, {1, 2, 4, 36}};
  this->expect_backward("accepted");
}

TYPED_TEST(BadInput, GradientsOverlappingInputs) {
  auto& call = this->call_;
  const auto expect = [&](const char* name, Index offset) {
    const std::string rest =
        std::string(" overlaps ") + name + "; outputs must not alias inputs or each other";
    call.grads.q = {call.at(offset), {2, 4, 6, 5}};
    this->expect_backward("the gradient of q" + rest);
    call.grads.k = {call.at(offset), {2, 2, 9, 5}};
    this->expect_backward("the gradient of k" + rest);
    call.grads.v = {call.at(offset), {2, 2, 9, 3}};
    this->expect_backward("the gradient of v" + rest);
  };
  expect("q", 100);
  expect("k", 1050);
  expect("v", 2050);
  expect("out", 3010);
  expect("lse", 4010);
  expect("d_out", 5290);
  call.sink_count = 4;
  call.grads.sink = {call.at(5103), 4};
  this->expect_backward(
      "the gradient of sink overlaps sink; outputs must not alias inputs or each other");
  call.bias = {call.at(9000), {1, 1, 6, 9}};
  call.grads.bias = {call.at(9053), {1, 1, 6, 9}};
  this->expect_backward(
      "the gradient of bias overlaps bias; outputs must not alias inputs or each other");
}

TYPED_TEST(BadInput, GradientsOverlappingEachOther) {
  auto& call = this->call_;
  const auto expect = [&](const char* gradient, const char* name) {
    this->expect_backward(std::string("the gradient of ") + gradient +
                          " overlaps the gradient of " + name +
                          "; outputs must not alias inputs or each other");
  };
  call.grads.k = {call.at(6239), {2, 2, 9, 5}};
  expect("k", "q");
  call.grads.v = {call.at(6000), {2, 2, 9, 3}};
  expect("v", "q");
  call.grads.v = {call.at(7001), {2, 2, 9, 3}};
  expect("v", "k");
  call.bias = {call.at(9000), {1, 1, 6, 9}};
  call.grads.bias = {call.at(8003), {1, 1, 6, 9}};
  expect("bias", "v");
  call.bias = {call.at(9000), {1, 1, 6, 9}};
  call.grads.bias = {call.at(9100), {1, 1, 6, 9}};
  call.sink_count = 4;
  call.grads.sink = {call.at(9150), 4};
  expect("sink", "bias");
}

TYPED_TEST(BadInput, GradientsThroughLse) {
  using T = typename TypeParam::Scalar;
  auto& call = this->call_;
  const auto expect = [&](const View<const T>& d_lse, const std::string& message) {
    const auto before = call.memory;
    const auto call_with = [&](const View<const T>& given) {
      return refusal([&] {
        typename TypeParam::Operator{}.backward(call.inputs(), call.out, {call.lse},
                                                {.d_out = call.d_out, .d_lse = given}, call.grads);
      });
    };
    EXPECT_EQ(call_with(d_lse), message);
    if (message != "accepted") {
      EXPECT_TRUE(same_bits(before, call.memory)) << "something was written";
    }
  };
  const std::string name = TypeParam::Operator::name();
  expect({}, "accepted");
  expect({call.at(4000), {2, 4, 6, 1}}, "accepted");
  expect({call.at(5200), {2, 4, 6, 1}, {0, 0, 0, 1}}, "accepted");
  expect({call.at(4000), {2, 4, 5, 1}},
         name + ": d_lse has shape 2x4x5x1; expected 2x4x6x1, to match the inputs");
  expect({call.at(4000), {2, 4, 6, 3}},
         name + ": d_lse has shape 2x4x6x3; expected 2x4x6x1, to match the inputs");
  expect({call.at(6010), {2, 4, 6, 1}},
         name + ": the gradient of q overlaps d_lse; outputs must not alias inputs or each other");
}

/// Inputs may share memory; gradients may be interleaved.
TYPED_TEST(BadInput, ValidBackwardCallsSimilarToRefusedOnes) {
  auto& call = this->call_;
  call.d_out = {call.at(3000), {2, 4, 6, 3}};
  this->expect_backward("accepted");
  call.d_out = {call.at(5200), {2, 4, 6, 3}, {0, 0, 0, 1}};
  this->expect_backward("accepted");
  call.grads.k = {call.at(7000), {2, 2, 9, 5}, {144, 72, 8, 1}};
  call.grads.v = {call.at(7005), {2, 2, 9, 3}, {144, 72, 8, 1}};
  this->expect_backward("accepted");
  const auto before = call.memory;
  call.grads = {};
  EXPECT_EQ(call.backward_refusal(typename TypeParam::Operator{}), "accepted");
  EXPECT_TRUE(same_bits(before, call.memory)) << "nothing was asked for";
}

/// Nothing is read of tensors without elements, and nothing is written to them; rows and gradients
/// without a term are 0.
TYPED_TEST(BadInput, ZeroSizesWork) {
  using Op = typename TypeParam::Operator;
  using T = typename TypeParam::Scalar;
  const auto expect_all = [](const T* data, Index size, T value) {
    for (Index i = 0; i < size; ++i) EXPECT_EQ(data[i], value);
  };
  at_each_level([&] {
    for_each_zero_sizes({2, 4, 2, 6, 9, 5, 3}, [&](const AttentionShape& s) {
      if (s.query_heads > 0 && s.key_heads == 0) return;  // refused
      Call<T> call;
      const auto place = [&](Index offset, const Shape& shape) {
        return View<T>(size_of(shape) == 0 ? nullptr : call.at(offset), shape);
      };
      call.q = place(0, {s.batch, s.query_heads, s.queries, s.width});
      call.k = place(1000, {s.batch, s.key_heads, s.keys, s.width});
      call.v = place(2000, {s.batch, s.key_heads, s.keys, s.value_width});
      call.out = place(3000, {s.batch, s.query_heads, s.queries, s.value_width});
      call.lse = place(4000, {s.batch, s.query_heads, s.queries, 1});
      call.d_out = place(5200, call.out.shape());
      call.grads = {place(6000, call.q.shape()), place(7000, call.k.shape()),
                    place(8000, call.v.shape())};
      ASSERT_EQ(call.refusal(Op{}), "accepted");
      ASSERT_EQ(call.backward_refusal(Op{}), "accepted");
      // Empty tensors may have an address.
      call.grads = {{call.at(6000), call.q.shape()},
                    {call.at(7000), call.k.shape()},
                    {call.at(8000), call.v.shape()}};
      ASSERT_EQ(call.backward_refusal(Op{}), "accepted");
      if (s.keys == 0) {
        expect_all(call.at(3000), call.out.size(), 0);
        expect_all(call.at(4000), call.lse.size(), -std::numeric_limits<T>::infinity());
      }
      if (s.queries > 0 && s.keys > 0) return;
      expect_all(call.at(6000), call.q.size(), 0);
      expect_all(call.at(7000), call.k.size(), 0);
      expect_all(call.at(8000), call.v.size(), 0);
    });
  });
}

}  // namespace fovea_test::attention_bad_input_backward
