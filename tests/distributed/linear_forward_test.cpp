// SPDX-License-Identifier: MIT
/// \file
/// The forward pass of linear, delta-rule and FMM attention over ranks has the bits of one process.
#include "fovea/distributed/linear_forward.hpp"

#include <gtest/gtest.h>

#include "fovea/attention/delta_rule.hpp"
#include "fovea/attention/linear.hpp"
#include "fovea/core/thread_pool.hpp"
#include "support/ranks.hpp"
#include "support/refusal.hpp"

namespace fovea_test {
namespace {

using fovea::EluPlusOne;
using fovea::InputsOf;
using fovea::SavedOf;
using fovea::View;

template <class T>
struct Problem {
  Problem(Index batch, Index query_heads, Index key_heads, Index rows)
      : q({batch, query_heads, rows, 5}),
        k({batch, key_heads, rows, 5}),
        v({batch, key_heads, rows, 7}),
        beta({batch, key_heads, rows, 1}),
        out({batch, query_heads, rows, 7}),
        near_out(out.shape()),
        near_lse({batch, query_heads, rows, 1}) {
    q.fill(gaussian(1));
    k.fill(gaussian(2));
    v.fill(gaussian(3));
    beta.fill([](Index b, Index h, Index n, Index) { return uniform(hash(4, b, h, n, 0)); });
  }
  Problem(const Problem& whole, const Rows& rows)
      : q(own_part(whole.q, rows, {.order = {0, 2, 1, 3}, .gap = 3})),
        k(own_part(whole.k, rows)),
        v(own_part(whole.v, rows)),
        beta(own_part(whole.beta, rows)),
        out(own_part(whole.out, rows)),
        near_out(own_part(whole.near_out, rows)),
        near_lse(own_part(whole.near_lse, rows)),
        lengths(whole.lengths) {
    for (const Tensor<T>* x : {&out, &near_out, &near_lse}) x->fill(constant(77));
  }

  template <class Op>
  InputsOf<Op, T> inputs(const Op& /*op*/) const {
    InputsOf<Op, T> in;
    in.q = q.view();
    in.k = k.view();
    in.v = v.view();
    in.key_lengths = lengths;
    if constexpr (Op::kHasBeta) in.beta = beta.view();
    return in;
  }
  template <class Op>
  SavedOf<Op, T> saved(const Op& /*op*/) const {
    SavedOf<Op, T> all;
    if constexpr (Op::kHasNear) {
      all.near_out = near_out.view();
      all.near_lse = near_lse.view();
    }
    return all;
  }

