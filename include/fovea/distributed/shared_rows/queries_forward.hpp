// SPDX-License-Identifier: MIT
/// \file
/// The forward pass of softmax attention of replicated queries to the keys of a sharded sequence.
/// Keys stay in place, except in segments that span several ranks; running softmaxes are passed
/// from range to range.
#pragma once

#include <algorithm>
#include <exception>
#include <vector>

#include "fovea/attention/softmax/dense.hpp"
#include "fovea/core/index_span.hpp"
#include "fovea/distributed/messages/pass.hpp"
#include "fovea/distributed/messages/pipelined_scan.hpp"
#include "fovea/distributed/rows/own_range.hpp"
#include "fovea/distributed/segments/segment_keys.hpp"
#include "fovea/kernels/softmax/block.hpp"
#include "fovea/patterns/plan_part.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// One rank's keys in whole segments of kKeySegment: a running softmax is closed at a segment's
/// end, so that another rank can continue it.
template <class T>
class KeyPieces {
 public:
  /// Some neighbouring keys, and the tensors that hold them, with places for all keys.
  struct Piece {
    Range keys;       ///< the keys
    View<const T> k;  ///< [B, Hk, N, D]
    View<const T> v;  ///< [B, Hk, N, Dv]
  };

  /// Allocates segments that span several ranks, and copies this rank's rows there.
  /// \param k, v of this rank's rows   \throws std::bad_alloc, and std::runtime_error if MPI fails
  KeyPieces(const View<const T>& k, const View<const T>& v, const Sharding& rows)
      : keys_(k, v, rows, kKeySegment), layout_(keys_.owners().layout()) {
    const std::vector<Range>& whole = layout_.of(rows.ranks().rank());
    for (const Range& range : intersection(whole, keys_.broken())) {
      add({range, keys_.k(), keys_.v()});
    }
    for (const OwnRange& own : own_ranges(rows)) {
      for (const Range& range : without(intersection(whole, {own.range()}), keys_.broken())) {
        add({range, own.of(k), own.of(v)});
      }
    }
    if (rows.count() == 0) add({{}, keys_.k(), keys_.v()});
    std::sort(pieces_.begin(), pieces_.end(),
              [](const Piece& a, const Piece& b) { return a.keys.begin < b.keys.begin; });
  }
  KeyPieces(const KeyPieces&) = delete;
  KeyPieces& operator=(const KeyPieces&) = delete;

  /// The layout of the keys.
  const RowLayout& layout() const { return layout_; }
  /// The keys of this rank, ascending; of a sequence without rows one piece without keys.
  const std::vector<Piece>& pieces() const { return pieces_; }
  /// Sends the rows of segments that span several ranks to their owners.
  void bring() {
    keys_.bring([] {});
  }

 private:
  void add(const Piece& piece) { pieces_.push_back(piece); }

  SegmentKeys<T> keys_;
  RowLayout layout_;
  std::vector<Piece> pieces_;
};

/// One forward pass. Every rank computes a running softmax of each of its segments, and they are
/// merged along the ranges. All ranks get the result.
template <class T>
class SharedQueriesForward final : public RankPass {
 public:
  /// Allocates all memory.
  /// \param inputs q [B, Hq, P, D], the same on all ranks, and k and v of this rank's rows; checked
  /// \param out, saved [B, Hq, P, ...], written on every rank
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  SharedQueriesForward(const SoftmaxInputs<T>& inputs, const SoftmaxOptions& options,
                       const View<T>& out, const SoftmaxSaved<T>& saved, const Sharding& rows,
                       const ExecutorRef& executor)
      : out_(out),
        saved_(saved),
        shape_{inputs.q.batch(), inputs.q.heads(), inputs.k.heads(), inputs.q.rows(),
               rows.count(),     inputs.q.width(), inputs.v.width()},
        lengths_(inputs.key_lengths),
        keys_(inputs.k, inputs.v, rows),
        plan_(Dense{}.plan(SequenceShape::of(shape_.queries, shape_.keys, options.alignment))),
        segments_(segments(inputs, options)),
        workers_((std::max)(worker_count(executor, (std::max)(tasks(), heads())), Index{1})),
        scan_(rows.ranks(), keys_.layout(), ScanDirection::up, heads(),
              shape_.queries * (shape_.value_width + 3) * Index{sizeof(T)}, workers_),
        parts_(memory_of(executor).take(heads() * own_count(), part_elements() * Index{sizeof(T)})),
        scratch_(memory_of(executor).take(workers_, slot() * Index{sizeof(T)})),
        blocks_(memory_of(executor).take(workers_, BlockStorage::bytes(plan_.most_runs()))) {}

