// SPDX-License-Identifier: MIT
// fovea_test(HEAP)
/// \file
/// Smart Bird attention beyond the conformance suite and the drawn calls: that it is indexed
/// attention over its choice, saved keys, rows whose sketch contains NaN, and memory.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "attention/sketch_problem.hpp"
#include "fovea/core/arena.hpp"
#include "fovea/core/thread_pool.hpp"
#include "support/compare.hpp"
#include "support/executors.hpp"
#include "support/memory.hpp"

namespace fovea_test::attention_smart_bird {

using bench::AllGrads;

/// Forward is IndexedAttention over what select gives; and what is saved is that.
TEST(SmartBird, EqualsIndexedAttentionOverItsChoice) {
  const BirdProblem<float> problem({.batch = 2, .heads = 4, .key_heads = 2});
  const SmartBirdAttention op({.keys_per_row = 6, .causal = true});
  AllInputs<float> in = problem.inputs();
  const WrittenTensors<SmartBirdAttention, BirdProblem<float>> got(op, problem);
  op.forward(in, got.out().view(), got.saved());
  const IndexTensor chosen = op.select(in.sketch(), 4);
  EXPECT_EQ(got.chosen("indices").values(), values_of(chosen.view()));
  AllInputs<float> listed{in.q, in.k, in.v};
  listed.indices = chosen.view();
  const Tensor<float> other(problem.out_shape());
  const Tensor<float> other_lse(problem.row_shape());
  fovea::IndexedAttention{}.forward(listed, other.view(), AllSaved<float>{other_lse.view()});
  EXPECT_TRUE(same_bits(got.out().values(), other.values()));
  EXPECT_TRUE(same_bits(got.result()["lse"], other_lse.values()));
}

/// The keys that were saved, and those chosen again, give the same gradients, for any threads.
TEST(SmartBird, BackwardWithAndWithoutSavedKeys) {
  const BirdProblem<double> problem({.heads = 2, .key_heads = 2, .queries = 60, .keys = 60});
  const SmartBirdAttention op({.keys_per_row = 7, .seed = 5});
  fovea::ThreadPool pool(2);
  AnyExecutor threads = AnyExecutor::of(pool);
  const CallResult<double> with = run_call(op, problem);
  EXPECT_TRUE(same_bits(with, run_call(op, problem, nullptr, {}, false)));
  EXPECT_TRUE(same_bits(with, run_call(op, problem, &threads)));
}

TEST(SmartBird, ANaNSketchGivesNaNRows) {
  BirdProblem<float> problem({.heads = 2, .key_heads = 2, .queries = 20, .keys = 20});
  const SmartBirdAttention op({.keys_per_row = 4, .causal = true});
  const Tensor<float> before(problem.out_shape());
  op.forward(problem.inputs(), before.view());
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    problem.sketch_k(0, 0, 12, 2) = bad;
    const Tensor<float> out(problem.out_shape());
    const Tensor<float> lse(problem.row_shape());
    op.forward(problem.inputs(), out.view(), AllSaved<float>{lse.view()});
    for (Index h = 0; h < 2; ++h) {
      for (Index i = 0; i < 20; ++i) {
        // A product of -infinity is a weight of 0.
        const bool harmless = std::isinf(bad) && problem.sketch_q(0, 0, i, 2) < 0;
        const bool is_bad = i >= 12 && !harmless;
        EXPECT_EQ(std::isnan(out(0, h, i, 0)), is_bad) << "row " << i;
        EXPECT_EQ(std::isnan(lse(0, h, i, 0)), is_bad) << "row " << i;
        if (i < 12) {
          EXPECT_EQ(out(0, h, i, 3), before(0, h, i, 3)) << "row " << i;
        }
      }
    }
  }
}

/// Both passes allocate workspace_bytes and a few small objects; saved lists are not scratch.
template <class T>
void expect_workspace(Index n) {
  const SmartBirdAttention op({.keys_per_row = 20, .causal = true});
  const BirdProblem<T> problem({.batch = 2, .heads = 2, .key_heads = 1, .queries = n, .keys = n});
  const fovea::SmartBirdInputs<T> in = problem.inputs();
  const fovea::SmartBirdShape shape = fovea::shape_of(in);
  const Tensor<T> out(problem.out_shape());
  const Tensor<T> lse(problem.row_shape());
  IndexTensor lists({2, 2, n, 20});
  const Tensor<T> d_q(problem.q.shape()), d_k(problem.k.shape()), d_v(problem.v.shape());
  const std::ptrdiff_t of_lists = 2 * 2 * n * 20 * static_cast<std::ptrdiff_t>(sizeof(Index));

  std::ptrdiff_t before = heap().reset();
  op.forward(in, out.view(), AllSaved<T>{lse.view()});
  EXPECT_LE(heap().peak - before, op.workspace_bytes<T>(shape) + 1024);
  EXPECT_LE(heap().allocations, 12);
  before = heap().reset();
  op.forward(in, out.view(), AllSaved<T>{lse.view(), lists.view()});
  EXPECT_LE(heap().peak - before, op.workspace_bytes<T>(shape) - of_lists + 1024);
  before = heap().reset();
  op.backward(in, View<const T>(out.view()), AllSaved<T>{lse.view(), lists.view()},
              View<const T>(out.view()), AllGrads<T>{d_q.view(), d_k.view(), d_v.view()});
  EXPECT_LE(heap().peak - before, op.backward_workspace_bytes<T>(shape) + 1024);
  EXPECT_LE(heap().allocations, 16);
  fovea::Arena arena(op.backward_workspace_bytes<T>(shape));
  before = heap().reset();
  op.forward(in, out.view(), AllSaved<T>{lse.view()}, arena.on());
  op.backward(in, View<const T>(out.view()), AllSaved<T>{lse.view()}, View<const T>(out.view()),
              AllGrads<T>{d_q.view(), d_k.view(), d_v.view()}, arena.on());
  op.select(fovea::SketchInputs<T>{.sketch_q = in.sketch_q, .sketch_k = in.sketch_k}, lists.view(),
            arena.on());
  EXPECT_LE(heap().peak - before, 1024);
}

