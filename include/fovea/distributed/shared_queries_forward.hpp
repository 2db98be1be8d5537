// SPDX-License-Identifier: MIT
/// \file
/// The forward pass of softmax attention of queries that all ranks have to the keys of a sequence
/// that is spread over them. Keys stay where they are, but for segments that lie on several ranks;
/// running softmaxes go from range to range.
#pragma once

#include <algorithm>
#include <exception>
#include <vector>

#include "fovea/attention/softmax/dense.hpp"
#include "fovea/distributed/exchange.hpp"
#include "fovea/distributed/own_range.hpp"
#include "fovea/distributed/segment_totals.hpp"
#include "fovea/distributed/state_chain.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The keys of one rank in whole segments of kKeySegment: where a segment ends, a running softmax
/// is closed, so that another rank may go on with it.
template <class T>
class SegmentKeys {
 public:
  /// Some neighbouring keys, and the tensors that hold them, with places for all keys.
  struct Piece {
    Range keys;
    View<const T> k;
    View<const T> v;
  };

  /// Takes the memory of segments that lie on several ranks, and puts this rank's rows there.
  /// \param k, v of this rank's rows   \throws std::bad_alloc, and std::runtime_error if MPI fails
  SegmentKeys(const View<const T>& k, const View<const T>& v, const Rows& rows)
      : owners_(rows.layout(), kKeySegment),
        layout_(owners_.layout()),
        window_(k.batch(), rows.count(), {{k.heads(), k.width()}, {v.heads(), v.width()}}),
        travels_(
            ExchangePlan::of(rows.layout(), rows.ranks().rank(),
                             [&](int rank) { return owners_.broken_rows(rows.layout(), rank); })),
        exchange_(rows.ranks(), window_, {travels_}) {
    const std::vector<Range>& whole = layout_.of(rows.ranks().rank());
    // Views of tensors without elements cannot be moved; the window has their shapes.
    const bool is_empty = k.size() == 0 || v.size() == 0;
    const std::vector<Range> broken =
        is_empty ? std::vector<Range>{{0, rows.count()}} : owners_.all_broken_rows(rows.layout());
    window_.expect(travels_.with_received(intersection(broken, rows.own()), rows.count()));
    for (const Range& range : intersection(whole, broken)) add({range, tensor(0), tensor(1)});
    for (const OwnRange& own : own_ranges(rows)) {
      for (const Range& range : intersection(broken, {own.range()})) {
        window_.put(0, own.only(k, range), {range});
        window_.put(1, own.only(v, range), {range});
      }
      for (const Range& range : without(intersection(whole, {own.range()}), broken)) {
        add({range, own.of(k), own.of(v)});
      }
    }
    if (rows.count() == 0) add({{}, tensor(0), tensor(1)});
    std::sort(pieces_.begin(), pieces_.end(),
              [](const Piece& a, const Piece& b) { return a.keys.begin < b.keys.begin; });
  }
  SegmentKeys(const SegmentKeys&) = delete;
  SegmentKeys& operator=(const SegmentKeys&) = delete;

  /// Who has which keys.
  const RowLayout& layout() const { return layout_; }
  /// The keys of this rank, ascending; of a sequence without rows one piece without keys.
  const std::vector<Piece>& pieces() const { return pieces_; }
  /// The messages of this rank.
  Traffic traffic() const { return exchange_.traffic(); }
  /// Brings the rows of segments that lie on several ranks to who has them.
  void bring() { exchange_.run(); }

 private:
  void add(const Piece& piece) { pieces_.push_back(piece); }
  View<const T> tensor(std::size_t t) const { return View<const T>(window_.tensor(t)); }

  SegmentOwners owners_;
  RowLayout layout_;
  RowTensors<T> window_;  // k and v of segments that lie on several ranks
  ExchangePlan travels_;
  Exchange exchange_;
  std::vector<Piece> pieces_;
};

/// One forward pass. All ranks get the result.
template <class T>
class SharedQueriesForward {
 public:
  /// Takes all memory.
  /// \param inputs q [B, Hq, P, D], the same on all ranks, and k and v of this rank's rows; checked
  /// \param out, saved [B, Hq, P, ...], written on every rank
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  template <class E>
  SharedQueriesForward(const SoftmaxInputs<T>& inputs, const SoftmaxOptions& options,
                       const View<T>& out, const SoftmaxSaved<T>& saved, const Rows& rows,
                       E&& executor)
      : out_(out),
        saved_(saved),
        rows_(rows),
        shape_{inputs.q.batch(), inputs.q.heads(), inputs.k.heads(), inputs.q.rows(),
               rows.count(),     inputs.q.width(), inputs.v.width()},
        lengths_(inputs.key_lengths),
        keys_(inputs.k, inputs.v, rows),
        plan_(Dense{}.plan(SequenceShape::of(shape_.queries, shape_.keys, options.alignment))),
        workers_((std::max)(worker_count(executor, heads()), Index{1})),
        chain_(rows.ranks(), keys_.layout(), ChainWay::up, heads(),
               shape_.queries * row_elements() * Index{sizeof(T)}, workers_) {
    for (const auto& piece : keys_.pieces()) {
      SoftmaxInputs<T> in = inputs;
      in.k = piece.k;
      in.v = piece.v;
      parts_.push_back(
          {piece.keys, SoftmaxCall<T>(in, options),
           AnyPlan(PlanPart(plan_, {&kEverywhere, 1}, piece.keys, PlanPart::Unseen::kept))});
    }
    const Index workers = worker_count(executor, workers_ * plan_.block_count());
    scratch_ = memory_of(executor).take(workers, slot() * Index{sizeof(T)});
    blocks_ = memory_of(executor).take(workers, BlockStorage::bytes(plan_.most_runs()));
  }
  SharedQueriesForward(const SharedQueriesForward&) = delete;
  SharedQueriesForward& operator=(const SharedQueriesForward&) = delete;

