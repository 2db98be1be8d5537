// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// The backward pass of Performer attention over ranks has the bits of one process.
#include "fovea/distributed/performer_backward.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "distributed/performer_problem.hpp"
#include "fovea/core/arena.hpp"
#include "fovea/core/thread_pool.hpp"
#include "fovea/kernels/linear/grad.hpp"
#include "fovea/kernels/linear/random_features.hpp"
#include "support/executors.hpp"
#include "support/refusal.hpp"
#include "support/scalars.hpp"

namespace fovea_test::distributed_performer_backward {

using fovea::kFeatureRows;
using fovea::kLinearSegment;
using fovea::PerformerAttention;
using fovea::PerformerGrads;
using fovea::View;

/// Expects that all ranks have the gradient of the projection of the whole sequence.
template <class T>
void expect_projection(const PerformerOfRows<T>& own, const PerformerOfRows<T>& whole,
                       const std::string& what) {
  const std::vector<T> got = own.d_projection.values();
  const std::vector<T> want = whole.d_projection.values();
  EXPECT_EQ(std::memcmp(got.data(), want.data(), want.size() * sizeof(T)), 0)
      << what << ", rank " << all_ranks().rank();
}

template <class T>
void backward(const PerformerAttention& op, const PerformerOfRows<T>& of,
              const PerformerGrads<T>& grads, const Sharding& rows,
              const AnyExecutor& executor = in_this_thread()) {
  fovea::distributed::backward(op, of.inputs(), View<const T>(of.out.view()), {},
                               View<const T>(of.d_out.view()), grads, rows, executor);
}
template <class T>
void backward(const PerformerAttention& op, const PerformerOfRows<T>& of) {
  op.backward(of.inputs(), View<const T>(of.out.view()), {}, View<const T>(of.d_out.view()),
              of.grads());
}

template <class T>
void check(const PerformerOfRows<T>& whole, const AnyExecutor& executor = in_this_thread()) {
  for (const bool causal : {true, false}) {
    const PerformerAttention op({.causal = causal});
    backward(op, whole);
    const Index count = whole.q.shape()[2];
    for (const RowLayout& layout : layouts_of(count, all_ranks().size())) {
      const Sharding rows(all_ranks(), layout);
      const PerformerOfRows<T> own(whole, rows);
      backward(op, own, own.grads(), rows, executor);
      const std::string what = (causal ? "causal, " : "not causal, ") + layout.text();
      expect_own_part(own.d_q, whole.d_q, rows, what + ", d_q");
      expect_own_part(own.d_k, whole.d_k, rows, what + ", d_k");
      expect_own_part(own.d_v, whole.d_v, rows, what + ", d_v");
      expect_projection(own, whole, what);
      EXPECT_EQ(own.d_k.changed_gaps(), 0) << what;
    }
  }
}

TEST(DistributedPerformerBackward, EqualsOneProcess) {
  for (const Index rows : {1, 6, 333}) check(PerformerOfRows<float>(2, 4, 2, rows));
}

TEST(DistributedPerformerBackward, EqualsOneProcessInDouble) {
  check(PerformerOfRows<OtherScalar>(1, 2, 2, 200));
}

/// Several segments: states go over them, and sums are folded in their order.
TEST(DistributedPerformerBackward, EqualsOneProcessOverSegments) {
  check(PerformerOfRows<float>(1, 4, 2, 5 * kLinearSegment + 77));
}

/// Blocks of rows after the last token begin anywhere, and may be on two ranks.
TEST(DistributedPerformerBackward, SupportsKeyLengths) {
  const Index count = 3 * kLinearSegment + 5;
  PerformerOfRows<float> whole(5, 2, 1, count);
  whole.lengths = {count, kLinearSegment + 130, 0, 2 * kLinearSegment, kLinearSegment - 40};
  check(whole);
  PerformerOfRows<OtherScalar> shorter(3, 2, 2, 2 * kLinearSegment + 40);
  shorter.lengths = {1, 2 * kLinearSegment - kFeatureRows / 2, 2 * kLinearSegment + 39};
  check(shorter);
}

/// The first sequence and the last one cancel: of the one between them there is left in the
/// gradient of the projection what a sum in this order leaves.
TEST(DistributedPerformerBackward, SumsInTheOrderOfOneProcess) {
  const PerformerOfRows<float> whole(3, 2, 1, kLinearSegment + 300);
  for (const Tensor<float>* x : {&whole.q, &whole.k, &whole.v, &whole.d_out}) {
    x->fill([&](Index b, Index h, Index n, Index c) { return (*x)(b % 2, h, n, c); });
  }
  whole.d_out.fill([&](Index b, Index h, Index n, Index c) {
    const float size = b == 0 ? 1e12F : b == 1 ? 1.0F : -1e12F;
    return size * whole.d_out(b, h, n, c);
  });
  check(whole);
}

TEST(DistributedPerformerBackward, RunsOnThreadsAndInAnArena) {
  fovea::ThreadPool pool(3);
  PerformerOfRows<float> whole(2, 8, 4, 1500);
  whole.lengths = {1500, 700};
  check(whole, AnyExecutor::of(pool));
  fovea::Arena arena(Index{1} << 24);
  const AnyExecutor executor = AnyExecutor::of(pool, &arena);
  check(whole, executor);
}

TEST(DistributedPerformerBackward, SumsOfNothingAreZero) {
  for (const bool causal : {true, false}) {
    const Sharding rows(all_ranks(), RowLayout::contiguous(0, all_ranks().size()));
    const PerformerOfRows<float> own(PerformerOfRows<float>(2, 2, 1, 0), rows);
    backward(PerformerAttention({.causal = causal}), own, own.grads(), rows);
    for (const float x : own.d_projection.values()) EXPECT_EQ(x, 0);
  }
}

/// Where ranges end with segments, states and sums travel and no row does.
TEST(DistributedPerformerBackward, SendsStatesAndNoRows) {
  if (all_ranks().size() != 2) GTEST_SKIP() << "counted for two ranks";
  const auto sent = [](bool causal, Index count, bool wants_projection) {
    const PerformerOfRows<float> whole(1, 4, 2, count);
    const Sharding rows(all_ranks(), RowLayout::contiguous(count, 2));
    const PerformerOfRows<float> own(whole, rows);
    PerformerGrads<float> grads = own.grads();
    if (!wants_projection) grads.projection = {};
    return fovea::distributed::backward(PerformerAttention({.causal = causal}), own.inputs(),
                                        View<const float>(own.out.view()), {},
                                        View<const float>(own.d_out.view()), grads, rows)
        .bytes_sent;
  };
  constexpr Index features = PerformerOfRows<float>::kFeatures;
  constexpr Index number = sizeof(float);
  const bool is_first = all_ranks().rank() == 0;
  const Index carried = fovea::linear_grad_carried<float>(features, 7);
  const Index part = 2 * features * fovea::padded_row<float>(5);
  const Index row = fovea::padded_row<float>(features);
  const Index segment = kLinearSegment;
  // Upwards four query heads, downwards two key heads.
  EXPECT_EQ(sent(true, 2 * segment, false),
            (is_first ? 4 * (carried + row) : 2 * carried) * number);
  EXPECT_EQ(sent(true, 8 * segment, false), sent(true, 2 * segment, false));
  // The last states, which contain parts of the projection's gradient, are sent to the other rank.
  const Index up = 4 * (carried + row + part);
  const Index down = 2 * (carried + part);
  EXPECT_EQ(sent(true, 2 * segment, true), (up + down) * number);
  EXPECT_GT(sent(true, 2 * segment + 100, false), sent(true, 2 * segment, false));
  // Its sum goes from the first rank to the second for each head, and back but for the last one.
  const Index rounds = 4 + 2;
  const Index others = rounds * part * number;
  EXPECT_EQ(sent(false, 2 * segment, true) - sent(false, 2 * segment, false), others);
}

/// Ranks may want different gradients, but for that of the projection.
TEST(DistributedPerformerBackward, WritesRequestedGradients) {
  const PerformerOfRows<float> whole(1, 2, 2, 300);
  for (const bool causal : {true, false}) {
    const PerformerAttention op({.causal = causal});
    backward(op, whole);
    const Sharding rows(all_ranks(), RowLayout::block_cyclic(300, all_ranks().size(), 50));
    const PerformerOfRows<float> own(whole, rows);
    PerformerGrads<float> wanted = own.grads();
    const bool is_even = all_ranks().rank() % 2 == 0;
    (is_even ? wanted.q : wanted.v) = {};
    wanted.projection = {};
    backward(op, own, wanted, rows);
    expect_if_wanted(!is_even, own.d_q, whole.d_q, rows);
    expect_if_wanted(true, own.d_k, whole.d_k, rows);
    expect_if_wanted(is_even, own.d_v, whole.d_v, rows);
    for (const float x : own.d_projection.values()) EXPECT_EQ(x, 77);
  }
}

TEST(DistributedPerformerBackward, RefusesMismatches) {
  const PerformerOfRows<float> whole(1, 2, 2, 40);
  const Sharding rows(all_ranks(), RowLayout::contiguous(40, all_ranks().size()));
  const PerformerOfRows<float> own(whole, rows);
  const int last = all_ranks().size() - 1;
  const bool is_last = all_ranks().rank() == last;
  const PerformerAttention op;
  PerformerGrads<float> grads = own.grads();
  const Tensor<float> wide({1, 1, PerformerOfRows<float>::kFeatures, 6});
  if (is_last) grads.projection = wide.view();
  EXPECT_EQ(refusal([&] { backward(op, own, grads, rows); }),
            "rank " + std::to_string(last) +
                ": PerformerAttention: the gradient of projection has shape 1x1x21x6; expected "
                "1x1x21x5, to match the inputs");
  if (last > 0) {
    grads = own.grads();
    if (is_last) grads.projection = {};
    EXPECT_NE(refusal([&] {
                backward(op, own, grads, rows);
              }).find("21 features, where rank 0 calls PerformerAttention.backward"),
              std::string::npos);
  }
  for (const float x : own.d_k.values()) EXPECT_EQ(x, 77);
}

}  // namespace fovea_test::distributed_performer_backward
