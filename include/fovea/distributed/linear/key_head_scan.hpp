// SPDX-License-Identifier: MIT
/// \file
/// A causal pass across ranks: the states of key heads are passed along the ranges of rows.
#pragma once

#include <algorithm>
#include <exception>
#include <vector>

#include "fovea/core/executor_ref.hpp"
#include "fovea/core/index_span.hpp"
#include "fovea/distributed/messages/pipelined_scan.hpp"
#include "fovea/kernels/linear/linear.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The key heads of one causal pass. Each range of rows adds its tokens to the incoming states and
/// passes them on, a few key heads at a time, so that ranks work on different heads at once.
template <class T>
class KeyHeadScan {
 public:
  /// The sizes of a key head.
  struct Sizes {
    Index batch = 0;      ///< sequences
    Index key_heads = 0;  ///< of each
    Index group = 0;      ///< query heads of a key head
    Index state = 0;      ///< elements of its state
    Index scratch = 0;    ///< scratch elements per worker
  };
  /// The memory used to process a key head.
  struct Memory {
    T* state = nullptr;             ///< [Sizes::state]
    T* scratch = nullptr;           ///< [Sizes::scratch]
    LinearRows<T>* rows = nullptr;  ///< [group]
  };

  /// Allocates all memory.
  /// \param key_lengths of the whole sequence, or none; they must outlive this object
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  KeyHeadScan(const Sizes& sizes, IndexSpan key_lengths, const Sharding& rows,
              const ExecutorRef& executor)
      : sizes_(sizes),
        key_lengths_(key_lengths),
        rows_(rows),
        workers_((std::max)(worker_count(executor, heads()), Index{1})),
        scratch_(memory_of(executor).take(workers_, sizes.scratch * Index{sizeof(T)})),
        row_args_(static_cast<std::size_t>(workers_ * sizes.group)),
        scan_(rows.ranks(), rows.layout(), ScanDirection::up, heads(),
              sizes.state * Index{sizeof(T)}, workers_) {}
  KeyHeadScan(const KeyHeadScan&) = delete;
  KeyHeadScan& operator=(const KeyHeadScan&) = delete;

  /// This rank's communication statistics.
  CommStats comm_stats() const { return scan_.comm_stats(); }

  /// Processes this rank's rows. All messages are exchanged even if computing throws.
  /// \tparam RowBlock of the stream: rows, and tokens not yet in the state
  /// \param add called as add(batch entry, key head, row block, memory) from threads of the
  /// executor \returns the exception that computing threw, or null
  template <class RowBlock, class Add>
  std::exception_ptr run(const ExecutorRef& executor, const Add& add) {
    return scan_.run([&](const ScanStep& scan_step, Index first, Index end) {
      for_each_task(executor, end - first, [&](Index task, Index worker) {
        const Index head = first + task;
        const Index b = head / sizes_.key_heads;
        const Index before = (std::min)(scan_step.rows.begin, key_end(b));
        const Index behind = (std::min)(scan_step.rows.end, key_end(b));
        const RowBlock row_block = {scan_step.first, scan_step.rows.end - scan_step.rows.begin,
                                    scan_step.first, behind - before,
                                    before,          scan_step.rows.begin};
        add(b, head % sizes_.key_heads, row_block,
            Memory{scan_.template state<T>(head),
                   scratch_.template data<T>() + worker * sizes_.scratch,
                   row_args_.data() + worker * sizes_.group});
      });
    });
  }

 private:
  /// Key heads of all sequences.
  Index heads() const { return sizes_.batch * sizes_.key_heads; }
  Index key_end(Index batch) const {
    return key_lengths_.empty() ? rows_.count() : key_lengths_[static_cast<std::size_t>(batch)];
  }

  Sizes sizes_;
  IndexSpan key_lengths_;
  const Sharding& rows_;
  Index workers_;
  Workspace scratch_;                    // [workers, scratch]
  std::vector<LinearRows<T>> row_args_;  // [workers, group]
  PipelinedScan scan_;
};

}  // namespace distributed

FOVEA_NAMESPACE_END
