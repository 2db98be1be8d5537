// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// The forward pass of Performer attention over ranks has the bits of one process.
#include "fovea/distributed/performer_forward.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "distributed/performer_problem.hpp"
#include "fovea/attention/linear/feature_stream.hpp"
#include "fovea/core/arena.hpp"
#include "fovea/core/thread_pool.hpp"
#include "support/executors.hpp"
#include "support/refusal.hpp"
#include "support/scalars.hpp"

namespace fovea_test::distributed_performer_forward {

using fovea::PerformerAttention;

template <class T>
void check(const PerformerOfRows<T>& whole, const AnyExecutor& executor = in_this_thread()) {
  for (const bool causal : {true, false}) {
    const PerformerAttention op({.causal = causal});
    op.forward(whole.inputs(), whole.out.view());
    const Index count = whole.q.shape()[2];
    for (const RowLayout& layout : layouts_of(count, all_ranks().size())) {
      const Sharding rows(all_ranks(), layout);
      const PerformerOfRows<T> own(whole, rows);
      fovea::distributed::forward(op, own.inputs(), own.out.view(), rows, executor);
      expect_own_part(own.out, whole.out, rows,
                      (causal ? "causal, " : "not causal, ") + layout.text());
      EXPECT_EQ(own.out.changed_gaps(), 0);
    }
  }
}

TEST(DistributedPerformer, EqualsOneProcess) {
  for (const Index rows : {1, 6, 333}) check(PerformerOfRows<float>(2, 4, 2, rows));
}

TEST(DistributedPerformer, EqualsOneProcessInDouble) {
  check(PerformerOfRows<OtherScalar>(1, 2, 2, 200));
}

/// Several segments, which have their own references and are folded in order.
TEST(DistributedPerformer, EqualsOneProcessOverSegments) {
  check(PerformerOfRows<float>(1, 4, 2, 3 * fovea::kLinearSegment + 77));
}

TEST(DistributedPerformer, SupportsKeyLengths) {
  PerformerOfRows<float> whole(3, 2, 2, 300);
  whole.lengths = {300, 130, 0};
  check(whole);
  PerformerOfRows<OtherScalar> longer(2, 2, 1, 2 * fovea::kLinearSegment + 9);
  longer.lengths = {fovea::kLinearSegment + 3, 40};
  check(longer);
}

TEST(DistributedPerformer, RunsOnThreadsAndInAnArena) {
  fovea::ThreadPool pool(3);
  const PerformerOfRows<float> whole(1, 8, 4, 1500);
  check(whole, AnyExecutor::of(pool));
  fovea::Arena arena(Index{1} << 24);
  const AnyExecutor executor = AnyExecutor::of(pool, &arena);
  check(whole, executor);
}

/// A NaN reaches the rows that it reaches in one process.
TEST(DistributedPerformer, PropagatesNaNAcrossRanges) {
  PerformerOfRows<float> whole(1, 2, 1, 400);
  whole.k(0, 0, 210, 2) = std::numeric_limits<float>::quiet_NaN();
  whole.k(0, 0, 350, 1) = std::numeric_limits<float>::infinity();
  for (const bool causal : {true, false}) {
    const PerformerAttention op({.causal = causal});
    op.forward(whole.inputs(), whole.out.view());
    const Sharding rows(all_ranks(), RowLayout::block_cyclic(400, all_ranks().size(), 37));
    const PerformerOfRows<float> own(whole, rows);
    fovea::distributed::forward(op, own.inputs(), own.out.view(), rows);
    const std::vector<float> got = own.out.values();
    const std::vector<float> want = own_part(whole.out, rows).values();
    for (std::size_t n = 0; n < want.size(); ++n) {
      EXPECT_TRUE(got[n] == want[n] || (got[n] != got[n] && want[n] != want[n]));
    }
  }
}

/// Causal, a state with its reference goes over the end of a range; otherwise the other rank's
/// slice of the sums of each segment, the rank's own slice of the totals, and the references, if
/// ranges end with segments.
TEST(DistributedPerformer, SendsStatesAndNoRows) {
  if (all_ranks().size() != 2) GTEST_SKIP() << "counted for two ranks";
  const auto sent = [](bool causal, Index count) {
    const PerformerOfRows<float> whole(1, 2, 2, count);
    const Sharding rows(all_ranks(), RowLayout::contiguous(count, 2));
    const PerformerOfRows<float> own(whole, rows);
    return fovea::distributed::forward(PerformerAttention({.causal = causal}), own.inputs(),
                                       own.out.view(), rows)
        .bytes_sent;
  };
  constexpr Index number = sizeof(float);
  constexpr Index heads = 2;
  const bool is_first = all_ranks().rank() == 0;
  const Index state =
      fovea::FeatureStream<float>::state_elements(PerformerOfRows<float>::kFeatures, 7);
  EXPECT_EQ(sent(true, 400), is_first ? heads * state * number : 0);
  EXPECT_EQ(sent(true, 4000), sent(true, 400));
  // [features, 16] sums, 32 normalisers and 32 references are cut at 16: 12 pieces and 13.
  constexpr Index all = PerformerOfRows<float>::kFeatures * 16 + 64;
  const Index own = is_first ? 12 * 16 : 13 * 16;
  const Index segment = fovea::kLinearSegment;
  EXPECT_EQ(sent(false, 2 * segment), heads * (all + 32) * number);
  EXPECT_EQ(sent(false, 4 * segment), heads * (2 * (all - own) + own + 32) * number);
}

TEST(DistributedPerformer, RefusesMismatches) {
  const PerformerOfRows<float> whole(1, 2, 2, 40);
  const Sharding rows(all_ranks(), RowLayout::contiguous(40, all_ranks().size()));
  const PerformerOfRows<float> own(whole, rows);
  const int last = all_ranks().size() - 1;
  const bool is_last = all_ranks().rank() == last;
  const std::string begin = "rank " + std::to_string(last) + ": PerformerAttention: ";
  const PerformerAttention op({.causal = true});
  const auto refused = [&](const auto& in) {
    return refusal([&] { fovea::distributed::forward(op, in, own.out.view(), rows); });
  };
  auto in = own.inputs();
  if (is_last) in.projection = {};
  EXPECT_EQ(refused(in), begin + "projection is required: [1, 1, R, 5], the random features");
  in = own.inputs();
  const std::vector<Index> ends = {0, 40};
  if (is_last) in.cu_seqlens_q = ends;
  EXPECT_EQ(refused(in),
            begin + "cu_seqlens must not be given: the sequence is distributed over ranks");
  if (last > 0) {
    in = own.inputs();
    const Tensor<float> fewer({1, 1, 20, 5});
    if (is_last) in.projection = fewer.view();
    EXPECT_NE(refused(in).find("20 features, options {true, 0}, where rank 0 calls"),
              std::string::npos);
  }
  for (const float x : own.out.values()) EXPECT_EQ(x, 77);
}

}  // namespace fovea_test::distributed_performer_forward
