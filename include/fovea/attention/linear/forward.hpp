// SPDX-License-Identifier: MIT
/// \file
/// The forward pass of linear, delta-rule and FMM attention: the division of work among threads,
/// and their scratch memory.
#pragma once

#include <optional>
#include <vector>

#include "fovea/attention/linear/segment_sums.hpp"
#include "fovea/attention/linear/shared_stream.hpp"

FOVEA_NAMESPACE_BEGIN

/// One forward pass.
/// If causal, a task is a key head of a sequence with its query heads. It goes over the tokens
/// once, with the state in its scratch, and computes the near field's row blocks on the way. With
/// more threads than such tasks, the near field is computed first, and each key head's tokens are
/// divided among threads (SharedStream). If not causal, the steps are: the sums of segments of
/// tokens, their totals, and then blocks of rows that read these. \tparam Field a LinearTerms for
/// the arithmetic of T \tparam Near NearBlocks<T>, or NoNearField
template <class T, class Field, class Near = NoNearField>
class LinearForward {
 public:
  /// The type of the arithmetic.
  using C = Compute<T>;

  /// \param inputs checked inputs
  /// \param far_field the terms of the far field
  /// \param weights the weights of the near and the far field; they must outlive this object
  /// \param out [B, Hq, Nq, Dv], written
  /// \param near_field the near field's blocks, if there is one
  LinearForward(const LinearFamilyInputs<T>& inputs, const Field& far_field,
                const FarWeights<C>& weights, const View<T>& out, Near near_field = {})
      : inputs_(inputs),
        shape_(shape_of(inputs)),
        far_(far_field),
        sequences_(inputs, far_field.alignment),
        out_(out),
        stream_(inputs, detail::group_size(shape_.query_heads, shape_.key_heads), far_field,
                weights, Near::kExists, out),
        near_(std::move(near_field)) {}

  /// Computes the pass.
  /// \throws std::bad_alloc before anything is written
  void run(const ExecutorRef& executor) {
    reserve(executor);
    if (!executor.only_counts()) compute(executor);
  }

  /// Allocates the memory for `compute` with the same executor.
  /// \throws std::bad_alloc
  void reserve(const ExecutorRef& executor) {
    if (far_.causal) return reserve_causal(executor);
    emplace_blocks();
    totals_.emplace(sequences_, shape_.key_heads, Index{1}, far_.linear_shape(shape_),
                    [&](Index s) { return sequences_[s].keys; });
    take_scratch(worker_count(executor, (std::max)(totals_->most_tasks(), blocks_->count())),
                 memory_of(executor));
    totals_->reserve(memory_of(executor));
  }

  /// Computes the pass.
  /// \pre reserve(executor) was called, once
  void compute(const ExecutorRef& executor) {
    if (far_.causal) return run_causal(executor);
    // The delta rule is causal.
    if constexpr (Field::kHasSums) run_not_causal(executor);
  }

 private:
  static constexpr Index kElement = sizeof(C);

  using Shared = SharedStream<T, Field>;
  /// Whether the near field's rows can be stored until the far field is added.
  static constexpr bool kCanShare = Field::kHasSums && !Field::kHasDelta &&
                                    (!Near::kExists || CausalStream<T, Field>::kOutIsWide);

  /// How the scratch of one worker is divided, in elements.
  struct WorkerScratch {
    WorkerScratch(const AttentionShape& shape, const Field& far_field) {
      const LinearShape sums = far_field.linear_shape(shape);
      if (far_field.causal) {
        state = CausalStream<T, Field>::state_elements(sums);
        delta = CausalStream<T, Field>::delta_elements(sums);
        kernel = CausalStream<T, Field>::scratch_elements(sums);
      } else {
        kernel =
            padded_row<C>((std::max)(linear_sum_scratch<C>(sums), linear_read_scratch<C>(sums)));
      }
      if constexpr (Near::kExists) {
        const Index group = detail::group_size(shape.query_heads, shape.key_heads);
        wide = CausalStream<T, Field>::wide_elements(sums, group, kMaxBlockRows);
        kernel = (std::max)(kernel, padded_row<C>(Near::scratch_elements(shape)));
      }
      elements = state + delta + wide + kernel;
    }

