// SPDX-License-Identifier: MIT
/// \file
/// Both passes of causal linear attention with more threads than key heads: these share its tokens,
/// and every bit stays.
#include <gtest/gtest.h>

#include <array>
#include <concepts>
#include <stdexcept>
#include <string>
#include <vector>

#include "fovea/attention.hpp"
#include "fovea/attention/linear/causal_gradients.hpp"
#include "fovea/core/arena.hpp"
#include "fovea/core/eigen.hpp"
#include "support/compare.hpp"
#include "support/executors.hpp"
#include "support/fill.hpp"
#include "support/levels.hpp"
#include "support/tensor.hpp"

namespace fovea_test::attention_shared_stream {

using fovea::Denominator;
using Linear = fovea::LinearAttention<fovea::EluPlusOne>;
using TwoMaps = fovea::LinearAttention<fovea::EluPlusOne, fovea::Tanh>;

constexpr Index kSegment = fovea::kStateSegment;

const fovea::FmmTwoKernels kFmm{
    {.band = {3, 2}, .causal = true, .denominator = Denominator::signed_floor(0.5)}};

/// Which gradients are requested.
struct Wanted {
  bool q = true;
  bool k = true;
  bool v = true;
};

/// One problem. Operators with a near field read the logits of a blend.
template <class T>
struct SharedProblem {
  using C = fovea::Compute<T>;

  /// \param sizes batch, query heads, key heads, queries, keys, D, Dv
  explicit SharedProblem(const std::array<Index, 7>& sizes)
      : q({sizes[0], sizes[1], sizes[3], sizes[5]}),
        k({sizes[0], sizes[2], sizes[4], sizes[5]}),
        v({sizes[0], sizes[2], sizes[4], sizes[6]}),
        d_out({sizes[0], sizes[1], sizes[3], sizes[6]}),
        logits({1, sizes[1], 1, sizes[6]}) {
    q.fill(gaussian(1));
    k.fill(gaussian(2));
    v.fill(gaussian(3));
    d_out.fill(gaussian(4));
    logits.fill(gaussian(5));
  }

  template <class Op>
  fovea::InputsOf<Op, T> inputs() const {
    fovea::InputsOf<Op, T> in{q.view(), k.view(), v.view(), key_lengths};
    if constexpr (kHasBlend<Op>) in.near_logits = in.far_logits = logits.view();
    return in;
  }

  /// What a forward pass on this executor writes.
  template <class Op, class E>
  std::vector<T> forward(const Op& op, E&& executor) const {
    const Tensor<T> out(d_out.shape());
    op.forward(inputs<Op>(), out.view(), {}, executor);
    return out.values();
  }
  /// The same of a backward pass: all gradients.
  template <class Op, class E>
  std::vector<T> backward(const Op& op, E&& executor) const {
    const Tensor<T> d_q(q.shape()), d_k(k.shape()), d_v(v.shape());
    const Tensor<T> d_near(logits.shape()), d_far(logits.shape());
    fovea::GradsOf<Op, T> grads;
    if (wanted.q) grads.q = d_q.view();
    if (wanted.k) grads.k = d_k.view();
    if (wanted.v) grads.v = d_v.view();
    if constexpr (kHasBlend<Op>) {
      grads.near_logits = d_near.view();
      grads.far_logits = d_far.view();
    }
    const Tensor<T> out(d_out.shape());
    op.backward(inputs<Op>(), out.view(), {}, d_out.view(), grads, executor);
    std::vector<T> all;
    for (const Tensor<T>* x : {&d_q, &d_k, &d_v, &d_near, &d_far}) {
      const std::vector<T> values = x->values();
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }

  template <class Op>
  static constexpr bool kHasBlend = requires(fovea::InputsOf<Op, T> in) {
    in.near_logits;
  };

  Tensor<T> q, k, v, d_out;
  Tensor<C> logits;
  std::vector<Index> key_lengths = {};
  Wanted wanted = {};
};

/// Both passes; the parameter is whether it is the backward pass.
class SharedStream : public testing::TestWithParam<bool> {
 protected:
  /// What the pass writes.
  template <class T, class Op, class E>
  std::vector<T> run(const SharedProblem<T>& problem, const Op& op, E&& executor) const {
    if constexpr (std::floating_point<T>) {
      if (is_backward) return problem.backward(op, executor);
    }
    return problem.forward(op, executor);
  }
  /// Runs the pass on one thread and with odd schedules of several, and compares the bits. Tensors
  /// of 16 bits have no backward pass.
  template <class T, class Op>
  void expect_same_bits(const Op& op, const std::array<Index, 7>& sizes,
                        const std::vector<Index>& key_lengths = {},
                        const Wanted& wanted = {}) const {
    SCOPED_TRACE(std::to_string(sizes[3]) + " queries, " + std::to_string(sizes[4]) + " keys");
    SharedProblem<T> problem(sizes);
    problem.key_lengths = key_lengths;
    problem.wanted = wanted;
    const std::vector<T> alone = run(problem, op, fovea::Serial{});
    EXPECT_TRUE(same_bits(alone, run(problem, op, Backwards{})));
    EXPECT_TRUE(same_bits(alone, run(problem, op, Shuffled{})));
  }

