// SPDX-License-Identifier: MIT
/// \file
/// Both passes of causal linear attention with more threads than key heads: these share its tokens,
/// and every bit stays.
#include <gtest/gtest.h>

#include <stdexcept>
#include <utility>
#include <vector>

#include "attention/gradients.hpp"
#include "attention/linear_case.hpp"
#include "fovea/attention/linear/causal_gradients.hpp"
#include "fovea/core/arena.hpp"
#include "fovea/core/eigen.hpp"

namespace fovea_test::attention_shared_stream {

using fovea::CausalAlignment;
using fovea::Denominator;
using Linear = fovea::LinearAttention<fovea::EluPlusOne>;
using TwoMaps = fovea::LinearAttention<fovea::EluPlusOne, fovea::Tanh>;

constexpr Index kSegment = fovea::kStateSegment;

const fovea::FmmTwoKernels kFmm{
    {.band = {3, 2}, .causal = true, .denominator = Denominator::signed_floor(0.5)}};

template <class T>
Case<T> linear(CausalAlignment alignment = CausalAlignment::bottom_right) {
  return linear_case<T>("linear", Linear{{.causal = true, .alignment = alignment}});
}
Case<float> fmm() {
  return fmm_case<float>("fmm", kFmm, {.near_logits = "hd", .far_logits = "hd"});
}

/// Runs both passes on one thread and with odd schedules of several, and compares the bits.
template <class T>
void expect_same_bits(const Case<T>& op, const AttentionShape& shape,
                      const std::vector<Index>& key_lengths = {}, const Wanted& wanted = {}) {
  Problem<T> problem = make_problem(op, shape);
  problem.key_lengths = key_lengths;
  SCOPED_TRACE(describe(problem));
  const AllInputs<T> in = problem.inputs();
  const Tensor<T> d_out = make_d_out(problem);
  const auto run_on = [&](AnyExecutor* executor) {
    return run_both(op, in, View<const T>(d_out.view()), executor, {}, wanted);
  };
  const BothResults<T> alone = run_on(nullptr);
  Backwards backwards;
  Shuffled shuffled;
  for (AnyExecutor executor : {AnyExecutor::of(backwards), AnyExecutor::of(shuffled)}) {
    EXPECT_TRUE(same_bits(alone, run_on(&executor)));
  }
}

/// The same of tensors of 16 bits, which have no backward pass.
template <class S, class Op>
void expect_same_rounded_bits(const Op& op, const AttentionShape& s) {
  const Tensor<S> q({s.batch, s.query_heads, s.queries, s.width});
  const Tensor<S> k({s.batch, s.key_heads, s.keys, s.width});
  const Tensor<S> v({s.batch, s.key_heads, s.keys, s.value_width});
  const Tensor<float> logits({1, s.query_heads, 1, s.value_width});
  q.fill(gaussian(1));
  k.fill(gaussian(2));
  v.fill(gaussian(3));
  logits.fill(gaussian(5));
  AllInputs<S> in{q.view(), k.view(), v.view()};
  in.near_logits = in.far_logits = logits.view();
  const auto run_on = [&](auto&& executor) {
    const Tensor<S> out({s.batch, s.query_heads, s.queries, s.value_width});
    op.forward(in, out.view(), {}, executor);
    return out.values();
  };
  const std::vector<S> alone = run_on(fovea::Serial{});
  EXPECT_TRUE(same_bits(alone, run_on(Backwards{})));
  EXPECT_TRUE(same_bits(alone, run_on(Shuffled{})));
}

/// The tokens that are summed before rows read, or whose products are at hand together.
std::vector<Index> lengths_together() {
  return {fovea::kSharedSegments * kSegment,
          fovea::GradStates<float>::chunks(1) * fovea::kLinearChunk};
}

/// Lengths around chunks, segments, and what is at hand together.
TEST(SharedStream, MatchesOneThreadBitwise) {
  const Case<float> op = linear<float>();
  std::vector<Index> lengths = {2 * kSegment, 2 * kSegment + 1, 3 * kSegment - 31};
  for (const Index together : lengths_together()) {
    for (const Index more : {Index{-1}, Index{0}, Index{1}, kSegment + 33, together + 40}) {
      lengths.push_back(together + more);
    }
  }
  for (const Index n : lengths) expect_same_bits(op, {1, 1, 1, n, n, 8, 9});
  at_each_level([&] { expect_same_bits(op, {1, 1, 1, 1500, 1500, 64, 64}); });
  expect_same_bits(linear<double>(), {1, 1, 1, 1100, 1100, 20, 33});
  expect_same_rounded_bits<Eigen::bfloat16>(Linear{{.causal = true}},
                                            {1, 1, 1, 1100, 1100, 16, 16});
}

/// Rows before and after the tokens, sequences of several lengths, and grouped heads.
TEST(SharedStream, MatchesAtAnyPosition) {
  const Case<float> op = linear<float>();
  const Case<float> top = linear<float>(CausalAlignment::top_left);
  const Case<float> end = linear<float>(CausalAlignment::key_length);
  expect_same_bits(end, {2, 2, 1, 700, 2000, 8, 8}, {2000, 1200});
  expect_same_bits(end, {2, 2, 1, 2000, 1100, 8, 8}, {800, 800});
  expect_same_bits(op, {1, 2, 1, 5, 2000, 8, 8});
  expect_same_bits(op, {1, 2, 1, 3000, 1100, 8, 8});
  expect_same_bits(top, {1, 2, 1, 3000, 1100, 8, 8});
  expect_same_bits(top, {1, 2, 1, 700, 2000, 8, 8});
  expect_same_bits(op, {3, 2, 1, 1300, 1300, 8, 8}, {1300, 0, 600});
  expect_same_bits(op, {2, 4, 2, 1100, 1100, 8, 8}, {1, 1024});
  for (const Index n : lengths_together()) {
    expect_same_bits(top, {1, 1, 1, n + 700, 1100, 4, 4});
    expect_same_bits(op, {2, 1, 1, n + 50, n + 50, 4, 4}, {n + 50, n});
  }
  // Groups of heads have fewer chunks at hand, down to one for each part.
  for (const Index heads : {3, 8, 20}) expect_same_bits(op, {1, heads, 1, 1100, 1100, 4, 5});
}

/// Several maps, policies for denominators, a near field and its blend, and any of the gradients
/// alone.
TEST(SharedStream, MatchesWithEveryFarField) {
  for (const Denominator& policy :
       {Denominator::propagate(), Denominator::zero_row(), Denominator::signed_floor(0.25)}) {
    expect_same_bits(linear_case<float>("maps", TwoMaps{{.causal = true, .denominator = policy}}),
                     {1, 2, 1, 1700, 1700, 12, 17});
  }
  expect_same_bits(fmm(), {1, 2, 2, 1700, 1700, 12, 17});
  expect_same_bits(fmm(), {1, 2, 1, 1200, 1500, 12, 17});
  expect_same_rounded_bits<Eigen::half>(kFmm, {1, 1, 1, 1100, 1100, 16, 16});
  for (const Wanted& wanted :
       {Wanted{true, false, false}, {false, true, false}, {false, false, true}}) {
    expect_same_bits(linear<float>(), {1, 2, 1, 1200, 1200, 12, 17}, {}, wanted);
  }
}

/// One call, whose passes run on executors of their own.
struct Passes {
  Passes(const Case<float>& of, const AttentionShape& shape)
      : op(of),
        problem(make_problem(op, shape)),
        in(problem.inputs()),
        d_out(make_d_out(problem)),
        written(op, problem.out_shape()),
        grads(in, {}) {}

