// SPDX-License-Identifier: MIT
/// \file
/// BigBird with given blocks instead of random ones, and with global blocks at the end.
#include "fovea/attention/big_bird.hpp"

#include <cstdlib>

#include "attention/big_bird_mask.hpp"
#include "attention/gradients.hpp"
#include "fovea/attention/block_sparse.hpp"
#include "support/scalars.hpp"

namespace fovea_test::attention_big_bird {

using fovea::BigBirdAttention;
using fovea::BigBirdOptions;
using fovea::BlockRows;
using fovea::RandomBlocks;

constexpr Index kBlock = 16;

/// The blocks that the operator draws, as lists.
std::vector<BlockRows> drawn_lists(const BigBirdOptions& o, Index heads, Index key_blocks) {
  std::vector<BlockRows> lists;
  for (Index h = 0; h < heads; ++h) {
    const RandomBlocks random{
        kBlock,          o.random_blocks, key_blocks,          o.seed, h, o.causal,
        o.global_blocks, o.window_blocks, o.last_global_blocks};
    BlockRows rows{{0}, {}};
    for (Index own = 0; own < key_blocks; ++own) {
      for (Index j = 0; j < key_blocks; ++j) {
        // The last position of a block sees all of a drawn block.
        if (random.allows(own * kBlock + kBlock - 1, j * kBlock)) rows.columns.push_back(j);
      }
      rows.offsets.push_back(static_cast<Index>(rows.columns.size()));
    }
    lists.push_back(rows);
  }
  return lists;
}

template <class T>
class BigBird : public testing::Test {};
TYPED_TEST_SUITE(BigBird, Scalars);

/// Given what it would draw, it computes the same bits, a decoder too.
TYPED_TEST(BigBird, GivenBlocksEqualRandomBlocks) {
  using T = TypeParam;
  for (const BigBirdOptions& o :
       {BigBirdOptions{.block = kBlock, .global_blocks = 1, .random_blocks = 2, .seed = 3},
        BigBirdOptions{.block = kBlock,
        .global_blocks = 1,
        .last_global_blocks = 2,
        .random_blocks = 2,
        .seed = 3},
        BigBirdOptions{.block = kBlock, .random_blocks = 2, .seed = 4, .causal = true}}) {
    BigBirdOptions given = o;
    given.given_blocks = drawn_lists(o, 4, 13);
    given.random_blocks = 0;
    const auto everything = [](const Pair&) { return true; };
    const Case<T> drawn_case = make_case<T>("drawn", BigBirdAttention(o), everything);
    const Case<T> given_case = make_case<T>("given", BigBirdAttention(given), everything);
    const Problem<T> problem = make_problem(drawn_case, {2, 4, 2, 203, 203, 5, 6});
    EXPECT_TRUE(same_bits(run(drawn_case, problem), run(given_case, problem)));
    EXPECT_TRUE(same_bits(run_backward(drawn_case, problem), run_backward(given_case, problem)));
    EXPECT_EQ(drawn_case.attended_pairs(problem.shape), given_case.attended_pairs(problem.shape));
    if (!o.causal) continue;
    auto decoder = BigBirdAttention(given).template decoder<T>(
        {.batch = 2, .query_heads = 4, .key_heads = 2, .width = 5, .value_width = 6});
    const auto whole = run(given_case, problem);
    const Tensor<T> out({2, 4, 203, 6});
    const AllInputs<T> in = problem.inputs();
    for (Index first = 0; first < 203; first += 29) {
      decoder.step(part_of(in, first, 29, first, 29), cut(out.view(), 2, first, 29));
    }
    EXPECT_TRUE(same_bits(out.values(), whole.out));
  }
}

/// Lists of a user's own, some of whose blocks are global or in the window; heads take turns.
TYPED_TEST(BigBird, GivenBlocksMayOverlapOtherBlocks) {
  using T = TypeParam;
  // Blocks 0 to 5 of queries; the second list ends before the last queries.
  const std::vector<BlockRows> lists = {{{0, 2, 4, 5, 8, 8, 10}, {0, 4, 1, 5, 2, 0, 3, 5, 1, 4}},
                                        {{0, 1, 3}, {5, 0, 4}}};
  for (const bool causal : {false, true}) {
    for (const Index last : {Index{0}, causal ? Index{0} : Index{1}}) {
      const BigBirdAttention op{{.block = kBlock,
                                 .global_blocks = 1,
                                 .last_global_blocks = last,
                                 .given_blocks = lists,
                                 .causal = causal}};
      const ReferenceMask reference_mask = [=](const Pair& p) {
        const Index own = p.i() / kBlock;
        const Index block = p.j / kBlock;
        const auto global = [&](Index x) { return x < 1 || x >= 6 - last; };
        const BlockRows& rows = lists[as_size(p.h % 2)];
        bool is_listed = false;
        if (own + 1 < static_cast<Index>(rows.offsets.size())) {
          for (Index n = rows.offsets[as_size(own)]; n < rows.offsets[as_size(own + 1)]; ++n) {
            is_listed = is_listed || rows.columns[as_size(n)] == block;
          }
        }
        return (!causal || p.j <= p.i()) &&
               (std::abs(own - block) <= 1 || global(own) || global(block) || is_listed);
      };
      const Case<T> made = softmax_case<T>("given", op, reference_mask);
      for (const Index queries : {91, 40, 3}) {
        const Problem<T> problem = make_problem(made, {2, 4, 2, queries, 91, 5, 6});
        expect_conforms(made, problem);
        expect_grads_conform(made, problem);
      }
    }
  }
}

/// If a block of rows contains several blocks of the pattern, keys between those that its rows see
/// are seen by none of them, so no gradient waits for these.
TYPED_TEST(BigBird, BlocksMayBeSmall) {
  using T = TypeParam;
  for (const Index block : {3, 9, 13}) {
    const BigBirdOptions options{
        .block = block, .global_blocks = 1, .random_blocks = 2, .seed = 146};
    const Case<T> made =
        softmax_case<T>("small", BigBirdAttention(options), big_bird_mask(options));
    const Problem<T> problem = make_problem(made, {1, 2, 1, 400, 400, 3, 2});
    expect_grads_conform(made, problem);
  }
}

/// The same of lists: blocks of queries see the first block of keys and the last one in turn.
TYPED_TEST(BigBird, ListedBlocksMayBeSmall) {
  using T = TypeParam;
  constexpr Index block = 8;
  constexpr Index count = 50;
  BlockRows rows{{0}, {}};
  for (Index own = 0; own < count; ++own) {
    rows.columns.push_back(own % 2 == 0 ? 0 : count - 1);
    rows.offsets.push_back(own + 1);
  }
  const fovea::BlockSparseAttention op({.block = block, .layouts = {rows}});
  const Case<T> made = softmax_case<T>("small lists", op, [&](const Pair& p) {
    return p.j / block == rows.columns[as_size(p.i() / block)];
  });
  expect_grads_conform(made, make_problem(made, {1, 1, 1, 400, 400, 3, 2}));
}

/// Heads differ only in what is drawn: those that draw nothing are planned once.
TEST(BigBirdPatterns, RepeatWhereHeadsAreAlike) {
  EXPECT_EQ(BigBirdAttention({.random_blocks = 0}).pattern_period(6), 1);
  EXPECT_EQ(BigBirdAttention({.random_blocks = 1}).pattern_period(6), 6);
  EXPECT_EQ(BigBirdAttention({.given_blocks = {{}, {}}}).pattern_period(6), 2);
}

}  // namespace fovea_test::attention_big_bird