TEST(SmartBird, AllocatesExactlyItsWorkspace) {
  for (const Index n : {300, 3000}) {
    expect_workspace<float>(n);
    expect_workspace<double>(n);
  }
}

/// So does the choice by blocks.
template <class T>
void expect_workspace_of_blocks(bool causal) {
  const SmartBirdAttention op({.causal = causal, .search = fovea::SketchSearch::blocks});
  const BirdProblem<T> problem(
      {.batch = 2, .heads = 1, .key_heads = 1, .queries = 8, .keys = 17000});
  const fovea::SmartBirdInputs<T> in = problem.inputs();
  const fovea::SmartBirdShape shape = fovea::shape_of(in);
  const Tensor<T> out(problem.out_shape());
  const std::ptrdiff_t before = heap().reset();
  op.forward(in, out.view());
  EXPECT_LE(heap().peak - before, op.workspace_bytes<T>(shape) + 1024);
  EXPECT_GE(heap().peak - before, op.workspace_bytes<T>(shape) - 4096);
  fovea::Arena arena(op.workspace_bytes<T>(shape));
  const std::ptrdiff_t in_arena = heap().reset();
  const Tensor<T> again(problem.out_shape());
  op.forward(in, again.view(), arena.on());
  EXPECT_LE(heap().peak - in_arena, 4096);
  EXPECT_TRUE(same_bits(out.values(), again.values(), out.shape()));
}

TEST(SmartBird, TheWorkspaceIncludesBlocks) {
  for (const bool causal : {false, true}) {
    expect_workspace_of_blocks<float>(causal);
    expect_workspace_of_blocks<double>(causal);
  }
}

/// More keys than there are cost no more than all of them.
TEST(SmartBird, CostsDependOnExistingKeys) {
  const SmartBirdAttention all({.keys_per_row = 50, .causal = true});
  const SmartBirdAttention more({.keys_per_row = Index{1} << 60, .causal = true});
  const BirdProblem<float> problem(
      {.batch = 1, .heads = 2, .key_heads = 1, .queries = 50, .keys = 50});
  const fovea::SmartBirdInputs<float> in = problem.inputs();
  const fovea::SmartBirdShape shape = fovea::shape_of(in);
  using Results = WrittenTensors<SmartBirdAttention, BirdProblem<float>>;
  const auto run = [&](const SmartBirdAttention& op, const Results& to) {
    const auto saved = to.saved(false);
    const auto grads = to.grads();
    const std::ptrdiff_t before = heap().reset();
    op.forward(in, to.out().view(), saved);
    op.backward(in, to.out().view(), saved, problem.d_out.view(), grads);
    return heap().peak - before;
  };
  const Results expected(all, problem);
  const Results got(all, problem);  // with room for as many keys as there are
  EXPECT_EQ(run(all, expected), run(more, got));
  EXPECT_TRUE(same_bits(expected.result(false), got.result(false)));
  EXPECT_EQ(more.workspace_bytes<float>(shape), all.workspace_bytes<float>(shape));
  EXPECT_EQ(more.backward_workspace_bytes<float>(shape),
            all.backward_workspace_bytes<float>(shape));
  EXPECT_EQ(more.attended_pairs(shape), all.attended_pairs(shape));
  constexpr Index far = Index{1} << 61;
  EXPECT_EQ(SmartBirdAttention({.keys_per_row = far}).attended_pairs({.queries = 9, .keys = far}),
            std::numeric_limits<Index>::max());

  auto decoder = more.decoder<float>({.query_heads = 2,
                                      .key_heads = 1,
                                      .width = in.q.width(),
                                      .value_width = in.v.width(),
                                      .sketch_width = in.sketch_q.width()});
  const Tensor<float> decoded(problem.out_shape());
  const std::ptrdiff_t before = heap().reset();
  decoder.step(in, decoded.view());
  EXPECT_LE(heap().peak - before, 50 * (4 << 10));
  EXPECT_TRUE(same_bits(expected.out().values(), decoded.values()));
}

TEST(SmartBird, CountsAttendedPairs) {
  const SmartBirdAttention causal({.keys_per_row = 3, .causal = true});
  EXPECT_EQ(causal.attended_pairs({.queries = 5, .keys = 5}), 1 + 2 + 3 + 3 + 3);
  EXPECT_EQ(SmartBirdAttention({.keys_per_row = 8}).attended_pairs({.queries = 5, .keys = 6}), 30);
  // As quickly, however many rows there are.
  constexpr Index n = Index{1} << 62;
  EXPECT_EQ(causal.attended_pairs({.queries = n, .keys = n}), std::numeric_limits<Index>::max());
  EXPECT_EQ(SmartBirdAttention({.keys_per_row = 1}).attended_pairs({.queries = n, .keys = n}), n);
}

}  // namespace fovea_test::attention_smart_bird
