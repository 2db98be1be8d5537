// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of softmax attention: the division of work among threads, and the order of
/// sums, so that the bits do not depend on threads.
#pragma once

#include <algorithm>
#include <vector>

#include "fovea/attention/call/head_matrix.hpp"
#include "fovea/attention/call/ordered_sections.hpp"
#include "fovea/attention/softmax/backward_call.hpp"
#include "fovea/attention/softmax/bias_backward.hpp"
#include "fovea/attention/softmax/block_pairs.hpp"
#include "fovea/attention/softmax/key_parts.hpp"
#include "fovea/core/on_error.hpp"

FOVEA_NAMESPACE_BEGIN

/// One backward pass. A task is a block of keys of one key head. It owns the gradients of those
/// keys and values, and goes over all query blocks that see them. Tasks add to the gradient of a
/// query block in the order of their keys.
///
/// Different pattern passes, and different patterns of the query heads of a key head, cut the keys
/// differently. So the backward pass runs in rounds. A round processes one pattern pass of every
/// key head, and the query heads that share one pattern. The first round writes the gradients of
/// keys and values; the others add to them.
template <class T>
class SoftmaxBackward {
 public:
  /// \param call, plans must outlive this object
  SoftmaxBackward(const SoftmaxCall<T>& call, const HeadPlans& plans, const View<const T>& out,
                  const SoftmaxSaved<T>& saved, const View<const T>& d_out,
                  const SoftmaxGrads<T>& grads, const View<const T>& d_lse = {})
      : pass_(call, plans, out, saved, d_out, grads, d_lse) {}

  /// Writes the gradients.
  /// \throws std::bad_alloc before anything is written
  void run(const ExecutorRef& executor) {
    reserve(executor);
    if (!executor.only_counts()) compute(executor);
  }

  /// Allocates the memory for `compute` with the same executor.
  /// \pre lse holds what `forward` saved
  /// \throws std::bad_alloc
  void reserve(const ExecutorRef& executor) {
    take_scratch(executor);
    look_at_lse(executor);
  }

  /// The part of `reserve` that does not depend on lse.
  /// \throws std::bad_alloc
  void take_scratch(const ExecutorRef& executor) {
    pass_.take_scratch(worker_count(executor, pass_.most_tasks()), memory_of(executor));
    const SoftmaxGrads<T>& grads = pass_.grads();
    if (grads.q.empty() && grads.k.empty() && grads.v.empty()) return;
    find_place_of_bias();
    const Index passes = pass_.plans().pass_count();
    Index places = 0;
    rounds_.reserve(static_cast<std::size_t>(passes * variants()));
    for (Index pass = 0; pass < passes; ++pass) {
      for (Index variant = 0; variant < variants(); ++variant) {
        rounds_.push_back(round(pass, variant));
        places = (std::max)(places, rounds_.back().blocks.count());
      }
    }
    turns_ = detail::OrderedSections(grads.q.empty() ? 0 : places);
  }

  /// The rest of `reserve`.
  /// \pre lse holds what `forward` saved
  /// \throws std::bad_alloc
  void look_at_lse(const ExecutorRef& executor) { pass_.look_for_large(memory_of(executor)); }

  /// The same with low parts of lse computed elsewhere (lse_low_parts.hpp).
  /// \param low [B, Hq, Nq, 1]   \throws std::bad_alloc
  void give_lse_low(const View<const T>& low, const ExecutorRef& executor) {
    pass_.give_lse_low(low, memory_of(executor));
  }

  /// The low parts of a head's lse, [Nq], after the gradients are computed; null if no row has one.
  const T* lse_low(const Sequence& s, Index h) const { return pass_.lse_low(s, h); }

  /// Writes the gradients.
  /// \pre reserve(executor) was called, once
  void compute(const ExecutorRef& executor) {
    pass_.find_lse_low(executor);
    const SoftmaxGrads<T>& grads = pass_.grads();
    if (!grads.bias.empty()) BiasBackward<T>(pass_, grads.bias).clear(executor);
    for (const Round& round : rounds_) run_round(round, executor);
    clear_behind_plans();
    if (!grads.bias.empty() && !bias_in_rounds_) add_to_bias(grads.bias, executor);
    if (!grads.sink.empty()) pass_.write_sinks(executor);
  }

  /// Adds the pairs of the plans to a gradient of the bias.
  /// \pre the gradients are computed
  void add_to_bias(const View<T>& to, const ExecutorRef& executor) {
    BiasBackward<T>(pass_, to).add(executor);
  }

