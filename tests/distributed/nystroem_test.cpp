// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// Nystroem attention over ranks has the bits of one process.
#include "fovea/distributed/nystroem_backward.hpp"

#include <gtest/gtest.h>

#include "distributed/rank_call.hpp"
#include "fovea/kernels/softmax/block.hpp"

namespace fovea_test::distributed_nystroem {

using fovea::kKeySegment;
using fovea::NystroemAttention;
using fovea::NystroemInputs;
using fovea::NystroemScale;

/// Batch, heads, rows and landmarks of a call.
struct Sizes {
  Index batch, query_heads, key_heads, rows, landmarks;
};

struct Call : NystroemCall<float> {
  explicit Call(const Sizes& s, const std::vector<Index>& lengths = {})
      : NystroemCall<float>(
            SquareSequence{{s.batch, s.query_heads, s.key_heads, s.rows, s.rows, 5, 7}, lengths},
            gaussian_fills(1), s.landmarks) {}
};

NystroemAttention with(Index landmarks, NystroemScale scale = NystroemScale::matrix) {
  return NystroemAttention({.landmarks = landmarks, .first_scale = scale});
}

TEST(DistributedNystroem, EqualsOneProcess) {
  for (const Index rows : {4, 12, 336}) {
    expect_one_process(with(4), Call({2, 4, 2, rows, 4}));
    expect_one_process(with(2, NystroemScale::batch_max), Call({2, 4, 4, rows, 2}));
  }
  expect_one_process(with(1), Call({1, 2, 1, 1, 1}));
  expect_one_process(with(8), Call({1, 2, 1, 2 * kKeySegment + 88, 8}));
}

TEST(DistributedNystroem, SupportsKeyLengths) {
  expect_one_process(
      with(16, NystroemScale::batch_max),
      Call({4, 2, 2, 2 * kKeySegment + 96, 16}, {2 * kKeySegment + 96, 0, 160, kKeySegment + 32}));
}

/// The rounding error of a large lse is computed over landmarks and over all keys.
TEST(DistributedNystroem, EqualsOneProcessIfLseIsLarge) {
  Call call({1, 2, 1, kKeySegment + 80, 4});
  call.q.whole.fill(gaussian(1, 9000));
  expect_one_process(with(4), call);
  EXPECT_GT(large_count(call.lse), 4);
  EXPECT_GT(large_count(call.landmark_lse), 4);
}

TEST(DistributedNystroem, RefusesMismatches) {
  const int ranks = all_ranks().size();
  const bool is_last = all_ranks().rank() == ranks - 1;
  const std::string begin = "rank " + std::to_string(ranks - 1) + ": NystroemAttention: ";
  const NystroemAttention op = with(4);
  Call call({1, 2, 1, 40, 4});
  const RankCall own(op, call, RowLayout::contiguous(40, ranks));
  EXPECT_EQ(own.refused(with(7), own.inputs(), {}),
            "rank 0: NystroemAttention: q has 40 rows; expected a multiple of 7, the landmarks");
  NystroemInputs<float> in = own.inputs();
  const std::vector<Index> lengths = {18};
  if (is_last) in.key_lengths = lengths;
  EXPECT_EQ(own.refused(in, {}),
            begin + "key_lengths[0] is 18; expected a multiple of 4, the landmarks");
  in = own.inputs();
  const Tensor<float> wrong({1, 1, 41, 5});
  if (is_last) in.k = wrong.view();
  std::string text = own.refused(in, {});
  EXPECT_EQ(text.substr(0, text.find(';')), begin + "k has 41 rows") << text;
  if (ranks > 1) {
    text = own.refused(with(is_last ? 2 : 4), own.inputs(), {});
    EXPECT_NE(text.find(", options {2, "), std::string::npos) << text;
    auto saved = own.saved();
    if (is_last) saved.landmark_lse = saved.landmark_values = {};
    text = own.refused(own.inputs(), saved, own.grads());
    EXPECT_NE(text.find(", landmarks saved"), std::string::npos) << text;
  }
  own.expect_untouched();
}

/// However many rows there are, means and running softmaxes of landmarks go to the next range and
/// to all.
TEST(DistributedNystroem, SendsLandmarks) {
  const int ranks = all_ranks().size();
  const Index messages = all_ranks().rank() == ranks - 1 ? ranks - 1 : 1;
  for (const Index segments : {1, 2}) {
    const Index count = ranks * segments * kKeySegment;
    Call call({1, 4, 2, count, 8});
    const Index numbers = (4 + 2) * (8 + 1) * 5 + 4 * 8 * (7 + 3);
    EXPECT_EQ(RankCall(with(8), call, RowLayout::contiguous(count, ranks)).forward(),
              messages * numbers * Index{sizeof(float)});
  }
}

}  // namespace fovea_test::distributed_nystroem
