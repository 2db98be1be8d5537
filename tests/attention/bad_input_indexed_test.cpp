// SPDX-License-Identifier: MIT
/// \file
/// Refusals of IndexedAttention: exact messages from forward and backward, with nothing written;
/// and unusual valid inputs.
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "attention/bad_input.hpp"

namespace fovea_test::attention_bad_input_indexed {

using fovea::IndexedAttention;
using fovea::IndexedOptions;

/// 6 queries, 9 keys, 4 heads of 2 key heads, D = 5, Dv = 3, and lists of K = 4.
class BadIndexedInput : public SpoiltCall<float> {
 protected:
  BadIndexedInput() { reset(); }

  void reset() override {
    SpoiltCall::reset();
    lists_.assign(2 * 4 * 6 * 4, -1);
    for (std::size_t row = 0; row < 48; ++row) {
      lists_[4 * row] = 1;
      lists_[4 * row + 1] = 3;
      lists_[4 * row + 2] = 8;
    }
    call_.indices = {lists_.data(), {2, 4, 6, 4}};
  }

  /// Entry n of row i of head 2 of batch entry 1.
  Index& entry(Index i, Index n) { return lists_[static_cast<std::size_t>((36 + i) * 4 + n)]; }

  void expect(const std::string& message, const IndexedOptions& options = {}) {
    SpoiltCall::expect(message, IndexedAttention(options));
  }

  std::vector<Index> lists_;
};

TEST_F(BadIndexedInput, ShapesOfLists) {
  expect("accepted");
  call_.indices = {};
  expect("indices is required: [B, Hq, Nq, K], the keys of each row");
  call_.indices = {lists_.data(), {1, 4, 6, 4}};
  expect("indices has batch 1; expected 2, the batch of q");
  call_.indices = {lists_.data(), {2, 2, 6, 4}};
  expect("indices has 2 heads; expected 4, the heads of q");
  call_.indices = {lists_.data(), {2, 4, 5, 4}};
  expect("indices has 5 rows; expected 6, the rows of q");
  call_.indices = {lists_.data(), {2, 4, 6, 0}};
  expect("accepted");
}

TEST_F(BadIndexedInput, EntriesOfLists) {
  const std::string keys = "; expected 0 to 8, the keys of the sequence, or -1 after the last one";
  entry(3, 2) = 9;
  expect("indices[1, 2, 3, 2] is 9" + keys);
  entry(0, 0) = -2;
  expect("indices[1, 2, 0, 0] is -2" + keys);
  entry(5, 3) = std::numeric_limits<Index>::max();
  expect("indices[1, 2, 5, 3] is 9223372036854775807" + keys);
  entry(4, 1) = std::numeric_limits<Index>::min();
  expect("indices[1, 2, 4, 1] is -9223372036854775808" + keys);
  const std::string ascends = ": the keys of a row must ascend, without repetition";
  entry(2, 2) = 2;
  expect("indices[1, 2, 2, 2] is 2; expected more than 3" + ascends);
  entry(2, 1) = 1;
  expect("indices[1, 2, 2, 1] is 1; expected more than 1" + ascends);
  const std::string ended = "; expected -1, as before it: -1 ends the list";
  entry(1, 0) = -1;
  expect("indices[1, 2, 1, 1] is 3" + ended);
  entry(1, 2) = -1;
  entry(1, 3) = 7;
  expect("indices[1, 2, 1, 3] is 7" + ended);
}

TEST_F(BadIndexedInput, UnusualValidInputs) {
  call_.lengths = {2, 0};  // lists may name keys beyond them
  expect("accepted");
  expect("accepted", {.causal = true});
  lists_.assign(lists_.size(), -1);
  expect("accepted");
  for (std::size_t i = 0; i < lists_.size(); ++i) lists_[i] = static_cast<Index>(5 + i % 4);
  expect("accepted");
  call_.indices = {lists_.data(), {2, 4, 6, 4}, {0, 0, 0, 1}};  // one list for all
  expect("accepted");
}

/// Keys count within the sequence of their row.
TEST_F(BadIndexedInput, ListsOfPackedSequences) {
  const auto pack = [&] {
    call_.pack({0, 2, 6}, {0, 5, 9});
    call_.indices = {lists_.data(), {1, 4, 6, 4}};
    for (Index& j : lists_) j = j == 8 ? -1 : j;
  };
  pack();
  expect("accepted");
  pack();
  lists_[4 * 2 + 1] = 4;  // the first row of the second sequence
  expect(
      "indices[0, 0, 2, 1] is 4; expected 0 to 3, the keys of the sequence, or -1 after the last "
      "one");
}

TEST_F(BadIndexedInput, OptionsAndOutputs) {
  expect("scale is inf; expected a finite number of the inputs' type",
         {.scale = std::numeric_limits<double>::infinity()});
  call_.q = {call_.at(0), {2, 3, 6, 5}};
  expect("k has 2 heads; expected a divisor of the 3 heads of q");
  call_.out = {call_.at(3000), {2, 4, 6, 2}};
  expect("out has shape 2x4x6x2; expected 2x4x6x3, to match the inputs");
  call_.lse = {};
  expect_backward("lse is required: the lse that forward saved", IndexedAttention{});
}

}  // namespace fovea_test::attention_bad_input_indexed
