// SPDX-License-Identifier: MIT
/// \file
/// Before a backward pass: what the rounding of a large lse took from it.
///
/// A backward pass recomputes weights as exp(s - lse), and with lse in the thousands its rounding
/// alone would make them wrong in the fourth digit (float), the sum of a row's with them. The
/// forward pass never adds the maximum and the logarithm of the sum relative to it; so the rows
/// whose |lse| is beyond kLargeLse have both computed once more, without values, and their low
/// parts kept. Blocks of queries without such a row cost nothing, and bits of other rows stay.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "fovea/attention/softmax/head_plans.hpp"
#include "fovea/core/executor.hpp"
#include "fovea/core/workspace.hpp"
#include "fovea/kernels/softmax/table.hpp"

FOVEA_NAMESPACE_BEGIN

/// What a worker computes low parts with.
template <class T>
struct LseScratch {
  BlockStorage& storage;
  T* kernel;  // LseLowParts::scratch_elements(shape)
};

/// The low parts of one call. A task is a block of queries of one head, as in SoftmaxForward.
template <class T>
class LseLowParts {
 public:
  LseLowParts(const SoftmaxCall<T>& call, const HeadPlans& plans, const View<T>& lse)
      : call_(call), plans_(plans), lse_(lse) {}

  /// Of one worker.
  static Index scratch_elements(const AttentionShape& shape) {
    return softmax_block_scratch(block_rows(shape.queries), shape.width, 0);
  }

  /// Looks for rows with a large lse; if there is one, takes a number for each row, and under a
  /// pattern of several stages three more. \throws std::bad_alloc
  void take_memory() {
    if (!any_large()) return;
    const Index carried = plans_.stage_count() > 1 ? 3 : 0;
    numbers_ = Workspace(rows() * (1 + carried), Index{sizeof(T)});
    // Blocks without a large row are never computed.
    std::fill_n(numbers_.template data<T>(), rows() * (1 + carried), T{0});
    tasks_.reserve(static_cast<std::size_t>(plans_.stage_count()));
    for (Index stage = 0; stage < plans_.stage_count(); ++stage) {
      tasks_.emplace_back(call_.sequences(), lse_.heads(),
                          [&](Index s, Index h) { return plans_.plan(stage, s, h).block_count(); });
    }
  }

  /// \param scratch scratch(worker): an LseScratch
  template <class E, class Scratch>
  void find(E&& executor, Scratch&& scratch) {
    for (std::size_t stage = 0; stage < tasks_.size(); ++stage) {
      for_each_task(executor, tasks_[stage].count(), [&](Index task, Index worker) {
        attend(static_cast<Index>(stage), tasks_[stage][task], scratch(worker));
      });
    }
  }

  /// [Nq] of a head of a sequence; null if no row of the call has one.
  const T* of(const Sequence& s, Index h) const {
    return tasks_.empty() ? nullptr : numbers_.template data<T>() + row(s, h);
  }

 private:
  static bool is_large(T lse) {
    const T size = std::abs(lse);
    return kLargeLse < size && size < std::numeric_limits<T>::infinity();
  }

  Index rows() const { return lse_.batch() * lse_.heads() * lse_.rows(); }
  /// The first row of a head of a sequence.
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

  void attend(Index stage, const SequenceTask& task, const LseScratch<T>& scratch) {
    const Sequence s = call_.sequences()[task.sequence];
    const AnyPlan& plan = plans_.plan(stage, task.sequence, task.head);
    SoftmaxBlockArgs<T> args = call_.args(s, task.head, View<T>(), SoftmaxSaved<T>{lse_});
    args.block = plan.block(task.part, scratch.storage);
    bool needed = false;
    for (Index i = 0; i < args.block.count && !needed; ++i) {
      needed = is_large(
          lse_(s.batch, task.head, s.first_query + args.block.first + args.block.step * i, 0));
    }
    if (!needed) return;
    // The tile form alone: its logits are those of the backward kernels.
    args.block.most_keys = kUnboundedKeys;
    args.value_width = 0;
    T* const numbers = numbers_.template data<T>();
    args.lse_low = numbers + row(s, task.head);
    if (plans_.stage_count() > 1) args.carry.rows = numbers + rows() + 3 * row(s, task.head);
    args.carry.resumes = stage > 0;
    args.carry.suspends = !plans_.is_last(stage, task.sequence, task.head);
    args.scratch = scratch.kernel;
    SoftmaxKernels<T>{}.block(args);
  }

  const SoftmaxCall<T>& call_;
  const HeadPlans& plans_;
  View<T> lse_;
  Workspace numbers_;                 // [B, Hq, Nq], and [B, Hq, Nq, 3] if there are stages
  std::vector<SequenceTasks> tasks_;  // of each stage; none if no row is large
};

FOVEA_NAMESPACE_END
