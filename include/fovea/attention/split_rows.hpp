// SPDX-License-Identifier: MIT
/// \file
/// Few query rows against many keys: each segment of keys is a task of its own, so that one head
/// keeps all threads busy; the segments are then merged in their order. The split depends on
/// positions alone, and so do the bits.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>

#include "fovea/core/executor.hpp"
#include "fovea/core/workspace.hpp"
#include "fovea/kernels/table.hpp"

FOVEA_NAMESPACE_BEGIN

/// The heads of one call, all with the same block: at most kMostRows rows per key head.
template <class T>
class SplitRows {
 public:
  struct Shape {
    Index batch = 1;
    Index key_heads = 1;
    Index group = 1;  // query heads per key head
    Index width = 0;
    Index value_width = 0;
  };

  /// \param block of every head; it must outlive this
  SplitRows(const Shape& shape, const QueryBlock& block)
      : shape_(shape), block_(block), rows_(shape.group * block.count) {
    if (block.run_count == 0) return;
    const KeyRun& run = block.runs[0];
    first_segment_ = run.first / kKeySegment;
    segments_ = (run.first + run.count - 1) / kKeySegment + 1 - first_segment_;
  }

  /// Bytes of scratch with that many workers.
  Index scratch_bytes(Index workers) const {
    return head_bytes() + task_count() * part_bytes() +
           std::max<Index>(1, workers) * worker_bytes();
  }

  /// Key heads times segments.
  Index task_count() const { return groups() * segments_; }

  /// \param args args(batch, query head): all of a head but block and scratch
  /// \param scratch scratch_bytes(worker_count(executor, task_count())), aligned as a Workspace
  template <class Args, class E>
  void run(Args&& args, std::byte* scratch, E&& executor) const {
    auto* const heads = reinterpret_cast<SoftmaxBlockArgs<T>*>(scratch);
    for (Index h = 0; h < groups() * shape_.group; ++h) {
      const Index heads_per_batch = shape_.key_heads * shape_.group;
      SoftmaxBlockArgs<T>* const head =
          std::construct_at(heads + h, args(h / heads_per_batch, h % heads_per_batch));
      head->block = block_;
    }
    std::byte* const parts = scratch + head_bytes();
    std::byte* const slots = parts + task_count() * part_bytes();
    const KernelTable<T>& table = kernels<T>();
    for_each_task(executor, task_count(), [&](Index task, Index worker) {
      const Index group = task / segments_;
      table.softmax_row({heads + group * shape_.group, shape_.group,
                         first_segment_ + task % segments_,
                         reinterpret_cast<T*>(parts + task * part_bytes()),
                         reinterpret_cast<T*>(slots + worker * worker_bytes())});
    });
    // A few multiplications per segment and column: not worth waking threads.
    for (Index h = 0; h < groups() * shape_.group; ++h) {
      const Index group = h / shape_.group;
      table.softmax_merge({heads + h, h % shape_.group, shape_.group,
                           reinterpret_cast<T*>(parts + group * segments_ * part_bytes()),
                           segments_, reinterpret_cast<T*>(slots)});
    }
  }

 private:
  static Index whole_lines(Index bytes) { return (bytes + 63) / 64 * 64; }

  Index groups() const { return shape_.batch * shape_.key_heads; }
  Index head_bytes() const {
    return whole_lines(groups() * shape_.group * Index{sizeof(SoftmaxBlockArgs<T>)});
  }
  Index part_bytes() const {
    return softmax_row_part(rows_, shape_.value_width) * Index{sizeof(T)};
  }
  Index worker_bytes() const {
    return std::max(softmax_row_scratch(rows_, shape_.width),
                    softmax_merge_scratch(shape_.value_width)) *
           Index{sizeof(T)};
  }

  Shape shape_;
  QueryBlock block_;
  Index rows_;
  Index first_segment_ = 0;
  Index segments_ = 0;
};

FOVEA_NAMESPACE_END
