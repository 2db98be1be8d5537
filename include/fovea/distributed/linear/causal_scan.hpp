// SPDX-License-Identifier: MIT
/// \file
/// A causal far field across ranks: the states of key heads are passed along the ranges of rows.
#pragma once

#include <algorithm>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "fovea/core/executor_ref.hpp"
#include "fovea/core/index_span.hpp"
#include "fovea/distributed/messages/pass.hpp"
#include "fovea/distributed/messages/pipelined_scan.hpp"
#include "fovea/kernels/linear/linear.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The sizes of a causal far field.
struct CausalScanSizes {
  Index batch = 0;      ///< sequences
  Index key_heads = 0;  ///< of each
  Index group = 0;      ///< query heads of a key head
  Index state = 0;      ///< elements of a key head's state
  Index scratch = 0;    ///< scratch elements per worker
};

/// A causal forward pass. Each range of rows adds its tokens to the incoming states and passes them
/// on, a few key heads at a time, so that ranks work on different heads at once.
/// \tparam Stream adds tokens to a state, and computes rows from it: a CausalStream or
/// FeatureStream \tparam MemoryOf called as memory_of(state, scratch, [group] rows), returns a
/// Stream::Memory
template <class T, class Stream, class MemoryOf>
class CausalScan final : public RankPass {
 public:
  /// Allocates all memory.
  /// \param key_lengths of the whole sequence, or none; they must outlive this object
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  CausalScan(Stream stream, MemoryOf memory_of_head, const CausalScanSizes& sizes,
             IndexSpan key_lengths, const Sharding& rows, const ExecutorRef& executor)
      : stream_(std::move(stream)),
        memory_of_head_(std::move(memory_of_head)),
        sizes_(sizes),
        key_lengths_(key_lengths),
        rows_(rows),
        workers_((std::max)(worker_count(executor, heads()), Index{1})),
        scratch_(memory_of(executor).take(workers_, sizes.scratch * Index{sizeof(T)})),
        row_args_(static_cast<std::size_t>(workers_ * sizes.group)),
        scan_(rows.ranks(), rows.layout(), ScanDirection::up, heads(),
              sizes.state * Index{sizeof(T)}, workers_) {}

  std::exception_ptr run(const ExecutorRef& executor) override {
    return scan_.run(executor, [&](const ScanStep& scan_step, Index head, Index worker) {
      const Index b = head / sizes_.key_heads;
      const Index before = (std::min)(scan_step.rows.begin, key_end(b));
      const Index behind = (std::min)(scan_step.rows.end, key_end(b));
      stream_.add(b, head % sizes_.key_heads,
                  {scan_step.first, scan_step.rows.end - scan_step.rows.begin, scan_step.first,
                   behind - before, before, scan_step.rows.begin},
                  memory_of_head_(scan_.template state<T>(head),
                                  scratch_.template data<T>() + worker * sizes_.scratch,
                                  row_args_.data() + worker * sizes_.group));
    });
  }

 private:
  /// Key heads of all sequences.
  Index heads() const { return sizes_.batch * sizes_.key_heads; }
  Index key_end(Index batch) const { return key_lengths_.value_or(batch, rows_.count()); }

  Stream stream_;
  MemoryOf memory_of_head_;
  CausalScanSizes sizes_;
  IndexSpan key_lengths_;
  const Sharding& rows_;
  Index workers_;
  Workspace scratch_;                    // [workers, scratch]
  std::vector<LinearRows<T>> row_args_;  // [workers, group]
  PipelinedScan scan_;
};

/// Creates a CausalScan.
template <class T, class Stream, class MemoryOf>
std::unique_ptr<RankPass> causal_scan(Stream stream, MemoryOf memory_of_head,
                                      const CausalScanSizes& sizes, IndexSpan key_lengths,
                                      const Sharding& rows, const ExecutorRef& executor) {
  return std::make_unique<CausalScan<T, Stream, MemoryOf>>(
      std::move(stream), std::move(memory_of_head), sizes, key_lengths, rows, executor);
}

}  // namespace distributed

FOVEA_NAMESPACE_END
