// SPDX-License-Identifier: MIT
/// \file
/// The forward pass of attention over lists of keys where no near cache holds the keys and values
/// of a head: in phases, from copies of them.
#pragma once

#include <algorithm>

#include "fovea/attention/call/head_matrix.hpp"
#include "fovea/attention/indexed/forward_call.hpp"
#include "fovea/core/executor.hpp"
#include "fovea/core/workspace.hpp"
#include "fovea/kernels/indexed/table.hpp"

FOVEA_NAMESPACE_BEGIN

/// How a sequence is computed in phases: which keys, values and rows at once.
/// \tparam T the type of the tensors and of the arithmetic
template <class T>
struct PhaseSizes {
  /// Rows of a task.
  static constexpr Index kRows = 256;
  /// The most keys of a sequence: a cache line of each one's value is copied at once. (With twice
  /// as many phases gained nothing.)
  static constexpr Index kMostKeys = Index{1} << 17;

  /// The least reads of each key that its copy is worth.
  static constexpr Index kLeastReads = 4;

  /// Whether phases are worth it: the cache behind the first one does not hold the keys and values
  /// of a head, they are read often, and their rows are so short that the addresses of pages are
  /// looked up for each. Nor are lists so long that those of a task take all the memory.
  /// (On a machine with 512 KB of that cache phases took 0.65 to 0.8 of the time of rows for heads
  /// of 1 MB, and 0.4 to 0.5 for heads of 32 MB; with four reads of each key 0.8.)
  /// \param length K, the places of a list
  static bool are_worth_it(const AttentionShape& shape, Index length) {
    constexpr Index least_bytes = Index{1} << 20;
    constexpr Index most_width = (Index{2} << 10) / Index{sizeof(T)};
    const auto in_range = [](Index width) { return width > 0 && width <= most_width; };
    if (!in_range(shape.width) || !in_range(shape.value_width) || length == 0) return false;
    if (shape.batch == 0 || shape.key_heads == 0 || shape.queries == 0) return false;
    if (indexed_entries_row<T>(length) > kMostEntries / kRows) return false;
    const Index row = (shape.width + shape.value_width) * Index{sizeof(T)};
    const Index group = detail::group_size(shape.query_heads, shape.key_heads);
    return shape.keys >= least_bytes / row &&
           group * shape.queries >= kLeastReads * shape.keys / length;
  }

  /// The sizes for a sequence.
  /// \param length K, the places of a list
  PhaseSizes(const AttentionShape& shape, Index length)
      : keys((std::min)(shape.keys, kMostKeys)),
        key_row(padded_size(shape.width)),
        block((std::min)(keys, kCopy / key_row)) {
    const Index lines = (shape.value_width + kLine - 1) / kLine;
    const Index most_lines = keys * 2 * kLine <= kCopy ? 2 : 1;
    slice = (std::min)(lines, most_lines) * kLine;
    slices = (shape.value_width + slice - 1) / slice;
    slices_at_once = std::clamp<Index>(kCopy / (keys * slice), 1, slices);
    copy = (std::min)(kCopy, keys * (std::max)(key_row, slices * slice));
    entries_row = indexed_entries_row<T>(length);
    parts = (shape.queries + kRows - 1) / kRows;
    pieces = detail::group_size(shape.query_heads, shape.key_heads) * parts;
    pieces_at_once = (std::min)(pieces, kMostEntries / (kRows * entries_row));
  }

  /// Elements that the phases hand on of the rows of a key head that are at work at once. (A key
  /// number takes as much as an element.)
  Index entries() const { return padded_size(pieces_at_once * kRows * (2 * entries_row + 3)); }

  /// The key heads at work at once. Few rows of one head would leave threads idle; but several take
  /// no more memory than a large one may.
  Index heads_at_once(const AttentionShape& shape, Index workers) const {
    const Index wanted = (2 * workers + pieces - 1) / pieces;
    const Index most =
        (std::min)(kCopy / copy, kMostEntries / (pieces_at_once * kRows * entries_row));
    return std::clamp<Index>((std::min)(wanted, most), 1, shape.key_heads);
  }

