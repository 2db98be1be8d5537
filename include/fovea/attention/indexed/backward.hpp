// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of attention over lists of keys: the division of work among threads, and the
/// order of sums, so that the bits do not depend on threads.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "fovea/attention/indexed/forward.hpp"
#include "fovea/attention/indexed/transpose_lists.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// The pieces of neighbouring heads, numbered head by head. Heads are counted through the batch. In
/// packed tensors a head has the pieces of all sequences.
template <class T>
class HeadPieces {
 public:
  struct Piece {
    Sequence sequence;
    Index head;   // the head within the batch entry
    Index place;  // the head's index among the requested ones
    Index part;   // number of the piece within its sequence
  };

  /// \param heads number of heads of a batch entry
  /// \param parts called as parts(sequence), returns the number of pieces of a head
  template <class Parts>
  HeadPieces(const Sequences<T>& sequences, Index heads, Parts&& parts)
      : sequences_(sequences),
        heads_(heads),
        of_head_(sequences, 1, [&](Index s, Index) { return parts(sequences[s]); }),
        count_(sequences.packed()      ? of_head_.count()
               : sequences.count() > 0 ? of_head_.count() / sequences.count()
                                       : 0) {}

  /// The number of pieces of one head.
  Index count() const { return count_; }

  /// Piece n of the heads from number `first` on.
  Piece operator()(Index first, Index n) const {
    const Index head = first + n / count_;
    const SequenceTask task = of_head_[n % count_];
    const Index sequence = sequences_.packed() ? task.sequence : head / heads_;
    return {sequences_[sequence], head % heads_, n / count_, task.part};
  }

 private:
  const Sequences<T>& sequences_;
  Index heads_;
  SequenceTasks of_head_;
  Index count_;
};

}  // namespace detail

/// One backward pass. It goes over the batch's key heads in groups of at most kMostEntries list
/// entries; the grouping depends only on the shape. For each group it computes the rows of its
/// query heads, which store weights and gradients of logits, then transposes the lists, and then
/// computes the keys.
/// Lists that are built are built before a group's rows, and receive the gradients of their factors
/// afterwards.
/// Checks nothing.
/// \pre as in IndexedForward, and lse is given
/// \tparam T float or double
/// \tparam Lists like TensorLists; if they are built, also with
/// `take_memory(heads, graphs, workers, memory)`, `build(graphs, head_of, executor)` and
/// `take_gradients(s, h, place)`
template <class T, class Lists = TensorLists>
class IndexedBackward {
 public:
  /// \param out, saved as the forward pass wrote them
  /// \param d_out [B, Hq, Nq, Dv]
  /// \param grads those without a tensor are not computed
  IndexedBackward(const IndexedInputs<T>& inputs, const Lists& lists, const View<const T>& out,
                  const IndexedSaved<T>& saved, const View<const T>& d_out,
                  const IndexedGrads<T>& grads)
      : inputs_(inputs),
        lists_(lists),
        out_(out),
        saved_(saved),
        d_out_(d_out),
        grads_(grads),
        sequences_(inputs, lists.alignment()),
        rows_(sequences_, inputs.q.heads(), [](const Sequence& s) { return pieces(s.queries); }),
        heads_(sequences_, inputs.q.heads(), [](const Sequence&) { return Index{1}; }),
        keys_(sequences_, inputs.k.heads(), [](const Sequence& s) { return pieces(s.keys); }),
        memory_(shape_of(inputs), lists.entries(), sequences_.packed() ? sequences_.count() : 1,
                grads) {}
  IndexedBackward(const IndexedBackward&) = delete;
  IndexedBackward& operator=(const IndexedBackward&) = delete;

