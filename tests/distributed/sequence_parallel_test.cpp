// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// Layers over ranks beyond drawn_layers_test.cpp: short sequences, global rows, lists of keys,
/// threads, arenas and positions have the bits of one process; and what is sent.
#include "fovea/distributed/sequence_parallel.hpp"

#include <gtest/gtest.h>

#include "distributed/layer_call.hpp"
#include "fovea/attention.hpp"
#include "fovea/core/arena.hpp"
#include "fovea/core/thread_pool.hpp"
#include "fovea/distributed.hpp"
#include "fovea/layers.hpp"
#include "support/ranks.hpp"
#include "support/scalars.hpp"

namespace fovea_test::distributed_sequence_parallel {

using fovea::Initialiser;
using fovea::kReductionBlock;
using fovea::MultiHead;
using fovea::Tokens;
using fovea::View;
using fovea::distributed::CommStats;
using fovea::distributed::sequence_parallel;

constexpr Index kWidth = kLayerWidth;

template <class T>
class DistributedLayer : public testing::Test {};
TYPED_TEST_SUITE(DistributedLayer, Scalars);

/// Ranks have a few tokens of few sequences, or none.
TYPED_TEST(DistributedLayer, LinearSupportsAnyLength) {
  using T = TypeParam;
  Initialiser initialiser(1);
  const fovea::Linear<T> layer(3, 4, initialiser);
  for (const Index rows :
       {Index{1}, kReductionBlock - 1, kReductionBlock, kReductionBlock + 1, 5 * kReductionBlock}) {
    for (const Index batch : {1, 3}) check_layer<T>(layer, 4, {}, {batch, 1, rows, 3});
  }
}

TYPED_TEST(DistributedLayer, SumsOfNothingAreZero) {
  using T = TypeParam;
  Initialiser initialiser(1);
  for (const Shape& shape : {Shape{0, 1, 200, 6}, Shape{2, 1, 0, 6}}) {
    const Sharding rows = chain_rows(shape[2]);
    const Tensor<T> x({shape[0], 1, rows.own_count(), 6});
    LayerCall<fovea::Linear<T>, T> own(fovea::Linear<T>(6, 6, initialiser), x, x);
    sequence_parallel(rows, fovea::Serial{}, [&](auto& over) { own.run({}, over); });
    for (const T d : own.gradients()) EXPECT_EQ(d, 0);
  }
}

/// Global rows with projections of their own, and without.
TYPED_TEST(DistributedLayer, GlobalRowsEqualOneProcess) {
  using T = TypeParam;
  Initialiser initialiser(3);
  const fovea::LongformerAttention op{{.left = 30, .right = 5, .global = {0, 200}}};
  for (const bool projects : {false, true}) {
    check_layer<T>(MultiHead<fovea::LongformerAttention, T>(
        op, {.width = kWidth, .heads = 4, .global_projections = projects}, initialiser));
  }
}

/// Each rank brings the lists of its rows.
TYPED_TEST(DistributedLayer, ListsOfKeysAreThoseOfTheRows) {
  using T = TypeParam;
  const Index count = 5 * kReductionBlock + 9;
  Tensor<Index> lists({1, 4, count, 6});
  lists.fill([&](Index /*b*/, Index h, Index n, Index c) {
    const Index key = (n * 7 + h) % 50 + c * 60;
    return key < count ? key : Index{-1};
  });
  Initialiser initialiser(3);
  const MultiHead<fovea::IndexedAttention, T> layer(fovea::IndexedAttention{{.causal = true}},
                                                    {.width = kWidth, .heads = 4}, initialiser);
  Tensor<Index> own_lists;
  const auto tokens_of = [&](const Sharding* rows) {
    own_lists = rows == nullptr ? lists.in({}) : own_part(lists, *rows);
    Tokens<T> tokens;
    tokens.indices = own_lists.view();
    return tokens;
  };
  check_layer_with<T>(layer, {1, 1, count, kWidth}, kWidth, tokens_of, fovea::Serial{},
                      [](const Sharding& /*rows*/) {});
}

/// A batch of none has means of none, which no rank divides by.
TYPED_TEST(DistributedLayer, SupportsNoSequences) {
  using T = TypeParam;
  const Sharding rows = chain_rows(300);
  const Tensor<T> x({0, 1, rows.own_count(), 5}), d_x(x.shape()), y({0, 1, 1, 5});
  fovea::MeanPool<T> pool;
  typename fovea::MeanPool<T>::Saved saved;
  const Tokens<T> tokens(View<const T>(x.view()));
  const auto both = [&](auto& over) {
    pool.forward(tokens, y.view(), saved, over);
    pool.backward(tokens, saved, View<const T>(y.view()), d_x.view(), over);
  };
  EXPECT_EQ(refused_over(rows, both), "accepted");
}

TEST(DistributedLayerThreads, DoNotChangeBits) {
  fovea::ThreadPool pool(3);
  Initialiser initialiser(2);
  check_layer<float>(fovea::FeedForward<float>(160, 300, initialiser), 160, {},
                     {1, 1, 40 * kReductionBlock + 3, 160}, pool);
}

TEST(DistributedLayerMemory, CanBeAllocatedInAnArena) {
  fovea::Arena arena(Index{1} << 22);
  fovea::ThreadPool pool(2);
  auto executor = arena.on(pool);
  Initialiser initialiser(2);
  using Attention = MultiHead<fovea::LocalAttention, float>;
  check_layer<float>(
      Attention(fovea::LocalAttention{{.left = 9}}, {.width = kWidth, .heads = 2}, initialiser),
      kWidth, {}, {1, 1, 5 * kReductionBlock, kWidth}, executor);
}

/// A forward pass needs no chains.
TEST(DistributedLayerForward, SupportsAnyLayout) {
  Initialiser initialiser(3);
  using Attention = MultiHead<fovea::FullAttention, float>;
  const Attention layer(fovea::FullAttention{},
                        {.width = 8, .heads = 2, .rotary = fovea::RotaryOptions{}}, initialiser);
  check_forward<float>(layer, {1, 1, 211, 8}, layouts_of(211, all_ranks().size()));
}

/// Positions are those of the sequence, in whatever order its rows are spread, heads and all.
TEST(DistributedRotary, UsesPositionsInTheSequence) {
  constexpr Index count = 211, width = 8;
  Tensor<double> heads({2, 3, count, width}), cosines({1, 1, count + 5, width / 2});
  heads.fill(gaussian(5));
  cosines.fill(gaussian(6));
  const Tensor<double> sines = cosines.in({});
  const fovea::Rotary<double> rotary({}, width);
  std::vector<std::int32_t> positions;
  for (std::int32_t n = 0; n < count; ++n) positions.push_back(n * 7 % 100);
  const std::vector<Index> packed = {0, 100, 101, count};
  for (int way = 0; way < 4; ++way) {
    fovea::RotaryCall<double> call{.first = 5};
    if (way == 1) call.positions = positions;
    if (way == 2) call = {.first = 5, .cosines = cosines.view(), .sines = sines.view()};
    if (way == 3) call.cu_seqlens = packed;
    const Index batch = way == 3 ? 1 : 2;
    const Tensor<double> whole = heads.in({});
    rotary.turn(cut(whole.view(), 0, 0, batch), call);
    for (const RowLayout& layout : layouts_of(count, all_ranks().size())) {
      const Sharding rows(all_ranks(), layout);
      const Tensor<double> own =
          own_part(heads, rows).in({.order = {3, 0, 2, 1}, .gap = 1, .reversed = {true, true}});
      std::vector<std::int32_t> own_positions;
      for (const Range& range : rows.own()) {
        for (Index n = range.begin; n < range.end; ++n) {
          own_positions.push_back(positions[as_size(n)]);
        }
      }
      if (way == 1) call.positions = own_positions;
      sequence_parallel(rows, fovea::Serial{},
                        [&](auto& over) { rotary.turn(cut(own.view(), 0, 0, batch), call, over); });
      expect_own_part(own, whole, rows, layout.text());
    }
  }
}

TEST(DistributedLayerTraffic, CountsSumsToNeighboursAndToAll) {
  const Index ranks = all_ranks().size();
  const Sharding rows(all_ranks(), RowLayout::contiguous(ranks * kReductionBlock,
                                                         all_ranks().size(), kReductionBlock));
  Initialiser initialiser(1);
  const Tensor<float> x({1, 1, rows.own_count(), 64});
  LayerCall<fovea::Linear<float>, float> own(
      fovea::Linear<float>(64, 64, initialiser, {.bias = false}), x, x);
  fovea::Linear<float>::Saved saved;
  const CommStats comm_stats = sequence_parallel(
      rows, fovea::Serial{}, [&](auto& over) { own.backward({x.view()}, saved, over); });
  const Index sum = Index{64} * 64 * Index{sizeof(float)};
  const bool is_last = all_ranks().rank() + 1 == all_ranks().size();
  EXPECT_EQ(comm_stats.bytes_sent, is_last ? (ranks - 1) * sum : sum);
}

}  // namespace fovea_test::distributed_sequence_parallel
