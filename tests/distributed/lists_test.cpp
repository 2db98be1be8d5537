// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// Attention over lists of keys over ranks, which are given, chosen by a sketch or predicted: NaN
/// and long sequences have the bits of one process; what is sent; and what is refused.
#include <gtest/gtest.h>

#include <limits>

#include "distributed/rank_call.hpp"
#include "fovea/core/thread_pool.hpp"
#include "fovea/distributed/fsat_backward.hpp"
#include "fovea/distributed/fsat_forward.hpp"
#include "fovea/distributed/indexed_backward.hpp"
#include "fovea/distributed/indexed_forward.hpp"
#include "fovea/distributed/smart_bird_backward.hpp"
#include "fovea/distributed/smart_bird_forward.hpp"

namespace fovea_test::distributed_lists {

using fovea::FsatAttention;
using fovea::IndexedAttention;
using fovea::SmartBirdAttention;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr Index kChosenKeys = OtherSizes{}.listed;
const SmartBirdAttention kCausalBird{{.keys_per_row = kChosenKeys, .causal = true}};

/// Long enough for the phases of one process.
TEST(DistributedLists, FsatEqualsOneProcessWithManyRows) {
  const fovea::ThreadPool pool(3);
  expect_one_process<float>(FsatAttention(fovea::FsatOptions{.max_length = 9000}),
                            square(1, 1, 1, 9000), {}, AnyExecutor::of(pool));
}

/// A row whose sketch contains NaN is NaN on its rank. It has chosen no key, and gives none a
/// gradient.
TEST(DistributedLists, RowsWithoutASketchAreNaN) {
  OperatorCall<SmartBirdAttention, float> call(square(2, 2, 2, 90));
  call.sketch_q.whole(1, 0, 61, 1) = kNaN;
  expect_one_process(kCausalBird, call);
  EXPECT_TRUE(std::isnan(call.out.whole(1, 0, 61, 0)));
}

/// Keys that lists name and that are not visible change nothing, and do not travel.
TEST(DistributedLists, InvisibleKeysMayContainAnything) {
  OperatorCall<IndexedAttention, float> call(square(1, 2, 2, 120, {119}), {}, {.listed = 4});
  call.indices.whole.fill([](Index, Index, Index n, Index c) {
    const Index half = n / 2;
    return c == 0 ? static_cast<double>(half) : c == 1 ? 119.0 : -1.0;
  });
  for (Index h = 0; h < 2; ++h) {
    for (Index d = 0; d < 5; ++d) call.k.whole(0, h, 119, d) = kNaN;
  }
  expect_one_process(IndexedAttention{}, call);
  if (all_ranks().size() != 2) GTEST_SKIP() << "bytes are counted for two ranks";
  const Index sent = RankCall(IndexedAttention{}, call).forward();
  // The rows from 60 on see keys from 30 on, of which the first rank has 30.
  EXPECT_EQ(sent, all_ranks().rank() == 0 ? 30 * 2 * (5 + 7) * 4 : 0);
}

/// A key goes once to each rank that has a query with an edge to it, and no other does.
TEST(DistributedLists, FsatSendsKeysToTheirQueries) {
  if (all_ranks().size() != 2) GTEST_SKIP() << "counted for two ranks";
  OperatorCall<FsatAttention, float> call(square(1, 2, 2, 100), {}, {.dominants = 1});
  // Of the keys of rank 0 three lead to queries of rank 1, one of them in both heads.
  Tensor<float>& dominant = call.dominant.whole;
  dominant.fill([](Index, Index, Index n, Index) { return n < 50 ? 3.0 : 80.0; });
  for (Index h = 0; h < 2; ++h) dominant(0, h, 7, 0) = 60;
  dominant(0, 0, 20, 0) = 99;
  dominant(0, 1, 21, 0) = 50;
  const FsatAttention op(fovea::FsatOptions{.max_length = 100});
  const Index sent = RankCall(op, call).forward();
  const Index row = 2 * (5 + 7 + 1) * Index{sizeof(float)};
  EXPECT_EQ(sent, all_ranks().rank() == 0 ? 3 * row : 0);
}

TEST(DistributedLists, RefusesListsOfOneRank) {
  OperatorCall<IndexedAttention, float> call(square(1, 2, 2, 70));
  const RankCall own(IndexedAttention{}, call);
  const Tensor<Index> beyond = call.indices.own.in({});
  beyond(0, 1, 2, 0) = 70;
  own.expect_refused(
      [&](auto& a) { a.inputs.indices = beyond.view(); },
      "indices[0, 1, 2, 0] is 70; expected 0 to 69, the keys of the sequence, or -1 after the last "
      "one");
  own.expect_refused([](auto& a) { a.inputs.indices = {}; },
                     "indices is required: [B, Hq, Nq, K], the keys of each row");
  // Keys on other ranks are valid.
  EXPECT_EQ(own.refused(own.arguments()), "accepted");
}

TEST(DistributedLists, RefusesDrawsAndWrongChoices) {
  OperatorCall<SmartBirdAttention, float> call(square(1, 2, 2, 40));
  const RankCall own(kCausalBird, call);
  const Tensor<float> draws({1, 2, own.own_count, 40});
  own.expect_refused([&](auto& a) { a.inputs.draws = draws.view(); },
                     "draws must not be given: the sequence is distributed over ranks");
  auto a = own.arguments();
  const Tensor<Index> chosen({1, 2, own.own_count, kChosenKeys});
  chosen.fill(constant(-1));
  a.saved.indices = chosen.view();
  if (own.is_last) chosen(0, 0, 0, 1) = 3;
  EXPECT_EQ(own.refused_backward(a),
            own.begin + "indices[0, 0, 0, 1] is 3; expected -1, as before it: -1 ends the list");
  if (own.is_last) chosen(0, 0, 0, 0) = 40;
  EXPECT_EQ(own.refused_backward(a),
            own.begin +
                "indices[0, 0, 0, 0] is 40; expected 0 to 39, the keys of the sequence, or -1 "
                "after the last one");
  call.expect_untouched();
}

TEST(DistributedLists, RefusesDominantIndicesOfOneRank) {
  OperatorCall<FsatAttention, float> call(square(1, 2, 2, 40));
  const RankCall own(FsatAttention(fovea::FsatOptions{.max_length = 40}), call);
  own.expect_refused([](auto& a) { a.inputs.dominant = {}; }, "...dominant...");
  const Tensor<Index> queries({1, 2, own.own_count, 4});
  own.expect_refused([&](auto& a) { a.inputs.random = queries.view(); },
                     "random must not be given: the sequence is distributed over ranks");
  EXPECT_EQ(
      own.refused(FsatAttention(fovea::FsatOptions{.max_length = 39}), own.arguments()),
      "rank 0: FsatAttention: max_length is 39; expected at least 40, the rows of the sequence");
  call.expect_untouched();
}

}  // namespace fovea_test::distributed_lists