  /// Bytes of scratch memory with that many workers, if all gradients are requested and the
  /// sequences are not packed. Excludes the memory of lists that are built.
  /// \param length entries of the longest list
  /// \param entries entries of all lists of a query head
  static Index workspace_bytes(const AttentionShape& shape, Index length, Index entries,
                               Index workers) {
    T some{};
    const View<T> wanted(&some, {1, 1, 1, 1});
    const Memory memory(shape, entries, 1, {.q = wanted, .k = wanted, .v = wanted});
    const Index group = detail::group_size(shape.query_heads, shape.key_heads);
    return memory.key_heads * group * memory.head_bytes() +
           workers *
               (slot(shape, length) * Index{sizeof(T)} + group * Index{sizeof(IndexedGradHead<T>)});
  }

  /// The number of query heads whose lists are built at once.
  /// \param entries entries of all lists of a query head
  static Index heads_at_once(const AttentionShape& shape, Index entries) {
    const Index group = detail::group_size(shape.query_heads, shape.key_heads);
    return group * Memory(shape, entries, 1, {}).key_heads;
  }

  /// Writes the gradients.
  /// \throws std::bad_alloc before anything is written
  void run(const ExecutorRef& executor) {
    reserve(executor);
    compute(executor);
  }

  /// Allocates the memory for `compute` with the same executor.
  /// \throws std::bad_alloc
  void reserve(const ExecutorRef& executor) {
    const Index heads = most() * group();
    if constexpr (Lists::kBuilt) {
      lists_.take_memory(heads, heads * heads_.count(), worker_count(executor, kFarPosition),
                         memory_of(executor));
    }
    const Index tasks =
        (std::max)({heads * rows_.count(), heads * heads_.count(), most() * keys_.count()});
    take_scratch(heads, worker_count(executor, tasks), memory_of(executor));
  }

  /// Writes the gradients.
  /// \pre reserve(executor) was called, once
  void compute(const ExecutorRef& executor) {
    for_each_group([&](Index first, Index count) { run_heads(first, count, executor); });
  }

  /// Writes the rounding error of a large lse, and +0 for other rows, for lists that have all keys
  /// of a row.
  /// \param to [B, Hq, Nq, 1]   \pre reserve(executor) was called, once
  void find_lse_low(const View<T>& to, const ExecutorRef& executor) {
    for_each_group([&](Index first, Index count) {
      build_lists(first, count, executor);
      for_each_task(executor, count * group() * rows_.count(), [&](Index task, Index worker) {
        const Piece piece = rows_(first * group(), task);
        IndexedGradRowsArgs<T> args = row_args(piece, worker);
        args.find_lse_low = matrix(to, piece.sequence, piece.head, piece.sequence.first_query);
        IndexedGradKernels<T>{}.rows(args);
      });
    });
  }

  /// The same, computed elsewhere: these lists may have only some of a row's keys.
  /// \param low [B, Hq, Nq, 1], must outlive this object
  void give_lse_low(const View<const T>& low) { lse_low_ = low; }

 private:
  using Piece = typename detail::HeadPieces<T>::Piece;

  static constexpr Index kRows = 128;                    // rows, or keys, of a task
  static constexpr Index kMostEntries = Index{1} << 21;  // list entries processed at once

  static Index pieces(Index rows) { return (rows + kRows - 1) / kRows; }

  /// The sizes of a group's intermediate results.
  struct Memory {
    Memory(const AttentionShape& shape, Index entries_of_head, Index sequences,
           const IndexedGrads<T>& grads)
        : entries(entries_of_head),
          begins(shape.keys + sequences),
          keeps_weights(!grads.v.empty()),
          keeps_logits(!grads.k.empty()) {
      const Index group = detail::group_size(shape.query_heads, shape.key_heads);
      const Index of_key_head = (std::max<Index>)(1, group * entries);
      key_heads = (std::max<Index>)(1, kMostEntries / of_key_head);
      if (!keeps() && !Lists::kBuilt)
        key_heads = (std::max<Index>)(1, shape.batch * shape.key_heads);
      key_heads = (std::min)(key_heads, (std::max<Index>)(1, shape.batch * shape.key_heads));
    }