  Index keys;            ///< keys of the sequence
  Index key_row;         ///< elements of a key's copy
  Index block;           ///< keys that are copied at once
  Index slice;           ///< columns of values that are summed at once
  Index slices;          ///< slices of a value
  Index slices_at_once;  ///< slices that are copied at once
  Index copy;            ///< elements of the copy of a key head
  Index entries_row;     ///< places of a row of entries
  Index parts;           ///< tasks of a query head
  Index pieces;          ///< tasks of a key head
  Index pieces_at_once;  ///< tasks whose entries there is memory for

 private:
  static constexpr Index kLine = 64 / Index{sizeof(T)};
  /// Elements that are copied at once: so many that passes over the rows are few, and so few that
  /// the last cache holds them.
  static constexpr Index kCopy = (Index{8} << 20) / Index{sizeof(T)};
  static_assert(kMostKeys * kLine <= kCopy);
  /// Places of entries at once.
  static constexpr Index kMostEntries = Index{5} << 19;
};

/// The sequences of one forward pass that are computed in phases, one after the other. Threads
/// share a copy of keys and then of values; the order of sums depends on neither. It checks
/// nothing.
/// \tparam T the type of the tensors. Those of 16 bits have no phases.
/// \tparam Lists like TensorLists. Those that are built have no phases.
template <class T, class Lists>
class IndexedPhases {
 public:
  /// What the pass has in common with rows.
  using Call = IndexedForwardCall<T, Lists>;

  /// \param call must outlive this object
  explicit IndexedPhases(const Call& call)
      : call_(call), are_used_(can_be_used(shape_of(call.inputs), call.lists.length())) {}

  /// Bytes of scratch memory with that many workers; 0 if nothing is computed in phases.
  static Index workspace_bytes(const AttentionShape& shape, Index length, Index workers) {
    if (!can_be_used(shape, length)) return 0;
    const PhaseSizes<T> sizes(shape, length);
    return (sizes.heads_at_once(shape, workers) * (sizes.copy + sizes.entries()) +
            workers * slot(shape.width, length)) *
           Index{sizeof(T)};
  }

  /// Whether the sequence is computed here.
  bool have(const Sequence& s) const {
    return are_used_ && s.keys <= PhaseSizes<T>::kMostKeys &&
           can_be_used(shape_of_sequence(s), call_.lists.length());
  }

  /// Takes the scratch memory that `compute` needs with the same executor.
  /// \throws std::bad_alloc
  template <class E>
  void take_scratch(E&& executor) {
    if (!are_used_ || !have_any()) return;
    auto&& memory = memory_of(executor);
    const AttentionShape shape = shape_of(call_.inputs);
    const PhaseSizes<T> sizes(shape, call_.lists.length());
    workers_ = executor.concurrency();
    const Index heads = sizes.heads_at_once(shape, workers_);
    copies_size_ = heads * sizes.copy;
    entries_size_ = heads * sizes.entries();
    copies_ = memory.take(copies_size_, Index{sizeof(T)});
    entries_ = memory.take(entries_size_, Index{sizeof(T)});
    scratch_ = memory.take(workers_, slot(shape.width, call_.lists.length()) * Index{sizeof(T)});
  }

  /// Computes the sequences.
  /// \pre take_scratch(executor) was called
  template <class E>
  void compute(E&& executor) {
    if constexpr (kAreThere) {
      for (Index n = 0; are_used_ && n < call_.sequences.count(); ++n) {
        const Sequence s = call_.sequences[n];
        if (have(s)) attend(s, executor);
      }
    }
  }

 private:
  /// Some key heads of a sequence that are computed together, and of their rows those pieces.
  struct Group {
    const Sequence& sequence;
    const PhaseSizes<T>& sizes;
    Index first_head;
    Index heads;
    Index first_piece = 0;
    Index pieces = 0;
  };

