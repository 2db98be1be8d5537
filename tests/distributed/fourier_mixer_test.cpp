// SPDX-License-Identifier: MIT
// fovea_test(RANKS NEEDS fftw)
/// \file
/// The Fourier mixer over ranks has the bits of one process: sizes of every kind, with fewer rows
/// and columns than ranks; layouts, strides and threads; what it refuses, and what it sends.
#include "fovea/distributed/fourier_mixer.hpp"

#include <gtest/gtest.h>

#include "fovea/core/arena.hpp"
#include "fovea/core/thread_pool.hpp"
#include "support/executors.hpp"
#include "support/ranks.hpp"
#include "support/refusal.hpp"
#include "support/scalars.hpp"

namespace fovea_test::distributed_fourier_mixer {

using fovea::FourierMixer;
using fovea::View;
using fovea::distributed::CommStats;

template <class T>
struct Call {
  Call(Index batch, Index rows, Index width)
      : x({batch, 1, rows, width}), out(x.shape()), d_out(x.shape()), d_x(x.shape()) {
    x.fill(gaussian(1));
    d_out.fill(gaussian(2));
  }
  /// Every tensor of a rank has a different layout in memory.
  Call(const Call& whole, const Sharding& rows)
      : x(own_part(whole.x, rows, {.order = {2, 0, 1, 3}, .gap = 1})),
        out(own_part(whole.out, rows, {.order = {0, 1, 3, 2}, .gap = 2})),
        d_out(own_part(whole.d_out, rows, {.order = {3, 1, 0, 2}, .innermost = 2})),
        d_x(own_part(whole.d_x, rows, {.gap = 3})) {
    out.fill(constant(77));
    d_x.fill(constant(77));
  }

