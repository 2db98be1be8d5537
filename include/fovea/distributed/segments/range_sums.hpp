// SPDX-License-Identifier: MIT
/// \file
/// Sums over the rows of a sequence, accumulated range by range.
#pragma once

#include <algorithm>
#include <exception>

#include "fovea/core/executor_ref.hpp"
#include "fovea/distributed/messages/pipelined_scan.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The sums of some heads, passed from range to range; all ranks receive the result.
/// \tparam S a trivially copyable sum, initially S{}
template <class S>
class RangeSums {
 public:
  /// Allocates all memory.
  /// \param layout whose ranges are scanned   \param heads, width number of the sums
  /// \param rounds the number of passes over the sequence
  /// \param at_once the number of heads processed together; 0: all
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  RangeSums(const Communicator& ranks, const RowLayout& layout, Index heads, Index width,
            Index rounds, Index at_once = 0)
      : heads_(heads),
        width_(width),
        chain_(ranks, layout, ScanDirection::up, heads, width * Index{sizeof(S)},
               (std::max)(at_once == 0 ? heads : at_once, Index{1}), rounds) {}

  /// The sums of a head, [width].
  S* of(Index head) { return chain_.template state<S>(head); }

  /// Computes them. All messages are exchanged even if computing throws.
  /// \param add called as add(link, head, sums, worker) from threads of the executor, adds a range
  /// of rows
  /// \returns the exception that computing threw, or null
  template <class Add>
  [[nodiscard]] std::exception_ptr run(const Add& add, const ExecutorRef& executor) {
    for (Index h = 0; h < heads_; ++h) std::fill_n(of(h), width_, S{});
    const std::exception_ptr error = chain_.run(
        executor,
        [&](const ScanStep& link, Index head, Index worker) { add(link, head, of(head), worker); });
    chain_.give_to_all();
    return error;
  }

 private:
  Index heads_;
  Index width_;
  PipelinedScan chain_;
};

}  // namespace distributed

FOVEA_NAMESPACE_END
