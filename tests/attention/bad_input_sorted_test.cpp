// SPDX-License-Identifier: MIT
/// \file
/// Refusals of Reformer and Sinkhorn attention: exact messages from forward and backward, with
/// nothing written.
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "attention/bad_input.hpp"
#include "fovea/attention/reformer/check.hpp"

namespace fovea_test::attention_bad_input_sorted {

using fovea::ReformerAttention;
using fovea::ReformerOptions;
using fovea::SinkhornAttention;
using fovea::SinkhornOptions;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// A call of `Op` on memory that it owns; `reset` makes it right, and a test spoils one thing.
template <class Op>
class BadCall : public testing::Test {
 protected:
  virtual void reset() = 0;

  float* at(Index offset) { return numbers_.data() + offset; }

  std::string refusal(const Op& op) {
    in.key_lengths = lengths;
    return refusal_of_call(
        numbers_, [&] { op.check(in, out, saved); }, [&] { op.forward(in, out, saved); });
  }
  std::string backward_refusal(const Op& op) {
    in.key_lengths = lengths;
    const View<const float> from = out;
    return refusal_of_call(
        numbers_, [&] { op.check_backward(in, from, saved, d_out, grads); },
        [&] { op.backward(in, from, saved, d_out, grads); });
  }

  void expect_forward(const std::string& message, const Op& op) {
    EXPECT_EQ(refusal(op), whole_message<Op>(message));
    reset();
  }
  void expect_backward(const std::string& message, const Op& op) {
    EXPECT_EQ(backward_refusal(op), whole_message<Op>(message));
    reset();
  }
  /// Both passes.
  void expect_both(const std::string& message, const Op& op) {
    EXPECT_EQ(refusal(op), whole_message<Op>(message));
    expect_backward(message, op);
  }

  fovea::InputsOf<Op, float> in;
  View<float> out;
  fovea::SavedOf<Op, float> saved;
  View<const float> d_out;
  fovea::GradsOf<Op, float> grads;
  std::vector<Index> lengths;

 private:
  std::vector<float> numbers_ = std::vector<float>(10000, 0.5F);
};

/// 12 rows, 2 heads, D = 5, Dv = 3.
class BadReformerInput : public BadCall<ReformerAttention> {
 protected:
  BadReformerInput() { reset(); }

  void reset() override {
    in = {View<const float>(at(0), {2, 2, 12, 5}), View<const float>(at(1000), {2, 2, 12, 3})};
    in.projection = View<const float>(at(2000), {1, 2, 5, 3});
    out = {at(3000), {2, 2, 12, 3}};
    saved = {View<float>(at(4000), {2, 2, 12, 1}), View<float>(at(5000), {2, 2, 12, 2})};
    d_out = {at(6000), {2, 2, 12, 3}};
    grads = {View<float>(at(7000), {2, 2, 12, 5}), View<float>(at(8000), {2, 2, 12, 3})};
    lengths.clear();
  }
  static ReformerOptions good() { return {.chunk = 4, .rounds = 2, .buckets = 6}; }

  void expect(const std::string& message, const ReformerOptions& options = good()) {
    expect_both(message, ReformerAttention(options));
  }
};

TEST_F(BadReformerInput, Options) {
  expect("accepted");
  ReformerOptions options = good();
  options.chunk = 5;
  expect("chunk is 5; expected a divisor of the 12 rows of qk", options);
  options.chunk = 0;
  expect("chunk is 0; expected a divisor of the 12 rows of qk", options);
  options.chunk = 24;
  expect("chunk is 24; expected a divisor of the 12 rows of qk", options);
  options = good();
  options.rounds = 0;
  expect("rounds is 0; expected at least 1", options);
  options = good();
  for (const Index buckets : {7, 0, -2}) {
    options.buckets = buckets;
    expect("buckets is " + std::to_string(buckets) + "; expected an even number from 2 to " +
               std::to_string(fovea::kMostSortedRows),
           options);
  }
  options = good();
  options.scale = kNan;
  expect("scale is nan; expected a finite number of the inputs' type", options);
}

TEST_F(BadReformerInput, Tensors) {
  in.v = {at(1000), {2, 2, 11, 3}};
  expect("v has 11 rows; expected 12, the rows of qk");
  in.v = {at(1000), {2, 1, 12, 3}};
  expect("v has 1 head; expected 2, the heads of qk");
  in.v = {};
  expect("v is required: it was not given, or was passed without memory");
  in.qk = {};
  expect("qk is required: it was not given, or was passed without memory");
  lengths = {3};
  expect("the number of key_lengths is 1; expected 2, the batch of qk, or 0");
  lengths = {3, 13};
  expect("key_lengths[1] is 13; expected 0 to 12, the rows of qk");
  lengths = {3, 0};
  expect("accepted");
  constexpr fovea::Index most = fovea::kMostSortedRows;
  in.qk = {at(0), {2, 2, most + 1, 5}, {0, 0, 0, 1}};
  in.v = {at(1000), {2, 2, most + 1, 3}, {0, 0, 0, 1}};
  expect("qk has " + std::to_string(most + 1) + " rows; expected at most " + std::to_string(most));
  // Rows of no sequences are never read, so they may be as wide as a row may be at all.
  constexpr fovea::Index wide = std::numeric_limits<fovea::Index>::max() / (Index{1} << 20);
  const auto widen = [&](fovea::Index width) {
    in.qk = {at(0), {0, 2, 12, width}, {0, 0, 0, 1}};
    in.v = {at(1000), {0, 2, 12, 3}};
    in.projection = {};
    return fovea_test::refusal([&] {
      ReformerAttention(good()).check(in, View<float>(at(3000), {0, 2, 12, 3}));
    });
  };
  EXPECT_EQ(widen(wide), "accepted");
  EXPECT_EQ(widen(wide + 1), "ReformerAttention: qk has width " + std::to_string(wide + 1) +
                                 "; expected at most " + std::to_string(wide));
}

TEST_F(BadReformerInput, Projection) {
  in.projection = {at(2000), {1, 2, 4, 3}};
  expect("projection has 4 rows; expected 5, the width of qk");
  in.projection = {at(2000), {1, 2, 5, 4}};
  expect("projection has width 4; expected 3, half of the buckets of the options");
  in.projection = {at(2000), {1, 3, 5, 3}};
  expect("projection has 3 heads; expected 2, the rounds of the options");
  in.projection = {at(2000), {2, 2, 5, 3}};
  expect("projection has batch 2; expected 1, since all sequences use the same projections");
  in.projection = {};
  expect("accepted");
}

TEST_F(BadReformerInput, WrittenTensors) {
  const ReformerAttention op(good());
  out = {at(0), {2, 2, 12, 3}};
  expect_forward("out overlaps qk; outputs must not alias inputs or each other", op);
  out = {at(3000), {2, 2, 12, 2}};
  expect_forward("out has shape 2x2x12x2; expected 2x2x12x3, to match the inputs", op);
  saved.round_lse = {at(5000), {2, 2, 12, 3}};
  expect("round_lse has shape 2x2x12x3; expected 2x2x12x2, to match the inputs");
  grads.v = grads.qk;
  expect_backward("the gradient of v has shape 2x2x12x5; expected 2x2x12x3, to match the inputs",
                  op);
  grads.v = {grads.qk.data(), {2, 2, 12, 3}};
  expect_backward(
      "the gradient of v overlaps the gradient of qk; outputs must not alias inputs or each other",
      op);
  std::vector<Index> buckets(96);
  EXPECT_EQ(
      fovea_test::refusal([&] {
        op.buckets(in, View<Index>(buckets.data(), {2, 2, 12, 2}));
      }),
      "ReformerAttention: buckets has shape 2x2x12x2; expected 2x2x2x12, to match the inputs");
}

/// 12 rows, 4 heads of 2 key heads, D = 5, Dv = 3.
class BadSinkhornInput : public BadCall<SinkhornAttention> {
 protected:
  BadSinkhornInput() { reset(); }

