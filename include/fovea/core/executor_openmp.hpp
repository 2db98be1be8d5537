// SPDX-License-Identifier: MIT
/// \file
/// An Executor that uses the threads of OpenMP.
#pragma once

#if !defined(_OPENMP)
#error "fovea/core/executor_openmp.hpp needs OpenMP: compile and link with -fopenmp"
#endif

#include <omp.h>

#include <algorithm>

#include "fovea/core/config.hpp"
#include "fovea/core/executor.hpp"

FOVEA_NAMESPACE_BEGIN

/// An Executor whose parallel_for opens one parallel region of OpenMP. OpenMP ends the process if
/// it cannot create its threads.
class OpenMpExecutor {
 public:
  /// Uses as many threads as OMP_NUM_THREADS or omp_set_num_threads() specify at this moment.
  OpenMpExecutor() : OpenMpExecutor(omp_get_max_threads()) {}

  /// Uses this many threads, the calling one included. A number below 1 counts as 1.
  explicit OpenMpExecutor(int concurrency) : concurrency_((std::max)(concurrency, 1)) {}

  /// The number of threads, the calling one included.
  int concurrency() const { return concurrency_; }

  /// Makes the calls as Executor requires. Inside a parallel region, or inside a call of any
  /// executor, they run in the calling thread, in order.
  template <class F>
  void parallel_for(Index n, F&& f) const {
    if (n <= 1 || concurrency_ == 1 || omp_in_parallel() != 0 || detail::inside_call()) {
      Serial::parallel_for(n, f);
      return;
    }
    const int team = static_cast<int>((std::min)(n, Index{concurrency_}));
    detail::GuardedCalls calls;
#pragma omp parallel for schedule(dynamic, 1) num_threads(team)
    for (Index i = 0; i < n; ++i) calls.run(i, f);
    calls.rethrow();
  }

 private:
  int concurrency_;
};

FOVEA_NAMESPACE_END