    Index state = 0;
    Index delta = 0;
    Index wide = 0;
    Index kernel = 0;
    Index elements = 0;  // the sum; like the others a multiple of a cache line
  };

  using Memory = typename CausalStream<T, Field>::Memory;

  Index group() const { return stream_.group(); }

  template <class Source>
  void take_scratch(Index workers, Source&& source) {
    slot_.emplace(shape_, far_);
    scratch_ = source.take(workers, slot_->elements * kElement);
    rows_.resize(static_cast<std::size_t>(workers * group()));
    if constexpr (Near::kExists) near_blocks_ = source.take(workers, BlockStorage::bytes(1));
  }

  Memory memory(Index worker) {
    C* const state = scratch_.template data<C>() + worker * slot_->elements;
    C* const delta = state + slot_->state;
    C* const wide = delta + slot_->delta;
    return {state, delta, wide, kMaxBlockRows, wide + slot_->wide, rows_.data() + worker * group()};
  }

  BlockStorage storage(Index worker) {
    return {1, near_blocks_.data<std::byte>() + worker * BlockStorage::bytes(1)};
  }

  Index causal_tasks() const { return sequences_.count() * shape_.key_heads; }

  void emplace_blocks() {
    blocks_.emplace(sequences_, shape_.query_heads, [&](Index s, Index) { return block_count(s); });
  }

  void reserve_causal(const ExecutorRef& executor) {
    Index tasks = causal_tasks();
    if constexpr (kCanShare) {
      const Index workers = worker_count(executor, kFarPosition);
      if (!sequences_.packed() && Shared::is_used(shape_, far_, workers)) {
        shared_.emplace(inputs_, far_, memory_of(executor));
        tasks = shared_->most_tasks();
        if constexpr (Near::kExists) {
          emplace_blocks();
          tasks = (std::max)(tasks, blocks_->count());
        }
      }
    }
    take_scratch(worker_count(executor, tasks), memory_of(executor));
  }

  void run_causal(const ExecutorRef& executor) {
    if constexpr (kCanShare) {
      if (shared_) return run_shared(executor);
    }
    for_each_task(executor, causal_tasks(), [&](Index task, Index worker) {
      const Sequence s = sequences_[task / shape_.key_heads];
      const Index key_head = task % shape_.key_heads;
      if (s.queries == 0) return;
      if constexpr (Near::kExists) {
        add_blocks(s, key_head, worker);
      } else {
        add(s, key_head, {0, s.queries}, 0, s.key_end, memory(worker));
      }
    });
  }

  void run_shared(const ExecutorRef& executor) {
    if constexpr (Near::kExists) {
      for_each_task(executor, blocks_->count(), [&](Index task, Index worker) {
        const auto [sequence, head, b] = (*blocks_)[task];
        BlockStorage own = storage(worker);
        attend_near(sequences_[sequence], head, near_.block(sequence, b, own), memory(worker));
      });
    }
    shared_->run(
        stream_, [&](Index worker) { return memory(worker); }, executor);
  }

  /// Computes a row block of the near field.
  void attend_near(const Sequence& s, Index head, const QueryBlock& block, const Memory& at) const {
    near_.process_block(
        s, head, block,
        stream_.near_rows(s.batch, head / group(), head % group(), s.first_query + block.first, at),
        at.kernel);
  }

  /// Adds the far field to rows of a sequence, and the tokens [length, end) on the way.
  void add(const Sequence& s, Index key_head, const Range& rows, Index length, Index end,
           const Memory& at) const {
    stream_.add(s.batch, key_head,
                {s.first_query + rows.begin, rows.end - rows.begin, s.first_key + length,
                 end - length, length, s.first_position + rows.begin},
                at);
  }