  Tensor<T> x, out, d_out, d_x;
};

template <class T>
void check(const Call<T>& whole, const AnyExecutor& executor = in_this_thread()) {
  const FourierMixer op;
  op.forward(whole.x.view(), whole.out.view());
  op.backward(whole.d_out.view(), whole.d_x.view());
  const Index count = whole.x.shape()[2];
  for (const RowLayout& layout : layouts_of(count, all_ranks().size())) {
    const Sharding rows(all_ranks(), layout);
    const Call<T> own(whole, rows);
    fovea::distributed::forward(op, own.x.view(), own.out.view(), rows, executor);
    fovea::distributed::backward(op, own.d_out.view(), own.d_x.view(), rows, executor);
    const std::string what =
        std::to_string(count) + " x " + std::to_string(whole.x.shape()[3]) + ", " + layout.text();
    expect_own_part(own.out, whole.out, rows, what);
    expect_own_part(own.d_x, whole.d_x, rows, what + ", d_x");
    EXPECT_EQ(own.out.changed_gaps() + own.d_x.changed_gaps(), 0) << what;
  }
}

template <class T>
class DistributedMixer : public testing::Test {};
TYPED_TEST_SUITE(DistributedMixer, Scalars);

TYPED_TEST(DistributedMixer, EqualsOneProcessWithAnyRows) {
  for (const Index rows : {1, 2, 3, 5, 12, 31, 64, 211}) check(Call<TypeParam>(2, rows, 24));
}

TYPED_TEST(DistributedMixer, EqualsOneProcessWithAnyColumns) {
  for (const Index rows : {5, 64}) {
    for (const Index width : {1, 2, 3, 4, 5, 6, 67}) check(Call<TypeParam>(2, rows, width));
  }
}

/// Several blocks of pairs of columns on each of two ranks, and blocks of many pairs of rows.
TYPED_TEST(DistributedMixer, EqualsOneProcessWithManyColumns) {
  check(Call<TypeParam>(1, 300, 258));
  check(Call<TypeParam>(1, 1009, 33));
}

TYPED_TEST(DistributedMixer, SupportsEmptyTensors) {
  check(Call<TypeParam>(0, 10, 4));
  check(Call<TypeParam>(2, 0, 4));
  check(Call<TypeParam>(2, 10, 0));
}

TEST(DistributedMixerThreads, DoNotChangeBits) {
  fovea::ThreadPool pool(3);
  check(Call<float>(1, 1500, 150), AnyExecutor::of(pool));
}

/// Whether each row is on the rank of its mirror image.
TEST(DistributedMixerTraffic, FollowsFromTheLayout) {
  const Index ranks = all_ranks().size();
  const Index count = 64 * ranks;
  const Index width = 8 * ranks - 1;
  const Call<float> whole(1, count, width);
  const auto sent_with = [&](const RowLayout& layout) {
    const Sharding rows(all_ranks(), layout);
    const Call<float> own(whole, rows);
    const CommStats comm_stats =
        fovea::distributed::forward(FourierMixer(), own.x.view(), own.out.view(), rows);
    Index bytes = comm_stats.bytes_sent;
    MPI_Allreduce(MPI_IN_PLACE, &bytes, 1, MPI_INT64_T, MPI_SUM, all_ranks().mpi());
    return bytes / Index{sizeof(float)};
  };
  // A row of sums is as long as those that all pairs of columns read.
  const Index sums = (count / 2 + 1) * (width + 1) * (ranks - 1) / ranks;
  const Index results = count / ranks * width * (ranks - 1);
  // Row n and its mirror image N - n: at the begin of a piece they are on neighbours.
  EXPECT_EQ(sent_with(RowLayout::zigzag(count, all_ranks().size())),
            sums + results + (ranks - 1) * width);
  EXPECT_LE(sent_with(RowLayout::contiguous(count, all_ranks().size())),
            sums + results + count / 2 * width);
}

TEST(DistributedMixerBadInput, IsReportedOnAllRanks) {
  const Call<float> whole(1, 40, 6);
  const Sharding rows(all_ranks(), RowLayout::contiguous(40, all_ranks().size()));
  const Call<float> own(whole, rows);
  const int last = all_ranks().size() - 1;
  const bool is_last = all_ranks().rank() == last;
  const std::string begin = "rank " + std::to_string(last) + ": FourierMixer: ";
  const Index count = rows.own_count();
  const Tensor<float> longer({1, 1, count + 1, 6});
  const Tensor<float> heads({1, 2, count, 6});
  const auto expect_refusal = [&](const View<float>& x, const View<float>& out) {
    const std::string forward = refusal([&] {
      fovea::distributed::forward(FourierMixer(), is_last ? x : own.x.view(),
                                  is_last ? out : own.out.view(), rows);
    });
    EXPECT_EQ(forward.substr(0, begin.size()), begin) << forward;
    const std::string backward = refusal([&] {
      fovea::distributed::backward(FourierMixer(), is_last ? x : own.x.view(),
                                   is_last ? out : own.out.view(), rows);
    });
    EXPECT_EQ(backward.substr(0, begin.size()), begin) << backward;
    for (const float y : own.out.values()) EXPECT_EQ(y, 77);
  };
  expect_refusal(longer.view(), own.out.view());
  expect_refusal(own.x.view(), longer.view());
  expect_refusal(heads.view(), own.out.view());
  expect_refusal(own.out.view(), own.out.view());
  if (last == 0) return;  // alone, so no rank waits
  const Tensor<float> wide({1, 1, count, 7});
  const Tensor<float> to(wide.shape());
  const std::string text = refusal([&] {
    fovea::distributed::forward(FourierMixer(), (is_last ? wide : own.x).view(),
                                (is_last ? to : own.out).view(), rows);
  });
  EXPECT_EQ(text, "rank " + std::to_string(last) +
                      " calls FourierMixer.forward of 40 rows, 4 bytes per number, x 1x1x7 (batch, "
                      "heads, width), where rank 0 calls FourierMixer.forward of 40 rows, 4 bytes "
                      "per number, x 1x1x6 (batch, heads, width)");
}

/// A rank whose arena is too small is reported, and no rank waits for it.
TEST(DistributedMixerMemory, IsAllocatedInTheArena) {
  const Call<float> whole(1, 200, 90);
  const Sharding rows(all_ranks(), RowLayout::zigzag(200, all_ranks().size()));
  const Call<float> own(whole, rows);
  FourierMixer().forward(whole.x.view(), whole.out.view());
  const int last = all_ranks().size() - 1;
  const fovea::ThreadPool pool(2);
  const auto call = [&](Index bytes) {
    fovea::Arena arena(bytes);
    AnyExecutor executor = AnyExecutor::of(pool, &arena);
    fovea::distributed::forward(FourierMixer(), own.x.view(), own.out.view(), rows, executor);
  };
  const std::string text = refusal([&] { call(all_ranks().rank() == last ? 64 : 1 << 20); });
  const std::string begin = "rank " + std::to_string(last) + ": Arena: size_bytes is 64;";
  EXPECT_EQ(text.substr(0, begin.size()), begin) << text;
  for (const float y : own.out.values()) EXPECT_EQ(y, 77);
  call(1 << 20);
  expect_own_part(own.out, whole.out, rows, "in an arena");
}

}  // namespace fovea_test::distributed_fourier_mixer
