// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of attention over lists of keys: the division of work among threads, and the
/// order of sums, so that the bits do not depend on threads.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "fovea/attention/indexed/entry_places.hpp"
#include "fovea/attention/indexed/forward.hpp"

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

/// One backward pass. It goes over the batch's key heads in groups: as many as there are workers,
/// and at most kMostEntries list entries. For each group it finds the places of the entries in the
/// order of keys, computes the rows of its query heads, which write weights and gradients of logits
/// to these places, and then computes the keys. Bits depend neither on groups nor on workers.
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
        heads_(sequences_, inputs.q.heads(), [](const Sequence&) { return Index{1}; }),
        keys_(sequences_, inputs.k.heads(), [](const Sequence& s) { return pieces(s.keys); }) {}
  IndexedBackward(const IndexedBackward&) = delete;
  IndexedBackward& operator=(const IndexedBackward&) = delete;

  /// Writes the gradients.
  /// \throws std::bad_alloc before anything is written
  void run(const ExecutorRef& executor) {
    reserve(executor);
    if (!executor.only_counts()) compute(executor);
  }

  /// Allocates the memory for `compute` with the same executor.
  /// \throws std::bad_alloc
  void reserve(const ExecutorRef& executor) {
    sizes_ = Sizes(shape_of(inputs_), lists_.entries(),
                   sequences_.packed() ? sequences_.count() : 1, grads_, executor.concurrency());
    rows_.emplace(sequences_, inputs_.q.heads(),
                  [this](const Sequence& s) { return row_pieces(s); });
    const Index heads = most() * group();
    if constexpr (Lists::kBuilt) {
      lists_.take_memory(heads, heads * heads_.count(), worker_count(executor, kFarPosition),
                         memory_of(executor));
    }
    const Index tasks =
        (std::max)({heads * rows_->count(), heads * heads_.count(), most() * 2 * keys_.count()});
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
      for_each_task(executor, count * group() * rows_->count(), [&](Index task, Index worker) {
        const Piece piece = (*rows_)(first * group(), task);
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

  static constexpr Index kRows = 128;                    // keys of a task, and least rows
  static constexpr Index kMostEntries = Index{1} << 21;  // list entries processed at once

  static Index pieces(Index rows) { return (rows + kRows - 1) / kRows; }
  /// The number of pieces of a sequence's rows; at least 1, which counts the entries.
  Index row_pieces(const Sequence& s) const {
    return (std::max<Index>)(1, (s.queries + sizes_.piece - 1) / sizes_.piece);
  }

  /// How much is processed at once.
  struct Sizes {
    Sizes() = default;
    Sizes(const AttentionShape& shape, Index entries_of_head, Index sequences,
          const IndexedGrads<T>& grads, Index workers)
        : entries(entries_of_head),
          keeps(!grads.v.empty() || !grads.k.empty()),
          keeps_logits(!grads.k.empty()) {
      const Index group =
          (std::max<Index>)(1, detail::group_size(shape.query_heads, shape.key_heads));
      const Index heads = (std::max<Index>)(1, shape.batch * shape.key_heads);
      const Index tasks = workers > 1 ? 4 * workers : 1;  // enough for workers to share evenly
      key_heads = heads;
      if (keeps || Lists::kBuilt) {
        const Index most = kMostEntries / (group * (std::max<Index>)(1, entries));
        // A head's lists are built by one worker.
        key_heads = std::clamp<Index>((std::min)(most, Lists::kBuilt ? tasks : workers), 1, heads);
      }
      most_pieces = pieces(shape.queries);
      if (keeps) {
        const Index wanted = (tasks + key_heads * group - 1) / (key_heads * group);
        const Index for_places = 1 + entries / (std::max<Index>)(1, shape.keys);
        most_pieces = (std::min)({most_pieces, wanted, for_places});
      }
      most_pieces = (std::max<Index>)(1, most_pieces);
      piece = (std::max<Index>)(1, (shape.queries + most_pieces - 1) / most_pieces);
      places = most_pieces * shape.keys + sequences;
    }

    /// Bytes of the entries of one query head.
    Index entry_bytes() const { return keeps ? entries * Index{sizeof(KeyEntry<T>)} : 0; }
    /// Bytes of its EntryPlaces.
    Index place_bytes() const { return keeps ? places * Index{sizeof(Index)} : 0; }

    Index entries = 0;          // entries of a query head
    bool keeps = false;         // whether they are kept
    bool keeps_logits = false;  // whether with the gradients of their logits
    Index key_heads = 0;        // key heads of a group
    /// Pieces of a head's rows, at most. If entries are kept, they are so few that EntryPlaces take
    /// at most 8 bytes for each entry and each key.
    Index most_pieces = 0;
    Index piece = 0;   // rows of a piece
    Index places = 0;  // elements of EntryPlaces::begin, with one more for each sequence
  };

  Index group() const { return detail::group_size(inputs_.q.heads(), inputs_.k.heads()); }
  /// The number of key heads in the batch.
  Index key_heads() const { return inputs_.k.batch() * inputs_.k.heads(); }
  /// The number of key heads processed at once.
  Index most() const { return (std::min)(sizes_.key_heads, key_heads()); }

  template <class Source>
  void take_scratch(Index heads, Index workers, Source&& source) {
    slot_ =
        padded_size(indexed_grad_scratch(inputs_.q.width(), inputs_.v.width(), lists_.length()));
    scratch_ = source.take(workers, slot_ * Index{sizeof(T)});
    entries_ = source.take(heads, sizes_.entry_bytes());
    places_ = source.take(heads, sizes_.place_bytes());
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
    if (sizes_.keeps) place_entries(first, heads, executor);
    for_each_task(executor, heads * rows_->count(), [&](Index task, Index worker) {
      const Piece piece = (*rows_)(first * group(), task);
      IndexedGradKernels<T>{}.rows(row_args(piece, worker));
    });
    if constexpr (Lists::kBuilt) {
      for_each_task(executor, heads * heads_.count(), [&](Index task, Index /*worker*/) {
        const Piece piece = heads_(first * group(), task);
        lists_.take_gradients(piece.sequence, piece.head, piece.place);
      });
    }
    if (!sizes_.keeps) return;
    // Keys after values: each gathers rows of one tensor, which may stay in the L2 cache.
    const Index tasks = count * keys_.count();
    for_each_task(executor, 2 * tasks, [&](Index task, Index worker) {
      IndexedGradKeysArgs<T> args = key_args(keys_(first, task % tasks), worker);
      (task < tasks ? args.d_k : args.d_v) = {};
      IndexedGradKernels<T>{}.keys(args);
    });
  }

  /// Finds the places of the entries of a group.
  void place_entries(Index first, Index heads, const ExecutorRef& executor) {
    for_each_task(executor, heads * rows_->count(), [&](Index task, Index /*worker*/) {
      const Piece piece = (*rows_)(first * group(), task);
      const Index row = piece.part * sizes_.piece;
      places(piece.place, piece.sequence)
          .count_entries(lists_of(piece), piece.part, row, rows_from(piece.sequence, row));
    });
    for_each_task(executor, heads * heads_.count(), [&](Index task, Index /*worker*/) {
      const Piece piece = heads_(first * group(), task);
      places(piece.place, piece.sequence).place_entries();
    });
  }

  KeyLists lists_of(const Piece& piece) const {
    return lists_.rows(piece.sequence, piece.head, piece.place);
  }

  /// The rows of a piece whose first one is `row`.
  Index rows_from(const Sequence& s, Index row) const {
    return (std::min)(sizes_.piece, s.queries - row);
  }

  /// The entries of the group's query head `place`, in sequence s.
  KeyEntry<T>* entries(Index place, const Sequence& s) {
    return entries_.template data<KeyEntry<T>>() + place * sizes_.entries + lists_.first_entry(s);
  }
  /// Their places.
  EntryPlaces places(Index place, const Sequence& s) {
    Index* const begin = places_.template data<Index>() + place * sizes_.places;
    return {begin + s.first_key * sizes_.most_pieces + (sequences_.packed() ? s.index : 0), s.keys,
            row_pieces(s)};
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
    args.first = piece.part * sizes_.piece;
    args.count = rows_from(s, args.first);
    if (sizes_.keeps) {
      args.entries = entries(piece.place, s);
      args.next = places(piece.place, s).next(piece.part);
    }
    args.keeps_logits = sizes_.keeps_logits;
    args.scratch = scratch_.template data<T>() + worker * slot_;
    return args;
  }

  IndexedGradKeysArgs<T> key_args(const Piece& piece, Index worker) {
    const Sequence& s = piece.sequence;
    IndexedGradHead<T>* const heads = head_args_.data() + worker * group();
    for (Index g = 0; g < group(); ++g) {
      const Index place = piece.place * group() + g;
      const Index h = piece.head * group() + g;
      heads[g] = {detail::head_matrix(inputs_.q, s.batch, h, s.first_query),
                  detail::head_matrix(d_out_, s.batch, h, s.first_query), entries(place, s),
                  places(place, s).begin};
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
    args.keys = s.keys;
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
  detail::HeadPieces<T> heads_;
  detail::HeadPieces<T> keys_;
  Sizes sizes_;
  std::optional<detail::HeadPieces<T>> rows_;
  Index slot_ = 0;
  Workspace scratch_;                          // [workers, slot]
  Workspace entries_;                          // [query heads of a group] KeyEntry
  Workspace places_;                           // [query heads of a group] EntryPlaces
  std::vector<IndexedGradHead<T>> head_args_;  // [workers, group]
};

FOVEA_NAMESPACE_END
