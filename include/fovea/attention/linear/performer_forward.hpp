// SPDX-License-Identifier: MIT
/// \file
/// The forward pass of Performer attention: the division of work among threads, and their scratch
/// memory.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "fovea/attention/linear/feature_stream.hpp"
#include "fovea/attention/linear/feature_totals.hpp"

FOVEA_NAMESPACE_BEGIN

/// One forward pass. If causal, a task is a key head of a sequence with its query heads, in one
/// pass over the tokens. If not causal, the steps are the totals of the keys, and then blocks of
/// rows that read these.
template <class T>
class PerformerForward {
 public:
  /// \param inputs checked inputs, which must outlive this object
  PerformerForward(const PerformerInputs<T>& inputs, const PerformerVisibility& visibility,
                   const View<T>& out)
      : inputs_(inputs),
        shape_(shape_of(inputs)),
        visibility_(visibility),
        sequences_(inputs, visibility.alignment),
        out_(out),
        segments_(inputs, features_) {}

  /// Computes the pass.
  /// \throws std::bad_alloc before anything is written
  void run(const ExecutorRef& executor) {
    auto&& memory = memory_of(executor);
    const Index tasks = reserve_tasks(memory);
    slot_ = slot_elements(shape_, visibility_);
    scratch_ = memory.take(worker_count(executor, tasks), slot_ * Index{sizeof(T)});
    rows_.resize(static_cast<std::size_t>(worker_count(executor, tasks) * group()));
    projection_ = memory.take(
        1, RandomFeatures<T>::elements(shape_.features, shape_.width, false) * Index{sizeof(T)});
    memory.require();
    if (tasks == 0 || executor.only_counts()) return;
    if (!inputs_.projection.empty()) {
      features_.pack(inputs_.projection, false, projection_.template data<T>());
    }
    if (visibility_.causal) {
      run_causal(executor);
    } else {
      run_not_causal(executor);
    }
  }

 private:
  /// Rows of a non-causal task.
  static constexpr Index kReadRows = 2 * kFeatureRows;

  static Index slot_elements(const PerformerShape& shape, const PerformerVisibility& visibility) {
    const Index group = detail::group_size(shape.query_heads, shape.key_heads);
    if (visibility.causal) {
      return FeatureStream<T>::state_elements(shape.features, shape.value_width) +
             FeatureStream<T>::scratch_elements(shape.features, shape.width, shape.value_width,
                                                group);
    }
    return (std::max)(FeatureSegments<T>::read_scratch(shape),
                      FeatureSegments<T>::sum_scratch(shape));
  }

  Index group() const { return detail::group_size(shape_.query_heads, shape_.key_heads); }
  T* scratch(Index worker) { return scratch_.template data<T>() + worker * slot_; }

  template <class Memory>
  Index reserve_tasks(Memory&& memory) {
    if (visibility_.causal) return sequences_.count() * shape_.key_heads;
    totals_.emplace(shape_, sequences_, visibility_, segments_);
    totals_->reserve(memory);
    blocks_.emplace(sequences_, shape_.query_heads, [&](Index s, Index) {
      return (sequences_[s].queries + kReadRows - 1) / kReadRows;
    });
    return (std::max)(totals_->most_tasks(), blocks_->count());
  }

  void run_causal(const ExecutorRef& executor) {
    const FeatureStream<T> stream(inputs_, shape_, features_, out_);
    const Index state = FeatureStream<T>::state_elements(shape_.features, shape_.value_width);
    for_each_task(executor, sequences_.count() * shape_.key_heads, [&](Index task, Index worker) {
      const Sequence s = sequences_[task / shape_.key_heads];
      if (s.queries == 0) return;
      typename FeatureStream<T>::RowBlock row_block;
      row_block.first_row = s.first_query;
      row_block.rows = s.queries;
      row_block.first_token = s.first_key;
      row_block.tokens = visibility_.seen(s);
      row_block.first_position = s.first_position;
      stream.add(s.batch, task % shape_.key_heads, row_block,
                 {scratch(worker), scratch(worker) + state, rows_.data() + worker * group()});
    });
  }

  void run_not_causal(const ExecutorRef& executor) {
    totals_->compute(executor, [&](Index worker) { return scratch(worker); });
    for_each_task(executor, blocks_->count(), [&](Index task, Index worker) {
      const auto [sequence, head, part] = (*blocks_)[task];
      const Sequence s = sequences_[sequence];
      const Index end = (std::min)((part + 1) * kReadRows, s.queries);
      for (Index first = part * kReadRows; first < end; first += kFeatureRows) {
        read(s, head, first, (std::min)(kFeatureRows, end - first), scratch(worker));
      }
    });
  }

  void read(const Sequence& s, Index head, Index first, Index count, T* scratch) const {
    const typename FeatureSegments<T>::Rows rows = {s.batch, head, s.first_query + first, count,
                                                    s.queries - first - count};
    if (visibility_.seen(s) == 0) return FeatureSegments<T>::clear(rows, out_);
    segments_.read(rows, totals_->total(s.index, head / group()),
                   totals_->reference(s.index, head / group()), out_, scratch);
  }

  const PerformerInputs<T>& inputs_;
  PerformerShape shape_;
  PerformerVisibility visibility_;
  Sequences<T> sequences_;
  View<T> out_;
  RandomFeatures<T> features_;
  FeatureSegments<T> segments_;
  Index slot_ = 0;
  Workspace scratch_;                       // [workers]
  Workspace projection_;                    // shared by all
  std::vector<LinearRows<T>> rows_;         // [workers, group]
  std::optional<FeatureTotals<T>> totals_;  // set only if not causal
  std::optional<SequenceTasks> blocks_;     // set only if not causal
};

FOVEA_NAMESPACE_END