  /// Computes the pass. All messages are exchanged even if computing throws.
  /// \returns the exception that computing threw, or null
  std::exception_ptr run(const ExecutorRef& executor) override {
    keys_.bring();
    std::exception_ptr error = fovea::detail::caught([&] {
      const Index blocks = plan_.block_count();
      for_each_task(executor, tasks(), [&](Index task, Index worker) {
        process_rows(task / blocks / own_count(), task / blocks % own_count(), task % blocks,
                     worker);
      });
    });
    const std::exception_ptr later =
        scan_.run(executor, [&](const ScanStep& scan_step, Index head, Index worker) {
          merge(scan_step.rows, head, worker);
        });
    scan_.give_to_all();
    if (!error) error = later;
    if (!error) write();
    return error;
  }

 private:
  /// At most a segment of keys.
  struct Segment {
    Range keys;
    SoftmaxCall<T> call;
    AnyPlan plan;  // of these keys
  };

  std::vector<Segment> segments(const SoftmaxInputs<T>& inputs,
                                const SoftmaxOptions& options) const {
    std::vector<Segment> all;
    for (const auto& piece : keys_.pieces()) {
      SoftmaxInputs<T> in = inputs;
      in.k = piece.k;
      in.v = piece.v;
      Index begin = piece.keys.begin;
      do {
        const Range keys = {begin, (std::min)(begin + kKeySegment, piece.keys.end)};
        all.push_back(
            {keys, SoftmaxCall<T>(in, options),
             AnyPlan(PlanPart(plan_, {&kEverywhere, 1}, keys, PlanPart::EmptyPieces::kept))});
        begin = keys.end;
      } while (begin < piece.keys.end);
    }
    return all;
  }

  /// Query heads of all sequences.
  Index heads() const { return shape_.batch * shape_.query_heads; }
  Index own_count() const { return static_cast<Index>(segments_.size()); }
  Index tasks() const { return heads() * own_count() * plan_.block_count(); }
  /// The last key that the rows of a sequence see, or -1. The segment that holds it finishes them;
  /// otherwise the first segment does.
  Index last_key(Index head) const {
    return lengths_.value_or(head / shape_.query_heads, shape_.keys) - 1;
  }

  /// The state of a head: the sums of values, and three numbers of each row, or finally out, with
  /// lse as the first of the three.
  T* values(Index head) { return scan_.template state<T>(head); }
  T* sums(Index head) { return values(head) + shape_.queries * shape_.value_width; }
  CarriedSoftmax<T> carry(Index head, bool resumes, bool suspends) {
    return {{values(head), shape_.value_width, 1}, sums(head), resumes, suspends};
  }

  Index part_elements() const { return softmax_row_part(shape_.queries, shape_.value_width); }
  /// The running softmax of segment n of this rank.
  T* part(Index head, Index n) {
    return parts_.template data<T>() + (head * own_count() + n) * part_elements();
  }

  Index block_elements() const {
    return softmax_block_scratch(block_rows(shape_.queries), shape_.width, shape_.value_width);
  }
  /// Scratch elements per worker: those of a block, then the sums of a part.
  Index slot() const { return block_elements() + padded_size(3 * shape_.queries); }

  HeadArgs<T> args(const Segment& segment, Index head, Index worker) {
    const Sequence s = segment.call.sequences()[head / shape_.query_heads];
    HeadArgs<T> args = segment.call.args(s, head % shape_.query_heads, {}, {});
    args.out = {values(head), shape_.value_width, 1};
    args.lse = {sums(head), 3, 1};
    args.scratch = scratch_.template data<T>() + worker * slot();
    return args;
  }