  const bool is_backward = GetParam();
  /// The tokens that are summed before rows read, or whose products are at hand together.
  const Index together = is_backward ? fovea::GradStates<float>::chunks(1) * fovea::kLinearChunk
                                     : fovea::kSharedSegments * kSegment;
};

INSTANTIATE_TEST_SUITE_P(, SharedStream, testing::Bool(), [](const auto& pass) {
  return std::string(pass.param ? "backward" : "forward");
});

/// Lengths around chunks, segments, and what is at hand together.
TEST_P(SharedStream, MatchesOneThreadBitwise) {
  const Linear op{{.causal = true}};
  for (const Index n : {2 * kSegment, 2 * kSegment + 1, 3 * kSegment - 31, together - 1, together,
                        together + 1, together + kSegment + 33, 2 * together + 40}) {
    expect_same_bits<float>(op, {1, 1, 1, n, n, 8, 9});
  }
  at_each_level([&] { expect_same_bits<float>(op, {1, 1, 1, 1500, 1500, 64, 64}); });
  expect_same_bits<double>(op, {1, 1, 1, 1100, 1100, 20, 33});
  expect_same_bits<Eigen::bfloat16>(op, {1, 1, 1, 1100, 1100, 16, 16});
}

/// Rows before and after the tokens, sequences of several lengths, and grouped heads.
TEST_P(SharedStream, MatchesAtAnyPosition) {
  const Linear op{{.causal = true}};
  const Linear top{{.causal = true, .alignment = fovea::CausalAlignment::top_left}};
  const Linear end{{.causal = true, .alignment = fovea::CausalAlignment::key_length}};
  expect_same_bits<float>(end, {2, 2, 1, 700, 2000, 8, 8}, {2000, 1200});
  expect_same_bits<float>(end, {2, 2, 1, 2000, 1100, 8, 8}, {800, 800});
  expect_same_bits<float>(op, {1, 2, 1, 5, 2000, 8, 8});
  expect_same_bits<float>(op, {1, 2, 1, 3000, 1100, 8, 8});
  expect_same_bits<float>(top, {1, 2, 1, 3000, 1100, 8, 8});
  expect_same_bits<float>(top, {1, 2, 1, 700, 2000, 8, 8});
  expect_same_bits<float>(top, {1, 1, 1, together + 700, 1100, 4, 4});
  expect_same_bits<float>(op, {3, 2, 1, 1300, 1300, 8, 8}, {1300, 0, 600});
  expect_same_bits<float>(op, {2, 4, 2, 1100, 1100, 8, 8}, {1, 1024});
  expect_same_bits<float>(op, {2, 1, 1, together + 50, together + 50, 4, 4},
                          {together + 50, together});
  // Groups of heads have fewer chunks at hand, down to one for each part.
  for (const Index heads : {3, 8, 20}) {
    expect_same_bits<float>(op, {1, heads, 1, 1100, 1100, 4, 5});
  }
}

/// Several maps, policies for denominators, a near field and its blend, and any of the gradients
/// alone.
TEST_P(SharedStream, MatchesWithEveryFarField) {
  for (const Denominator& policy :
       {Denominator::propagate(), Denominator::zero_row(), Denominator::signed_floor(0.25)}) {
    const TwoMaps maps{{.causal = true, .denominator = policy}};
    expect_same_bits<float>(maps, {1, 2, 1, 1700, 1700, 12, 17});
  }
  expect_same_bits<float>(kFmm, {1, 2, 2, 1700, 1700, 12, 17});
  expect_same_bits<float>(kFmm, {1, 2, 1, 1200, 1500, 12, 17});
  expect_same_bits<Eigen::half>(kFmm, {1, 1, 1, 1100, 1100, 16, 16});
  for (const Wanted& wanted :
       {Wanted{true, false, false}, {false, true, false}, {false, false, true}}) {
    expect_same_bits<float>(Linear{{.causal = true}}, {1, 2, 1, 1200, 1200, 12, 17}, {}, wanted);
  }
}

/// One head is divided among threads, and short ones are not, nor as many as there are threads.
TEST_P(SharedStream, DividesFewHeads) {
  const auto calls = [&](const auto& op, Index heads, Index n) {
    Index most = 0;
    run(SharedProblem<float>({1, heads, heads, n, n, 4, 4}), op, CountsTasks{most});
    return most;
  };
  const Linear op{{.causal = true}};
  EXPECT_EQ(calls(op, 1, 4 * kSegment), 6);
  EXPECT_EQ(calls(op, 1, kSegment), 0);  // a single task does not use the executor
  EXPECT_EQ(calls(op, 2, kSegment), 2);
  EXPECT_EQ(calls(kFmm, 1, 4 * kSegment), 6);
}

/// The stated bytes count what threads share.
TEST_P(SharedStream, FitsAnArenaOfItsSize) {
  const SharedProblem<float> problem({1, 2, 1, 1200, 1200, 12, 17});
  const fovea::AttentionShape shape{1, 2, 1, 1200, 1200, 12, 17};
  const Index workers = Backwards::concurrency();
  const Index bytes = is_backward ? kFmm.backward_workspace_bytes<float>(shape, workers)
                                  : kFmm.workspace_bytes<float>(shape, workers);
  Backwards executor;
  const std::vector<float> expected = run(problem, kFmm, executor);
  fovea::Arena arena(bytes);
  EXPECT_TRUE(same_bits(expected, run(problem, kFmm, arena.on(executor))));
  fovea::Arena small(bytes - 4096);
  EXPECT_THROW(run(problem, kFmm, small.on(executor)), std::invalid_argument);
}

}  // namespace fovea_test::attention_shared_stream
