// SPDX-License-Identifier: MIT
/// \file
/// The choice of keys by a sketch: the division of work among threads, and their scratch memory.
#pragma once

#include "fovea/attention/call/head_matrix.hpp"
#include "fovea/attention/call/logit_scale.hpp"
#include "fovea/attention/call/sequences.hpp"
#include "fovea/attention/smart_bird/options.hpp"
#include "fovea/attention/smart_bird/sketch_blocks.hpp"
#include "fovea/attention/smart_bird/sketch_keys.hpp"
#include "fovea/core/executor_ref.hpp"
#include "fovea/kernels/sketch/table.hpp"

FOVEA_NAMESPACE_BEGIN

/// The rows of one call, and the keys chosen for them. Everything is checked.
/// \tparam T the type of the arithmetic
template <class T>
struct SketchRows {
  View<const T> q;           ///< the sketch's queries, [B, 1, Nq, d]
  View<const T> draws = {};  ///< [B, H, Nq, Nk] draws, or empty: drawn from the seed
  View<Index> indices;       ///< [B, H, Nq, K] or [B, H, Nq, min(K, Nk)], written
  /// [B, Nq], written: whether the row's sketch scores are free of NaN; null: not wanted.
  bool* is_number = nullptr;
};

/// Chooses keys for some rows. A task is a row block of a sequence with all heads, which share the
/// sketch's scores.
template <class T>
class SketchSelection {
 public:
  /// The number of rows of a task.
  static constexpr Index kBlockRows = 16;

  /// \param keys the keys of the sketch, which must outlive this object
  SketchSelection(const SmartBirdOptions& options, const SketchRows<T>& rows,
                  const SketchKeys<T>& keys)
      : options_(options), rows_(rows), keys_(keys) {}

  /// Allocates the scratch memory for that many tasks on sequences of at most that many keys.
  /// \param by_blocks whether some sequence has its keys in blocks
  /// \throws std::bad_alloc
  void take_scratch(Index tasks, Index most_keys, bool by_blocks, const ExecutorRef& executor) {
    slot_ = slot_bytes(most_keys, keys_.width(), by_blocks);
    scratch_ = memory_of(executor).take(worker_count(executor, tasks), slot_);
  }

  /// The number of blocks of that many rows.
  static Index block_count(Index rows) { return (rows + kBlockRows - 1) / kBlockRows; }
  /// A block of some rows.
  static Range block(const Range& rows, Index n) {
    const Index first = rows.begin + n * kBlockRows;
    return {first, (std::min)(first + kBlockRows, rows.end)};
  }

  /// Chooses the keys of at most kBlockRows rows of a sequence.
  /// \param blocks the sequence's keys in blocks; without segments: all keys are scanned
  void run(const Sequence& s, const Range& rows, Index worker, const SketchBlocks<T>& blocks = {}) {
    const Index first = rows.begin;
    const Index row = s.first_query + first;
    SketchSelectArgs<T> args;
    args.q = detail::head_matrix(rows_.q, s.batch, 0, row);
    args.keys = keys_.keys(s.batch, s.first_key);
    args.keys_row = keys_.room();
    args.blocks = blocks.segment_count == 0 ? nullptr : &blocks;
    args.width = keys_.width();
    args.rows = rows.end - rows.begin;
    args.key_end = s.key_end;
    args.causal = options_.causal;
    args.first_position = s.first_position + first;
    args.scale = scale();
    args.policy = options_.policy;
    args.seed = options_.seed;
    args.batch = static_cast<std::uint32_t>(s.index);
    args.heads = rows_.indices.heads();
    if (!rows_.draws.empty()) {
      args.draws = detail::head_row(rows_.draws, s.batch, 0, row);
      args.draws_head = rows_.draws.strides()[1];
      args.draws_row = rows_.draws.strides()[2];
      args.draws_column = rows_.draws.strides()[3];
      args.draws += s.first_key * args.draws_column;
    }
    args.indices = detail::head_row(rows_.indices, s.batch, 0, row);
    args.indices_head = rows_.indices.strides()[1];
    args.indices_row = rows_.indices.strides()[2];
    args.indices_column = rows_.indices.strides()[3];
    args.chosen = rows_.indices.width();
    if (rows_.is_number != nullptr) {
      args.is_number = rows_.is_number + s.batch * rows_.q.rows() + row;
    }
    args.scratch = scratch_.template data<std::byte>() + worker * slot_;
    SketchKernels<T>{}.select(args);
  }

