// SPDX-License-Identifier: MIT
/// \file
/// The forward pass of attention over lists of keys if a head's keys and values exceed the near
/// caches: in phases, from copies of them or in place.
#pragma once

#include <algorithm>
#include <cstdint>

#include "fovea/attention/call/head_matrix.hpp"
#include "fovea/attention/call/saved.hpp"
#include "fovea/attention/call/sequences.hpp"
#include "fovea/attention/indexed/phase_sizes.hpp"
#include "fovea/core/cache_size.hpp"
#include "fovea/core/executor_ref.hpp"
#include "fovea/core/workspace.hpp"
#include "fovea/kernels/indexed/table.hpp"

FOVEA_NAMESPACE_BEGIN

/// The tensors of one forward pass over lists of keys.
/// \tparam Lists like TensorLists
template <class T, class Lists>
struct IndexedForwardCall {
  /// As in IndexedForward.
  IndexedForwardCall(const IndexedInputs<T>& given, const Lists& given_lists, const View<T>& output,
                     const IndexedSaved<T>& kept)
      : inputs(given),
        lists(given_lists),
        out(output),
        saved(kept),
        sequences(given, given_lists.alignment()) {}

  IndexedInputs<T> inputs;  ///< the inputs
  Lists lists;              ///< the lists of all heads
  View<T> out;              ///< the output
  IndexedSaved<T> saved;    ///< the saved results
  Sequences<T> sequences;   ///< the sequences
};

/// The sequences of one forward pass that are computed in phases, in sequence. Threads share a copy
/// of keys and then of values; the order of sums does not depend on it. Checks nothing.
/// \tparam T the type of the tensors; 16-bit types have no phases.
/// \tparam Lists like TensorLists; lists that are built have no phases.
template <class T, class Lists>
class IndexedPhases {
 public:
  /// The part shared with computation by rows.
  using Call = IndexedForwardCall<T, Lists>;

  /// \param call must outlive this object
  explicit IndexedPhases(const Call& call)
      : call_(call), are_used_(can_be_used(shape_of(call.inputs), call.lists.length())) {}

  /// Whether the sequence is computed in phases.
  bool have(const Sequence& s) const {
    return are_used_ && s.keys <= PhaseSizes<T>::kMostKeys &&
           can_be_used(shape_of_sequence(s), call_.lists.length());
  }

  /// Allocates the scratch memory for `compute` with the same executor. It is counted for any
  /// number of keys, since packed sequences may be short.
  /// \throws std::bad_alloc
  void take_scratch(const ExecutorRef& executor) {
    if (!are_used_ || !(executor.only_counts() || have_any())) return;
    auto&& memory = memory_of(executor);
    const AttentionShape shape = shape_of(call_.inputs);
    const PhaseSizes<T> sizes(shape, call_.lists.length());
    workers_ = (std::min)(executor.concurrency(), sizes.parts * shape.query_heads);
    const Index heads = sizes.heads_at_once(shape, workers_);
    copies_size_ = heads * sizes.copy;
    entries_size_ = heads * sizes.entries();
    copies_ = memory.take(copies_size_, Index{sizeof(T)});
    entries_ = memory.take(entries_size_, Index{sizeof(T)});
    scratch_ = memory.take(workers_, slot() * Index{sizeof(T)});
  }

  /// Computes the sequences.
  /// \pre take_scratch(executor) was called
  void compute(const ExecutorRef& executor) {
    if constexpr (kAreThere) {
      for (Index n = 0; are_used_ && n < call_.sequences.count(); ++n) {
        const Sequence s = call_.sequences[n];
        if (have(s)) process_rows(s, executor);
      }
    }
  }

 private:
  /// Some key heads of a sequence, and pieces of their rows, that are computed together.
  struct Group {
    const Sequence& sequence;
    const PhaseSizes<T>& sizes;
    Index first_head;
    Index heads;
    Index first_piece = 0;
    Index pieces = 0;
  };

  /// A piece of a key head's rows.
  struct Piece {
    Index head;   // query head
    Index first;  // first row
    Index count;  // rows
  };

  static constexpr bool kAreThere = !Lists::kBuilt && kStorage<T> == Storage::native;
  static constexpr Index kRows = PhaseSizes<T>::kRows;
  static constexpr Index kCopyRows = 1024;  // rows of a task that copies
  /// Keys are prefetched if they take this many times the L2 cache: for cache hits prefetching only
  /// costs.
  static constexpr Index kAheadCaches = 8;

  static bool can_be_used(const AttentionShape& shape, Index length) {
    return kAreThere && PhaseSizes<T>::are_worth_it(shape, length);
  }
  Index slot() const {
    return padded_size(indexed_logits_scratch(call_.inputs.q.width(), call_.lists.length()));
  }
  static Index copy_tasks(Index rows) { return (rows + kCopyRows - 1) / kCopyRows; }

  AttentionShape shape_of_sequence(const Sequence& s) const {
    AttentionShape shape = shape_of(call_.inputs);
    shape.queries = s.queries;
    shape.keys = s.keys;
    return shape;
  }