  /// Computes the near and the far field of one key head, row block by row block.
  void add_blocks(const Sequence& s, Index key_head, Index worker) {
    const Memory at = memory(worker);
    BlockStorage own = storage(worker);
    Index length = 0;
    for (Index b = 0; b < near_.block_count(s.index); ++b) {
      const QueryBlock block = near_.block(s.index, b, own);
      const Index last_row = block.first + block.count;
      for (Index g = 0; g < group(); ++g) attend_near(s, key_head * group() + g, block, at);
      const Index end = std::clamp(s.first_position + last_row, length, s.key_end);
      add(s, key_head, {block.first, last_row}, length, end, at);
      length = end;
    }
  }

  void run_not_causal(const ExecutorRef& executor) {
    totals_->compute(
        executor, [&](Index s) { return sequences_[s].key_end; },
        [&](const SequenceTask& segment, C* sums, Index worker) {
          LinearKernels<C, kStorage<T>>{}.sum(segment_sum_args(
              inputs_, far_, sequences_[segment.sequence], segment, sums, memory(worker).kernel));
        });
    for_each_task(executor, blocks_->count(), [&](Index task, Index worker) {
      const auto [sequence, head, b] = (*blocks_)[task];
      const Sequence s = sequences_[sequence];
      // Without keys there is no total.
      const C* const total = s.key_end == 0 ? nullptr : totals_->total(sequence, head / group());
      read_block(s, head, b, total, worker);
    });
  }

  /// Number of rows that read a total together, unless the near field's blocks determine it.
  static constexpr Index kReadRows = 256;

  Index block_count(Index sequence) const {
    if constexpr (Near::kExists) return near_.block_count(sequence);
    return (sequences_[sequence].queries + kReadRows - 1) / kReadRows;
  }

  /// \param total the total of the key head; null if there are no keys
  void read_block(const Sequence& s, Index head, Index b, const C* total, Index worker) {
    const Memory at = memory(worker);
    const Index key_head = head / group();
    const Index g = head % group();
    Index first = b * kReadRows;
    Index count = (std::min)(kReadRows, s.queries - first);
    if constexpr (Near::kExists) {
      BlockStorage own = storage(worker);
      const QueryBlock block = near_.block(s.index, b, own);
      first = block.first;
      count = block.count;
      attend_near(s, head, block, at);
    }
    if (s.key_end == 0) return clear_rows(s, head, first, count);
    LinearReadArgs<C, kStorage<T>> args;
    args.rows = stream_.term_rows(s.batch, key_head, g, s.first_query + first, true, true, at);
    args.row_count = count;
    args.width = far_.features(shape_.width);
    args.value_width = shape_.value_width;
    args.maps = far_.linear_maps(shape_.width);
    args.total = total;
    args.scratch = at.kernel;
    LinearKernels<C, kStorage<T>>{}.read(args);
  }

  void clear_rows(const Sequence& s, Index head, Index first, Index count) const {
    for (Index n = 0; n < count; ++n) {
      for (Index c = 0; c < shape_.value_width; ++c) {
        out_(s.batch, head, s.first_query + first + n, c) = T(0);
      }
    }
  }

  LinearFamilyInputs<T> inputs_;
  AttentionShape shape_;
  Field far_;
  Sequences<T> sequences_;
  View<T> out_;
  CausalStream<T, Field> stream_;
  Near near_;
  std::optional<Shared> shared_;          // set only if tokens are divided among threads
  std::optional<SequenceTasks> blocks_;   // blocks of rows, unless a task processes all of a head's
  std::optional<SegmentSums<C>> totals_;  // set only if not causal
  std::optional<WorkerScratch> slot_;
  Workspace scratch_;                             // [workers]
  std::vector<LinearRows<C, kStorage<T>>> rows_;  // [workers, group]
  Workspace near_blocks_;                         // [workers] BlockStorage; with a near field
};

FOVEA_NAMESPACE_END
