// SPDX-License-Identifier: MIT
/// \file
/// Attention of few query rows over many keys (split KV). Segments of keys are separate tasks, so
/// that one head keeps all threads busy; the segments are then merged in order. The split, and so
/// the bits, depend only on positions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <new>

#include "fovea/attention/softmax/call.hpp"
#include "fovea/attention/softmax/decode_plan.hpp"
#include "fovea/core/executor_ref.hpp"
#include "fovea/kernels/softmax/table.hpp"

FOVEA_NAMESPACE_BEGIN

/// One call: the rows of DecodePlan for all heads of a batch.
template <class T>
class SplitKv {
 public:
  /// The type of the arithmetic.
  using C = Compute<T>;

  /// The sizes of the call.
  struct Shape {
    Index batch = 1;        ///< B
    Index width = 0;        ///< D
    Index value_width = 0;  ///< Dv
    Index sources = 1;      ///< number of key sources: 1 for recent only, 2 with the summary
  };

  /// \param heads the groups of query heads; they must outlive this object
  /// \param rows the finished lists, which must outlive this object; the rows of an item times the
  /// heads of a group are at most kMostRows
  /// \param first_class the lists' class that corresponds to the first pattern
  SplitKv(const Shape& shape, const HeadGroups& heads, const DecodePlan& rows,
          Index first_class = 0)
      : shape_(shape), heads_(heads), rows_(rows), first_class_(first_class) {
    for (const HeadGroups::Group& group : heads_.groups()) {
      const DecodePlan::HeadClass& c = head_class(group);
      tasks_ += c.tasks.end - c.tasks.begin;
      part_elements_ += group_elements(group);
      row_keys_ += group.count * c.pairs + kRowsToRead * c.keys;
      const Index most_rows = group.count * c.most_rows;
      worker_elements_ = (std::max)(
          {worker_elements_, softmax_row_scratch(most_rows, shape_.width, shape_.value_width),
           softmax_merge_scratch(shape_.value_width)});
      for (Index n = c.items.begin; n < c.items.end; ++n) {
        const DecodePlan::Item& item = rows_.item(n);
        if (!item.is_band) continue;
        worker_elements_ =
            (std::max)(worker_elements_,
                       softmax_block_scratch(item.block.count, shape_.width, shape_.value_width));
      }
    }
    worker_elements_ = padded_size(worker_elements_);
  }

  /// The number of tasks for the whole batch.
  Index task_count() const { return shape_.batch * tasks_; }

  /// The call's cost in multiply-adds if keys are in the cache.
  double products() const {
    return static_cast<double>(shape_.batch * row_keys_) *
           static_cast<double>(shape_.width + shape_.value_width);
  }

  /// Bytes of scratch memory with that many workers.
  Index scratch_bytes(Index workers) const {
    return head_bytes() +
           (shape_.batch * part_elements_ + (std::max<Index>)(1, workers) * worker_elements_) *
               Index{sizeof(C)};
  }

  /// Computes the rows and writes them.
  /// \param args called as args(source, batch, query head), returns a head's arguments, except
  /// block and scratch
  /// \param scratch scratch_bytes(worker_count(executor, task_count())) bytes, aligned like a
  /// Workspace
  template <class Args>
  void run(Args&& args, std::byte* scratch, const ExecutorRef& executor) {
    begin(args, scratch);
    for_each_task(executor, task_count(), [&](Index task, Index worker) { compute(task, worker); });
    merge();
  }

  /// Computes one of the task_count() tasks. \pre begin was called
  void compute(Index task, Index worker) const { compute(task / tasks_, task % tasks_, worker); }

  /// The first step of run, for callers that compute the tasks themselves: stores the arguments of
  /// all heads. \param args, scratch as in run
  template <class Args>
  void begin(Args&& args, std::byte* scratch) {
    args_ = reinterpret_cast<HeadArgs<T>*>(scratch);
    parts_ = reinterpret_cast<C*>(scratch + head_bytes());
    slots_ = parts_ + shape_.batch * part_elements_;
    for (Index s = 0; s < shape_.sources; ++s) {
      for (Index b = 0; b < shape_.batch; ++b) {
        for (Index n = 0; n < heads_.head_count(); ++n) {
          const KeySource source = static_cast<KeySource>(s);
          ::new (args_of(source, b, n)) HeadArgs<T>(args(source, b, heads_.head(n)));
        }
      }
    }
  }

