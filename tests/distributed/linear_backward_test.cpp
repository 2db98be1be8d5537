// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// The backward pass of linear, delta-rule and FMM attention over ranks has the bits of one
/// process.
#include "fovea/distributed/linear_backward.hpp"

#include <gtest/gtest.h>

#include "distributed/linear_problem.hpp"
#include "fovea/core/thread_pool.hpp"
#include "support/executors.hpp"
#include "support/refusal.hpp"
#include "support/scalars.hpp"

namespace fovea_test::distributed_linear_backward {

using fovea::EluPlusOne;
using fovea::View;

/// \param keeps whether the near field is saved
template <class Op, class T>
void check(const std::string& name, const Op& op, const LinearProblem<T>& whole, bool keeps,
           const AnyExecutor& executor = in_this_thread()) {
  const auto saved_of = [&](const LinearProblem<T>& problem) {
    return keeps ? problem.saved(op) : fovea::SavedOf<Op, T>{};
  };
  op.forward(whole.inputs(op), whole.out.view(), saved_of(whole));
  op.backward(whole.inputs(op), View<const T>(whole.out.view()), saved_of(whole),
              View<const T>(whole.d_out.view()), whole.grads(op));
  const Index count = whole.q.shape()[2];
  for (const RowLayout& layout : layouts_of(count, all_ranks().size())) {
    const Sharding rows(all_ranks(), layout);
    const LinearProblem<T> own(whole, rows);
    fovea::distributed::forward(op, own.inputs(op), own.out.view(), saved_of(own), rows, executor);
    fovea::distributed::backward(op, own.inputs(op), View<const T>(own.out.view()), saved_of(own),
                                 View<const T>(own.d_out.view()), own.grads(op), rows, executor);
    const std::string what = name + ", " + std::to_string(count) + " rows";
    expect_own_part(own.d_q, whole.d_q, rows, what + ", d_q");
    expect_own_part(own.d_k, whole.d_k, rows, what + ", d_k");
    expect_own_part(own.d_v, whole.d_v, rows, what + ", d_v");
    if constexpr (Op::kHasBeta) {
      expect_own_part(own.d_beta, whole.d_beta, rows, what + ", d_beta");
    }
    EXPECT_EQ(own.d_k.changed_gaps(), 0) << what;
  }
}

template <class T>
void check_all(const LinearProblem<T>& whole, bool keeps,
               const AnyExecutor& executor = in_this_thread()) {
  for_each_far_field_operator(
      [&](const std::string& name, const auto& op) { check(name, op, whole, keeps, executor); });
}

TEST(DistributedLinearBackward, EqualsOneProcess) {
  for (const Index rows : {1, 6, 333}) check_all(LinearProblem<float>(2, 4, 2, rows), true);
}

TEST(DistributedLinearBackward, ComputesTheNearFieldAgain) {
  check_all(LinearProblem<float>(1, 2, 2, 150), false);
}

TEST(DistributedLinearBackward, EqualsOneProcessInDouble) {
  check_all(LinearProblem<OtherScalar>(1, 2, 2, 200), true);
}

/// Several segments: states go over them, and sums are folded in their order.
TEST(DistributedLinearBackward, EqualsOneProcessOverSegments) {
  check_all(LinearProblem<float>(1, 4, 2, 5 * fovea::kLinearSegment + 77), true);
}

/// Rows after the last key read the last chunk of keys token by token, on any rank.
TEST(DistributedLinearBackward, SupportsKeyLengths) {
  const Index count = 3 * fovea::kLinearSegment + 5;
  LinearProblem<float> whole(4, 2, 1, count);
  whole.lengths = {count, fovea::kLinearSegment + 130, 0, 2 * fovea::kLinearSegment};
  check_all(whole, true);
}

/// Without values there is no output, so that denominators of exactly 0 reach no gradient.
TEST(DistributedLinearBackward, NoValuesGiveNoGradients) {
  using fovea::Relu;
  LinearProblem<float> whole(1, 2, 1, fovea::kLinearSegment + 77, 0);
  whole.q.fill(constant(-1));
  whole.k.fill(constant(-1));
  const auto expect_zero = [&](const std::string& name, const auto& op) {
    check(name, op, whole, true);
    for (const float gradient : whole.d_q.values()) ASSERT_EQ(gradient, 0);
    for (const float gradient : whole.d_k.values()) ASSERT_EQ(gradient, 0);
  };
  for (const bool causal : {false, true}) {
    expect_zero("linear", fovea::LinearAttention<Relu>({.causal = causal}));
    expect_zero("FMM", fovea::FmmAttention<Relu>({.band = {.left = 9}, .causal = causal}));
  }
  expect_zero("delta rule", fovea::DeltaRuleAttention<Relu>());
}

/// With a floor, the signs of each row are kept from the first step to the second.
TEST(DistributedLinearBackward, SavesWhatADenominatorFloorNeeds) {
  const fovea::LinearAttention<fovea::Tanh, EluPlusOne> op(
      {.causal = true, .denominator = fovea::Denominator::signed_floor(0.1)});
  check("floor", op, LinearProblem<float>(1, 4, 2, 2 * fovea::kLinearSegment + 77), true);
}

TEST(DistributedLinearBackward, RunsOnThreads) {
  fovea::ThreadPool pool(3);
  check_all(LinearProblem<float>(1, 8, 4, 1500), true, AnyExecutor::of(pool));
}

/// The gradients of the blend's logits, too, which all ranks have.
/// \param logits [heads, columns], of either one or all
template <class Op, class T>
void check_blend(const Op& op, const LinearProblem<T>& whole, const std::vector<T>& logits,
                 bool keeps, const AnyExecutor& executor = in_this_thread()) {
  const Index heads = logits.size() > 1 ? whole.q.shape()[1] : 1;
  const Shape shape = {1, heads, 1, static_cast<Index>(logits.size()) / heads};
  const auto in = [&](const LinearProblem<T>& problem) {
    auto inputs = problem.inputs(op);
    inputs.near_logits = View<const T>(logits.data(), shape);
    inputs.far_logits = View<const T>(logits.data(), shape);
    return inputs;
  };
  const auto saved_of = [&](const LinearProblem<T>& problem) {
    return keeps ? problem.saved(op) : fovea::SavedOf<Op, T>{};
  };
  const auto grads_of = [&](const LinearProblem<T>& problem, const Tensor<T>& near_field,
                            const Tensor<T>& far_field) {
    auto grads = problem.grads(op);
    grads.near_logits = near_field.view();
    grads.far_logits = far_field.view();
    return grads;
  };
  const Tensor<T> near_field(shape), far_field(shape);
  op.forward(in(whole), whole.out.view(), saved_of(whole));
  op.backward(in(whole), View<const T>(whole.out.view()), saved_of(whole),
              View<const T>(whole.d_out.view()), grads_of(whole, near_field, far_field));
  const Index count = whole.q.shape()[2];
  for (const T x : near_field.values()) EXPECT_NE(x, 0);
  for (const RowLayout& layout : layouts_of(count, all_ranks().size())) {
    const Sharding rows(all_ranks(), layout);
    const LinearProblem<T> own(whole, rows);
    const Tensor<T> own_near(shape), own_far(shape);
    fovea::distributed::forward(op, in(own), own.out.view(), saved_of(own), rows, executor);
    fovea::distributed::backward(op, in(own), View<const T>(own.out.view()), saved_of(own),
                                 View<const T>(own.d_out.view()), grads_of(own, own_near, own_far),
                                 rows, executor);
    const std::string what = std::to_string(count) + " rows, " + layout.text();
    expect_own_part(own.d_q, whole.d_q, rows, what + ", d_q");
    expect_own_part(own.d_k, whole.d_k, rows, what + ", d_k");
    expect_own_part(own.d_v, whole.d_v, rows, what + ", d_v");
    if constexpr (Op::kHasBeta) {
      expect_own_part(own.d_beta, whole.d_beta, rows, what + ", d_beta");
    }
    EXPECT_EQ(own_near.values(), near_field.values()) << what;
    EXPECT_EQ(own_far.values(), far_field.values()) << what;
  }
}

TEST(DistributedLinearBackward, BlendsTheFields) {
  const fovea::Band band = {.left = 6};
  const fovea::FmmOneKernel op({.band = band});
  const fovea::FmmOneKernel causal({.band = band, .causal = true});
  const fovea::FmmOneKernel normalised({.band = band, .causal = true, .normalise_rows = true});
  const fovea::FmmTwoKernels two({.band = band});
  const fovea::FmmTwoKernels two_causal({.band = band, .causal = true});
  const LinearProblem<float> whole(2, 4, 2, 333);
  const std::vector<float> logits = {0.3F, -0.8F, 0.1F, 1.5F};
  check_blend(op, whole, logits, true);
  check_blend(causal, whole, logits, false);
  check_blend(normalised, whole, logits, true);
  check_blend(two, whole, logits, false);
  check_blend(two_causal, whole, logits, true);
  check_blend(op, whole, {-0.4F}, true);
  const LinearProblem<OtherScalar> wide(1, 2, 2, 2 * fovea::kLinearSegment + 77);
  check_blend(op, wide, {0.3, -0.8}, true);
  check_blend(two_causal, wide, {0.3, -0.8}, true);
  LinearProblem<float> shorter(3, 2, 1, fovea::kLinearSegment + 99);
  shorter.lengths = {fovea::kLinearSegment + 5, 0, 40};
  check_blend(op, shorter, {0.3F, -0.8F}, true);
  check_blend(two_causal, shorter, {0.3F, -0.8F}, true);
  fovea::ThreadPool pool(3);
  check_blend(two_causal, LinearProblem<float>(2, 8, 4, 1500), {0.2F}, true, AnyExecutor::of(pool));
}

/// With a delta rule the sums of products come down the chain of ranges with its states.
TEST(DistributedLinearBackward, BlendsADeltaRule) {
  const fovea::FmmTwoKernelsFastWeight two({.band = {.left = 6}, .causal = true});
  const fovea::FmmFastWeight one({.band = {.left = 6}, .causal = true, .normalise_rows = true});
  const std::vector<float> logits = {0.3F, -0.8F, 0.1F, 1.5F};
  const LinearProblem<float> whole(2, 4, 2, 333);
  check_blend(two, whole, logits, true);
  check_blend(one, whole, logits, false);
  const LinearProblem<OtherScalar> wide(1, 2, 2, 2 * fovea::kLinearSegment + 77);
  check_blend(two, wide, {0.3, -0.8}, true);
  const Index count = 2 * fovea::kLinearSegment + 99;
  LinearProblem<float> shorter(4, 2, 1, count);
  shorter.lengths = {fovea::kLinearSegment + 5, 0, 40, count - 1};
  check_blend(two, shorter, {0.3F, -0.8F}, true);
  check_blend(one, shorter, {0.3F, -0.8F}, true);
  fovea::ThreadPool pool(3);
  check_blend(one, LinearProblem<float>(2, 8, 4, 1500), {0.2F}, true, AnyExecutor::of(pool));
}

/// Columns with their own logits need the far field again.
TEST(DistributedLinearBackward, BlendsColumns) {
  const fovea::Band band = {.left = 6};
  LinearProblem<float> whole(3, 2, 1, fovea::kLinearSegment + 99);
  whole.lengths = {fovea::kLinearSegment + 5, 0, 40};
  std::vector<float> logits(static_cast<std::size_t>(2 * whole.v.shape()[3]));
  for (std::size_t n = 0; n < logits.size(); ++n) logits[n] = 0.3F * static_cast<float>(n) - 1;
  check_blend(fovea::FmmOneKernel({.band = band}), whole, logits, true);
  check_blend(fovea::FmmTwoKernels({.band = band, .causal = true}), whole, logits, false);
  check_blend(
      fovea::FmmTwoKernelsFastWeight({.band = band, .causal = true, .normalise_rows = true}), whole,
      logits, true);
  fovea::ThreadPool pool(3);
  check_blend(fovea::FmmOneKernel({.band = band, .causal = true}), whole, logits, true,
              AnyExecutor::of(pool));
}

/// Where ranges end with segments, states and sums travel and no row does.
TEST(DistributedLinearBackward, SendsStatesAndNoRows) {
  if (all_ranks().size() != 2) GTEST_SKIP() << "counted for two ranks";
  const auto sent = [](const auto& op, Index count) {
    const LinearProblem<float> whole(1, 2, 2, count);
    const Sharding rows(all_ranks(), RowLayout::contiguous(count, 2));
    const LinearProblem<float> own(whole, rows);
    return fovea::distributed::backward(op, own.inputs(op), View<const float>(own.out.view()), {},
                                        View<const float>(own.d_out.view()), own.grads(op), rows)
        .bytes_sent;
  };
  const Index segment = fovea::kLinearSegment;
  const fovea::LinearAttention<EluPlusOne> causal({.causal = true});
  const Index state = sent(causal, 2 * segment);
  EXPECT_GT(state, 0);
  EXPECT_EQ(sent(causal, 8 * segment), state);
  EXPECT_GT(sent(causal, 2 * segment + 100), state);
  const fovea::DeltaRuleAttention<EluPlusOne> delta;
  EXPECT_EQ(sent(delta, 8 * segment), sent(delta, 2 * segment));
}

/// Ranks may want different gradients.
TEST(DistributedLinearBackward, WritesRequestedGradients) {
  const LinearProblem<float> whole(1, 2, 2, 300);
  const fovea::FmmOneKernel op({.band = {.left = 6}, .causal = true});
  op.backward(whole.inputs(op), View<const float>(whole.out.view()), {},
              View<const float>(whole.d_out.view()), whole.grads(op));
  const Sharding rows(all_ranks(), RowLayout::block_cyclic(300, all_ranks().size(), 50));
  const LinearProblem<float> own(whole, rows);
  auto wanted = own.grads(op);
  const bool is_even = all_ranks().rank() % 2 == 0;
  (is_even ? wanted.q : wanted.v) = {};
  fovea::distributed::backward(op, own.inputs(op), View<const float>(own.out.view()), {},
                               View<const float>(own.d_out.view()), wanted, rows);
  expect_if_wanted(!is_even, own.d_q, whole.d_q, rows);
  expect_if_wanted(true, own.d_k, whole.d_k, rows);
  expect_if_wanted(is_even, own.d_v, whole.d_v, rows);
}

TEST(DistributedLinearBackward, RefusesMismatches) {
  const LinearProblem<float> whole(1, 2, 2, 40);
  const Sharding rows(all_ranks(), RowLayout::contiguous(40, all_ranks().size()));
  const LinearProblem<float> own(whole, rows);
  const bool is_last = all_ranks().rank() == all_ranks().size() - 1;
  const auto refused = [&](const auto& op, const auto& in, const auto& saved, const auto& grads) {
    return refusal([&] {
      fovea::distributed::backward(op, in, View<const float>(own.out.view()), saved,
                                   View<const float>(own.d_out.view()), grads, rows);
    });
  };
  const fovea::FmmOneKernel fmm({.band = {.left = 3}, .causal = true});
  std::vector<float> logits(14), d_logits(14);
  // Whether the near field is saved is the same on all ranks.
  if (all_ranks().size() > 1) {
    const std::string text = refused(
        fmm, own.inputs(fmm),
        is_last ? fovea::SavedOf<fovea::FmmOneKernel, float>{} : own.saved(fmm), own.grads(fmm));
    EXPECT_NE(text.find("near field saved"), std::string::npos) << text;
    auto blended = own.inputs(fmm);
    blended.near_logits = View<const float>(logits.data(), {1, 2, 1, 1});
    auto wanted = own.grads(fmm);
    std::vector<float> to(2);
    if (is_last) wanted.near_logits = View<float>(to.data(), {1, 2, 1, 1});
    const std::string other = refused(fmm, blended, own.saved(fmm), wanted);
    EXPECT_NE(other.find("gradients of logits"), std::string::npos) << other;
    // So is whether columns have their own logits.
    wanted.near_logits = View<float>(to.data(), {1, 2, 1, 1});
    if (is_last) {
      blended.near_logits = View<const float>(logits.data(), {1, 2, 1, 7});
      wanted.near_logits = View<float>(d_logits.data(), {1, 2, 1, 7});
    }
    const std::string columns = refused(fmm, blended, own.saved(fmm), wanted);
    EXPECT_NE(columns.find("gradients of logits of columns"), std::string::npos) << columns;
  }
  for (const float n : own.d_k.values()) EXPECT_EQ(n, 77);
}

/// Of no sequences at all the gradients of a blend's logits are 0.
TEST(DistributedLinearBackward, LogitsWithoutSequences) {
  using Op = fovea::FmmAttention<fovea::EluPlusOne>;
  const Sharding rows(all_ranks(),
                      RowLayout::contiguous(16 * all_ranks().size(), all_ranks().size()));
  const Tensor<OtherScalar> x({0, 2, 16, 5}), logits({1, 2, 1, 1}), d_near({1, 2, 1, 1}),
      d_far({1, 2, 1, 1});
  logits.fill(gaussian(3));
  for (const bool is_causal : {false, true}) {
    Op op;
    op.options.causal = is_causal;
    fovea::InputsOf<Op, OtherScalar> in;
    in.q = in.k = in.v = x.view();
    in.near_logits = in.far_logits = logits.view();
    d_near.fill(constant(7));
    d_far.fill(constant(7));
    fovea::GradsOf<Op, OtherScalar> grads;
    grads.near_logits = d_near.view();
    grads.far_logits = d_far.view();
    const fovea::View<const OtherScalar> out(x.view());
    fovea::distributed::backward(op, in, out, {}, out, grads, rows);
    for (const Tensor<OtherScalar>* gradient : {&d_near, &d_far}) {
      for (const double value : gradient->values()) EXPECT_EQ(value, 0);
    }
  }
}

}  // namespace fovea_test::distributed_linear_backward