 private:
  static Index slot_bytes(Index keys, Index width, bool by_blocks) {
    return (sketch_select_scratch<T>(keys, width, by_blocks) + 63) / 64 * 64;
  }

  T scale() const { return detail::logit_scale<T>(options_.sketch_scale, keys_.width()); }

  SmartBirdOptions options_;
  SketchRows<T> rows_;
  const SketchKeys<T>& keys_;
  Index slot_ = 0;
  Workspace scratch_;
};

/// The cost of choosing the keys of all rows and attending to them, in multiply-adds.
/// \param keys the number of keys that a row chooses from
/// \param heads number of query heads
template <class T>
double selection_products(SamplingPolicy policy, const View<const T>& sketch_q, Index keys,
                          Index heads) {
  // Measured with 1024 to 65536 keys, and 8 and 32 heads, on AVX-512.
  constexpr Index key = 32;      // for a key, once for all heads
  constexpr Index head = 32000;  // for a head, whatever the number of keys
  // For a key and a head: without a sketch, all keys draw.
  const Index draw = policy == SamplingPolicy::random ? 64 : 2;
  return static_cast<double>(sketch_q.batch() * sketch_q.rows()) *
         static_cast<double>(keys * (sketch_q.width() + key + draw * heads) + head * heads);
}

/// Chooses the keys of rows of checked inputs.
/// \param indices [B, H, Nq, K] or [B, H, Nq, min(K, Nk)], written
/// \param is_number [B, Nq], written: whether the row's sketch scores are free of NaN; null: unused
/// \param rows the rows of each sequence whose keys are wanted: all by default
/// \throws std::bad_alloc, and as require() of the executor's memory, before anything is written
template <class T>
void select_keys(const SmartBirdOptions& options, const SketchInputs<T>& inputs,
                 const View<Index>& indices, bool* is_number, const ExecutorRef& executor,
                 const Range& rows = kEverywhere) {
  if (indices.heads() == 0) return;
  const LinearInputs<T> sketch = detail::tokens_of(inputs);
  const Sequences<T> sequences(sketch, options.alignment);
  const auto wanted = [&](Index s) { return rows.within({0, sequences[s].queries}); };
  const SequenceTasks tasks(sequences, 1, [&](Index s, Index) {
    return SketchSelection<T>::block_count(wanted(s).end - wanted(s).begin);
  });
  const Index key_rows = sketch.k.rows();
  SketchKeys<T> keys(sketch.k.batch(), sketch.k.width());
  auto&& memory = memory_of(executor);
  keys.take_room(key_rows, memory);
  SketchBlockKeys<T> near_keys(sketch.k.width());
  // Given draws may be any numbers, for which blocks have no bound.
  if (inputs.draws.empty()) near_keys.plan(options, sequences, memory);
  SketchSelection<T> selection(options, {sketch.q, inputs.draws, indices, is_number}, keys);
  selection.take_scratch(tasks.count(), key_rows, near_keys.segment_count() > 0, executor);
  memory.require();
  if (executor.only_counts()) return;

  keys.clear();
  constexpr Index block = 1024;
  const Index blocks = (key_rows + block - 1) / block;
  for_each_task(executor, sketch.k.batch() * blocks, [&](Index task, Index) {
    const Index first = task % blocks * block;
    keys.put(sketch.k, task / blocks, first, first, (std::min)(block, key_rows - first));
  });
  for_each_task(executor, near_keys.segment_count(), [&](Index segment, Index) {
    near_keys.make(segment, sequences[near_keys.sequence_of(segment)], keys);
  });
  near_keys.finish();
  for_each_task(executor, tasks.count(), [&](Index task, Index worker) {
    const SequenceTask at = tasks[task];
    selection.run(sequences[at.sequence], SketchSelection<T>::block(wanted(at.sequence), at.part),
                  worker, near_keys.of(at.sequence));
  });
}

FOVEA_NAMESPACE_END
