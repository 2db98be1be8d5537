// SPDX-License-Identifier: MIT
/// \file
/// The passes of Reformer attention over sorted rows.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "fovea/attention/reformer/pass.hpp"
#include "fovea/core/rounded.hpp"

FOVEA_NAMESPACE_BEGIN

/// One forward pass. The rounds are processed in order; in each, the softmax over a row's
/// candidates is merged into the row's running result of the previous rounds.
template <class T>
class ReformerForward : ReformerPass<T> {
  using Pass = ReformerPass<T>;
  using Pass::inputs_;
  using Pass::kElement;
  using Pass::options_;
  using Pass::shape_;
  using Pass::sorted_;

 public:
  /// \param sorted sorted before `compute`; it and the options must outlive this object
  /// \param out [B, H, N, Dv]; if empty, only the log-sum-exps are computed
  ReformerForward(const ReformerOptions& options, const ReformerInputs<T>& inputs,
                  const SortedRows<T>& sorted, const View<T>& out, const ReformerSaved<T>& saved)
      : Pass(options, inputs, sorted), out_(out), saved_(saved) {}

  /// Allocates the memory.
  /// \throws std::bad_alloc
  void take_memory(const ExecutorRef& executor) {
    sums_ = memory_of(executor).take(2 * sorted_.sequences() * shape_.rows, kElement);
    this->take_scratch(executor, out_.empty() ? 0 : shape_.value_width, false);
  }

  /// Computes the pass.
  /// \pre take_memory(executor) was called
  void compute(const ExecutorRef& executor) {
    for (Index r = 0; r < options_.rounds; ++r) {
      this->for_each_part(executor,
                          [&](Index sequence, const Range& chunks, const ChunkBuffers<T>& to) {
                            process_rows(sequence, r, chunks, to);
                          });
    }
    for_each_task(executor, sorted_.sequences(), [&](Index s, Index) { clear_beyond(s); });
  }

 private:
  /// Computes consecutive chunks of a round.
  void process_rows(Index sequence, Index round, const Range& chunks, const ChunkBuffers<T>& to) {
    ChunkPairs<T> pairs(options_, sorted_, to.pairs);
    for (Index n = chunks.begin; n < chunks.end; ++n) {
      const ChunkSlots chunk_slots = this->slots_of_chunk(sequence, round, n);
      this->gather_keys(sequence, chunk_slots.own, chunk_slots.own_first, to, to.q);
      if (n == chunks.begin) {
        this->gather_keys(sequence, chunk_slots.before, chunk_slots.before_first(), to);
      }
      pairs.prepare(sequence, chunk_slots);
      this->run_kernel(chunk_slots, pairs, to);
      merge(sequence, chunk_slots.own, to);
    }
  }

  /// Merges the results of a chunk's rows into those of the previous rounds.
  void merge(Index sequence, const SortedChunk& own, const ChunkBuffers<T>& from) {
    T* const most = sums_.template data<T>() + sequence * shape_.rows;
    T* const sum = most + sorted_.sequences() * shape_.rows;
    const Index b = sequence / shape_.heads;
    const Index h = sequence % shape_.heads;
    const std::int32_t* const buckets = sorted_.buckets(sequence, own.round);
    const bool is_first = own.round == 0;
    const bool is_last = own.round + 1 == options_.rounds;
    for (Index i = 0; i < own.count; ++i) {
      const std::int32_t row = own.rows[i];
      // A row whose products contain a NaN has no bucket, so its result is NaN.
      const T lse = buckets[row] == kNoBucket ? std::numeric_limits<T>::quiet_NaN() : from.lse[i];
      if (!saved_.round_lse.empty()) saved_.round_lse(b, h, row, own.round) = lse;
      from.before[i] = 1;
      from.now[i] = 1;
      if (is_first) {
        most[row] = lse;
        sum[row] = std::isnan(lse) ? lse : T{1};
      } else if (lse > most[row]) {
        from.before[i] = std::exp(most[row] - lse);
        most[row] = lse;
        sum[row] = rounded(sum[row] * from.before[i]) + 1;
      } else {
        from.now[i] = std::exp(lse - most[row]);
        sum[row] += from.now[i];
      }
      from.factor[i] = is_last ? 1 / sum[row] : T{1};
      if (is_last && !saved_.lse.empty()) {
        saved_.lse(b, h, row, 0) = most[row] + std::log(sum[row]);
      }
    }
    if (out_.empty() || out_.width() == 0) return;
    HashedRowKernels<T>{}.merge_rows({from.out, this->rows_of(out_, sequence), own.rows, own.count,
                                      out_.width(), is_first ? nullptr : from.before, from.now,
                                      from.factor});
  }

