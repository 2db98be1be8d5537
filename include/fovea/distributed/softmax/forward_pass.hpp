// SPDX-License-Identifier: MIT
/// \file
/// One forward pass of softmax attention over a sharded sequence. Queries stay in place; the keys
/// and values that they see are fetched.
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "fovea/attention/softmax/forward.hpp"
#include "fovea/attention/softmax/head_plans.hpp"
#include "fovea/distributed/messages/exchange.hpp"
#include "fovea/distributed/messages/pass.hpp"
#include "fovea/distributed/rows/own_range.hpp"
#include "fovea/distributed/softmax/call.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

namespace detail {

/// Lets MPI progress whenever the calling thread starts a block.
struct MpiProgress {
  const Exchange* exchange;  ///< the messages
  std::thread::id caller;    ///< the thread that may call MPI

  /// Leaves the block unchanged.
  template <class Args>
  void operator()(Index /*stage*/, const SequenceTask& /*task*/, Args& /*args*/) const {
    if (std::this_thread::get_id() == caller) exchange->progress();
  }
};

/// How a pass receives keys: all before computing rows that need remote keys, or in stages.
class KeyStages {
 public:
  /// Whether keys arrive in stages: if a rank receives many, and every block sees a single
  /// contiguous run. A segment is the smallest stage that preserves the bits: its sums are closed
  /// at its end.
  /// \param most_received the largest number of keys that a rank receives
  KeyStages(const HeadPlans& plans, Index keys, Index most_received) : keys_(keys) {
    if (most_received > 2 * kKeySegment && plans.pass_count() == 1 && sees_neighbours(plans)) {
      count_ = (keys + kKeySegment - 1) / kKeySegment;
    }
  }

  /// The number of stages.
  Index count() const { return count_; }
  /// Whether there are several stages.
  bool are_several() const { return count_ > 1; }
  /// The keys of a stage.
  Range keys(Index stage) const {
    if (!are_several()) return {0, keys_};
    return {stage * kKeySegment, (std::min)((stage + 1) * kKeySegment, keys_)};
  }

  /// The plans of some rows: one for all their keys, or one for each stage.
  std::vector<AnyPlan> cut(const AnyPlan& whole, std::span<const Range> own) const {
    if (!are_several()) return {AnyPlan(PlanPart(whole, own))};
    std::vector<AnyPlan> parts;
    std::size_t used = 1;
    for (Index stage = 0; stage < count_; ++stage) {
      AnyPlan part(PlanPart(whole, own, keys(stage), PlanPart::EmptyPieces::left_out));
      if (part.block_count() > 0) used = parts.size() + 1;
      parts.push_back(std::move(part));
    }
    // The first stage begins all rows and the last one finishes them, whatever they see there; and
    // a stage without blocks would be mistaken for the end.
    parts.resize(used);
    for (std::size_t n = 0; n < used; ++n) {
      if (n > 0 && n + 1 < used && parts[n].block_count() > 0) continue;
      parts[n] =
          AnyPlan(PlanPart(whole, own, keys(static_cast<Index>(n)), PlanPart::EmptyPieces::kept));
    }
    return parts;
  }

 private:
  static bool sees_neighbours(const HeadPlans& plans) {
    bool all = true;
    BlockStorage storage(plans.most_runs());
    for_each_plan_of(plans, [&](const AnyPlan& plan) {
      for (Index b = 0; all && b < plan.block_count(); ++b) {
        const QueryBlock block = plan.block(b, storage);
        all = block.run_count <= 1 && block.most_keys > kBandKeys;
        if (block.run_count == 1) all = all && block.runs[0].step == 1;
      }
    });
    return all;
  }

  Index keys_;
  Index count_ = 1;
};

}  // namespace detail

/// One forward pass.
template <class T>
class SoftmaxForwardPass final : public RankPass {
 public:
  /// The modifier of the logits.
  using Modifier = ScoreModifierArgs<Compute<T>>;