  bool have_any() const {
    for (Index n = 0; n < call_.sequences.count(); ++n) {
      if (have(call_.sequences[n])) return true;
    }
    return false;
  }

  void process_rows(const Sequence& s, const ExecutorRef& executor) {
    const AttentionShape shape = shape_of_sequence(s);
    const PhaseSizes<T> sizes(shape, call_.lists.length());
    // There is memory for at least one head of a sequence that has a part of all rows.
    const Index heads = (std::min)({sizes.heads_at_once(shape, workers_), copies_size_ / sizes.copy,
                                    entries_size_ / sizes.entries()});
    for (Index first = 0; first < shape.key_heads; first += heads) {
      Group group{s, sizes, first, (std::min)(heads, shape.key_heads - first)};
      for (Index piece = 0; piece < sizes.pieces; piece += sizes.pieces_at_once) {
        group.first_piece = piece;
        group.pieces = (std::min)(sizes.pieces_at_once, sizes.pieces - piece);
        compute_weights(group, executor);
        compute_values(group, executor);
      }
    }
  }

  void compute_weights(const Group& group, const ExecutorRef& executor) {
    const Index keys = group.sequence.key_end;
    const bool is_copied = !are_keys_in_place(keys);
    const Index block = is_copied ? group.sizes.block : block_in_place(keys);
    Index first = 0;
    do {
      const Index end = (std::min)(first + block, keys);
      const Index tasks = is_copied ? copy_tasks(end - first) : 0;
      for_each_task(executor, group.heads * tasks, [&](Index task, Index) {
        copy_keys(group, task / tasks, first, end, task % tasks * kCopyRows);
      });
      for_each_task(executor, group.heads * group.pieces, [&](Index task, Index worker) {
        attend_to_keys(group, task / group.pieces, task % group.pieces, first, end, worker);
      });
      first = end;
    } while (first < keys);
  }

  void compute_values(const Group& group, const ExecutorRef& executor) {
    const PhaseSizes<T>& sizes = group.sizes;
    if (are_in_place(call_.inputs.v, group.sequence.key_end)) {
      for_each_task(executor, group.heads * group.pieces, [&](Index task, Index) {
        const Index place = task / group.pieces;
        sum_values(group, place, task % group.pieces, 0, values_of(group, place));
      });
      return;
    }
    const Index tasks = copy_tasks(group.sequence.key_end);
    for (Index first = 0; first < sizes.slices; first += sizes.slices_at_once) {
      const Index slices = (std::min)(sizes.slices_at_once, sizes.slices - first);
      for_each_task(executor, group.heads * tasks, [&](Index task, Index) {
        copy_values(group, task / tasks, first, slices, task % tasks * kCopyRows);
      });
      const Index of_head = slices * group.pieces;
      for_each_task(executor, group.heads * of_head, [&](Index task, Index) {
        const Index place = task / of_head;
        const Index slice = task % of_head / group.pieces;
        sum_values(
            group, place, task % group.pieces, (first + slice) * sizes.slice,
            {copy_of(group, place) + slice * sizes.slice * group.sequence.key_end, sizes.slice});
      });
    }
  }

  /// Whether keys, or values, are read in place: a head's are one block of whole cache lines, and
  /// not much larger than the L2 cache. (Rows that begin within a line cost more than copying
  /// them.)
  static bool are_in_place(const View<const T>& x, Index keys) {
    constexpr Index line = 64 / Index{sizeof(T)};
    const auto& [batch, head, row, column] = x.strides();
    return column == 1 && row == x.width() && row % line == 0 && head % line == 0 &&
           batch % line == 0 && reinterpret_cast<std::uintptr_t>(x.data()) % 64 == 0 &&
           bytes(keys, row) <= 2 * second_cache_bytes();
  }
  /// The same for keys, which are read up to padded_size(D) columns.
  bool are_keys_in_place(Index keys) const {
    const View<const T>& k = call_.inputs.k;
    return k.width() == padded_size(k.width()) && are_in_place(k, keys);
  }
  /// Keys of a block that is read in place: all, or half of them if all would take more than half
  /// of the L2 cache.
  Index block_in_place(Index keys) const {
    const bool is_small = bytes(keys, call_.inputs.k.width()) <= second_cache_bytes() / 2;
    return (std::max<Index>)(1, is_small ? keys : (keys + 1) / 2);
  }
  static Index bytes(Index rows, Index width) { return rows * width * Index{sizeof(T)}; }

  /// Rows of keys or values.
  struct Rows {
    const T* data;
    Index row;  // distance in elements
  };
  /// A key head's values, in place.
  Rows values_of(const Group& group, Index place) const {
    const Sequence& s = group.sequence;
    const auto v =
        detail::head_matrix(call_.inputs.v, s.batch, group.first_head + place, s.first_key);
    return {v.data, v.row};
  }
  /// A key head's keys from `first` on: in place, or their copy.
  Rows keys_of(const Group& group, Index place, Index first) {
    const Sequence& s = group.sequence;
    if (!are_keys_in_place(s.key_end)) return {copy_of(group, place), group.sizes.key_row};
    const auto k =
        detail::head_matrix(call_.inputs.k, s.batch, group.first_head + place, s.first_key + first);
    return {k.data, k.row};
  }

