// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// FSAT attention over ranks builds the graph of one process, and has its bits.
#include "fovea/distributed/fsat_forward.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "distributed/fsat_call.hpp"
#include "fovea/core/thread_pool.hpp"
#include "support/executors.hpp"
#include "support/refusal.hpp"
#include "support/scalars.hpp"

namespace fovea_test::distributed_fsat_forward {

using fovea::FsatAttention;
using fovea::FsatInputs;
using fovea::FsatOptions;

template <class T>
void check(const FsatOptions& options, const FsatCall<T>& whole,
           const AnyExecutor& executor = in_this_thread()) {
  const FsatAttention op(options);
  op.forward(whole.inputs(), whole.out.view(), whole.saved());
  const Index count = whole.q.shape()[2];
  for (const RowLayout& layout : layouts_of(count, all_ranks().size())) {
    const Sharding rows(all_ranks(), layout);
    const FsatCall<T> own(whole, rows);
    fovea::distributed::forward(op, own.inputs(), own.out.view(), own.saved(), rows, executor);
    const std::string what = std::to_string(count) + " rows";
    expect_own_part(own.out, whole.out, rows, what);
    expect_own_part(own.lse, whole.lse, rows, what + ", lse");
  }
}

template <class T>
void check_all(const FsatCall<T>& whole, const AnyExecutor& executor = in_this_thread()) {
  for_each_fsat_options(whole.q.shape()[2],
                        [&](const FsatOptions& options) { check(options, whole, executor); });
}

TEST(DistributedFsat, EqualsOneProcess) {
  for (const Index tokens : {1, 6, 333}) {
    check_all(FsatCall<float>({.batch = 2, .heads = 4, .key_heads = 2, .tokens = tokens}, 1));
  }
}

TEST(DistributedFsat, EqualsOneProcessInDouble) {
  check_all(FsatCall<OtherScalar>({.tokens = 700}, 2));
}

/// Long enough for the phases of one process.
TEST(DistributedFsat, EqualsOneProcessWithManyRows) {
  check_all(FsatCall<float>({.heads = 1, .key_heads = 1, .tokens = 9000}, 3));
}

/// Dominant indices beyond the length are not read.
TEST(DistributedFsat, SupportsKeyLengths) {
  FsatCall<float> whole({.batch = 3, .tokens = 300}, 4);
  whole.lengths = {300, 131, 0};
  for (Index h = 0; h < 2; ++h) {
    for (Index n = 131; n < 300; ++n) {
      whole.dominant(1, h, n, 0) = std::numeric_limits<float>::quiet_NaN();
    }
  }
  check_all(whole);
}

TEST(DistributedFsat, RunsOnThreads) {
  fovea::ThreadPool pool(3);
  check_all(FsatCall<float>({.heads = 8, .key_heads = 4, .tokens = 1500}, 5),
            AnyExecutor::of(pool));
}

/// A key goes once to each rank that has a query with an edge to it, and no other does.
TEST(DistributedFsat, SendsKeysToTheirQueries) {
  if (all_ranks().size() != 2) GTEST_SKIP() << "counted for two ranks";
  FsatCall<float> whole({.tokens = 100, .slots_per_key = 1}, 6);
  // Of the keys of rank 0 three lead to queries of rank 1, one of them in both heads.
  whole.dominant.fill(constant(3));
  for (Index h = 0; h < 2; ++h) {
    for (Index n = 50; n < 100; ++n) whole.dominant(0, h, n, 0) = 80;
    whole.dominant(0, h, 7, 0) = 60;
  }
  whole.dominant(0, 0, 20, 0) = 99;
  whole.dominant(0, 1, 21, 0) = 50;
  const Sharding rows(all_ranks(), RowLayout::contiguous(100, 2));
  const FsatCall<float> own(whole, rows);
  const FsatAttention op(FsatOptions{.max_length = 100});
  const Index sent = fovea::distributed::forward(op, own.inputs(), own.out.view(), rows).bytes_sent;
  const Index row = 2 * (5 + 3 + 1) * Index{sizeof(float)};
  EXPECT_EQ(sent, all_ranks().rank() == 0 ? 3 * row : 0);
}

TEST(DistributedFsat, RefusesMismatches) {
  const FsatCall<float> whole({.tokens = 40}, 7);
  const Sharding rows(all_ranks(), RowLayout::contiguous(40, all_ranks().size()));
  const FsatCall<float> own(whole, rows);
  const int last = all_ranks().size() - 1;
  const std::string begin = "rank " + std::to_string(last) + ": FsatAttention: ";
  const auto refused = [&](const FsatInputs<float>& in, Index most) {
    return refusal([&] {
      const FsatAttention op(FsatOptions{.max_length = most});
      fovea::distributed::forward(op, in, own.out.view(), rows);
    });
  };
  auto in = own.inputs();
  if (all_ranks().rank() == last) in.dominant = {};
  EXPECT_NE(refused(in, 40).find("dominant"), std::string::npos);
  const std::vector<Index> queries(as_size(rows.own_count() * 8));
  in = own.inputs();
  if (all_ranks().rank() == last) {
    in.random = fovea::View<const Index>(queries.data(), {1, 2, rows.own_count(), 4});
  }
  EXPECT_EQ(refused(in, 40),
            begin + "random must not be given: the sequence is distributed over ranks");
  EXPECT_EQ(
      refused(own.inputs(), 39),
      "rank 0: FsatAttention: max_length is 39; expected at least 40, the rows of the sequence");
  for (const float x : own.out.values()) EXPECT_EQ(x, 77);
}

}  // namespace fovea_test::distributed_fsat_forward
