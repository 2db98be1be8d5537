// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of causal linear attention with more threads than key heads: these share its
/// tokens, and every bit stays.
#include <gtest/gtest.h>

#include <array>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/entries/all_inputs.hpp"
#include "fovea/attention.hpp"
#include "fovea/attention/linear/causal_gradients.hpp"
#include "fovea/core/arena.hpp"
#include "support/compare.hpp"
#include "support/executors.hpp"
#include "support/fill.hpp"
#include "support/levels.hpp"
#include "support/tensor.hpp"

namespace fovea_test::attention_causal_gradients {

using fovea::Denominator;

constexpr Index kSegment = fovea::kStateSegment;
/// The tokens whose products are at hand together.
constexpr Index kTogether = fovea::GradStates<float>::chunks(1) * fovea::kLinearChunk;

/// Which gradients are requested, and how they are compared.
struct Wanted {
  bool q = true;
  bool k = true;
  bool v = true;
  bool logits = false;
};

/// One problem, and memory for its gradients.
template <class T>
struct GradProblem {
  /// \param sizes batch, query heads, key heads, queries, keys, D, Dv
  GradProblem(const std::array<Index, 7>& sizes, const Wanted& wanted = {})
      : q({sizes[0], sizes[1], sizes[3], sizes[5]}),
        k({sizes[0], sizes[2], sizes[4], sizes[5]}),
        v({sizes[0], sizes[2], sizes[4], sizes[6]}),
        d_out({sizes[0], sizes[1], sizes[3], sizes[6]}),
        out(d_out.shape()),
        logits({1, sizes[1], 1, sizes[6]}),
        with(wanted) {
    q.fill(gaussian(1));
    k.fill(gaussian(2));
    v.fill(gaussian(3));
    d_out.fill(gaussian(4));
    logits.fill(gaussian(5));
  }

