// SPDX-License-Identifier: MIT
/// \file
/// Refusals of the sparse operators: exact messages, with nothing written; and unusual valid
/// inputs: global tokens and blocks beyond the end. (The conformance suite tries any strides.)
#include <gtest/gtest.h>

#include <string>

#include "attention/bad_input.hpp"
#include "fovea/patterns.hpp"

namespace fovea_test::attention_bad_input_sparse {

using fovea::BigBirdAttention;
using fovea::BigBirdOptions;
using fovea::BlockRows;
using fovea::BlockSparseAttention;
using fovea::FixedAttention;
using fovea::HeadAssignment;
using fovea::kFarPosition;
using fovea::LongformerAttention;
using fovea::LongformerOptions;
using fovea::SparseAttention;
using fovea::StridedAttention;

/// Calls with 6 queries, 9 keys, 4 heads.
using BadSparseInput = SpoiltCall<float>;

const std::string kFar = std::to_string(kFarPosition);

TEST_F(BadSparseInput, Strides) {
  const std::string too_large = "stride is " + std::to_string(kMost) + "; expected at most " + kFar;
  expect("stride is 0; expected at least 1", StridedAttention{{.stride = 0}});
  expect("stride is -7; expected at least 1",
         StridedAttention{{.stride = -7, .heads = HeadAssignment::merged}});
  expect(too_large, StridedAttention{{.stride = kMost}});
  expect("stride is 0; expected at least 1", FixedAttention{{.stride = 0, .summary = 1}});
  expect(too_large, FixedAttention{{.stride = kMost}});
}

TEST_F(BadSparseInput, Summaries) {
  for (const Index summary : {-1, 0, 5}) {
    expect(
        "summary is " + std::to_string(summary) + "; expected 1 to 4 keys: a block has stride keys",
        FixedAttention{{.stride = 4, .summary = summary}});
  }
}

TEST_F(BadSparseInput, Longformer) {
  const auto refuses = [&](const std::string& message, const LongformerOptions& options) {
    expect(message, LongformerAttention{options});
  };
  refuses("left is -1; expected at least 0 keys", {.left = -1});
  refuses("right is -2; expected at least 0 keys", {.right = -2});
  refuses("the number of global tokens is -3; expected 0 to " + kFar, {.first_global = -3});
  refuses("global token 2 is 4; expected more than 4, the one before", {.global = {0, 4, 4}});
  refuses("global token 1 is 2; expected more than 5, the one before", {.global = {5, 2}});
  refuses("global token 0 is -1; expected at least 0", {.global = {-1}});
  refuses("global token 0 is 2; expected more than 2, the one before",
          {.first_global = 3, .global = {2}});
  refuses("the last global token is 9; expected less than 9, the number of keys",
          {.global = {0, 9}});
  refuses("accepted", {.global = {0, 8}});
  refuses("accepted", {.left = kMost, .right = kMost, .first_global = 1000});
}

TEST_F(BadSparseInput, BigBird) {
  const auto refuses = [&](const std::string& message, const BigBirdOptions& options) {
    expect(message, BigBirdAttention{options});
  };
  const std::string most = "; expected 0 to " + std::to_string(kFarPosition / 64);
  refuses("block is 0; expected at least 1", {.block = 0});
  refuses("left is -1; expected at least 0 blocks", {.window_blocks = -1});
  refuses("global_blocks is -1" + most, {.global_blocks = -1});
  refuses("global_blocks is " + std::to_string(kMost) + most, {.global_blocks = kMost});
  refuses("the number of random blocks is -1; expected 0 to 64", {.random_blocks = -1});
  refuses("the number of random blocks is 65; expected 0 to 64", {.random_blocks = 65});
  refuses("accepted", {.block = kFarPosition / 4});
  refuses("last_global_blocks is -1; expected 0 to " + std::to_string(kFarPosition / 4),
          {.block = 4, .last_global_blocks = -1});
  refuses(
      "last_global_blocks is 1; expected 0 in a causal pattern: a row must not depend on where the "
      "sequence ends",
      {.block = 4, .last_global_blocks = 1, .causal = true});
  refuses("accepted", {.block = 4, .global_blocks = 9, .last_global_blocks = 9});
  refuses("columns[0], of row 0, is 3; expected 0 to 2, the blocks of keys",
          {.block = 4, .given_blocks = {{{0, 1}, {3}}}});
  refuses("columns[1], of row 0, is 1; expected more than 1: the columns of a row ascend",
          {.block = 4, .given_blocks = {{{0, 2}, {1, 1}}}});
  refuses("offsets is required: 0, and the end of each row of columns",
          {.block = 4, .given_blocks = {{}}});
  refuses("accepted", {.block = 4, .given_blocks = {{{0, 1}, {2}}, {{0}, {}}}});
}

/// Blocks of 4: 2 rows of blocks, 3 columns.
TEST_F(BadSparseInput, BlockLists) {
  const auto refuses = [&](const std::string& message, const BlockRows& rows, Index block = 4) {
    expect(message, BlockSparseAttention{{.block = block, .layouts = {rows}}});
  };
  expect("the number of layouts is 0; expected at least 1", BlockSparseAttention{{}});
  refuses("accepted", {{0, 1, 3}, {0, 0, 2}});
  refuses("block is 0; expected at least 1", {{0, 1, 3}, {0, 0, 2}}, 0);
  refuses("columns[2], of row 1, is 3; expected 0 to 2, the blocks of keys",
          {{0, 1, 3}, {0, 0, 3}});
  refuses("columns[0], of row 0, is -1; expected 0 to 2, the blocks of keys",
          {{0, 1, 3}, {-1, 0, 2}});
  refuses("columns[2], of row 1, is 1; expected more than 2: the columns of a row ascend",
          {{0, 1, 3}, {0, 2, 1}});
  refuses("columns[1], of row 0, is 1; expected more than 1: the columns of a row ascend",
          {{0, 2}, {1, 1}});
  refuses("offsets[2] is 1; expected 2: offsets ascend, up to the number of columns",
          {{0, 2, 1}, {0, 1}});
  refuses("offsets[1] is 3; expected 0 to 2: offsets ascend, up to the number of columns",
          {{0, 3}, {0, 1}});
  refuses("offsets[0] is 1; expected 0", {{1, 2}, {0, 1}});
  refuses("offsets is required: 0, and the end of each row of columns", {{}, {}});
  refuses("the last of offsets is 1; expected 2, the number of columns", {{0, 1}, {0, 1}});
}

TEST_F(BadSparseInput, Patterns) {
  expect("the number of patterns is 0; expected at least 1", SparseAttention{{}});
  const fovea::SequenceShape small{3, 3, 0};
  const auto reference_mask = [](Index i, Index j) { return j <= i; };
  const fovea::EnumeratedPattern listed(reference_mask, small);
  const SparseAttention op{{.patterns = {listed}}};
  const std::string message =
      "EnumeratedPattern: the positions of the queries are 3 to 8; expected 0 to 2, the enumerated "
      "positions";
  EXPECT_EQ(call_.refusal(op), message);
  EXPECT_EQ(call_.backward_refusal(op), message);
}

}  // namespace fovea_test::attention_bad_input_sparse
