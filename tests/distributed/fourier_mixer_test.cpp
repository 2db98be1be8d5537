// SPDX-License-Identifier: MIT
// fovea_test(RANKS NEEDS fftw)
/// \file
/// The Fourier mixer over ranks beyond drawn_spectral_test.cpp: what it refuses, what it sends, and
/// its memory.
#include <gtest/gtest.h>

#include "distributed/rank_call.hpp"
#include "distributed/spectral_call.hpp"
#include "fovea/core/arena.hpp"
#include "fovea/core/thread_pool.hpp"
#include "support/refusal.hpp"

namespace fovea_test::distributed_fourier_mixer {

using fovea::FourierMixer;

/// Whether each row is on the rank of its mirror image.
TEST(DistributedMixerTraffic, FollowsFromTheLayout) {
  const Index ranks = all_ranks().size();
  const Index count = 64 * ranks;
  const Index width = 8 * ranks - 1;
  MixerCall<float> call(channels(1, count, width));
  const auto sent_with = [&](const RowLayout& layout) {
    Index bytes = RankCall(FourierMixer(), call, layout).forward();
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
  MixerCall<float> call(channels(1, 40, 6));
  const RankCall own(FourierMixer(), call);
  const Sharding& rows = own.rows();
  const View<float> own_x = call.x.in(Where::ranks);
  const View<float> own_out = call.out.in(Where::ranks);
  const bool is_last = own.is_last;
  const Index count = rows.own_count();
  const Tensor<float> longer({1, 1, count + 1, 6});
  const Tensor<float> heads({1, 2, count, 6});
  const auto expect_refusal = [&](const View<float>& x, const View<float>& out) {
    const std::string forward = refusal([&] {
      fovea::distributed::forward(FourierMixer(), is_last ? x : own_x, is_last ? out : own_out,
                                  rows);
    });
    EXPECT_TRUE(forward.starts_with(own.begin)) << forward;
    const std::string backward = refusal([&] {
      fovea::distributed::backward(FourierMixer(), is_last ? x : own_x, is_last ? out : own_out,
                                   rows);
    });
    EXPECT_TRUE(backward.starts_with(own.begin)) << backward;
    call.expect_untouched();
  };
  expect_refusal(longer.view(), own_out);
  expect_refusal(own_x, longer.view());
  expect_refusal(heads.view(), own_out);
  expect_refusal(own_out, own_out);
  if (own.last == 0) return;  // alone, so no rank waits
  const Tensor<float> wide({1, 1, count, 7});
  const Tensor<float> to(wide.shape());
  const std::string text = refusal([&] {
    fovea::distributed::forward(FourierMixer(), is_last ? View<float>(wide.view()) : own_x,
                                is_last ? View<float>(to.view()) : own_out, rows);
  });
  EXPECT_EQ(text, "rank " + std::to_string(own.last) +
                      " calls FourierMixer.forward of 40 rows, 4 bytes per number, x 1x1x7 (batch, "
                      "heads, width), where rank 0 calls FourierMixer.forward of 40 rows, 4 bytes "
                      "per number, x 1x1x6 (batch, heads, width)");
}

/// A rank whose arena is too small is reported, and no rank waits for it.
TEST(DistributedMixerMemory, IsAllocatedInTheArena) {
  MixerCall<float> call(channels(1, 200, 90));
  forward_in(Where::one_process, FourierMixer(), call);
  const RankCall own(FourierMixer(), call, RowLayout::zigzag(200, all_ranks().size()));
  const fovea::ThreadPool pool(2);
  const auto run = [&](Index bytes) {
    fovea::Arena arena(bytes);
    own.forward(AnyExecutor::of(pool, &arena));
  };
  const std::string text = refusal([&] { run(own.is_last ? 64 : 1 << 20); });
  const std::string begin = "rank " + std::to_string(own.last) + ": Arena: size_bytes is 64;";
  EXPECT_TRUE(text.starts_with(begin)) << text;
  call.expect_untouched();
  run(1 << 20);
  own.expect(Role::made);
}

}  // namespace fovea_test::distributed_fourier_mixer