  /// A piece of the rows of a key head.
  struct Piece {
    Index head;   // query head
    Index first;  // first row
    Index count;  // rows
  };

  static constexpr bool kAreThere = !Lists::kBuilt && kStorage<T> == Storage::native;
  static constexpr Index kRows = PhaseSizes<T>::kRows;
  static constexpr Index kCopyRows = 1024;  // rows of a task that copies

  static bool can_be_used(const AttentionShape& shape, Index length) {
    return kAreThere && PhaseSizes<T>::are_worth_it(shape, length);
  }
  static Index slot(Index width, Index length) {
    return padded_size(indexed_logits_scratch(width, length));
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

  template <class E>
  void attend(const Sequence& s, E&& executor) {
    const AttentionShape shape = shape_of_sequence(s);
    const PhaseSizes<T> sizes(shape, call_.lists.length());
    // There is memory for at least one head of a sequence that is a part of all rows.
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

  template <class E>
  void compute_weights(const Group& group, E&& executor) {
    const Index keys = group.sequence.key_end;
    Index first = 0;
    do {
      const Index end = (std::min)(first + group.sizes.block, keys);
      const Index tasks = copy_tasks(end - first);
      for_each_task(executor, group.heads * tasks, [&](Index task, Index) {
        copy_keys(group, task / tasks, first, end, task % tasks * kCopyRows);
      });
      for_each_task(executor, group.heads * group.pieces, [&](Index task, Index worker) {
        attend_to_keys(group, task / group.pieces, task % group.pieces, first, end, worker);
      });
      first = end;
    } while (first < keys);
  }

  template <class E>
  void compute_values(const Group& group, E&& executor) {
    const PhaseSizes<T>& sizes = group.sizes;
    const Index tasks = copy_tasks(group.sequence.key_end);
    for (Index first = 0; first < sizes.slices; first += sizes.slices_at_once) {
      const Index slices = (std::min)(sizes.slices_at_once, sizes.slices - first);
      for_each_task(executor, group.heads * tasks, [&](Index task, Index) {
        copy_values(group, task / tasks, first, slices, task % tasks * kCopyRows);
      });
      const Index of_head = slices * group.pieces;
      for_each_task(executor, group.heads * of_head, [&](Index task, Index) {
        const Index rest = task % of_head;
        sum_values(group, task / of_head, first, rest / group.pieces, rest % group.pieces);
      });
    }
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

  /// What is handed on of piece n of a head.
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
    if (!call_.saved.lse.is_none()) {
      args.lse = detail::head_matrix(call_.saved.lse, s.batch, piece.head, s.first_query);
    }
    args.entries = entries_of(group, place, n);
    args.keys = copy_of(group, place);
    args.key_first = first;
    args.key_end = end;
    args.is_last = end == s.key_end;
    args.width = call_.inputs.q.width();
    args.scale = call_.lists.template scale_of<T>(args.width);
    args.first = piece.first;
    args.count = piece.count;
    args.scratch = scratch_.template data<T>() + worker * slot(args.width, call_.lists.length());
    IndexedPhaseKernels<T>{}.logits(args);
  }

  void sum_values(const Group& group, Index place, Index first, Index slice, Index n) {
    const Sequence& s = group.sequence;
    const Piece piece = piece_of(group, place, n);
    IndexedValuesArgs<T> args;
    args.entries = entries_of(group, place, n);
    args.values = copy_of(group, place) + slice * group.sizes.slice * s.key_end;
    args.slice = group.sizes.slice;
    args.out = detail::head_output(call_.out, s.batch, piece.head, s.first_query);
    args.column = (first + slice) * group.sizes.slice;
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
  Workspace entries_;       // [key heads] what phases hand on
  Workspace scratch_;       // [workers, slot]
};

FOVEA_NAMESPACE_END