  void run(bool is_backward, AnyExecutor executor) {
    if (is_backward) {
      op.backward(in, written.out.view(), written.saved(), d_out.view(), grads.grads(in, {}),
                  &executor);
    } else {
      op.forward(in, written.out.view(), written.saved(), &executor);
    }
  }
  BothResults<float> results() const { return {written.result(), grads.values(problem.shape)}; }

  const Case<float> op;
  const Problem<float> problem;
  AllInputs<float> in;
  Tensor<float> d_out;
  Written<float> written;
  GradStorage<float> grads;
};

/// One head is divided among threads, and short ones are not, nor as many as there are threads.
TEST(SharedStream, DividesFewHeads) {
  const auto calls = [](const Case<float>& op, Index heads, Index n) {
    Passes passes(op, {1, heads, heads, n, n, 4, 4});
    Index forward = 0, backward = 0;
    CountsTasks of_forward{forward}, of_backward{backward};
    passes.run(false, AnyExecutor::of(of_forward));
    passes.run(true, AnyExecutor::of(of_backward));
    EXPECT_EQ(forward, backward);
    return forward;
  };
  EXPECT_EQ(calls(linear<float>(), 1, 4 * kSegment), 6);
  EXPECT_EQ(calls(linear<float>(), 1, kSegment), 0);  // a single task does not use the executor
  EXPECT_EQ(calls(linear<float>(), 2, kSegment), 2);
  EXPECT_EQ(calls(fmm(), 1, 4 * kSegment), 6);
}

/// The stated bytes count what threads share.
TEST(SharedStream, FitsAnArenaOfItsSize) {
  Passes passes(fmm(), {1, 2, 1, 1200, 1200, 12, 17});
  const AttentionShape& shape = passes.problem.shape;
  Backwards executor;
  for (const bool is_backward : {false, true}) {
    const Index bytes = is_backward
                            ? passes.op.backward_workspace_bytes(shape, Backwards::concurrency())
                            : passes.op.workspace_bytes(shape, Backwards::concurrency());
    passes.run(is_backward, AnyExecutor::of(executor));
    const BothResults<float> expected = passes.results();
    fovea::Arena arena(bytes);
    passes.run(is_backward, AnyExecutor::of(executor, &arena));
    EXPECT_TRUE(same_bits(expected, passes.results()));
    fovea::Arena small(bytes - 4096);
    EXPECT_THROW(passes.run(is_backward, AnyExecutor::of(executor, &small)), std::invalid_argument);
  }
}

}  // namespace fovea_test::attention_shared_stream
