// SPDX-License-Identifier: MIT
/// \file
/// The forward pass of attention over lists of keys: which thread computes what.
#pragma once

#include <cmath>
#include <optional>

#include "fovea/attention/head_matrix.hpp"
#include "fovea/attention/sequences.hpp"
#include "fovea/core/workspace.hpp"
#include "fovea/kernels/table.hpp"
#include "fovea/patterns/pattern.hpp"

FOVEA_NAMESPACE_BEGIN

/// Options of IndexedAttention.
struct IndexedOptions {
  /// Of the logits; 1 / sqrt(D) if not set.
  std::optional<double> scale = {};
  /// Row i sees, of its list, the keys up to its own position.
  bool causal = false;
  /// The position of query row 0 if Nq != Nk.
  CausalAlignment alignment = CausalAlignment::bottom_right;

  /// The scale of the logits of queries of this width.
  template <class T>
  T scale_of(Index width) const {
    if (scale) return static_cast<T>(*scale);
    return width == 0 ? 1 : static_cast<T>(1.0 / std::sqrt(static_cast<double>(width)));
  }
};

namespace detail {

/// The lists of one head of a sequence.
inline KeyLists key_lists(const View<const Index>& indices, const IndexedOptions& options,
                          const Sequence& s, Index h) {
  KeyLists lists;
  lists.data = head_row(indices, s.batch, h, s.first_query);
  lists.row = indices.strides()[2];
  lists.step = column_stride(indices);
  lists.length = indices.width();
  lists.key_end = s.key_end;
  lists.causal = options.causal;
  lists.first_position = SequenceShape::of(s.queries, s.keys, options.alignment).first_position;
  return lists;
}

}  // namespace detail

/// One forward pass: a task is a block of rows of one query head. It checks nothing, so that an
/// operator that makes its own lists can run it on rows cut from larger tensors.
/// \pre what IndexedAttention checks of its inputs, where indices are [B, Hq, Nq, K]
template <class T>
class IndexedForward {
 public:
  IndexedForward(const Inputs<T>& inputs, const IndexedOptions& options, const View<T>& out,
                 const Saved<T>& saved)
      : inputs_(inputs),
        options_(options),
        out_(out),
        saved_(saved),
        sequences_(inputs),
        tasks_(sequences_, inputs.q.heads(),
               [this](Index s, Index) { return (sequences_[s].queries + kRows - 1) / kRows; }) {}

  /// Bytes of scratch with that many workers. \param length K, the entries of a row's list
  static Index workspace_bytes(const AttentionShape& shape, Index length, Index workers) {
    return workers * slot(shape.width, length) * kElement;
  }

  /// \throws std::bad_alloc, before anything is written
  template <class E>
  void run(E&& executor) {
    take_scratch(executor);
    compute(executor);
  }

  /// The same in two steps: only the first may throw.
  template <class E>
  void take_scratch(E&& executor) {
    scratch_ = Workspace(worker_count(executor, tasks_.count()), elements() * kElement);
  }
  template <class E>
  void compute(E&& executor) {
    for_each_task(executor, tasks_.count(), [&](Index task, Index worker) {
      attend(tasks_[task], scratch_.template data<Compute<T>>() + worker * elements());
    });
  }

 private:
  static constexpr Index kElement = sizeof(Compute<T>);
  static constexpr Index kRows = 128;  // of a task
  /// Keys and values of a head that are asked for ahead. Measured: 32 MiB gain from it, 4 MiB
  /// and less lose.
  static constexpr Index kAheadBytes = Index{16} << 20;

  Index elements() const { return slot(inputs_.q.width(), inputs_.indices.width()); }
  static Index slot(Index width, Index length) { return gather_scratch(width, length); }

  void attend(const SequenceTask& task, Compute<T>* scratch) const {
    const Sequence s = sequences_[task.sequence];
    const Index key_head = task.head / (inputs_.q.heads() / inputs_.k.heads());
    GatherArgs<Compute<T>> args;
    args.q = detail::head_stored(inputs_.q, s.batch, task.head, s.first_query);
    args.k = detail::head_stored(inputs_.k, s.batch, key_head, s.first_key);
    args.v = detail::head_stored(inputs_.v, s.batch, key_head, s.first_key);
    args.out = detail::head_stored(out_, s.batch, task.head, s.first_query);
    if (!saved_.lse.is_none()) {
      args.lse = detail::head_matrix(saved_.lse, s.batch, task.head, s.first_query);
    }
    args.lists = detail::key_lists(inputs_.indices, options_, s, task.head);
    args.width = inputs_.q.width();
    args.value_width = inputs_.v.width();
    args.scale = options_.template scale_of<Compute<T>>(args.width);
    args.first = task.part * kRows;
    args.count = std::min(kRows, s.queries - args.first);
    args.ahead = s.keys * (args.width + args.value_width) * Index{sizeof(T)} >= kAheadBytes;
    args.scratch = scratch;
    kernels<Compute<T>>().gather(args);
  }

  Inputs<T> inputs_;
  IndexedOptions options_;
  View<T> out_;
  Saved<T> saved_;
  Sequences<T> sequences_;
  SequenceTasks tasks_;
  Workspace scratch_;
};

FOVEA_NAMESPACE_END
