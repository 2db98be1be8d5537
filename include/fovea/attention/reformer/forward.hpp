// SPDX-License-Identifier: MIT
/// \file
/// The forward pass of Reformer attention over sorted rows.
#pragma once

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

  /// Bytes of scratch memory with that many workers.
  static Index workspace_bytes(const ReformerOptions& options, const ReformerShape& s,
                               Index workers) {
    return 2 * s.batch * s.heads * s.rows * kElement +
           workers * ChunkBuffers<T>(options, s, s.value_width, false, nullptr).bytes;
  }

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

FOVEA_NAMESPACE_END