  Tensor<T> q, k, v, beta, out, near_out, near_lse;
  std::vector<Index> lengths;
};

template <class Op, class T, class... Executor>
void check(const std::string& name, const Op& op, const Problem<T>& whole, Executor&... executor) {
  op.forward(whole.inputs(op), whole.out.view(), whole.saved(op));
  const Index count = whole.q.shape()[2];
  for (const RowLayout& layout : layouts_of(count, all_ranks().size())) {
    const Rows rows(all_ranks(), layout);
    const Problem<T> own(whole, rows);
    fovea::distributed::forward(op, own.inputs(op), own.out.view(), own.saved(op), rows,
                                executor...);
    const std::string what = name + ", " + std::to_string(count) + " rows";
    expect_own_part(own.out, whole.out, rows, what);
    EXPECT_EQ(own.out.changed_gaps(), 0);
    if constexpr (Op::kHasNear) {
      expect_own_part(own.near_out, whole.near_out, rows, what + ", near_out");
      expect_own_part(own.near_lse, whole.near_lse, rows, what + ", near_lse");
    }
  }
}

template <class T, class... Executor>
void check_all(const Problem<T>& whole, Executor&... executor) {
  using fovea::Band;
  check("linear", fovea::LinearAttention<EluPlusOne>(), whole, executor...);
  check("causal", fovea::LinearAttention<EluPlusOne>({.causal = true}), whole, executor...);
  check("two maps, joined",
        fovea::LinearAttention<EluPlusOne, fovea::EluMinusPlusOne>(
            {.causal = true, .combine = fovea::CombineMaps::joint}),
        whole, executor...);
  check("two maps, mean",
        fovea::LinearAttention<EluPlusOne, fovea::EluMinusPlusOne>(
            {.combine = fovea::CombineMaps::mean}),
        whole, executor...);
  check("delta rule", fovea::DeltaRuleAttention<EluPlusOne>(), whole, executor...);
  check("FMM", fovea::FmmOneKernel({.near = Band::half_width(5)}), whole, executor...);
  check("FMM, causal", fovea::FmmOneKernel({.near = {.left = 40}, .causal = true}), whole,
        executor...);
  check("FMM with a delta rule",
        fovea::FmmTwoKernelsFastWeight({.near = {.left = 9}, .causal = true}), whole, executor...);
}

TEST(DistributedLinear, HasTheBitsOfOneProcess) {
  for (const Index rows : {1, 6, 333}) check_all(Problem<float>(2, 4, 2, rows));
}

TEST(DistributedLinear, HasTheBitsOfOneProcessInDouble) {
  check_all(Problem<double>(1, 2, 2, 200));
}

/// Several segments, whose sums are folded in their order.
TEST(DistributedLinear, HasTheBitsOfOneProcessOverSegments) {
  check_all(Problem<float>(1, 2, 1, 3 * fovea::kLinearSegment + 77));
}

TEST(DistributedLinear, TakesKeyLengths) {
  Problem<float> whole(3, 2, 2, 300);
  whole.lengths = {300, 130, 0};
  check_all(whole);
}

TEST(DistributedLinear, RunsOnThreads) {
  fovea::ThreadPool pool(3);
  check_all(Problem<float>(1, 8, 4, 1500), pool);
}

/// Causal, a state goes over each end of a range; otherwise sums and totals.
TEST(DistributedLinear, SendsStatesAndNoRows) {
  if (all_ranks().size() != 2) GTEST_SKIP() << "counted for two ranks";
  const auto sent = [](const auto& op, Index count) {
    const Problem<float> whole(1, 2, 2, count);
    const Rows rows(all_ranks(), RowLayout::contiguous(count, 2));
    const Problem<float> own(whole, rows);
    return fovea::distributed::forward(op, own.inputs(op), own.out.view(), rows).bytes_sent;
  };
  const fovea::LinearAttention<EluPlusOne> causal({.causal = true});
  const bool is_first = all_ranks().rank() == 0;
  const Index state = sent(causal, 400);
  EXPECT_EQ(state > 0, is_first);
  EXPECT_EQ(sent(causal, 4000), state);
}

TEST(DistributedLinear, RefusesWhatDoesNotFit) {
  const Problem<float> whole(1, 2, 2, 40);
  const Rows rows(all_ranks(), RowLayout::contiguous(40, all_ranks().size()));
  const Problem<float> own(whole, rows);
  const int last = all_ranks().size() - 1;
  const bool is_last = all_ranks().rank() == last;
  const std::string begin = "rank " + std::to_string(last) + ": ";
  const fovea::DeltaRuleAttention<EluPlusOne> op;
  auto in = own.inputs(op);
  if (is_last) in.beta = {};
  std::string text = refusal([&] { fovea::distributed::forward(op, in, own.out.view(), rows); });
  EXPECT_EQ(text.substr(0, begin.size() + 20), begin + "DeltaRuleAttention: ") << text;
  EXPECT_NE(text.find("beta"), std::string::npos) << text;
  in = own.inputs(op);
  const std::vector<Index> ends = {0, 40};
  if (is_last) in.cu_seqlens_q = ends;
  text = refusal([&] { fovea::distributed::forward(op, in, own.out.view(), rows); });
  EXPECT_EQ(text, begin +
                      "DeltaRuleAttention: cu_seqlens is given; expected none, since the "
                      "sequence is spread over ranks");
  const fovea::FmmOneKernel wrong({.near = {.left = -1}});
  text =
      refusal([&] { fovea::distributed::forward(wrong, own.inputs(wrong), own.out.view(), rows); });
  EXPECT_EQ(text.substr(0, 22), "rank 0: FmmAttention: ") << text;
  for (const float x : own.out.values()) EXPECT_EQ(x, 77);
}

}  // namespace
}  // namespace fovea_test
