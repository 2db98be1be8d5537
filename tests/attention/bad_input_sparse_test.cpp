// SPDX-License-Identifier: MIT
/// \file
/// Refusals of the sparse operators: exact messages, with nothing written; and unusual valid
/// inputs: strides that do not divide N or exceed it, global tokens and blocks beyond the end.
#include <gtest/gtest.h>

#include <string>

#include "attention/bad_input.hpp"
#include "attention/problem.hpp"
#include "fovea/patterns.hpp"

namespace fovea_test::attention_bad_input_sparse {

using fovea::BigBirdAttention;
using fovea::BigBirdOptions;
using fovea::BlockRows;
using fovea::BlockSparseAttention;
using fovea::FixedAttention;
using fovea::FixedOptions;
using fovea::HeadAssignment;
using fovea::kFarPosition;
using fovea::LongformerAttention;
using fovea::LongformerOptions;
using fovea::SparseAttention;
using fovea::StridedAttention;
using fovea::StridedOptions;

/// 6 queries, 9 keys, 4 heads; the messages of check, forward and a decoder for the options.
template <class Op>
std::string message_of(const Op& op) {
  Call<float> call;
  const std::string message = call.refusal(op);
  Call<float> again;
  EXPECT_EQ(again.backward_refusal(op), message);
  return message;
}

std::string message_of(const StridedOptions& options) {
  return message_of(StridedAttention{options});
}
std::string message_of(const FixedOptions& options) { return message_of(FixedAttention{options}); }
std::string message_of(const LongformerOptions& options) {
  return message_of(LongformerAttention{options});
}
std::string message_of(const BigBirdOptions& options) {
  return message_of(BigBirdAttention{options});
}

const std::string kFar = std::to_string(kFarPosition);

TEST(BadSparseInput, Strides) {
  EXPECT_EQ(message_of(StridedOptions{.stride = 0}),
            "StridedAttention: stride is 0; expected at least 1");
  EXPECT_EQ(message_of(StridedOptions{.stride = -7, .heads = HeadAssignment::merged}),
            "StridedAttention: stride is -7; expected at least 1");
  EXPECT_EQ(message_of(StridedOptions{.stride = kMost}),
            "StridedAttention: stride is " + std::to_string(kMost) + "; expected at most " + kFar);
  EXPECT_EQ(message_of(FixedOptions{.stride = 0, .summary = 1}),
            "FixedAttention: stride is 0; expected at least 1");
  EXPECT_EQ(message_of(FixedOptions{.stride = kMost}),
            "FixedAttention: stride is " + std::to_string(kMost) + "; expected at most " + kFar);
}

TEST(BadSparseInput, Summaries) {
  for (const Index summary : {-1, 0, 5}) {
    EXPECT_EQ(message_of(FixedOptions{.stride = 4, .summary = summary}),
              "FixedAttention: summary is " + std::to_string(summary) +
                  "; expected 1 to 4 keys: a block has stride keys");
  }
}

/// The rows of these operators, for every number of keys around the stride.
template <class Op>
void expect_right(const Op& op, Index n) {
  const auto reference_mask = [&](const Pair& p) {
    return op.pattern(p.h, {p.queries, p.keys, p.keys - p.queries}).allows(p.i(), p.j);
  };
  const Case<float> made = softmax_case<float>("op", op, reference_mask);
  const Problem<float> problem = make_problem(made, {1, 2, 2, n, n, 4, 3});
  const Tensor<float> out(problem.out_shape());
  made.forward(problem.inputs(), out.view(), {}, nullptr);
  EXPECT_TRUE(within_ratio(out.values(), made.oracle(problem.inputs()).out, 16)) << n;
}

TEST(BadSparseInput, StridesNeedNotDivideTheLength) {
  for (const HeadAssignment heads : {HeadAssignment::separate, HeadAssignment::merged}) {
    for (const Index n : {1, 2, 7, 8, 9, 15, 17, 63, 65, 130}) {
      expect_right(StridedAttention{{.stride = 8, .heads = heads}}, n);
      expect_right(FixedAttention{{.stride = 8, .summary = 3, .heads = heads}}, n);
    }
  }
}

TEST(BadSparseInput, StridesMayExceedTheLength) {
  for (const Index stride : {Index{100}, Index{1} << 40, kFarPosition}) {
    for (const HeadAssignment heads : {HeadAssignment::separate, HeadAssignment::merged}) {
      for (const bool causal : {true, false}) {
        for (const Index n : {1, 9, 70}) {
          expect_right(StridedAttention{{.stride = stride, .heads = heads, .causal = causal}}, n);
          expect_right(
              FixedAttention{{.stride = stride, .summary = 2, .heads = heads, .causal = causal}},
              n);
        }
      }
    }
  }
}

TEST(BadSparseInput, SummariesAsWideAsTheBlock) {
  for (const Index n : {1, 6, 14}) {
    expect_right(FixedAttention{{.stride = 6, .summary = 6, .heads = HeadAssignment::merged}}, n);
  }
}

TEST(BadSparseInput, Longformer) {
  const std::string name = "LongformerAttention: ";
  EXPECT_EQ(message_of(LongformerOptions{.left = -1}),
            name + "left is -1; expected at least 0 keys");
  EXPECT_EQ(message_of(LongformerOptions{.right = -2}),
            name + "right is -2; expected at least 0 keys");
  EXPECT_EQ(
      message_of(LongformerOptions{.first_global = -3}),
      name + "the number of global tokens is -3; expected 0 to " + std::to_string(kFarPosition));
  EXPECT_EQ(message_of(LongformerOptions{.global = {0, 4, 4}}),
            name + "global token 2 is 4; expected more than 4, the one before");
  EXPECT_EQ(message_of(LongformerOptions{.global = {5, 2}}),
            name + "global token 1 is 2; expected more than 5, the one before");
  EXPECT_EQ(message_of(LongformerOptions{.global = {-1}}),
            name + "global token 0 is -1; expected at least 0");
  EXPECT_EQ(message_of(LongformerOptions{.first_global = 3, .global = {2}}),
            name + "global token 0 is 2; expected more than 2, the one before");
  EXPECT_EQ(message_of(LongformerOptions{.global = {0, 9}}),
            name + "the last global token is 9; expected less than 9, the number of keys");
  EXPECT_EQ(message_of(LongformerOptions{.global = {0, 8}}), "accepted");
  EXPECT_EQ(message_of(LongformerOptions{.left = kMost, .right = kMost, .first_global = 1000}),
            "accepted");
}

TEST(BadSparseInput, BigBird) {
  const std::string name = "BigBirdAttention: ";
  EXPECT_EQ(message_of(BigBirdOptions{.block = 0}), name + "block is 0; expected at least 1");
  EXPECT_EQ(message_of(BigBirdOptions{.window_blocks = -1}),
            name + "left is -1; expected at least 0 blocks");
  EXPECT_EQ(message_of(BigBirdOptions{.global_blocks = -1}),
            name + "global_blocks is -1; expected 0 to " + std::to_string(kFarPosition / 64));
  EXPECT_EQ(message_of(BigBirdOptions{.global_blocks = kMost}),
            name + "global_blocks is " + std::to_string(kMost) + "; expected 0 to " +
                std::to_string(kFarPosition / 64));
  EXPECT_EQ(message_of(BigBirdOptions{.random_blocks = -1}),
            name + "the number of random blocks is -1; expected 0 to 64");
  EXPECT_EQ(message_of(BigBirdOptions{.random_blocks = 65}),
            name + "the number of random blocks is 65; expected 0 to 64");
  EXPECT_EQ(message_of(BigBirdOptions{.block = kFarPosition / 4}), "accepted");
}

/// Blocks of 4: 2 rows of blocks, 3 columns.
std::string message_of_rows(const BlockRows& rows, Index block = 4) {
  return message_of(BlockSparseAttention{{.block = block, .layouts = {rows}}});
}

TEST(BadSparseInput, BlockLists) {
  const std::string name = "BlockSparseAttention: ";
  EXPECT_EQ(message_of(BlockSparseAttention{{}}),
            name + "the number of layouts is 0; expected at least 1");
  EXPECT_EQ(message_of_rows({{0, 1, 3}, {0, 0, 2}}), "accepted");
  EXPECT_EQ(message_of_rows({{0, 1, 3}, {0, 0, 2}}, 0), name + "block is 0; expected at least 1");
  EXPECT_EQ(message_of_rows({{0, 1, 3}, {0, 0, 3}}),
            name + "columns[2], of row 1, is 3; expected 0 to 2, the blocks of keys");
  EXPECT_EQ(message_of_rows({{0, 1, 3}, {-1, 0, 2}}),
            name + "columns[0], of row 0, is -1; expected 0 to 2, the blocks of keys");
  EXPECT_EQ(message_of_rows({{0, 1, 3}, {0, 2, 1}}),
            name + "columns[2], of row 1, is 1; expected more than 2: the columns of a row ascend");
  EXPECT_EQ(message_of_rows({{0, 2}, {1, 1}}),
            name + "columns[1], of row 0, is 1; expected more than 1: the columns of a row ascend");
  EXPECT_EQ(message_of_rows({{0, 2, 1}, {0, 1}}),
            name + "offsets[2] is 1; expected 2: offsets ascend, up to the number of columns");
  EXPECT_EQ(message_of_rows({{0, 3}, {0, 1}}),
            name + "offsets[1] is 3; expected 0 to 2: offsets ascend, up to the number of columns");
  EXPECT_EQ(message_of_rows({{1, 2}, {0, 1}}), name + "offsets[0] is 1; expected 0");
  EXPECT_EQ(message_of_rows({{}, {}}),
            name + "offsets is required: 0, and the end of each row of columns");
  EXPECT_EQ(message_of_rows({{0, 1}, {0, 1}}),
            name + "the last of offsets is 1; expected 2, the number of columns");
}

TEST(BadSparseInput, Patterns) {
  EXPECT_EQ(message_of(SparseAttention{{}}),
            "SparseAttention: the number of patterns is 0; expected at least 1");
  const fovea::SequenceShape small{3, 3, 0};
  const auto reference_mask = [](Index i, Index j) { return j <= i; };
  const fovea::EnumeratedPattern listed(reference_mask, small);
  EXPECT_EQ(message_of(SparseAttention{{.patterns = {listed}}}),
            "EnumeratedPattern: the positions of the queries are 3 to 8; expected 0 to 2, the "
            "enumerated positions");
}

}  // namespace fovea_test::attention_bad_input_sparse
