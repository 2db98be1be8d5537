// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// The backward pass of FSAT attention over ranks has the bits of one process.
#include "fovea/distributed/fsat_backward.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "distributed/fsat_call.hpp"
#include "fovea/core/thread_pool.hpp"
#include "fovea/distributed/fsat_forward.hpp"
#include "support/executors.hpp"
#include "support/scalars.hpp"

namespace fovea_test::distributed_fsat_backward {

using fovea::FsatAttention;
using fovea::FsatOptions;
using fovea::View;

template <class T>
void check(const FsatOptions& options, const FsatCall<T>& whole,
           const AnyExecutor& executor = in_this_thread()) {
  const FsatAttention op(options);
  op.forward(whole.inputs(), whole.out.view(), whole.saved());
  op.backward(whole.inputs(), View<const T>(whole.out.view()), whole.saved(),
              View<const T>(whole.d_out.view()), whole.grads());
  const Index count = whole.q.shape()[2];
  for (const RowLayout& layout : layouts_of(count, all_ranks().size())) {
    const Sharding rows(all_ranks(), layout);
    const FsatCall<T> own(whole, rows);
    fovea::distributed::forward(op, own.inputs(), own.out.view(), own.saved(), rows, executor);
    fovea::distributed::backward(op, own.inputs(), View<const T>(own.out.view()), own.saved(),
                                 View<const T>(own.d_out.view()), own.grads(), rows, executor);
    const std::string what = std::to_string(count) + " rows";
    expect_own_part(own.d_q, whole.d_q, rows, what + ", d_q");
    expect_own_part(own.d_k, whole.d_k, rows, what + ", d_k");
    expect_own_part(own.d_v, whole.d_v, rows, what + ", d_v");
    expect_own_part(own.d_dominant, whole.d_dominant, rows, what + ", d_dominant");
    EXPECT_EQ(own.d_dominant.changed_gaps(), 0) << what;
  }
}

template <class T>
void check_all(const FsatCall<T>& whole, const AnyExecutor& executor = in_this_thread()) {
  for_each_fsat_options(whole.q.shape()[2],
                        [&](const FsatOptions& options) { check(options, whole, executor); });
}

TEST(DistributedFsatBackward, EqualsOneProcess) {
  for (const Index tokens : {1, 6, 333}) {
    check_all(FsatCall<float>({.batch = 2, .heads = 4, .key_heads = 2, .tokens = tokens}, 1));
  }
}

TEST(DistributedFsatBackward, EqualsOneProcessInDouble) {
  check_all(FsatCall<OtherScalar>({.tokens = 1500}, 2));
}

/// Dominant indices beyond the length are not read, and have no gradient.
TEST(DistributedFsatBackward, SupportsKeyLengthsAndThreads) {
  FsatCall<float> whole({.batch = 3, .tokens = 300}, 4);
  whole.lengths = {300, 131, 0};
  for (Index h = 0; h < 2; ++h) {
    for (Index n = 131; n < 300; ++n) {
      whole.dominant(1, h, n, 0) = std::numeric_limits<float>::quiet_NaN();
    }
  }
  fovea::ThreadPool pool(3);
  check_all(whole, AnyExecutor::of(pool));
}

/// With a large lse a second number of each row travels, since no other rank has all its keys.
TEST(DistributedFsatBackward, EqualsOneProcessIfLseIsLarge) {
  const FsatCall<float> whole({.tokens = 333}, 6);
  whole.q.fill(gaussian(1, 300));
  check_all(whole);
  Index large = 0;
  for (const float lse : whole.lse.values()) large += std::abs(lse) > fovea::kLargeLse ? 1 : 0;
  EXPECT_GT(large, 100);
}

/// Ranks may want different gradients.
TEST(DistributedFsatBackward, WritesRequestedGradients) {
  const FsatCall<float> whole({.tokens = 100}, 5);
  const FsatAttention op(FsatOptions{.max_length = 100});
  op.forward(whole.inputs(), whole.out.view(), whole.saved());
  op.backward(whole.inputs(), View<const float>(whole.out.view()), whole.saved(),
              View<const float>(whole.d_out.view()), whole.grads());
  const Sharding rows(all_ranks(), RowLayout::zigzag(100, all_ranks().size()));
  const FsatCall<float> own(whole, rows);
  fovea::distributed::forward(op, own.inputs(), own.out.view(), own.saved(), rows);
  auto wanted = own.grads();
  const bool is_even = all_ranks().rank() % 2 == 0;
  (is_even ? wanted.q : wanted.k) = {};
  if (is_even) wanted.dominant = {};
  fovea::distributed::backward(op, own.inputs(), View<const float>(own.out.view()), own.saved(),
                               View<const float>(own.d_out.view()), wanted, rows);
  expect_if_wanted(!is_even, own.d_q, whole.d_q, rows);
  expect_if_wanted(is_even, own.d_k, whole.d_k, rows);
  expect_if_wanted(true, own.d_v, whole.d_v, rows);
  expect_if_wanted(!is_even, own.d_dominant, whole.d_dominant, rows);
}

}  // namespace fovea_test::distributed_fsat_backward