  /// Adds query rows of a sequence to the gradient of head h's sink.
  /// \param sums [kSinkSums], added to; their sum in order is the gradient
  /// \pre the gradients are computed
  void add_to_sink(const Sequence& s, Index h, const Range& rows, T* sums, Index worker) {
    pass_.add_to_sink(s, h, rows, sums, worker);
  }

 private:
  using Buffers = typename BackwardCall<T>::Buffers;

  /// Decides whether the rounds also write the bias's gradient, which saves a separate pass. Each
  /// pair must have its own element, except across sequences, which are then processed in order,
  /// and its gradient must be that of the product.
  void find_place_of_bias() {
    const View<T>& bias = pass_.grads().bias;
    const AttentionShape whole = pass_.call().shape();
    if (bias.empty() || pass_.sequences().packed()) return;
    const Shape pairs = {bias.batch(), whole.query_heads, whole.queries, whole.keys};
    const ScoreMap<T> map = pass_.sequences().count() == 0 || whole.query_heads == 0
                                ? ScoreMap<T>{}
                                : pass_.call().score_map(pass_.sequences()[0], 0);
    bias_in_rounds_ = bias.shape() == pairs && map.soft_cap == 0 && !map.modifier.is_used();
    shares_bias_ = bias_in_rounds_ && bias.batch() != whole.batch;
  }

  /// The number of query heads of a key head.
  Index group() const { return detail::group_size(pass_.query_heads(), pass_.key_heads()); }
  /// The number of different patterns among the query heads of a key head: heads n, n + variants,
  /// ... of a group have the same one. If there are no query heads there is still one round, which
  /// writes the gradients of the keys.
  Index variants() const { return std::clamp(group(), Index{1}, pass_.plans().period()); }

  /// One round: for every key head, the query heads that have the pattern of its head `variant`.
  struct Round {
    Index pass;
    Index variant;
    SequenceTasks keys;    // the tasks: blocks of keys of key heads
    SequenceTasks blocks;  // blocks of query heads, to which tasks add in turn
    Index most_parts;      // largest number of tasks of a key head

    bool is_first() const { return pass == 0 && variant == 0; }
  };

  Round round(Index pass, Index variant) const {
    Index most = 0;
    const auto parts = [&](Index s, Index key_head) {
      const AnyPlan& plan = pass_.plans().plan(pass, s, key_head * group() + variant);
      const Index blocks = KeyParts<T>::blocks_of_task(plan, pass_.sequences()[s].plan_keys);
      const Index count = (plan.key_block_count() + blocks - 1) / blocks;
      most = (std::max)(most, count);
      return count;
    };
    SequenceTasks keys(pass_.sequences(), pass_.key_heads(), parts);
    const auto block_count = [&](Index s, Index h) {
      return pass_.plans().plan(pass, s, h).block_count();
    };
    return {pass,
            variant,
            std::move(keys),
            {pass_.sequences(), pass_.query_heads(), block_count},
            most};
  }

  void run_round(const Round& now, const ExecutorRef& executor) {
    turns_.restart();
    if (pass_.sequences().packed()) {
      for_each_task(executor, now.keys.count(), [&](Index task, Index worker) {
        key_task(now, now.keys[task], pass_.buffers(worker));
      });
    } else {
      // Neighbouring tasks are blocks of different heads, which do not wait for each other. Under a
      // causal pattern those with the most queries come first.
      const Index count = pass_.sequences().count();
      const Index together = shares_bias_ ? count : 1;  // sequences of a task
      const Index heads = (shares_bias_ ? 1 : count) * pass_.key_heads();
      for_each_task(executor, heads * now.most_parts, [&](Index task, Index worker) {
        const Index head = task % heads;
        for (Index s = 0; s < together; ++s) {
          key_task(now, {head / pass_.key_heads() + s, head % pass_.key_heads(), task / heads},
                   pass_.buffers(worker));
        }
      });
    }
    if (now.pass == 0 && !pass_.grads().q.empty()) clear_unseen_rows(now);
  }