  /// Allocates all memory, on every rank, and prepares all messages.
  /// \param modifier of the logits
  /// \param inputs, out, saved this rank's, checked
  /// \param written rows of the sequence, ascending: this rank's among them are written
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  SoftmaxForwardPass(const SoftmaxPatterns& op, const Modifier& modifier,
                     const SoftmaxInputs<T>& inputs, const View<T>& out,
                     const SoftmaxSaved<T>& saved, const Sharding& rows,
                     const std::vector<Range>& written = {kEverywhere})
      : rows_(rows),
        plans_(op, inputs.q.heads(), detail::whole_sequence(op, rows)),
        plan_number_(number_of(plans_)),
        seen_(keys_of_ranks(plans_, rows)),
        stages_(plans_, rows.count(), most_received()),
        keys_(inputs.q.batch(), rows.count(),
              {{inputs.k.heads(), inputs.k.width()}, {inputs.v.heads(), inputs.v.width()}},
              stages_.are_several() ? nullptr : &rows.kept_memory()),
        travels_(ExchangePlan::of(rows.layout(), rows.ranks().rank(),
                                  [&](int rank) { return seen_[static_cast<std::size_t>(rank)]; })),
        exchange_(rows.ranks(), keys_, pass_plans()) {
    std::vector<Range> outer;  // the rows that see keys of other ranges
    for (const OwnRange& range : own_ranges(rows)) {
      const std::vector<Range> all = intersection(written, {range.range()});
      const std::vector<Range> inner = intersection(inner_rows(inputs, range), all);
      const std::vector<Range> rest = without(all, inner);
      outer.insert(outer.end(), rest.begin(), rest.end());
      if (!has_rows(inputs.q)) continue;
      SoftmaxInputs<T> in = inputs;
      in.q = range.of(inputs.q);
      in.k = range.of(inputs.k);
      in.v = range.of(inputs.v);
      in.bias = range.of_logits(inputs.bias);
      in.mask = range.of_logits(inputs.mask);
      add_part(inner_parts_, {in, op.options(), modifier}, out, saved, range, inner);
      in.k = keys_.tensor(0);
      in.v = keys_.tensor(1);
      add_part(parts_, {in, op.options(), modifier}, out, saved, range, rest);
    }
    fill_window(inputs, outer);
  }

  /// Allocates the scratch memory. \throws std::bad_alloc
  void reserve(const ExecutorRef& executor) {
    for (const auto& part : inner_parts_) part->pass.reserve(executor);
    for (const auto& part : parts_) part->pass.reserve(executor);
  }

  /// A hash of the visible keys of all rows, to detect ranks with different patterns.
  std::uint64_t plan_number() const override { return plan_number_; }

  /// \pre reserve(executor) was called, once
  std::exception_ptr run(const ExecutorRef& executor) override {
    exchange_.begin();
    std::exception_ptr error = fovea::detail::caught([&] {
      for (const auto& part : inner_parts_) part->pass.compute(executor);
    });
    for (Index stage = 0; stage < stages_.count(); ++stage) {
      exchange_.begin_stage(static_cast<std::size_t>(stage));
      if (!error) error = fovea::detail::caught([&] { compute(stage, executor); });
      if (stages_.are_several()) forget(stages_.keys(stage));
    }
    exchange_.end();
    return error;
  }

 private:
  using Pass = SoftmaxForward<T, detail::MpiProgress>;

  /// The pass of some rows of one range.
  struct Part {
    Part(const SoftmaxForwardPass& whole, SoftmaxCall<T> of, const View<T>& out,
         const SoftmaxSaved<T>& saved, const std::vector<Range>& rows)
        : call(std::move(of)),
          plans(
              whole.plans_.cut([&](const AnyPlan& plan) { return whole.stages_.cut(plan, rows); })),
          pass(call, plans, out, saved, {&whole.exchange_, std::this_thread::get_id()}) {}

    SoftmaxCall<T> call;
    HeadPlans plans;
    Pass pass;
  };

  void add_part(std::vector<std::unique_ptr<Part>>& to, SoftmaxCall<T> call, const View<T>& out,
                const SoftmaxSaved<T>& saved, const OwnRange& range,
                const std::vector<Range>& rows) {
    if (rows.empty()) return;
    to.push_back(std::make_unique<Part>(*this, std::move(call), range.of(out),
                                        SoftmaxSaved<T>{range.of(saved.lse)}, rows));
  }

