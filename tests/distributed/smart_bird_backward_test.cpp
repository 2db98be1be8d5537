// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// The backward pass of Smart Bird attention over ranks has the bits of one process.
#include "fovea/distributed/smart_bird_backward.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "distributed/smart_bird_problem.hpp"
#include "fovea/core/thread_pool.hpp"
#include "fovea/distributed/smart_bird_forward.hpp"
#include "support/executors.hpp"
#include "support/refusal.hpp"
#include "support/scalars.hpp"

namespace fovea_test::distributed_smart_bird_backward {

using fovea::SmartBirdAttention;
using fovea::View;

template <class T>
void check(const SmartBirdAttention& op, SmartBirdProblem<T>& whole,
           const AnyExecutor& executor = in_this_thread()) {
  op.forward(whole.inputs(), whole.out.view(), whole.saved());
  op.backward(whole.inputs(), View<const T>(whole.out.view()), whole.saved(),
              View<const T>(whole.d_out.view()), whole.grads());
  const Index count = whole.q.shape()[2];
  for (const RowLayout& layout : layouts_of(count, all_ranks().size())) {
    const Sharding rows(all_ranks(), layout);
    SmartBirdProblem<T> own(whole, rows);
    fovea::distributed::forward(op, own.inputs(), own.out.view(), own.saved(), rows, executor);
    fovea::distributed::backward(op, own.inputs(), View<const T>(own.out.view()), own.saved(),
                                 View<const T>(own.d_out.view()), own.grads(), rows, executor);
    const std::string what = std::to_string(count) + " rows";
    expect_own_part(own.d_q, whole.d_q, rows, what + ", d_q");
    expect_own_part(own.d_k, whole.d_k, rows, what + ", d_k");
    expect_own_part(own.d_v, whole.d_v, rows, what + ", d_v");
    EXPECT_EQ(own.d_k.changed_gaps(), 0) << what;
  }
}

template <class T>
void check_all(SmartBirdProblem<T>& whole, const AnyExecutor& executor = in_this_thread()) {
  for (const bool causal : {false, true}) {
    check(SmartBirdAttention{{.keys_per_row = kChosenKeys, .causal = causal}}, whole, executor);
  }
}

TEST(DistributedSmartBirdBackward, EqualsOneProcess) {
  for (const Index rows : {1, 7, 333}) {
    SmartBirdProblem<float> whole(2, 4, 2, rows);
    check_all(whole);
  }
}

TEST(DistributedSmartBirdBackward, EqualsOneProcessInDouble) {
  SmartBirdProblem<OtherScalar> whole(1, 2, 2, 1500);
  check_all(whole);
}

TEST(DistributedSmartBirdBackward, SupportsKeyLengthsAndThreads) {
  SmartBirdProblem<float> whole(3, 2, 2, 200);
  whole.lengths = {200, 77, 0};
  fovea::ThreadPool pool(3);
  check_all(whole, AnyExecutor::of(pool));
}

/// A row whose sketch is no number has chosen no key, and gives none a gradient.
TEST(DistributedSmartBirdBackward, RowsWithoutASketchHaveNoKeys) {
  SmartBirdProblem<float> whole(2, 2, 2, 90);
  whole.sketch_q(1, 0, 61, 1) = std::numeric_limits<float>::quiet_NaN();
  check(SmartBirdAttention{{.keys_per_row = kChosenKeys, .causal = true}}, whole);
}

/// Ranks may want different gradients.
TEST(DistributedSmartBirdBackward, WritesRequestedGradients) {
  SmartBirdProblem<float> whole(1, 2, 2, 100);
  const SmartBirdAttention op{{.keys_per_row = kChosenKeys}};
  op.forward(whole.inputs(), whole.out.view(), whole.saved());
  op.backward(whole.inputs(), View<const float>(whole.out.view()), whole.saved(),
              View<const float>(whole.d_out.view()), whole.grads());
  const Sharding rows(all_ranks(), RowLayout::zigzag(100, all_ranks().size()));
  SmartBirdProblem<float> own(whole, rows);
  fovea::distributed::forward(op, own.inputs(), own.out.view(), own.saved(), rows);
  auto wanted = own.grads();
  const bool is_even = all_ranks().rank() % 2 == 0;
  (is_even ? wanted.q : wanted.k) = {};
  fovea::distributed::backward(op, own.inputs(), View<const float>(own.out.view()), own.saved(),
                               View<const float>(own.d_out.view()), wanted, rows);
  expect_if_wanted(!is_even, own.d_q, whole.d_q, rows);
  expect_if_wanted(is_even, own.d_k, whole.d_k, rows);
  expect_if_wanted(true, own.d_v, whole.d_v, rows);
}

TEST(DistributedSmartBirdBackward, RefusesMismatches) {
  SmartBirdProblem<float> whole(1, 2, 2, 40);
  const Sharding rows(all_ranks(), RowLayout::contiguous(40, all_ranks().size()));
  SmartBirdProblem<float> own(whole, rows);
  const int last = all_ranks().size() - 1;
  const bool is_last = all_ranks().rank() == last;
  const std::string begin = "rank " + std::to_string(last) + ": SmartBirdAttention: ";
  const SmartBirdAttention op{{.keys_per_row = kChosenKeys}};
  const auto refused = [&](const fovea::SmartBirdSaved<float>& saved) {
    return refusal([&] {
      fovea::distributed::backward(op, own.inputs(), View<const float>(own.out.view()), saved,
                                   View<const float>(own.d_out.view()), own.grads(), rows);
    });
  };
  std::fill(own.indices.begin(), own.indices.end(), -1);
  if (is_last) own.indices[1] = 3;
  EXPECT_EQ(refused(own.saved()),
            begin + "indices[0, 0, 0, 1] is 3; expected -1, as before it: -1 ends the list");
  if (is_last) own.indices[0] = 40;
  EXPECT_EQ(refused(own.saved()), begin +
                                      "indices[0, 0, 0, 0] is 40; expected 0 to 39, the keys of "
                                      "the sequence, or -1 after the last one");
  for (const float x : own.d_k.values()) EXPECT_EQ(x, 77);
}

}  // namespace fovea_test::distributed_smart_bird_backward