    bool keeps() const { return keeps_weights || keeps_logits; }
    Index numbers() const { return entries * (Index{keeps_weights} + Index{keeps_logits}); }
    Index integers() const { return keeps() ? 2 * entries + begins : 0; }
    /// Bytes of one query head.
    Index head_bytes() const {
      return numbers() * Index{sizeof(T)} + integers() * Index{sizeof(Index)};
    }

    Index entries;  // entries of a query head
    Index begins;   // begins of its RowLists, with one more for each sequence
    bool keeps_weights;
    bool keeps_logits;
    Index key_heads;  // key heads of a group
  };

  static Index slot(const AttentionShape& shape, Index length) {
    return padded_size(indexed_grad_scratch(shape.width, shape.value_width, length));
  }

  Index group() const { return detail::group_size(inputs_.q.heads(), inputs_.k.heads()); }
  /// The number of key heads in the batch.
  Index key_heads() const { return inputs_.k.batch() * inputs_.k.heads(); }
  /// The number of key heads processed at once.
  Index most() const { return (std::min)(memory_.key_heads, key_heads()); }

  template <class Source>
  void take_scratch(Index heads, Index workers, Source&& source) {
    slot_ = slot(shape_of(inputs_), lists_.length());
    scratch_ = source.take(workers, slot_ * Index{sizeof(T)});
    numbers_ = source.take(heads, memory_.numbers() * Index{sizeof(T)});
    integers_ = source.take(heads, memory_.integers() * Index{sizeof(Index)});
    head_args_.resize(static_cast<std::size_t>(workers * group()));
  }

  /// Calls f(first, count) for the groups of key heads of the batch.
  template <class F>
  void for_each_group(const F& f) const {
    const Index all = key_heads();
    for (Index first = 0; first < all; first += most()) {
      f(first, (std::min)(most(), all - first));
    }
  }

  void build_lists(Index first, Index count, const ExecutorRef& executor) {
    if constexpr (Lists::kBuilt) {
      const auto head_of = [&](Index n) { return heads_(first * group(), n); };
      lists_.build(count * group() * heads_.count(), head_of, executor);
    }
  }

  /// Computes the gradients of the key heads [first, first + count) of the batch.
  void run_heads(Index first, Index count, const ExecutorRef& executor) {
    const Index heads = count * group();
    build_lists(first, count, executor);
    for_each_task(executor, heads * rows_.count(), [&](Index task, Index worker) {
      const Piece piece = rows_(first * group(), task);
      IndexedGradKernels<T>{}.rows(row_args(piece, worker));
    });
    if (!memory_.keeps() && !Lists::kBuilt) return;
    for_each_task(executor, heads * heads_.count(), [&](Index task, Index /*worker*/) {
      const Piece piece = heads_(first * group(), task);
      const Sequence& s = piece.sequence;
      if constexpr (Lists::kBuilt) lists_.take_gradients(s, piece.head, piece.place);
      if (!memory_.keeps()) return;
      transpose_lists(lists_of(piece), s.queries, s.keys, row_lists(piece.place, s));
    });
    if (!memory_.keeps()) return;
    for_each_task(executor, count * keys_.count(), [&](Index task, Index worker) {
      IndexedGradKernels<T>{}.keys(key_args(keys_(first, task), worker));
    });
  }

  KeyLists lists_of(const Piece& piece) const {
    return lists_.rows(piece.sequence, piece.head, piece.place);
  }

  /// The weights of the group's query head `place`, in sequence s; null if not kept.
  T* weights(Index place, const Sequence& s) {
    if (!memory_.keeps_weights) return nullptr;
    return numbers_.template data<T>() + place * memory_.numbers() + lists_.first_entry(s);
  }
  /// The gradients of its logits; null if not kept.
  T* d_logits(Index place, const Sequence& s) {
    if (!memory_.keeps_logits) return nullptr;
    const Index behind = memory_.keeps_weights ? memory_.entries : 0;
    return numbers_.template data<T>() + place * memory_.numbers() + behind + lists_.first_entry(s);
  }