  /// Writes the output of rows beyond the key length, which see nothing.
  void clear_beyond(Index sequence) const {
    const auto clear = [&](const View<T>& to, T x) {
      detail::fill_rows(to, sequence / shape_.heads, sequence % shape_.heads,
                        sorted_.length(sequence), shape_.rows, x);
    };
    clear(out_, 0);
    clear(saved_.lse, -std::numeric_limits<T>::infinity());
    clear(saved_.round_lse, -std::numeric_limits<T>::infinity());
  }

  View<T> out_;
  ReformerSaved<T> saved_;
  Workspace sums_;  // [2, sequences, N] each row's largest log-sum-exp and sum of weights
};

/// One backward pass. In round r, the weights of row i are w_ir p_ijr, where p is the softmax of
/// the round and w that of the row's log-sum-exps over rounds. So the gradients of a round are
/// those of a softmax whose incoming gradient is w_ir dO_i. The rounds are processed in order; in
/// each, a task computes the gradients of the rows of some chunks.
template <class T>
class ReformerBackward : ReformerPass<T> {
  using Pass = ReformerPass<T>;
  using Pass::inputs_;
  using Pass::kElement;
  using Pass::options_;
  using Pass::scale_;
  using Pass::shape_;
  using Pass::sorted_;

 public:
  /// \param sorted sorted before `compute`; it and the options must outlive this object
  ReformerBackward(const ReformerOptions& options, const ReformerInputs<T>& inputs,
                   const SortedRows<T>& sorted, const View<const T>& out,
                   const View<const T>& d_out, const ReformerGrads<T>& grads)
      : Pass(options, inputs, sorted), out_(out), d_out_(d_out), grads_(grads) {}

  /// Allocates the memory.
  /// \throws std::bad_alloc
  void take_memory(const ExecutorRef& executor) {
    weights_ =
        memory_of(executor).take(sorted_.sequences() * options_.rounds * shape_.rows, kElement);
    this->take_scratch(executor, shape_.value_width, true);
  }

  /// Writes the gradients.
  /// \param round_lse [B, H, N, rounds], as written by `forward`
  /// \pre take_memory(executor) was called
  void compute(const View<const T>& round_lse, const ExecutorRef& executor) {
    for_each_task(executor, sorted_.sequences(), [&](Index s, Index) { weigh(s, round_lse); });
    for (Index r = 0; r < options_.rounds; ++r) {
      this->for_each_part(executor,
                          [&](Index sequence, const Range& chunks, const ChunkBuffers<T>& to) {
                            differentiate(sequence, r, chunks, round_lse, to);
                          });
    }
  }

 private:
  bool wants_rows() const { return !grads_.qk.empty(); }
  bool wants_values() const { return !grads_.v.empty(); }

  /// [N] the weights of a round.
  T* weights(Index sequence, Index round) {
    return weights_.template data<T>() + (sequence * options_.rounds + round) * shape_.rows;
  }

