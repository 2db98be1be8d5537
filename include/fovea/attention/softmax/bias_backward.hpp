// SPDX-License-Identifier: MIT
/// \file
/// The bias's gradient in the backward pass of softmax attention.
#pragma once

#include "fovea/attention/softmax/backward_call.hpp"
#include "fovea/attention/softmax/block_pairs.hpp"

FOVEA_NAMESPACE_BEGIN

/// Computes the bias's gradient. A task owns a part of the bias, and sums over what it was
/// broadcast to. Passes and different patterns cut the bias into different parts, so they run in
/// consecutive rounds.
template <class T>
class BiasBackward {
 public:
  /// \param pass the call, which must outlive this object   \param to the gradient
  BiasBackward(BackwardCall<T>& pass, const View<T>& to) : pass_(pass), to_(to) {}

  /// Sets the gradient to +0.
  void clear(const ExecutorRef& executor) const { zero(executor, to_); }

  /// Adds the call's pairs to the gradient.
  void add(const ExecutorRef& executor) {
    const Shape& shape = to_.shape();
    const AttentionShape whole = pass_.call().shape();
    BiasRound round;
    round.variants = shape[1] == 1 ? pass_.plans().period() : 1;
    // If the bias has no row dimension, the parts are key blocks. If it has no key dimension
    // either, there is one part.
    round.by_query = shape[2] != 1 || whole.queries == 1;
    round.one_part = !round.by_query && (shape[3] == 1 && whole.keys != 1);
    for (round.pattern_pass = 0; round.pattern_pass < pass_.plans().pass_count();
         ++round.pattern_pass) {
      for (round.variant = 0; round.variant < round.variants; ++round.variant) {
        round.parts = bias_parts(round);
        for_each_task(executor, shape[0] * shape[1] * round.parts, [&](Index task, Index worker) {
          bias_task(round, task / round.parts, task % round.parts, pass_.buffers(worker));
        });
      }
    }
  }

 private:
  using Buffers = typename BackwardCall<T>::Buffers;

  /// One round: one pass, and the heads of one pattern or of all.
  struct BiasRound {
    Index pattern_pass;
    Index variant;   // the round takes the heads h with h % variants == variant
    Index variants;  // more than 1 if heads of different patterns add to the same part
    bool by_query;   // whether parts are blocks of queries; otherwise of keys
    bool one_part;
    Index parts;
  };

  /// Fills a tensor with +0.
  static void zero(const ExecutorRef& executor, const View<T>& x) {
    constexpr Index rows = 512;
    const Index parts = (x.rows() + rows - 1) / rows;
    for_each_task(executor, x.batch() * x.heads() * parts, [&](Index task, Index) {
      const Index b = task / parts / x.heads();
      const Index h = task / parts % x.heads();
      const Index first = task % parts * rows;
      for (Index n = first; n < (std::min)(x.rows(), first + rows); ++n) {
        for (Index d = 0; d < x.width(); ++d) x(b, h, n, d) = 0;
      }
    });
  }

  Index bias_parts(const BiasRound& round) const {
    if (round.one_part) return 1;
    Index parts = 0;
    for (Index s = 0; s < pass_.sequences().count(); ++s) {
      for (Index h = round.variant; h < pass_.query_heads(); h += round.variants) {
        const AnyPlan& plan = pass_.plans().plan(round.pattern_pass, s, h);
        parts = (std::max)(parts, round.by_query ? plan.block_count() : plan.key_block_count());
      }
    }
    return parts;
  }

  /// \param cell number of the batch entry and head of the bias
  void bias_task(const BiasRound& round, Index cell, Index part, Buffers buffers) const {
    const Index batches = to_.batch();
    const Index heads = to_.heads();
    for (Index s = 0; s < pass_.sequences().count(); ++s) {
      const Sequence sequence = pass_.sequences()[s];
      if (batches != 1 && sequence.batch != cell / heads) continue;
      for (Index h = round.variant; h < pass_.query_heads(); h += round.variants) {
        if (heads != 1 && h != cell % heads) continue;
        add_bias(round, sequence, h, part, buffers);
      }
    }
  }

  /// Adds one head's contribution to a part of the bias: the query or key block of that number, or
  /// all of them.
  void add_bias(const BiasRound& round, const Sequence& s, Index h, Index part,
                Buffers& buffers) const {
    SoftmaxGradArgs<T> args;
    args.head = pass_.head(s, h);
    args.scratch = buffers.kernel;
    args.d_bias = detail::head_logits(to_, s.batch, h, s.first_query, s.first_key);
    const AnyPlan& plan = pass_.plans().plan(round.pattern_pass, s.index, h);
    const bool by_key = !round.by_query && !round.one_part;
    if (by_key && part >= plan.key_block_count()) return;
    for (Index b = 0; b < plan.block_count(); ++b) {
      if (round.by_query && b != part) continue;
      if (by_key && !plan.meets(b, part)) continue;
      args.block = plan.block(b, buffers.storage);
      for (Index k = 0; k < plan.key_block_count(); ++k) {
        if (by_key && k != part) continue;
        const KeyBlock keys = plan.key_block(k);
        if (!detail::meets(args.block, keys, s.key_end)) continue;
        const Range rows = detail::rows_that_see(args.block, keys, s.key_end, kGradTile);
        if (rows.is_empty()) continue;
        args.row_begin = rows.begin;
        args.row_end = rows.end;
        pass_.set_keys(keys, s, pass_.call().key_head(h), 0, buffers, args);
        SoftmaxGradKernels<T>{}.grad(args);
      }
    }
  }

  BackwardCall<T>& pass_;
  View<T> to_;
};

FOVEA_NAMESPACE_END