  /// Computes the gradients of a task's keys and values, and its part of the queries' gradients.
  /// All its key blocks process a query block before the next one, since other tasks may wait.
  void key_task(const Round& round, const SequenceTask& task, Buffers buffers) {
    const detail::OnError stop([this] { turns_.stop(); });
    const Sequence s = pass_.sequences()[task.sequence];
    const Index first_head = task.head * group() + round.variant;
    const AnyPlan& plan = pass_.plans().plan(round.pass, task.sequence, first_head);
    KeyParts<T> parts(plan, s.plan_keys, task.part);
    SoftmaxGradArgs<T> args;
    args.scratch = buffers.kernel;
    for (Index h = first_head; h < (task.head + 1) * group(); h += variants()) {
      args.head = pass_.head(s, h);
      if (bias_in_rounds_) {
        args.d_bias =
            detail::head_logits(pass_.grads().bias, s.batch, h, s.first_query, s.first_key);
      }
      for (Index b = parts.blocks.begin; b < parts.blocks.end; ++b) {
        const GradientRoles roles = plan.query_roles(b);
        bool built = false;
        for (Index n = 0; n < parts.count; ++n) {
          KeyPart<T>& part = parts.at[static_cast<std::size_t>(n)];
          if (b < part.blocks.begin || part.blocks.end <= b) continue;
          const GradientRoles of = wanted(roles, part.roles);
          if (!of.of_queries && !of.of_keys && !bias_in_rounds_) continue;
          if (!plan.meets(b, part.number)) continue;
          if (!built) args.block = plan.block(b, buffers.storage);
          built = true;
          if (!detail::meets(args.block, part.keys, s.key_end)) continue;
          const Index before = blocks_before(plan, b, args.block, part.number, s.key_end);
          const Range rows = add_pairs(s, task.head, of, buffers, part, args);
          if (!of.of_queries) continue;
          turns_.take(round.blocks.number(task.sequence, h, b), before,
                      [&] { add_to_queries(args, rows, s, h, round.pass > 0 || before > 0); });
        }
      }
    }
    for (Index n = 0; n < parts.count; ++n) {
      write_keys(round, s, task.head, parts.at[static_cast<std::size_t>(n)], buffers);
    }
  }

  /// The gradients that a pair of blocks adds to.
  GradientRoles wanted(const GradientRoles& queries, const GradientRoles& keys) const {
    const SoftmaxGrads<T>& grads = pass_.grads();
    return {queries.of_queries && keys.of_queries && !grads.q.empty(),
            queries.of_keys && keys.of_keys && !(grads.k.empty() && grads.v.empty())};
  }

  T* d_k_of(const KeyPart<T>& part, const Buffers& buffers) const {
    return buffers.d_k + part.row * padded_size(pass_.call().inputs().k.width());
  }
  T* d_v_of(const KeyPart<T>& part, const Buffers& buffers) const {
    return buffers.d_v + part.row * padded_size(pass_.call().inputs().v.width());
  }

  /// Adds the contribution of a query block and a key block to the keys' sums, and computes their
  /// part of the queries' gradients, if wanted. Returns the block's rows that see one of the keys.
  Range add_pairs(const Sequence& s, Index key_head, const GradientRoles& of,
                  const Buffers& buffers, KeyPart<T>& part, SoftmaxGradArgs<T>& args) const {
    const Range rows = detail::rows_that_see(args.block, part.keys, s.key_end, kGradTile);
    if (rows.is_empty()) return rows;
    if (!part.is_seen) {
      pass_.set_keys(part.keys, s, key_head, part.row, buffers, args);
      part.k = args.k;
      part.v = args.v;
      part.is_seen = true;
    }
    args.keys = {part.keys.first, part.keys.step, part.keys.count};
    args.k = part.k;
    args.v = part.v;
    args.d_q = of.of_queries ? buffers.d_q : nullptr;
    args.d_k = of.of_keys && !pass_.grads().k.empty() ? d_k_of(part, buffers) : nullptr;
    args.d_v = of.of_keys && !pass_.grads().v.empty() ? d_v_of(part, buffers) : nullptr;
    args.row_begin = rows.begin;
    args.row_end = rows.end;
    args.add = part.begun;
    SoftmaxGradKernels<T>{}.grad(args);
    part.begun = part.begun || of.of_keys;
    return rows;
  }

  /// Writes or adds to the gradients of a block of keys and values. In the first round they are
  /// written even if no query sees the keys.
  void write_keys(const Round& round, const Sequence& s, Index key_head, const KeyPart<T>& part,
                  const Buffers& buffers) const {
    const SoftmaxGrads<T>& grads = pass_.grads();
    const bool add = !round.is_first();
    if (!part.roles.of_keys || (add && !part.begun)) return;
    const auto write = [&](const View<T>& to, T* rows, T scale) {
      if (to.empty()) return;
      if (!part.begun) std::fill_n(rows, part.keys.count * padded_size(to.width()), T{0});
      write_rows(rows, to, s.batch, key_head, s.first_key, part.keys, scale, add);
    };
    write(grads.k, d_k_of(part, buffers), pass_.call().scale() * pass_.unlift());
    write(grads.v, d_v_of(part, buffers), pass_.unlift());
  }