  RowListMemory row_lists(Index place, const Sequence& s) {
    Index* const begin = integers_.template data<Index>() + place * memory_.integers();
    Index* const rows = begin + memory_.begins + lists_.first_entry(s);
    return {begin + s.first_key + (sequences_.packed() ? s.index : 0), rows,
            rows + memory_.entries};
  }

  template <class X>
  static Matrix<X> matrix(const View<X>& x, const Sequence& s, Index head, Index row) {
    return x.empty() ? Matrix<X>{} : detail::head_matrix(x, s.batch, head, row);
  }

  IndexedGradRowsArgs<T> row_args(const Piece& piece, Index worker) {
    const Sequence& s = piece.sequence;
    const Index h = piece.head;
    IndexedGradRowsArgs<T> args;
    args.q = detail::head_matrix(inputs_.q, s.batch, h, s.first_query);
    args.k = detail::head_matrix(inputs_.k, s.batch, h / group(), s.first_key);
    args.v = detail::head_matrix(inputs_.v, s.batch, h / group(), s.first_key);
    args.out = detail::head_matrix(out_, s.batch, h, s.first_query);
    args.d_out = detail::head_matrix(d_out_, s.batch, h, s.first_query);
    args.lse = detail::head_matrix(View<const T>(saved_.lse), s.batch, h, s.first_query);
    args.lse_low = matrix(lse_low_, s, h, s.first_query);
    args.d_q = matrix(grads_.q, s, h, s.first_query);
    args.lists = lists_of(piece);
    args.factors = lists_.factors(s, piece.place);
    args.d_factors = lists_.d_factors(s, piece.place);
    args.width = inputs_.q.width();
    args.value_width = inputs_.v.width();
    args.scale = lists_.template scale_of<T>(args.width);
    args.first = piece.part * kRows;
    args.count = (std::min)(kRows, s.queries - args.first);
    args.weights = weights(piece.place, s);
    args.d_logits = d_logits(piece.place, s);
    args.scratch = scratch_.template data<T>() + worker * slot_;
    return args;
  }

  IndexedGradKeysArgs<T> key_args(const Piece& piece, Index worker) {
    const Sequence& s = piece.sequence;
    IndexedGradHead<T>* const heads = head_args_.data() + worker * group();
    for (Index g = 0; g < group(); ++g) {
      const Index place = piece.place * group() + g;
      const Index h = piece.head * group() + g;
      const RowListMemory lists = row_lists(place, s);
      heads[g] = {detail::head_matrix(inputs_.q, s.batch, h, s.first_query),
                  detail::head_matrix(d_out_, s.batch, h, s.first_query),
                  weights(place, s),
                  d_logits(place, s),
                  {lists.begin, lists.rows, lists.places}};
    }
    IndexedGradKeysArgs<T> args;
    args.heads = heads;
    args.head_count = group();
    args.d_k = matrix(grads_.k, s, piece.head, s.first_key);
    args.d_v = matrix(grads_.v, s, piece.head, s.first_key);
    args.width = inputs_.q.width();
    args.value_width = inputs_.v.width();
    args.scale = lists_.template scale_of<T>(args.width);
    args.first = piece.part * kRows;
    args.count = (std::min)(kRows, s.keys - args.first);
    return args;
  }

  IndexedInputs<T> inputs_;
  Lists lists_;
  View<const T> out_;
  IndexedSaved<T> saved_;
  View<const T> d_out_;
  IndexedGrads<T> grads_;
  View<const T> lse_low_ = {};
  Sequences<T> sequences_;
  detail::HeadPieces<T> rows_;
  detail::HeadPieces<T> heads_;
  detail::HeadPieces<T> keys_;
  Memory memory_;
  Index slot_ = 0;
  Workspace scratch_;   // [workers, slot]
  Workspace numbers_;   // [query heads of a group] weights, and gradients of logits
  Workspace integers_;  // [query heads of a group] RowLists
  std::vector<IndexedGradHead<T>> head_args_;  // [workers, group]
};

FOVEA_NAMESPACE_END