  void reset() override {
    in = {View<const float>(at(0), {2, 4, 12, 5}),
          View<const float>(at(1000), {2, 2, 12, 5}),
          View<const float>(at(2000), {2, 2, 12, 3}),
          {},
          View<const float>(at(2500), {2, 2, 3, 3})};
    out = {at(3000), {2, 4, 12, 3}};
    saved = {View<float>(at(4000), {2, 4, 12, 1})};
    d_out = {at(5000), {2, 4, 12, 3}};
    grads = {View<float>(at(6000), {2, 4, 12, 5}), View<float>(at(7000), {2, 2, 12, 5}),
             View<float>(at(8000), {2, 2, 12, 3}), View<float>(at(9000), {2, 2, 3, 3})};
    lengths.clear();
  }

  void expect(const std::string& message,
              const SinkhornOptions& options = {.block = 4, .iterations = 2}) {
    expect_both(message, SinkhornAttention(options));
  }
};

TEST_F(BadSinkhornInput, Options) {
  expect("accepted");
  expect("block is 5; expected a divisor of the 12 rows of q", {.block = 5});
  expect("block is 0; expected a divisor of the 12 rows of q", {.block = 0});
  expect("block is -4; expected a divisor of the 12 rows of q", {.block = -4});
  expect("iterations is -1; expected at least 0", {.block = 4, .iterations = -1});
  expect("scale is nan; expected a finite number of the inputs' type", {.block = 4, .scale = kNan});
}

TEST_F(BadSinkhornInput, Tensors) {
  in.k = {at(1000), {2, 2, 8, 5}};
  in.v = {at(2000), {2, 2, 8, 3}};
  expect(
      "k has 8 rows; expected 12, the rows of q: queries and keys are divided into the same "
      "blocks");
  in.sorting = {};
  expect("sorting is required: [B, Hk, N / block, N / block], the sorting logits");
  in.sorting = {at(2500), {2, 2, 2, 3}};
  expect("sorting has 2 rows; expected 3, the blocks of q");
  in.sorting = {at(2500), {2, 2, 3, 2}};
  expect("sorting has width 2; expected 3, the blocks of k");
  in.sorting = {at(2500), {2, 4, 3, 3}};
  expect("sorting has 4 heads; expected 2, the heads of k");
  in.sorting = {at(2500), {1, 2, 3, 3}};
  expect("sorting has batch 1; expected 2, the batch of k");
}

TEST_F(BadSinkhornInput, Lengths) {
  lengths = {12, 6};
  expect("key_lengths[1] is 6; expected a multiple of 4, the rows of a block");
  lengths = {12, 16};
  expect("key_lengths[1] is 16; expected 0 to 12, the rows of k");
  lengths = {0, 8};
  expect("accepted");
}

TEST_F(BadSinkhornInput, WrittenTensors) {
  const SinkhornAttention op({.block = 4, .iterations = 2});
  out = {at(2500), {2, 4, 12, 3}};
  expect_forward("out overlaps sorting; outputs must not alias inputs or each other", op);
  grads.sorting = {at(9000), {2, 2, 3, 2}};
  expect_backward(
      "the gradient of sorting has shape 2x2x3x2; expected 2x2x3x3, to match the inputs", op);
  saved = {};
  expect_backward("lse is required: the lse that forward saved", op);
}

}  // namespace fovea_test::attention_bad_input_sorted