  /// Computes the weights of a sequence's rounds. The gradients of rows beyond its length are 0.
  void weigh(Index sequence, const View<const T>& round_lse) {
    const Index b = sequence / shape_.heads;
    const Index h = sequence % shape_.heads;
    for (Index row = 0; row < sorted_.length(sequence); ++row) {
      T most = round_lse(b, h, row, 0);
      for (Index r = 1; r < options_.rounds; ++r) {
        const T lse = round_lse(b, h, row, r);
        if (most < lse || std::isnan(lse)) most = lse;
      }
      T sum = 0;
      for (Index r = 0; r < options_.rounds; ++r) {
        const T weight = std::exp(round_lse(b, h, row, r) - most);
        weights(sequence, r)[row] = weight;
        sum += weight;
      }
      for (Index r = 0; r < options_.rounds; ++r) weights(sequence, r)[row] /= sum;
    }
    for (const View<T>& grad : {View<T>(grads_.qk), View<T>(grads_.v)}) {
      detail::fill_rows(grad, b, h, sorted_.length(sequence), shape_.rows, T{0});
    }
  }

  /// Writes or adds to the gradients of the rows of consecutive chunks of a round.
  void differentiate(Index sequence, Index round, const Range& chunks,
                     const View<const T>& round_lse, const ChunkBuffers<T>& to) {
    ChunkPairs<T> pairs(options_, sorted_, to.pairs);
    ChunkSlots chunk_slots;
    for (Index n = chunks.begin; n < chunks.end; ++n) {
      const bool is_first = n == chunks.begin;
      chunk_slots = this->slots_of_chunk(sequence, round, n);
      this->gather_keys(sequence, chunk_slots.own, chunk_slots.own_first, to);
      clear_sums(chunk_slots.own_first, to);
      if (is_first) {
        this->gather_keys(sequence, chunk_slots.before, chunk_slots.before_first(), to);
        clear_sums(chunk_slots.before_first(), to);
      }
      prepare(sequence, chunk_slots, round_lse, pairs, to);
      add_pairs(chunk_slots, pairs, {0, 1, 2 * options_.chunk},
                to.d_q + chunk_slots.own_first * this->d(), to);
      if (!is_first) finish(sequence, chunk_slots.before, chunk_slots.before_first(), to);
    }
    // The first rows of the next task also see the last chunk of this one.
    const SortedChunk last = chunk_slots.own;
    const Index at = chunk_slots.own_first;
    const SortedChunk after = sorted_.after(sequence, last);
    if (after.count > 0) {
      chunk_slots = {after, last, options_.chunk, options_.chunk - at};
      this->gather_keys(sequence, after, chunk_slots.own_first, to);
      prepare(sequence, chunk_slots, round_lse, pairs, to);
      add_pairs(chunk_slots, pairs, {at, 1, last.count}, nullptr, to);
    }
    finish(sequence, last, at, to);
  }

  void clear_sums(Index first, const ChunkBuffers<T>& to) const {
    std::fill_n(to.d_k + first * this->d(), options_.chunk * this->d(), T{0});
    std::fill_n(to.d_v + first * this->dv(), options_.chunk * this->dv(), T{0});
  }

  /// Gathers the queries of a chunk, and computes the rounding errors of large log-sum-exps.
  void prepare(Index sequence, const ChunkSlots& chunk_slots, const View<const T>& round_lse,
               ChunkPairs<T>& pairs, const ChunkBuffers<T>& to) {
    const SortedChunk& own = chunk_slots.own;
    const Index b = sequence / shape_.heads;
    const Index h = sequence % shape_.heads;
    detail::gather_rows<T>(this->rows_of(inputs_.qk, sequence), own, shape_.width, nullptr, to.q);
    detail::gather_rows<T>(this->rows_of(out_, sequence), own, shape_.value_width, nullptr, to.out);
    detail::gather_rows<T>(this->rows_of(d_out_, sequence), own, shape_.value_width,
                           weights(sequence, own.round), to.d_out);
    bool is_large = false;
    for (Index i = 0; i < own.count; ++i) {
      to.lse[i] = round_lse(b, h, own.rows[i], own.round);
      to.lse_low[i] = 0;
      is_large = is_large || !(std::abs(to.lse[i]) <= T{kLargeLse});
    }
    pairs.prepare(sequence, chunk_slots);
    if (is_large) this->run_kernel(chunk_slots, pairs, to, to.lse_low);
  }