  /// All gradients, as a call on this executor writes them.
  template <class Op, class E>
  std::vector<T> gradients(const Op& op, E&& executor) const {
    const Tensor<T> d_q(q.shape()), d_k(k.shape()), d_v(v.shape());
    const Tensor<T> d_near(logits.shape()), d_far(logits.shape());
    bench::AllInputs<T> in{q.view(), k.view(), v.view(), key_lengths};
    bench::AllGrads<T> grads;
    if (with.q) grads.q = d_q.view();
    if (with.k) grads.k = d_k.view();
    if (with.v) grads.v = d_v.view();
    if (with.logits) {
      in.near_logits = in.far_logits = logits.view();
      grads.near_logits = d_near.view();
      grads.far_logits = d_far.view();
    }
    op.backward(in, out.view(), {}, d_out.view(), grads, executor);
    std::vector<T> all;
    for (const Tensor<T>* x : {&d_q, &d_k, &d_v, &d_near, &d_far}) {
      const std::vector<T> values = x->values();
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }

  Tensor<T> q, k, v, d_out, out, logits;
  Wanted with;
  std::vector<Index> key_lengths = {};
};

/// Runs the backward pass on one thread and with odd schedules of several, and compares the bits.
template <class T, class Op>
void expect_same_bits(const Op& op, const std::array<Index, 7>& sizes, const Wanted& wanted = {},
                      const std::vector<Index>& key_lengths = {}) {
  SCOPED_TRACE(std::to_string(sizes[3]) + " queries, " + std::to_string(sizes[4]) + " keys");
  GradProblem<T> problem(sizes, wanted);
  problem.key_lengths = key_lengths;
  const std::vector<T> alone = problem.gradients(op, fovea::Serial{});
  EXPECT_TRUE(same_bits(alone, problem.gradients(op, Backwards{})));
  EXPECT_TRUE(same_bits(alone, problem.gradients(op, Shuffled{})));
}

using Linear = fovea::LinearAttention<fovea::EluPlusOne>;
using TwoMaps = fovea::LinearAttention<fovea::EluPlusOne, fovea::Tanh>;

/// Lengths around chunks, segments, and the chunks that are at hand together.
TEST(CausalGradients, MatchOneThreadBitwise) {
  const Linear op{{.causal = true}};
  for (const Index n : {2 * kSegment, 2 * kSegment + 1, 3 * kSegment - 31, kTogether - 1, kTogether,
                        kTogether + 1, kTogether + kSegment + 33, 2 * kTogether + 40}) {
    expect_same_bits<float>(op, {1, 1, 1, n, n, 8, 9});
  }
  at_each_level([&] { expect_same_bits<float>(op, {1, 1, 1, 1500, 1500, 64, 64}); });
  expect_same_bits<double>(op, {1, 1, 1, 1100, 1100, 20, 33});
}

/// Rows before and after the tokens, sequences of several lengths, and grouped heads.
TEST(CausalGradients, MatchAtAnyPosition) {
  const Linear op{{.causal = true}};
  const Linear top{{.causal = true, .alignment = fovea::CausalAlignment::top_left}};
  const Linear end{{.causal = true, .alignment = fovea::CausalAlignment::key_length}};
  expect_same_bits<float>(end, {2, 2, 1, 700, 2000, 8, 8}, {}, {2000, 1200});
  expect_same_bits<float>(end, {2, 2, 1, 2000, 1100, 8, 8}, {}, {800, 800});
  expect_same_bits<float>(op, {1, 2, 1, 5, 2000, 8, 8});
  expect_same_bits<float>(op, {1, 2, 1, 3000, 1100, 8, 8});
  expect_same_bits<float>(top, {1, 2, 1, 3000, 1100, 8, 8});
  expect_same_bits<float>(top, {1, 2, 1, 700, 2000, 8, 8});
  expect_same_bits<float>(top, {1, 1, 1, kTogether + 700, 1100, 4, 4});
  expect_same_bits<float>(op, {3, 2, 1, 1300, 1300, 8, 8}, {}, {1300, 0, 600});
  expect_same_bits<float>(op, {2, 4, 2, 1100, 1100, 8, 8}, {}, {1, 1024});
  expect_same_bits<float>(op, {2, 1, 1, kTogether + 50, kTogether + 50, 4, 4}, {},
                          {kTogether + 50, kTogether});
  // Groups of heads have fewer chunks at hand, down to one for each part.
  for (const Index heads : {3, 8, 20}) {
    expect_same_bits<float>(op, {1, heads, 1, 1100, 1100, 4, 5});
  }
}

/// Several maps, policies for denominators, a near field with gradients of its blend, and any of
/// the gradients alone.
TEST(CausalGradients, MatchWithEveryFarField) {
  for (const Denominator& policy :
       {Denominator::propagate(), Denominator::zero_row(), Denominator::signed_floor(0.25)}) {
    const TwoMaps maps{{.causal = true, .denominator = policy}};
    expect_same_bits<float>(maps, {1, 2, 1, 1700, 1700, 12, 17});
  }
  const fovea::FmmTwoKernels fmm{
      {.band = {3, 2}, .causal = true, .denominator = Denominator::signed_floor(0.5)}};
  expect_same_bits<float>(fmm, {1, 2, 2, 1700, 1700, 12, 17}, {.logits = true});
  expect_same_bits<float>(fmm, {1, 2, 1, 1200, 1500, 12, 17}, {.logits = true});
  const Linear op{{.causal = true}};
  expect_same_bits<float>(op, {1, 2, 1, 1200, 1200, 12, 17}, {true, false, false});
  expect_same_bits<float>(op, {1, 2, 1, 1200, 1200, 12, 17}, {false, true, false});
  expect_same_bits<float>(op, {1, 2, 1, 1200, 1200, 12, 17}, {false, false, true});
}

/// One head is divided among threads, and short ones are not.
TEST(CausalGradients, DivideFewHeads) {
  const auto calls = [](Index heads, Index n) {
    Index most = 0;
    const GradProblem<float> problem({1, heads, heads, n, n, 4, 4});
    problem.gradients(Linear{{.causal = true}}, CountsTasks{most});
    return most;
  };
  EXPECT_EQ(calls(1, 4 * kSegment), 6);
  EXPECT_EQ(calls(1, kSegment), 0);  // a single task does not use the executor
  EXPECT_EQ(calls(2, kSegment), 2);
}

/// backward_workspace_bytes counts the states that threads share.
TEST(CausalGradients, FitAnArenaOfTheirSize) {
  const fovea::FmmTwoKernels op{
      {.band = {3, 2}, .causal = true, .denominator = Denominator::signed_floor(0.5)}};
  const fovea::AttentionShape shape{1, 2, 1, 1200, 1200, 12, 17};
  const GradProblem<float> problem({1, 2, 1, 1200, 1200, 12, 17}, {.logits = true});
  Backwards executor;
  const std::vector<float> expected = problem.gradients(op, executor);
  const Index bytes = op.backward_workspace_bytes<float>(shape, Backwards::concurrency());
  fovea::Arena arena(bytes);
  EXPECT_TRUE(same_bits(expected, problem.gradients(op, arena.on(executor))));
  fovea::Arena small(bytes - 4096);
  EXPECT_THROW(problem.gradients(op, small.on(executor)), std::invalid_argument);
}

}  // namespace fovea_test::attention_causal_gradients
