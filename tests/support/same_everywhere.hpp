// SPDX-License-Identifier: MIT
/// \file
/// Results whose bits must not depend on the executor, the level or the tensors' layouts.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "fovea/core/thread_pool.hpp"
#include "support/compare.hpp"
#include "support/executors.hpp"
#include "support/levels.hpp"
#include "support/tensor.hpp"

namespace fovea_test {

/// Expects that run(executor) has the bits of run(nullptr) on threads and in odd schedules.
/// \param rounds how often each of them runs
template <class Run>
void expect_same_bits_on_executors(int rounds, const Run& run) {
  static fovea::ThreadPool pools[] = {fovea::ThreadPool(1), fovea::ThreadPool(2),
                                      fovea::ThreadPool(3), fovea::ThreadPool(4)};
  Backwards backwards;
  Shuffled shuffled;
  std::vector<AnyExecutor> executors = {AnyExecutor::of(backwards), AnyExecutor::of(shuffled)};
  for (fovea::ThreadPool& pool : pools) executors.push_back(AnyExecutor::of(pool));
  const auto serial = run(nullptr);
  for (int round = 0; round < rounds; ++round) {
    for (AnyExecutor& executor : executors) {
      EXPECT_TRUE(same_bits(serial, run(&executor))) << executor.concurrency() << " workers";
    }
  }
}

/// Expects the same bits from run() at v3 and at v4, if the machine has both.
template <class Run>
void expect_levels_agree(const Run& run) {
  if (!has_level(IsaLevel::v3) || !has_level(IsaLevel::v4)) return;
  const auto at = [&](IsaLevel level) {
    const AtLevel use(level);
    return run();
  };
  EXPECT_TRUE(same_bits(at(IsaLevel::v3), at(IsaLevel::v4)));
}

/// Runs a call on several threads, in odd schedules, with strided columns and before guard pages,
/// at every level; all results must have the same bits, those of levels with fused multiply-adds
/// among each other.
/// \param make make(layout) is what the call reads
/// \param run run(read, executor, layout) is what it writes; the executor may be null
template <class Make, class Run>
void expect_same_bits_everywhere(Make&& make, Run&& run) {
  fovea::ThreadPool pools[] = {fovea::ThreadPool(2), fovea::ThreadPool(3)};
  Backwards backwards;
  Shuffled shuffled;
  const Layout plain;
  const Layout apart{.order = {2, 0, 3, 1}, .innermost = 2, .gap = 3};
  const Layout guarded{.guard = Guard::behind};
  const auto read = make(plain);
  const auto strided = make(apart);
  const auto between_guards = make(guarded);
  using Written = decltype(run(read, nullptr, plain));
  std::vector<Written> fused;
  at_each_level([&] {
    const Written serial = run(read, nullptr, plain);
    for (AnyExecutor executor : {AnyExecutor::of(pools[0]), AnyExecutor::of(pools[1]),
                                 AnyExecutor::of(backwards), AnyExecutor::of(shuffled)}) {
      EXPECT_TRUE(same_bits(serial, run(read, &executor, plain))) << executor.concurrency();
    }
    EXPECT_TRUE(same_bits(serial, run(strided, nullptr, apart)));
    EXPECT_TRUE(same_bits(serial, run(between_guards, nullptr, guarded)));
    if (has_fma(fovea::isa_level())) fused.push_back(serial);
  });
  for (const Written& other : fused) EXPECT_TRUE(same_bits(fused[0], other));
}

}  // namespace fovea_test
