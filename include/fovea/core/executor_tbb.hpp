// SPDX-License-Identifier: MIT
/// \file
/// An Executor that uses the threads of oneTBB.
#pragma once

#include "fovea/core/config.hpp"
#include "fovea/core/executor.hpp"

#if !__has_include(<oneapi/tbb/parallel_for.h>)
#error "fovea/core/executor_tbb.hpp needs oneTBB 2021 or later: its headers were not found"
#endif
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/partitioner.h>
#include <oneapi/tbb/task_arena.h>
#include <oneapi/tbb/task_group.h>

#include <algorithm>

FOVEA_NAMESPACE_BEGIN

/// An Executor that uses the task arena of the calling thread. Its work is isolated: a thread that
/// waits here takes no task from outside. If an outer task group is cancelled, this work is not:
/// every call is made.
struct TbbExecutor {
  /// The number of threads of the calling thread's arena; at least 1.
  static int concurrency() {
    return (std::max)(1, oneapi::tbb::this_task_arena::max_concurrency());
  }

  /// Makes the calls as Executor requires. Inside a call of any executor they run in the calling
  /// thread, in order.
  template <class F>
  static void parallel_for(Index n, F&& f) {
    if (n <= 1 || detail::inside_call()) {
      Serial::parallel_for(n, f);
      return;
    }
    detail::GuardedCalls calls;
    oneapi::tbb::this_task_arena::isolate([&] {
      oneapi::tbb::task_group_context context(oneapi::tbb::task_group_context::isolated);
      oneapi::tbb::parallel_for(
          Index{0}, n, [&](Index i) { calls.run(i, f); }, oneapi::tbb::simple_partitioner{},
          context);
    });
    calls.rethrow();
  }
};

FOVEA_NAMESPACE_END