  /// The rows of a block, as rows of the tensors.
  static RowBlock rows_of(const QueryBlock& block, const Range& rows) {
    return {block.first + block.step * rows.begin, block.step,
            (std::max)(Index{0}, rows.end - rows.begin)};
  }

  /// Adds some rows of a block to its queries' gradients, or, if `add` is false, overwrites these.
  void add_to_queries(const SoftmaxGradArgs<T>& args, const Range& rows, const Sequence& s, Index h,
                      bool add) const {
    if (!rows.is_empty()) {
      write_rows(args.d_q, pass_.grads().q, s.batch, h, s.first_query, rows_of(args.block, rows),
                 pass_.call().scale() * pass_.unlift(), add);
    }
    if (add) return;
    const Index end = (std::max)(rows.begin, rows.end);
    clear_queries(s, h, rows_of(args.block, {0, (std::min)(rows.begin, args.block.count)}));
    clear_queries(s, h, rows_of(args.block, {end, args.block.count}));
  }

  /// Sets the gradients of some queries to +0.
  void clear_queries(const Sequence& s, Index h, const RowBlock& rows) const {
    const Matrix<T> d_q = detail::head_matrix(pass_.grads().q, s.batch, h, s.first_query);
    for (Index r = 0; r < rows.count; ++r) {
      T* const row = d_q.data + (rows.first + rows.step * r) * d_q.row;
      for (Index d = 0; d < pass_.grads().q.width(); ++d) row[d * d_q.column] = 0;
    }
  }

  /// Sets to +0 the gradients of keys and values that are not in a plan.
  void clear_behind_plans() const {
    for (Index n = 0; n < pass_.sequences().count(); ++n) {
      const Sequence s = pass_.sequences()[n];
      for (const View<T>& x : {pass_.grads().k, pass_.grads().v}) {
        detail::fill_rows(x, s.batch, s.first_key + s.plan_keys, s.first_key + s.keys, T{0});
      }
    }
  }

  /// The number of key blocks before `part` that query block b sees: this many tasks have their
  /// turn before this one. Like a task, it queries the plan and the runs: a run whose rows see
  /// different keys also spans the keys between these.
  static Index blocks_before(const AnyPlan& plan, Index b, const QueryBlock& block, Index part,
                             Index key_end) {
    Index before = 0;
    for (Index p = plan.key_blocks(block).begin; p < part; ++p) {
      if (plan.key_roles(p).of_queries && detail::meets(block, plan.key_block(p), key_end) &&
          plan.meets(b, p)) {
        ++before;
      }
    }
    return before;
  }

  /// Overwrites the rows of `row_block` of a head of a sequence, or adds to them.
  static void write_rows(const T* rows, const View<T>& to, Index batch, Index head, Index first,
                         const RowBlock& row_block, T scale, bool add) {
    SoftmaxGradKernels<T>{}.scaled_rows({rows, detail::head_matrix(to, batch, head, first),
                                         row_block.first, row_block.step, row_block.count,
                                         to.width(), scale, add});
  }

  /// Sets to +0 the gradients of the round's queries whose block sees no key.
  void clear_unseen_rows(const Round& round) {
    BlockStorage storage = pass_.buffers(0).storage;
    for (Index place = 0; place < round.blocks.count(); ++place) {
      if (turns_.taken(place) > 0) continue;
      const SequenceTask at = round.blocks[place];
      if (at.head % group() % variants() != round.variant) continue;
      const Sequence s = pass_.sequences()[at.sequence];
      const AnyPlan& plan = pass_.plans().plan(round.pass, at.sequence, at.head);
      if (!plan.query_roles(at.part).of_queries) continue;
      const QueryBlock block = plan.block(at.part, storage);
      clear_queries(s, at.head, rows_of(block, {0, block.count}));
    }
  }

  BackwardCall<T> pass_;
  std::vector<Round> rounds_;         // empty if no gradient of q, k or v is requested
  bool bias_in_rounds_ = false;       // whether they write the bias's gradient
  bool shares_bias_ = false;          // whether sequences share one bias
  detail::OrderedSections turns_{0};  // one place for each query block of a round
};

FOVEA_NAMESPACE_END
