// SPDX-License-Identifier: MIT
/// \file
/// The forward pass of attention over lists of keys: the division of work among threads.
#pragma once

#include <algorithm>
#include <cstddef>

#include "fovea/attention/call/head_matrix.hpp"
#include "fovea/attention/indexed/options.hpp"
#include "fovea/attention/indexed/phases.hpp"

FOVEA_NAMESPACE_BEGIN

/// Lists of keys in a tensor [B, Hq, Nq, K].
struct TensorLists {
  /// Whether the lists are built during the pass: no.
  static constexpr bool kBuilt = false;

  /// \param given [B, Hq, Nq, K] lists that ascend strictly
  /// \param keys the number of keys, the most that a list can have
  /// \param chosen the options
  TensorLists(const View<const Index>& given, Index keys, const IndexedOptions& chosen)
      : indices(first_places(given, keys)), options(chosen) {}

  View<const Index> indices;  ///< [B, Hq, Nq, K] the lists, with at most as many entries as keys
  IndexedOptions options;     ///< the options

  /// Where query rows are among the keys.
  CausalAlignment alignment() const { return options.alignment; }
  /// The scale of the logits for queries of D = width.
  template <class T>
  T scale_of(Index width) const {
    return options.template scale_of<T>(width);
  }
  /// The entries of the longest list.
  Index length() const { return indices.width(); }
  /// The entries of all lists of one query head.
  Index entries() const { return indices.rows() * indices.width(); }
  /// The index of a sequence's first entry among those of its head.
  Index first_entry(const Sequence& s) const { return s.first_query * indices.width(); }

  /// The lists of one head of a sequence. The last parameter, the head's index in the pass, is not
  /// needed here.
  KeyLists rows(const Sequence& s, Index h, Index /*place*/) const {
    KeyLists lists;
    lists.data = detail::head_row(indices, s.batch, h, s.first_query);
    lists.row = detail::row_stride(indices);
    lists.step = detail::column_stride(indices);
    lists.length = indices.width();
    lists.key_end = s.key_end;
    lists.causal = options.causal;
    lists.first_position = s.first_position;
    return lists;
  }

  /// The factors of the entries' weights: none.
  static std::nullptr_t factors(const Sequence& /*s*/, Index /*place*/) { return nullptr; }
  /// The gradients of these factors: none.
  static std::nullptr_t d_factors(const Sequence& /*s*/, Index /*place*/) { return nullptr; }

 private:
  /// The lists without entries in excess of the number of keys, so that scratch need not grow with
  /// them.
  static View<const Index> first_places(const View<const Index>& given, Index keys) {
    if (given.width() <= keys) return given;
    const auto& [batch, heads, rows, width] = given.shape();
    return {given.data(), {batch, heads, rows, keys}, given.strides()};
  }
};

/// The cost of a forward pass over the lists in multiply-adds: every entry is read for one row. A
/// backward pass takes longer, but its threads synchronise several times.
template <class Lists>
double list_products(const AttentionShape& s, const Lists& lists) {
  return static_cast<double>(s.batch * s.query_heads) * static_cast<double>(lists.entries()) *
         static_cast<double>((1 + kRowsToRead) * (s.width + s.value_width));
}

/// One forward pass. A task is a block of rows of one query head; long sequences are computed in
/// phases, with the same bits. Checks nothing, so that an operator that makes its own lists can run
/// it on rows of larger tensors.
/// \pre the inputs meet what IndexedAttention checks
/// \tparam Lists like TensorLists
template <class T, class Lists = TensorLists>
class IndexedForward {
 public:
  /// \param out [B, Hq, Nq, Dv], written
  /// \param saved lse is written if a tensor is given
  IndexedForward(const IndexedInputs<T>& inputs, const Lists& lists, const View<T>& out,
                 const IndexedSaved<T>& saved)
      : call_(inputs, lists, out, saved),
        phases_(call_),
        tasks_(call_.sequences, inputs.q.heads(), [this](Index s, Index) {
          const Sequence sequence = call_.sequences[s];
          return phases_.have(sequence) ? 0 : (sequence.queries + kRows - 1) / kRows;
        }) {}

  IndexedForward(const IndexedForward&) = delete;
  IndexedForward& operator=(const IndexedForward&) = delete;

  /// Computes the pass.
  /// \throws std::bad_alloc before anything is written
  void run(const ExecutorRef& executor) {
    take_scratch(executor);
    if (!executor.only_counts()) compute(executor);
  }

  /// Allocates the scratch memory for `compute` with the same executor.
  /// \throws std::bad_alloc
  void take_scratch(const ExecutorRef& executor) {
    scratch_ =
        memory_of(executor).take(worker_count(executor, tasks_.count()), elements() * kElement);
    phases_.take_scratch(executor);
  }
  /// Computes the pass.
  /// \pre take_scratch(executor) was called
  void compute(const ExecutorRef& executor) {
    for_each_task(executor, tasks_.count(), [&](Index task, Index worker) {
      process_rows(tasks_[task], scratch_.template data<Compute<T>>() + worker * elements());
    });
    phases_.compute(executor);
  }

 private:
  static constexpr Index kElement = sizeof(Compute<T>);
  static constexpr Index kRows = 128;  // rows of a task
  /// A head's keys and values are prefetched if they take at least this many bytes. In
  /// measurements, prefetching gained at 32 MiB, and lost at 4 MiB and below.
  static constexpr Index kAheadBytes = Index{16} << 20;

  Index elements() const {
    const Index width = call_.inputs.q.width();
    const Index length = call_.lists.length();
    return Lists::kBuilt ? indexed_short_scratch(width, length) : indexed_scratch(width, length);
  }

  void process_rows(const SequenceTask& task, Compute<T>* scratch) const {
    const Sequence s = call_.sequences[task.sequence];
    const Index key_head =
        task.head / detail::group_size(call_.inputs.q.heads(), call_.inputs.k.heads());
    IndexedRowsArgs<Compute<T>, kStorage<T>> args;
    args.q = detail::head_stored(call_.inputs.q, s.batch, task.head, s.first_query);
    args.k = detail::head_stored(call_.inputs.k, s.batch, key_head, s.first_key);
    args.v = detail::head_stored(call_.inputs.v, s.batch, key_head, s.first_key);
    args.out = detail::head_output(call_.out, s.batch, task.head, s.first_query);
    if (!call_.saved.lse.empty()) {
      args.lse = detail::head_matrix(call_.saved.lse, s.batch, task.head, s.first_query);
    }
    const Index place = s.batch * call_.inputs.q.heads() + task.head;
    args.lists = call_.lists.rows(s, task.head, place);
    args.factors = call_.lists.factors(s, place);
    args.width = call_.inputs.q.width();
    args.value_width = call_.inputs.v.width();
    args.scale = call_.lists.template scale_of<Compute<T>>(args.width);
    args.first = task.part * kRows;
    args.count = (std::min)(kRows, s.queries - args.first);
    args.ahead = s.keys * (args.width + args.value_width) * Index{sizeof(T)} >= kAheadBytes;
    args.scratch = scratch;
    IndexedKernels<Compute<T>, kStorage<T>>{}.rows(args);
  }

  IndexedForwardCall<T, Lists> call_;
  IndexedPhases<T, Lists> phases_;
  SequenceTasks tasks_;
  Workspace scratch_;
};

FOVEA_NAMESPACE_END