  /// The rows of a range that see only this range: they read keys and values in place, while others
  /// are exchanged. None if keys arrive in stages: nearly all of those are sent.
  std::vector<Range> inner_rows(const SoftmaxInputs<T>& inputs, const OwnRange& range) const {
    if (stages_.are_several() || inputs.k.size() == 0 || inputs.v.size() == 0) return {};
    return rows_seeing_only(plans_, range.range(), rows_.count());
  }

  /// Copies this rank's keys and values to the window, if others or its own rows read them there.
  /// \param outer the rows that read the window
  void fill_window(const SoftmaxInputs<T>& inputs, const std::vector<Range>& outer) {
    RowSet needed(rows_.count());
    for (const Transfer& to : travels_.sends) {
      for (const Range& range : to.rows) needed.add(range);
    }
    const auto rank = static_cast<std::size_t>(rows_.ranks().rank());
    const bool is_all = inner_parts_.empty();
    for (const Range& range : is_all ? seen_[rank] : keys_seen(plans_, outer, rows_.count())) {
      needed.add(range);
    }
    const std::vector<Range> filled = intersection(needed.ranges(), rows_.own());
    if (stages_.are_several()) {
      // Remote rows arrive later, in memory released before.
      keys_.expect(filled);
    } else {
      // Own and received rows share large pages.
      const std::vector<Range> all = travels_.with_received(filled, rows_.count());
      keys_.forget_all_but(all);
      keys_.expect(all);
    }
    for (const OwnRange& own : own_ranges(rows_)) {
      for (const Range& rows : intersection(filled, {own.range()})) {
        keys_.put(0, own.only(inputs.k, rows), {rows});
        keys_.put(1, own.only(inputs.v, rows), {rows});
      }
    }
  }

  static std::vector<std::vector<Range>> keys_of_ranks(const HeadPlans& plans,
                                                       const Sharding& rows) {
    std::vector<std::vector<Range>> seen;
    seen.reserve(static_cast<std::size_t>(rows.layout().ranks()));
    for (int rank = 0; rank < rows.layout().ranks(); ++rank) {
      seen.push_back(keys_seen(plans, rows.layout().of(rank), rows.count()));
    }
    return seen;
  }

  Index most_received() const {
    Index most = 0;
    for (int rank = 0; rank < rows_.layout().ranks(); ++rank) {
      const std::vector<Range>& seen = seen_[static_cast<std::size_t>(rank)];
      most = (std::max)(most, row_count(without(seen, rows_.layout().of(rank))));
    }
    return most;
  }

  std::vector<ExchangePlan> pass_plans() const {
    std::vector<ExchangePlan> stages;
    for (Index stage = 0; stage < stages_.count(); ++stage) {
      stages.push_back(travels_.within(stages_.keys(stage)));
    }
    return stages;
  }

  void compute(Index stage, const ExecutorRef& executor) {
    for (const auto& part : parts_) {
      if (stages_.are_several()) {
        if (stage < part->plans.pass_count()) part->pass.compute_pass(stage, executor);
      } else {
        part->pass.compute(executor);
      }
    }
  }

  /// Releases the memory of received keys that are no longer needed.
  void forget(const Range& keys) const {
    std::vector<Range> received;
    Index begin = keys.begin;
    for (const Range& own : intersection(rows_.own(), {keys})) {
      received.push_back({begin, own.begin});
      begin = own.end;
    }
    received.push_back({begin, keys.end});
    keys_.forget(received);
  }

  const Sharding& rows_;
  HeadPlans plans_;
  std::uint64_t plan_number_;
  std::vector<std::vector<Range>> seen_;  // the keys that the rows of each rank see
  detail::KeyStages stages_;
  RowTensors<T> keys_;    // k and v
  ExchangePlan travels_;  // in all stages
  Exchange exchange_;
  std::vector<std::unique_ptr<Part>> inner_parts_;  // whose rows see only their own range
  std::vector<std::unique_ptr<Part>> parts_;
};

}  // namespace distributed

FOVEA_NAMESPACE_END
