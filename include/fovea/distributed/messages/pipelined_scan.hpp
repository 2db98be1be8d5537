// SPDX-License-Identifier: MIT
/// \file
/// States that are passed from range to range of a sequence across ranks: a pipelined scan.
#pragma once

#include <algorithm>
#include <cstddef>
#include <exception>
#include <utility>
#include <vector>

#include "fovea/core/executor_ref.hpp"
#include "fovea/core/workspace.hpp"
#include "fovea/distributed/messages/mpi_type.hpp"
#include "fovea/distributed/rows/places_of_rows.hpp"
#include "fovea/distributed/sharding.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// One range of rows, and the ranks of the ranges before and after it. A scan may pass over the
/// sequence several times.
struct ScanStep {
  Range rows;        ///< of the sequence
  Index number = 0;  ///< its number among those of its rank
  Index first = 0;   ///< the place of its first row among the rank's rows
  int before = -1;   ///< the rank of the range before, or -1
  int behind = -1;   ///< the rank of the range after, or -1
  Index round = 0;   ///< the number of previous passes over the sequence
};

/// A rank's ranges as links of the scan over all ranks.
/// \param rounds the number of passes over the sequence, each from the first row on
inline std::vector<ScanStep> scan_steps_of(const RowLayout& layout, int rank, Index rounds = 1) {
  std::vector<std::pair<Range, int>> all;
  for (int r = 0; r < layout.ranks(); ++r) {
    for (const Range& range : layout.of(r)) all.emplace_back(range, r);
  }
  std::sort(all.begin(), all.end(),
            [](const auto& a, const auto& b) { return a.first.begin < b.first.begin; });
  std::vector<ScanStep> scan_steps;
  for (Index round = 0; round < rounds; ++round) {
    Index first = 0;
    for (std::size_t n = 0; n < all.size(); ++n) {
      if (all[n].second != rank) continue;
      const bool begins = n == 0 && round == 0;
      const bool ends = n + 1 == all.size() && round + 1 == rounds;
      scan_steps.push_back({.rows = all[n].first,
                            .number = static_cast<Index>(scan_steps.size()),
                            .first = first,
                            .before = begins ? -1 : all[n == 0 ? all.size() - 1 : n - 1].second,
                            .behind = ends ? -1 : all[n + 1 == all.size() ? 0 : n + 1].second,
                            .round = round});
      first += all[n].first.end - all[n].first.begin;
    }
  }
  return scan_steps;
}

/// The direction of a scan.
enum class ScanDirection : std::uint8_t {
  up,   ///< from the first row to the last
  down  ///< from the last row to the first
};

/// The states of some heads. Each range updates the incoming states and passes them on, a few heads
/// at a time, so that ranks work on different heads at once.
class PipelinedScan {
 public:
  /// Allocates all memory.
  /// \param layout whose ranges are scanned   \param heads heads of all sequences
  /// \param state_bytes of a head   \param at_once the number of heads processed together
  /// \param rounds the number of passes over the sequence
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  PipelinedScan(const Communicator& ranks, const RowLayout& layout, ScanDirection direction,
                Index heads, Index state_bytes, Index at_once, Index rounds = 1)
      : ranks_(ranks),
        scan_steps_(scan_steps_of(layout, ranks.rank(), rounds)),
        heads_(heads),
        bytes_(state_bytes),
        at_once_(at_once),
        states_(heads, state_bytes),
        sends_(static_cast<std::size_t>(heads), MPI_REQUEST_NULL),
        type_(detail::MpiType::row(ranks, state_bytes)) {
    const Index end = direction == ScanDirection::up ? layout.rows() - 1 : 0;
    if (layout.rows() > 0) end_rank_ = RowOwners(layout).rank(end);
    if (direction == ScanDirection::up) return;
    std::reverse(scan_steps_.begin(), scan_steps_.end());
    for (ScanStep& scan_step : scan_steps_) std::swap(scan_step.before, scan_step.behind);
  }
  PipelinedScan(const PipelinedScan&) = delete;
  PipelinedScan& operator=(const PipelinedScan&) = delete;