  /// The messages of this rank.
  Traffic traffic() const { return keys_.traffic() + chain_.traffic(); }

  /// Computes the pass. All messages are exchanged even if computing throws.
  /// \returns what computing has thrown, or null
  template <class E>
  std::exception_ptr run(E&& executor) {
    keys_.bring();
    std::exception_ptr error = chain_.run([&](const LinkOfRows& link, Index first, Index end) {
      add(link.rows, first, end, executor);
    });
    if (rows_.count() == 0) {
      error = fovea::detail::caught([&] { add({0, 1}, 0, heads(), executor); });
    }
    chain_.give_to_all();
    if (!error) write();
    return error;
  }

 private:
  /// Some keys of this rank.
  struct Part {
    Range keys;
    SoftmaxCall<T> call;
    AnyPlan plan;  // of these keys
  };

  /// Query heads of all sequences.
  Index heads() const { return shape_.batch * shape_.query_heads; }
  /// Numbers of a row's running softmax: its values, then three, of which the first is lse at last.
  Index row_elements() const { return shape_.value_width + 3; }
  T* values(Index head) { return chain_.template state<T>(head); }
  T* sums(Index head) { return values(head) + shape_.queries * shape_.value_width; }
  Index slot() const {
    return softmax_block_scratch(block_rows(shape_.queries), shape_.width, shape_.value_width);
  }

  /// Where the part ends that finishes the rows of a sequence: no later one has a key that they
  /// see.
  Index last_key(Index b) const {
    return (lengths_.empty() ? shape_.keys : lengths_[static_cast<std::size_t>(b)]) - 1;
  }

  /// Adds keys of a range to the softmaxes of some heads.
  template <class E>
  void add(const Range& range, Index first, Index end, E&& executor) {
    const Index blocks = plan_.block_count();
    for_each_task(executor, (end - first) * blocks, [&](Index task, Index worker) {
      for (const Part& part : parts_) {
        if (!range.holds(part.keys.begin)) continue;
        add(part, first + task / blocks, task % blocks, worker);
      }
    });
  }

  /// Adds the keys of a part to the softmaxes of a block of rows, or finishes these.
  void add(const Part& part, Index head, Index block, Index worker) {
    const Index b = head / shape_.query_heads;
    if (part.keys.begin > (std::max)(last_key(b), Index{0})) return;
    SoftmaxSaved<T> saved;
    HeadArgs<T> args =
        part.call.args(part.call.sequences()[b], head % shape_.query_heads, {}, saved);
    args.out = {values(head), shape_.value_width, 1};
    args.lse = {sums(head), 3, 1};
    args.carry = {{values(head), shape_.value_width, 1},
                  sums(head),
                  part.keys.begin > 0,
                  part.keys.end <= last_key(b)};
    BlockStorage storage(plan_.most_runs(), blocks_.template data<std::byte>() +
                                                worker * BlockStorage::bytes(plan_.most_runs()));
    args.block = part.plan.block(block, storage);
    if (args.carry.is_used()) args.block.most_keys = kUnboundedKeys;
    args.scratch = scratch_.template data<T>() + worker * slot();
    SoftmaxKernels<T>{}.block(args);
  }

  /// Writes out and lse.
  void write() {
    for (Index head = 0; head < heads(); ++head) {
      const Index b = head / shape_.query_heads;
      const Index h = head % shape_.query_heads;
      const T* value = values(head);
      for (Index n = 0; n < shape_.queries; ++n) {
        for (Index c = 0; c < shape_.value_width; ++c) out_(b, h, n, c) = *value++;
        if (!saved_.lse.is_none()) saved_.lse(b, h, n, 0) = sums(head)[3 * n];
      }
    }
  }

  View<T> out_;
  SoftmaxSaved<T> saved_;
  const Rows& rows_;
  AttentionShape shape_;
  std::span<const Index> lengths_;
  SegmentKeys<T> keys_;
  AnyPlan plan_;
  Index workers_;
  StateChain chain_;  // of a head: values [P, Dv], then three numbers of each row
  std::vector<Part> parts_;
  Workspace scratch_;  // [workers]
  Workspace blocks_;   // [workers] BlockStorage
};

}  // namespace distributed

FOVEA_NAMESPACE_END
