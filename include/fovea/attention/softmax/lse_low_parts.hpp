// SPDX-License-Identifier: MIT
/// \file
/// The rounding error of a large lse, computed before a backward pass.
///
/// A backward pass recomputes weights as exp(s - lse). With lse in the thousands its rounding alone
/// would change them in the fourth digit (float), and with them the sum of a row's weights. The
/// forward pass keeps two parts of lse separate: the maximum, and the logarithm of the sum relative
/// to it. For rows whose |lse| exceeds kLargeLse both are recomputed, without values, and the low
/// part of their sum is kept. Query blocks without such a row cost nothing, and the bits of other
/// rows do not change.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "fovea/attention/softmax/head_plans.hpp"
#include "fovea/core/executor_ref.hpp"
#include "fovea/core/workspace.hpp"
#include "fovea/kernels/softmax/table.hpp"

FOVEA_NAMESPACE_BEGIN

/// A worker's memory for computing low parts.
template <class T>
struct LseScratch {
  BlockStorage storage;  ///< the runs of a block of queries
  T* kernel;             ///< LseLowParts::scratch_elements(shape) elements
};

/// The low parts of one call. A task is a query block of one head, as in SoftmaxForward.
template <class T>
class LseLowParts {
 public:
  /// \param call, plans must outlive this object
  /// \param lse [B, Hq, Nq, 1] as the forward pass saved it
  LseLowParts(const SoftmaxCall<T>& call, const HeadPlans& plans, const View<T>& lse)
      : call_(call), plans_(plans), lse_(lse) {}

  /// Elements of scratch of one worker.
  static Index scratch_elements(const AttentionShape& shape) {
    return softmax_block_scratch(block_rows(shape.queries), shape.width, 0);
  }

  /// Allocates the memory if that depends on the shape alone, not on lse.
  /// \param memory the call's (memory_of)
  /// \throws std::bad_alloc
  template <class Memory>
  void take_by_shape(Memory&& memory) {
    if (memory.is_by_shape()) take_numbers(memory);
  }

  /// Looks for rows with a large lse, unless the call only counts. If there is one, allocates the
  /// memory, one number for each row and three more for a pattern with several passes, unless
  /// already done.
  /// \param memory as above
  /// \throws std::bad_alloc
  template <class Memory>
  void look(Memory&& memory) {
    if (memory.only_counts() || !any_large()) return;
    if (!memory.is_by_shape()) take_numbers(memory);
    tasks_.reserve(static_cast<std::size_t>(plans_.pass_count()));
    for (Index pass = 0; pass < plans_.pass_count(); ++pass) {
      tasks_.emplace_back(call_.sequences(), lse_.heads(),
                          [&](Index s, Index h) { return plans_.plan(pass, s, h).block_count(); });
    }
  }

  /// Uses low parts computed elsewhere, in place of `look` and `find`.
  /// \param low [B, Hq, Nq, 1]   \param memory as above
  /// \throws std::bad_alloc
  template <class Memory>
  void give(const View<const T>& low, Memory&& memory) {
    if (!memory.is_by_shape()) take_numbers(memory);
    memory.require();
    are_given_ = true;
    T* to = numbers_.template data<T>();
    for (Index b = 0; b < low.batch(); ++b) {
      for (Index h = 0; h < low.heads(); ++h) {
        for (Index n = 0; n < low.rows(); ++n) *to++ = low(b, h, n, 0);
      }
    }
  }

  /// Computes the low parts.
  /// \param scratch called as scratch(worker), returns an LseScratch
  template <class Scratch>
  void find(const ExecutorRef& executor, Scratch&& scratch) {
    if (tasks_.empty()) return;
    // Zeros, since blocks without a large row are not computed.
    memory_of(executor).require();
    std::fill_n(numbers_.template data<T>(), rows() * row_numbers(plans_), T{0});
    for (std::size_t pass = 0; pass < tasks_.size(); ++pass) {
      for_each_task(executor, tasks_[pass].count(), [&](Index task, Index worker) {
        LseScratch<T> own = scratch(worker);
        process_task(static_cast<Index>(pass), tasks_[pass][task], own);
      });
    }
  }

  /// The low parts of a head, [Nq]; null if no row of the call has a large lse.
  const T* of(const Sequence& s, Index h) const {
    return tasks_.empty() && !are_given_ ? nullptr : numbers_.template data<T>() + row(s, h);
  }

 private:
  static bool is_large(T lse) {
    const T size = std::abs(lse);
    return kLargeLse < size && size < std::numeric_limits<T>::infinity();
  }

  template <class Memory>
  void take_numbers(Memory&& memory) {
    numbers_ = memory.take(rows() * row_numbers(plans_), Index{sizeof(T)});
  }
  static Index row_numbers(const HeadPlans& plans) { return plans.pass_count() > 1 ? 4 : 1; }
  Index rows() const { return lse_.batch() * lse_.heads() * lse_.rows(); }
  /// The index of a head's first row.
  Index row(const Sequence& s, Index h) const {
    return (s.batch * lse_.heads() + h) * lse_.rows() + s.first_query;
  }

  bool any_large() const {
    for (Index b = 0; b < lse_.batch(); ++b) {
      for (Index h = 0; h < lse_.heads(); ++h) {
        for (Index n = 0; n < lse_.rows(); ++n) {
          if (is_large(lse_(b, h, n, 0))) return true;
        }
      }
    }
    return false;
  }

  void process_task(Index pass, const SequenceTask& task, LseScratch<T>& scratch) {
    const Sequence s = call_.sequences()[task.sequence];
    const AnyPlan& plan = plans_.plan(pass, task.sequence, task.head);
    SoftmaxBlockArgs<T> args = call_.args(s, task.head, View<T>(), SoftmaxSaved<T>{lse_});
    args.block = plan.block(task.part, scratch.storage);
    bool needed = false;
    for (Index i = 0; i < args.block.count && !needed; ++i) {
      needed = is_large(
          lse_(s.batch, task.head, s.first_query + args.block.first + args.block.step * i, 0));
    }
    if (!needed) return;
    // Only the tile variant is used, since its logits are those of the backward kernels.
    args.block.most_keys = kUnboundedKeys;
    args.value_width = 0;
    T* const numbers = numbers_.template data<T>();
    args.lse_low = numbers + row(s, task.head);
    if (plans_.pass_count() > 1) args.carry.rows = numbers + rows() + 3 * row(s, task.head);
    args.carry.resumes = pass > 0;
    args.carry.suspends = !plans_.is_last(pass, task.sequence, task.head);
    args.scratch = scratch.kernel;
    SoftmaxKernels<T>{}.block(args);
  }

  const SoftmaxCall<T>& call_;
  const HeadPlans& plans_;
  View<T> lse_;
  Workspace numbers_;                 // [B, Hq, Nq], and with several passes [B, Hq, Nq, 3]
  std::vector<SequenceTasks> tasks_;  // for each pass; empty if no row is large
  bool are_given_ = false;
};

FOVEA_NAMESPACE_END