  /// The state of a head, stored after that of the previous head. Initially unspecified.
  template <class T>
  T* state(Index head) {
    return reinterpret_cast<T*>(states_.template data<std::byte>() + head * bytes_);
  }

  /// The rank of the last range, which has the final states; -1 if there are no rows.
  int end_rank() const { return end_rank_; }

  /// Processes this rank's ranges. All messages are exchanged even if computing throws.
  /// \param add called as add(link, first, end), updates the states of heads [first, end)
  /// \returns the exception that computing threw, or null
  template <class Add>
  std::exception_ptr run(const Add& add) {
    std::exception_ptr error;
    for (const ScanStep& scan_step : scan_steps_) {
      for (Index first = 0; first < heads_; first += at_once_) {
        const Index end = (std::min)(first + at_once_, heads_);
        for (Index head = first; head < end; ++head) {
          // The send for the previous range must complete before it is overwritten.
          wait(head);
          if (is_other(scan_step.before)) receive(head, scan_step.before);
        }
        if (!error) error = fovea::detail::caught([&] { add(scan_step, first, end); });
        for (Index head = first; head < end && is_other(scan_step.behind); ++head) {
          send(head, scan_step.behind);
        }
      }
    }
    for (Index head = 0; head < heads_; ++head) wait(head);
    return error;
  }

  /// The same with one head at a time, on threads.
  /// \param add called as add(link, head, worker), updates the state of a head
  template <class Add>
  std::exception_ptr run(const ExecutorRef& executor, const Add& add) {
    return run([&](const ScanStep& scan_step, Index first, Index end) {
      for_each_task(executor, end - first,
                    [&](Index task, Index worker) { add(scan_step, first + task, worker); });
    });
  }

  /// Broadcasts the final states. \pre run was called
  void give_to_all() {
    if (end_rank_ < 0) return;
    ranks_.wait([&] {
      for (Index head = 0; head < heads_; ++head) {
        ranks_.check(MPI_Bcast(state<std::byte>(head), 1, type_.get(), end_rank_, ranks_.mpi()),
                     "MPI_Bcast");
      }
    });
    // As if they were sent to every other rank.
    if (ranks_.rank() == end_rank_) ranks_.add_sent(heads_ * bytes_ * (ranks_.size() - 1));
  }

 private:
  static constexpr int kTag = 2;

  bool is_other(int rank) const { return rank >= 0 && rank != ranks_.rank(); }

  void receive(Index head, int from) {
    ranks_.wait([&] {
      ranks_.check(MPI_Recv(state<std::byte>(head), 1, type_.get(), from, kTag, ranks_.mpi(),
                            MPI_STATUS_IGNORE),
                   "MPI_Recv");
    });
  }
  void send(Index head, int to) {
    ranks_.add_sent(bytes_);
    ranks_.check(MPI_Isend(state<std::byte>(head), 1, type_.get(), to, kTag, ranks_.mpi(),
                           &sends_[static_cast<std::size_t>(head)]),
                 "MPI_Isend");
  }
  void wait(Index head) {
    ranks_.wait([&] {
      ranks_.check(MPI_Wait(&sends_[static_cast<std::size_t>(head)], MPI_STATUS_IGNORE),
                   "MPI_Wait");
    });
  }

  const Communicator& ranks_;
  std::vector<ScanStep> scan_steps_;  // in scan order
  Index heads_;
  Index bytes_;
  Index at_once_;
  Workspace states_;                // [heads, bytes_]
  std::vector<MPI_Request> sends_;  // [heads]
  detail::MpiType type_;
  int end_rank_ = -1;  // of the last range, or -1
};

}  // namespace distributed

FOVEA_NAMESPACE_END