  /// Computes a block of rows over segment n of this rank: those of the very first segment become
  /// the state, others become parts.
  void process_rows(Index head, Index n, Index block, Index worker) {
    const Segment& segment = segments_[static_cast<std::size_t>(n)];
    const bool is_first = segment.keys.begin == 0;
    if (!is_first && segment.keys.begin > last_key(head)) return;
    HeadArgs<T> head_args = args(segment, head, worker);
    const RowNumbers to(part(head, n), shape_);
    T* const own_sums = head_args.scratch + block_elements();
    head_args.carry = is_first ? carry(head, false, segment.keys.end <= last_key(head))
                               : CarriedSoftmax<T>{{to.acc, to.acc_row, 1}, own_sums, false, true};
    BlockStorage storage(plan_.most_runs(), blocks_.template data<std::byte>() +
                                                worker * BlockStorage::bytes(plan_.most_runs()));
    head_args.block = segment.plan.block(block, storage);
    if (head_args.carry.is_used()) head_args.block.most_keys = kUnboundedKeys;
    SoftmaxKernels<T>{}.block(head_args);
    if (is_first) return;
    for (Index r = head_args.block.first; r < head_args.block.first + head_args.block.count; ++r) {
      for (Index i = 0; i < 3; ++i) to.numbers[i][r] = own_sums[3 * r + i];
    }
  }

  /// The placement of the rows' numbers in a part, as merged by kernels.
  struct RowNumbers {
    T* numbers[3];  // the largest logit, the sum and whether a key was seen, [P] each
    T* acc;         // [P, acc_row]
    Index acc_row;

    RowNumbers(T* part, const AttentionShape& shape)
        : numbers{part, part + padded_size(shape.queries), part + 2 * padded_size(shape.queries)},
          acc(part + 3 * padded_size(shape.queries)),
          acc_row(padded_size(shape.value_width)) {}
  };

  /// Merges the parts of a range of keys into the state of a head, except for the very first
  /// segment, which is the state.
  void merge(const Range& keys, Index head, Index worker) {
    Range merged;  // numbers of segments
    for (Index n = 0; n < own_count(); ++n) {
      const Index begin = segments_[static_cast<std::size_t>(n)].keys.begin;
      if (begin == 0 || begin > last_key(head) || !keys.holds(begin)) continue;
      merged = {merged.is_empty() ? n : merged.begin, n + 1};
    }
    if (merged.is_empty()) return;
    const Segment& last = segments_[static_cast<std::size_t>(merged.end - 1)];
    HeadArgs<T> head_args = args(last, head, worker);
    head_args.carry = carry(head, true, last.keys.end <= last_key(head));
    SoftmaxKernels<T>{}.merge({&head_args,
                               {0, 1, shape_.queries},
                               0,
                               1,
                               part(head, merged.begin),
                               merged.end - merged.begin,
                               head_args.scratch});
  }

  /// Writes out and lse.
  void write() {
    for (Index head = 0; head < heads(); ++head) {
      const Index b = head / shape_.query_heads;
      const Index h = head % shape_.query_heads;
      const T* value = values(head);
      for (Index n = 0; n < shape_.queries; ++n) {
        for (Index c = 0; c < shape_.value_width; ++c) out_(b, h, n, c) = *value++;
        if (!saved_.lse.empty()) saved_.lse(b, h, n, 0) = sums(head)[3 * n];
      }
    }
  }

  View<T> out_;
  SoftmaxSaved<T> saved_;
  AttentionShape shape_;
  IndexSpan lengths_;
  KeyPieces<T> keys_;
  AnyPlan plan_;                   // of all keys
  std::vector<Segment> segments_;  // of this rank
  Index workers_;
  PipelinedScan scan_;  // of a head: [P, Dv], and then [P, 3]
  Workspace parts_;     // [heads, own segments, part_elements()]
  Workspace scratch_;   // [workers, slot()]
  Workspace blocks_;    // [workers] BlockStorage
};

}  // namespace distributed

FOVEA_NAMESPACE_END