  T* copy_of(const Group& group, Index place) {
    return copies_.template data<T>() + place * group.sizes.copy;
  }

  /// Copies keys of the block [first, end), from its row `row` on.
  void copy_keys(const Group& group, Index place, Index first, Index end, Index row) {
    const Sequence& s = group.sequence;
    IndexedPackArgs<T> args;
    args.from = stored(detail::head_matrix(call_.inputs.k, s.batch, group.first_head + place,
                                           s.first_key + first));
    args.columns = call_.inputs.k.width();
    args.slice = group.sizes.key_row;
    args.first = row;
    args.count = (std::min)(kCopyRows, end - first - row);
    args.to = copy_of(group, place);
    args.to_rows = end - first;
    IndexedPhaseKernels<T>{}.pack(args);
  }

  /// Copies slices of values, from row `row` on.
  void copy_values(const Group& group, Index place, Index first, Index slices, Index row) {
    const Sequence& s = group.sequence;
    const Index column = first * group.sizes.slice;
    auto from = detail::head_matrix(call_.inputs.v, s.batch, group.first_head + place, s.first_key);
    from.data += column * from.column;
    IndexedPackArgs<T> args;
    args.from = stored(from);
    args.columns = (std::min)(slices * group.sizes.slice, call_.inputs.v.width() - column);
    args.slice = group.sizes.slice;
    args.first = row;
    args.count = (std::min)(kCopyRows, s.key_end - row);
    args.to = copy_of(group, place);
    args.to_rows = s.key_end;
    IndexedPhaseKernels<T>{}.pack(args);
  }

  Piece piece_of(const Group& group, Index place, Index n) const {
    const Index piece = group.first_piece + n;
    const Index of_group = group.sizes.pieces / group.sizes.parts;
    const Index head = (group.first_head + place) * of_group + piece / group.sizes.parts;
    const Index first = piece % group.sizes.parts * kRows;
    return {head, first, (std::min)(kRows, group.sequence.queries - first)};
  }

  /// The data passed between phases for piece n of a head.
  IndexedEntries<T> entries_of(const Group& group, Index place, Index n) {
    const Index row = group.sizes.entries_row;
    T* const data =
        entries_.template data<T>() + place * group.sizes.entries() + n * kRows * (2 * row + 3);
    IndexedEntries<T> entries;
    entries.weights = data;
    entries.keys = reinterpret_cast<KeyNumber<T>*>(data + kRows * row);
    entries.counts = entries.keys + kRows * row;
    entries.computed = entries.counts + kRows;
    entries.inverses = data + kRows * (2 * row + 2);
    entries.row = row;
    return entries;
  }

  void attend_to_keys(const Group& group, Index place, Index n, Index first, Index end,
                      Index worker) {
    const Sequence& s = group.sequence;
    const Piece piece = piece_of(group, place, n);
    IndexedLogitsArgs<T> args;
    args.q = detail::head_stored(call_.inputs.q, s.batch, piece.head, s.first_query);
    args.lists = call_.lists.rows(s, piece.head, s.batch * call_.inputs.q.heads() + piece.head);
    if (!call_.saved.lse.empty()) {
      args.lse = detail::head_matrix(call_.saved.lse, s.batch, piece.head, s.first_query);
    }
    args.entries = entries_of(group, place, n);
    const Rows keys = keys_of(group, place, first);
    args.keys = keys.data;
    args.keys_row = keys.row;
    args.ahead = bytes(end - first, keys.row) >= kAheadCaches * second_cache_bytes();
    args.key_first = first;
    args.key_end = end;
    args.is_last = end == s.key_end;
    args.width = call_.inputs.q.width();
    args.scale = call_.lists.template scale_of<T>(args.width);
    args.first = piece.first;
    args.count = piece.count;
    args.scratch = scratch_.template data<T>() + worker * slot();
    IndexedPhaseKernels<T>{}.logits(args);
  }

  /// Sums values of piece n of a head, from column `column` on.
  void sum_values(const Group& group, Index place, Index n, Index column, const Rows& values) {
    const Sequence& s = group.sequence;
    const Piece piece = piece_of(group, place, n);
    IndexedValuesArgs<T> args;
    args.entries = entries_of(group, place, n);
    args.values = values.data;
    args.slice = values.row;
    args.out = detail::head_output(call_.out, s.batch, piece.head, s.first_query);
    args.column = column;
    args.width = call_.inputs.v.width();
    args.first = piece.first;
    args.count = piece.count;
    IndexedPhaseKernels<T>{}.values(args);
  }

  const Call& call_;
  bool are_used_;
  Index workers_ = 0;
  Index copies_size_ = 0;   // elements
  Index entries_size_ = 0;  // elements
  Workspace copies_;        // [key heads] keys, then values
  Workspace entries_;       // [key heads] data passed between phases
  Workspace scratch_;       // [workers, slot]
};

FOVEA_NAMESPACE_END
