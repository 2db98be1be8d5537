// SPDX-License-Identifier: MIT
/// \file
/// The landmarks of a sharded sequence: means of row segments, accumulated range by range.
#pragma once

#include <algorithm>
#include <exception>

#include "fovea/attention/nystroem/products.hpp"
#include "fovea/core/executor_ref.hpp"
#include "fovea/core/index_span.hpp"
#include "fovea/core/view.hpp"
#include "fovea/distributed/messages/pipelined_scan.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The means of all heads of a tensor, computed on all ranks.
template <class T>
class LandmarkMeans {
 public:
  /// Allocates all memory.
  /// \param x [B, H, own rows, D]   \param lengths of all sequences, or none: all rows are tokens
  /// \param landmarks of each sequence, which divide its tokens
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  LandmarkMeans(const View<const T>& x, IndexSpan lengths, Index landmarks, const Sharding& rows,
                const ExecutorRef& executor)
      : x_(x),
        lengths_(lengths),
        landmarks_(landmarks),
        rows_(rows.count()),
        scan_(rows.ranks(), rows.layout(), ScanDirection::up, heads(),
              (landmarks + 1) * x.width() * Index{sizeof(T)},
              (std::max)(worker_count(executor, heads()), Index{1})) {}
  LandmarkMeans(const LandmarkMeans&) = delete;
  LandmarkMeans& operator=(const LandmarkMeans&) = delete;

  /// Computes them. All messages are exchanged even if computing throws.
  /// \returns the exception that computing threw, or null
  std::exception_ptr run(const ExecutorRef& executor) {
    for (Index head = 0; head < heads(); ++head) {
      std::fill_n(means(head), landmarks_ * x_.width(), T{0});
    }
    const std::exception_ptr error = scan_.run(
        executor,
        [&](const ScanStep& scan_step, Index head, Index /*worker*/) { add(scan_step, head); });
    scan_.give_to_all();
    return error;
  }

  /// The means of a head, [m, D]; those of a sequence without tokens are 0. \pre run was called
  const T* of(Index b, Index h) { return means(b * x_.heads() + h); }

 private:
  Index heads() const { return x_.batch() * x_.heads(); }
  T* means(Index head) { return scan_.template state<T>(head); }

  /// Adds the rows of a range to the means of a head. Rows are summed in reduction blocks from a
  /// segment's first row on; a block may continue in the next range.
  void add(const ScanStep& scan_step, Index head) {
    const Index b = head / x_.heads();
    const Index tokens = lengths_.value_or(b, rows_);
    const Index of_segment = tokens / landmarks_;
    const Index end = (std::min)(scan_step.rows.end, tokens);
    T* const scan = means(head) + landmarks_ * x_.width();
    for (Index row = scan_step.rows.begin; row < end;) {
      const Index first = row / of_segment * of_segment;
      const Index chain_end =
          first + (std::min)(of_segment, ((row - first) / kReductionBlock + 1) * kReductionBlock);
      const Index count = (std::min)(chain_end, end) - row;
      if ((row - first) % kReductionBlock == 0) std::fill_n(scan, x_.width(), T{0});
      fovea::detail::add_segment(
          fovea::detail::head_matrix(x_, b, head % x_.heads(),
                                     scan_step.first + row - scan_step.rows.begin),
          count, x_.width(), scan);
      row += count;
      if (row < chain_end) return;
      T* const mean = means(head) + first / of_segment * x_.width();
      for (Index c = 0; c < x_.width(); ++c) mean[c] += scan[c];
      if (row < first + of_segment) continue;
      for (Index c = 0; c < x_.width(); ++c) mean[c] /= static_cast<T>(of_segment);
    }
  }

  View<const T> x_;
  IndexSpan lengths_;
  Index landmarks_;
  Index rows_;          // of the sequence
  PipelinedScan scan_;  // of a head: means [m, D], and the open reduction block [D]
};

}  // namespace distributed

FOVEA_NAMESPACE_END
