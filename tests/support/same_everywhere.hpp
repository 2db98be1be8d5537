// SPDX-License-Identifier: MIT
/// \file
/// Results whose bits must not depend on the executor or on the tensors' layouts.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "fovea/core/thread_pool.hpp"
#include "support/compare.hpp"
#include "support/executors.hpp"
#include "support/levels.hpp"
#include "support/tensor.hpp"

namespace fovea_test {

/// Runs a call on several threads, in odd schedules, with strided columns and before guard pages,
/// at every level; all results must have the same bits, those of levels with fused multiply-adds
/// among each other.
/// \param make make(layout) is what the call reads
/// \param run run(read, executor, layout) is what it writes; the executor may be null
template <class Make, class Run>
void expect_same_bits_everywhere(Make&& make, Run&& run) {
  fovea::ThreadPool pools[] = {fovea::ThreadPool(2), fovea::ThreadPool(3)};
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
    for (fovea::ThreadPool& pool : pools) {
      AnyExecutor executor = AnyExecutor::of(pool);
      EXPECT_TRUE(same_bits(serial, run(read, &executor, plain))) << pool.concurrency();
    }
    AnyExecutor executor = AnyExecutor::of(shuffled);
    EXPECT_TRUE(same_bits(serial, run(read, &executor, plain)));
    EXPECT_TRUE(same_bits(serial, run(strided, nullptr, apart)));
    EXPECT_TRUE(same_bits(serial, run(between_guards, nullptr, guarded)));
    if (has_fma(fovea::isa_level())) fused.push_back(serial);
  });
  for (const Written& other : fused) EXPECT_TRUE(same_bits(fused[0], other));
}

}  // namespace fovea_test