  /// Adds the contributions of a chunk's queries to the gradients of some keys and values, and
  /// computes the gradients of the queries.
  /// \param d_q of the chunk's queries, written; null: not computed
  void add_pairs(const ChunkSlots& chunk_slots, const ChunkPairs<T>& pairs, const GradKeys& keys,
                 T* d_q, const ChunkBuffers<T>& to) const {
    KeyRun runs[2];
    SoftmaxGradArgs<T> args;
    args.head.q = {to.q, this->d(), 1};
    args.head.out = {to.out, this->dv(), 1};
    args.head.d_out = {to.d_out, this->dv(), 1};
    args.head.lse = {to.lse, 1, 1};
    args.head.lse_low = to.lse_low;
    args.head.width = shape_.width;
    args.head.value_width = shape_.value_width;
    args.head.scale = scale_;
    args.head.map = pairs.score_map(true);
    args.head.key_end = 2 * options_.chunk;
    args.block.runs = runs;
    args.block.run_count = chunk_slots.runs(runs);
    args.keys = keys;
    args.k = {to.k + keys.first * this->d(), this->d(), 1};
    args.v = {to.v + keys.first * this->dv(), this->dv(), 1};
    if (wants_rows()) args.d_k = to.d_k + keys.first * this->d();
    if (wants_values()) args.d_v = to.d_v + keys.first * this->dv();
    args.add = true;
    args.scratch = to.kernel;
    for (Index i = 0; i < chunk_slots.own.count; i += kMaxBlockRows) {
      args.block.first = i;
      args.block.count = (std::min)(kMaxBlockRows, chunk_slots.own.count - i);
      args.row_end = args.block.count;
      if (wants_rows() && d_q != nullptr) args.d_q = d_q + i * this->d();
      SoftmaxGradKernels<T>{}.grad(args);
    }
  }

  /// Writes or adds to the gradients of a chunk's rows, whose sums are in a slot.
  void finish(Index sequence, const SortedChunk& chunk, Index first,
              const ChunkBuffers<T>& to) const {
    const bool adds = chunk.round > 0;
    if (wants_values()) {
      scatter(to.d_v + first * this->dv(), chunk, this->rows_of(grads_.v, sequence),
              shape_.value_width, adds);
    }
    if (!wants_rows()) return;
    const T* const inverse = sorted_.inverse_norms(sequence);
    HashedRowKernels<T>{}.unit_row_grads({to.d_q + first * this->d(), to.d_k + first * this->d(),
                                          to.k + first * this->d(), inverse, chunk.rows,
                                          chunk.count, shape_.width, scale_});
    scatter(to.d_q + first * this->d(), chunk, this->rows_of(grads_.qk, sequence), shape_.width,
            adds);
  }

  /// Scatters rows to their positions, or adds them there.
  static void scatter(const T* rows, const SortedChunk& chunk, const Matrix<T>& to, Index width,
                      bool adds) {
    for (Index i = 0; i < chunk.count; ++i, rows += padded_size(width)) {
      T* const row = to.data + chunk.rows[i] * to.row;
      if (to.column == 1 && adds) {
        for (Index c = 0; c < width; ++c) row[c] += rows[c];
      } else {
        for (Index c = 0; c < width; ++c) {
          row[c * to.column] = adds ? row[c * to.column] + rows[c] : rows[c];
        }
      }
    }
  }

  View<const T> out_;
  View<const T> d_out_;
  ReformerGrads<T> grads_;
  Workspace weights_;  // [sequences, rounds, N]
};

FOVEA_NAMESPACE_END
