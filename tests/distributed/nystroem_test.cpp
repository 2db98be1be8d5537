// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// Nystroem attention over ranks: what it sends, and refusals. (See also drawn_shared_test.cpp.)
#include "fovea/distributed/nystroem_backward.hpp"

#include <gtest/gtest.h>

#include "distributed/operator_calls.hpp"
#include "distributed/rank_call.hpp"
#include "fovea/kernels/softmax/block.hpp"

namespace fovea_test::distributed_nystroem {

using fovea::kKeySegment;
using fovea::NystroemAttention;

/// Batch, heads, rows and landmarks of a call.
struct Sizes {
  Index batch, query_heads, key_heads, rows, landmarks;
};

struct Call : NystroemCall<float> {
  explicit Call(const Sizes& s)
      : NystroemCall<float>(
            SquareSequence{{s.batch, s.query_heads, s.key_heads, s.rows, s.rows, 5, 7}},
            gaussian_fills(1), s.landmarks) {}
};

NystroemAttention with(Index landmarks) { return NystroemAttention({.landmarks = landmarks}); }

TEST(DistributedNystroem, RefusesMismatches) {
  Call call({1, 2, 1, 40, 4});
  const RankCall own(with(4), call);
  own.expect_differs_backward([](auto& a) { a.saved.landmark_lse = a.saved.landmark_values = {}; },
                              ", landmarks saved");
  auto a = own.arguments();
  a.saved = {};
  EXPECT_EQ(own.refused(with(7), a),
            "rank 0: NystroemAttention: q has 40 rows; expected a multiple of 7, the landmarks");
  if (own.last > 0) {
    const std::string text = own.refused(with(own.is_last ? 2 : 4), a);
    EXPECT_NE(text.find(", options {2, "), std::string::npos) << text;
  }
  const std::vector<Index> lengths = {18};
  if (own.is_last) a.inputs.key_lengths = lengths;
  EXPECT_EQ(own.refused(a),
            own.begin + "key_lengths[0] is 18; expected a multiple of 4, the landmarks");
  call.expect_untouched();
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
    EXPECT_EQ(RankCall(with(8), call).forward(), messages * numbers * Index{sizeof(float)});
  }
}

}  // namespace fovea_test::distributed_nystroem
