// SPDX-License-Identifier: MIT
/// \file
/// The distributed gradients of sinks: sums accumulated along the ranges of a sequence.
#pragma once

#include <algorithm>
#include <exception>
#include <numeric>
#include <span>
#include <vector>

#include "fovea/attention/call/sequences.hpp"
#include "fovea/core/executor_ref.hpp"
#include "fovea/distributed/messages/pipelined_scan.hpp"
#include "fovea/kernels/softmax/grad.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The gradients of the sinks of one backward pass. The sums of each head are passed up the ranges;
/// the rank of the last range finishes and broadcasts them.
template <class T>
class SinkGradients {
 public:
  /// Allocates all memory.
  /// \param layout whose ranges are scanned   \param batch, heads of the queries
  /// \param at_once the number of heads processed together
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  SinkGradients(const Communicator& ranks, const RowLayout& layout, Index batch, Index heads,
                Index at_once)
      : ranks_(ranks),
        batch_(batch),
        scan_(ranks_, layout, ScanDirection::up, batch * heads, kSinkSums * Index{sizeof(T)},
              at_once),
        type_(detail::MpiType::row(ranks_, heads * Index{sizeof(T)})),
        totals_(static_cast<std::size_t>(heads)) {}

  /// Computes them. All messages are exchanged even if computing throws.
  /// \param pass has add_to_sink, which adds some rows of a head to sums [kSinkSums]
  /// \returns the exception that computing threw, or null
  template <class Pass>
  std::exception_ptr run(Pass& pass, const Sequences<T>& sequences, const ExecutorRef& executor) {
    if (totals_.empty() || scan_.end_rank() < 0) return nullptr;
    const Index heads = static_cast<Index>(totals_.size());
    const std::exception_ptr error =
        scan_.run(executor, [&](const ScanStep& scan_step, Index n, Index worker) {
          T* const sums = scan_.template state<T>(n);
          if (scan_step.before < 0) std::fill_n(sums, kSinkSums, T{0});
          pass.add_to_sink(sequences[n / heads], n % heads, scan_step.rows, sums, worker);
        });
    if (ranks_.rank() == scan_.end_rank()) {
      add_up();
      ranks_.add_sent((ranks_.size() - 1) * heads * Index{sizeof(T)});
    }
    ranks_.wait([&] {
      ranks_.check(MPI_Bcast(totals_.data(), 1, type_.get(), scan_.end_rank(), ranks_.mpi()),
                   "MPI_Bcast");
    });
    return error;
  }

  /// Writes the gradients, [heads]. \pre run was called
  void write(const std::span<T>& to) const {
    std::copy(totals_.begin(), totals_.end(), to.begin());
  }

 private:
  void add_up() {
    const Index heads = static_cast<Index>(totals_.size());
    for (Index h = 0; h < heads; ++h) {
      T& total = totals_[static_cast<std::size_t>(h)];
      for (Index b = 0; b < batch_; ++b) {
        const T* const sums = scan_.template state<T>(b * heads + h);
        total += std::accumulate(sums, sums + kSinkSums, T{0});
      }
    }
  }

  const Communicator& ranks_;
  Index batch_;
  PipelinedScan scan_;
  detail::MpiType type_;
  std::vector<T> totals_;
};

}  // namespace distributed

FOVEA_NAMESPACE_END