  /// The lists of a group's heads.
  const DecodePlan::HeadClass& head_class(const HeadGroups::Group& group) const {
    return rows_.head_class(first_class_ + group.head_class);
  }
  /// The arguments of a group's heads, [group.count]. \pre begin was called
  const HeadArgs<T>* heads(KeySource source, Index b, const HeadGroups::Group& group) const {
    return args_of(source, b, group.first);
  }
  /// Elements of the running softmax of one segment of an item.
  Index part_elements(const HeadGroups::Group& group, const DecodePlan::Item& item) const {
    return part_elements(group, item.block.count);
  }
  /// The running softmax of an item's segment.
  /// \param parts the group's \param segment its number in the list of segments
  C* part(const HeadGroups::Group& group, const DecodePlan::Item& item, C* parts,
          Index segment) const {
    const Index items_before = item.first_segment - head_class(group).segments.begin;
    return parts + items_before * part_elements(group, head_class(group).most_rows) +
           (segment - item.first_segment) * part_elements(group, item.block.count);
  }
  /// Calls f(group, parts) for all groups of a batch entry, with their running softmaxes.
  template <class F>
  void for_each_group(Index b, const F& f) const {
    C* parts = parts_ + b * part_elements_;
    for (const HeadGroups::Group& group : heads_.groups()) {
      f(group, parts);
      parts += group_elements(group);
    }
  }

  /// Computes one task for a group: the running softmaxes of its segments, or the rows of a band.
  /// \param heads [group.count] their arguments, except block and scratch
  /// \param parts the group's \param worker whose scratch is used
  void compute(const HeadGroups::Group& group, const DecodePlan::Task& task,
               const HeadArgs<T>* heads, C* parts, Index worker) const {
    const DecodePlan::Item& item = rows_.item(task.item);
    const SoftmaxKernels<C, kStorage<T>> kernels;
    C* const scratch = slots_ + worker * worker_elements_;
    if (item.is_band) {
      for (Index n = 0; n < group.count; ++n) {
        HeadArgs<T> args = heads[n];
        args.block = item.block;
        args.scratch = scratch;
        kernels.block(args);
      }
      return;
    }
    kernels.row({heads, group.count, item.block, rows_.segments(task.first_segment),
                 task.segment_count, part(group, item, parts, task.first_segment), scratch});
  }

  /// The last step: writes the rows that are not bands. Merging takes a few multiplications per
  /// segment and column, not worth waking threads. \pre all tasks are computed
  void merge() const {
    for (Index b = 0; b < shape_.batch; ++b) merge(b);
  }

 private:
  Index head_bytes() const {
    const Index bytes =
        shape_.sources * shape_.batch * heads_.head_count() * Index{sizeof(HeadArgs<T>)};
    return (bytes + 63) / 64 * 64;
  }

  HeadArgs<T>* args_of(KeySource source, Index b, Index n) const {
    return args_ + (static_cast<Index>(source) * shape_.batch + b) * heads_.head_count() + n;
  }

  Index part_elements(const HeadGroups::Group& group, Index rows) const {
    return softmax_row_part(group.count * rows, shape_.value_width);
  }
  /// Elements of the running softmaxes of all of a group's segments.
  Index group_elements(const HeadGroups::Group& group) const {
    const DecodePlan::HeadClass& c = head_class(group);
    return (c.segments.end - c.segments.begin) * part_elements(group, c.most_rows);
  }

  /// Computes one task of a batch entry.
  /// \param task number of the task within the batch entry
  void compute(Index b, Index task, Index worker) const {
    C* parts = parts_ + b * part_elements_;
    for (const HeadGroups::Group& group : heads_.groups()) {
      const DecodePlan::HeadClass& c = head_class(group);
      const Index tasks = c.tasks.end - c.tasks.begin;
      if (task < tasks) {
        const DecodePlan::Task& own = rows_.task(c.tasks.begin + task);
        compute(group, own, heads(own.source, b, group), parts, worker);
        return;
      }
      task -= tasks;
      parts += group_elements(group);
    }
  }

  /// Writes the rows of one batch entry.
  void merge(Index b) const {
    const SoftmaxKernels<C, kStorage<T>> kernels;
    for_each_group(b, [&](const HeadGroups::Group& group, C* parts) {
      const DecodePlan::HeadClass& c = head_class(group);
      for (Index i = c.items.begin; i < c.items.end; ++i) {
        const DecodePlan::Item& item = rows_.item(i);
        if (item.is_band) continue;
        const C* const of_item = part(group, item, parts, item.first_segment);
        for (Index n = 0; n < group.count; ++n) {
          kernels.merge({heads(KeySource::recent, b, group) + n, item.block, n, group.count,
                         of_item, item.segment_count, slots_});
        }
      }
    });
  }

  Shape shape_;
  const HeadGroups& heads_;
  const DecodePlan& rows_;
  Index first_class_;
  Index tasks_ = 0;              // for one batch entry
  Index part_elements_ = 0;      // for one batch entry
  Index row_keys_ = 0;           // for one batch entry, see kRowsToRead
  Index worker_elements_ = 0;    // scratch of one worker
  HeadArgs<T>* args_ = nullptr;  // [sources, batch, heads in the order of heads_]
  C* parts_ = nullptr;           // [batch, part_elements_]
  C* slots_ = nullptr;           // [workers, worker_elements_]
};

FOVEA_NAMESPACE_END
