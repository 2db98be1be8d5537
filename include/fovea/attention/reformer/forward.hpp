// SPDX-License-Identifier: MIT
/// \file
/// The forward pass of Reformer attention over sorted rows.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "fovea/attention/call/logit_scale.hpp"
#include "fovea/attention/reformer/chunk_pairs.hpp"
#include "fovea/core/rounded.hpp"
#include "fovea/kernels/softmax/table.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// The number of chunks in a task: neighbours share keys.
inline constexpr Index kTaskChunks = 16;
/// The largest number of query rows that is passed to the kernels at once.
inline constexpr Index kChunkRows = 128;

/// Prefetches a row, whose address after sorting the hardware cannot predict.
template <class T>
void prefetch_row(const T* row, Index width) {
  constexpr Index line = 64 / Index{sizeof(T)};
  for (Index c = 0; c < width; c += line) __builtin_prefetch(row + c);
}

/// Copies rows of a head to dense rows, multiplied by factors if there are any.
/// \param factors of each row of the head, or null
/// \param plain also receives the rows without factors, unless null
template <class T>
void gather_rows(const Matrix<const T>& from, const SortedChunk& chunk, Index width,
                 const T* factors, T* to, T* plain = nullptr) {
  constexpr Index ahead = 12;
  const Index padded = padded_size(width);
  for (Index i = 0; i < chunk.count; ++i) {
    const T* row = from.data + chunk.rows[i] * from.row;
    if (from.column == 1 && i + ahead < chunk.count) {
      prefetch_row(from.data + chunk.rows[i + ahead] * from.row, width);
    }
    T* const at = (plain != nullptr ? plain : to) + i * padded;
    if (from.column == 1) {
      std::copy_n(row, width, at);
    } else {
      for (Index d = 0; d < width; ++d) at[d] = row[d * from.column];
    }
    if (factors == nullptr) continue;
    const T factor = factors[chunk.rows[i]];
    T* const scaled = to + i * padded;
    for (Index d = 0; d < width; ++d) scaled[d] = at[d] * factor;
  }
}

/// The arguments that all kernel calls for a chunk have in common.
template <class T>
SoftmaxBlockArgs<T> chunk_args(const ReformerShape& shape, Index value_width, T scale) {
  SoftmaxBlockArgs<T> args;
  args.width = shape.width;
  args.value_width = value_width;
  args.scale = scale;
  args.block.step = 1;
  args.in_tiles = true;
  return args;
}

}  // namespace detail

/// One forward pass. The rounds are processed in order; in each, the softmax over a row's
/// candidates is merged into the row's running result of the previous rounds.
template <class T>
class ReformerForward {
 public:
  /// \param sorted sorted before `compute`; it and the options must outlive this object
  /// \param out [B, H, N, Dv]; if empty, only the log-sum-exps are computed
  ReformerForward(const ReformerOptions& options, const ReformerInputs<T>& inputs,
                  const SortedRows<T>& sorted, const View<T>& out, const ReformerSaved<T>& saved)
      : options_(options),
        inputs_(inputs),
        shape_(shape_of(inputs)),
        sorted_(sorted),
        out_(out),
        saved_(saved),
        value_width_(out.empty() ? 0 : shape_.value_width),
        slot_(options, shape_, value_width_) {}

  /// Bytes of scratch memory with that many workers.
  static Index workspace_bytes(const ReformerOptions& options, const ReformerShape& s,
                               Index workers) {
    return 2 * s.batch * s.heads * s.rows * kElement +
           workers * WorkerScratch(options, s, s.value_width).bytes;
  }

  /// Allocates the memory.
  /// \throws std::bad_alloc
  void take_memory(const ExecutorRef& executor) {
    auto&& memory = memory_of(executor);
    sums_ = memory.take(2 * sorted_.sequences() * shape_.rows, kElement);
    scratch_ = memory.take(worker_count(executor, tasks()), slot_.bytes);
  }

  /// Computes the pass.
  /// \pre take_memory(executor) was called
  void compute(const ExecutorRef& executor) {
    for (Index r = 0; r < options_.rounds; ++r) {
      for_each_task(executor, tasks(), [&](Index task, Index worker) {
        process_rows(task / parts(), r, task % parts() * detail::kTaskChunks,
                     scratch_.data<std::byte>() + worker * slot_.bytes);
      });
    }
    for_each_task(executor, sorted_.sequences(), [&](Index s, Index) { clear_beyond(s); });
  }

 private:
  static constexpr Index kElement = sizeof(T);

  /// The layout of a worker's memory, in elements.
  struct WorkerScratch {
    WorkerScratch(const ReformerOptions& options, const ReformerShape& s, Index value_width) {
      const Index c = options.chunk;
      rows = padded_size(c);
      queries = c * padded_size(s.width);
      values = c * padded_size(value_width);
      kernel = padded_size(
          softmax_block_scratch((std::min)(c, detail::kChunkRows), s.width, value_width));
      bytes = (3 * queries + 3 * values + 4 * rows + kernel) * kElement +
              ChunkPairs<T>::size_bytes(options);
      bytes = padded_size(bytes, kWorkspaceAlignment);
    }
    Index rows, queries, values, kernel, bytes;
  };

  /// The memory of a worker.
  struct Buffers {
    Buffers(const WorkerScratch& slot, std::byte* memory)
        : q(reinterpret_cast<T*>(memory)),
          k(q + slot.queries),
          v(k + 2 * slot.queries),
          out(v + 2 * slot.values),
          lse(out + slot.values),
          before(lse + slot.rows),
          now(before + slot.rows),
          factor(now + slot.rows),
          kernel(factor + slot.rows),
          pairs(reinterpret_cast<std::byte*>(kernel + slot.kernel)) {}
    T* q;    // [c, D padded]
    T* k;    // [2 c, D padded]
    T* v;    // [2 c, Dv padded]
    T* out;  // [c, Dv padded]
    T* lse;  // [c], the rows are merged by these
    T* before;
    T* now;
    T* factor;
    T* kernel;         // the kernel's scratch
    std::byte* pairs;  // memory of ChunkPairs
  };

  Index parts() const {
    const Index chunks = (shape_.rows + options_.chunk - 1) / options_.chunk;
    return (chunks + detail::kTaskChunks - 1) / detail::kTaskChunks;
  }
  Index tasks() const { return sorted_.sequences() * parts(); }

  /// The rows of a sequence in a tensor.
  template <class X>
  Matrix<X> rows_of(const View<X>& x, Index sequence) const {
    return detail::head_matrix(x, sequence / shape_.heads, sequence % shape_.heads, 0);
  }

  /// Computes consecutive chunks of a round.
  void process_rows(Index sequence, Index round, Index first, std::byte* memory) {
    const Index end = (std::min)(first + detail::kTaskChunks, sorted_.chunks(sequence));
    if (first >= end) return;
    const Buffers to(slot_, memory);
    ChunkPairs<T> pairs(options_, sorted_, to.pairs);
    for (Index n = first; n < end; ++n) {
      const SortedChunk own = sorted_.chunk(sequence, round, n);
      const auto chunk_slots = ChunkSlots::of(own, sorted_.before(sequence, own), options_.chunk);
      gather_keys(sequence, chunk_slots.own, chunk_slots.own_first, to, to.q);
      if (n == first)
        gather_keys(sequence, chunk_slots.before, chunk_slots.before_first(), to, nullptr);
      pairs.prepare(sequence, chunk_slots);
      run_kernel(chunk_slots, pairs, to);
      merge(sequence, own, to);
    }
  }

  /// Gathers the keys and values of a chunk in a slot, and its queries in q unless that is null.
  void gather_keys(Index sequence, const SortedChunk& chunk, Index first, const Buffers& to,
                   T* q) const {
    detail::gather_rows<T>(rows_of(inputs_.qk, sequence), chunk, shape_.width,
                           sorted_.inverse_norms(sequence),
                           to.k + first * padded_size(shape_.width), q);
    if (value_width_ == 0) return;
    detail::gather_rows<T>(rows_of(inputs_.v, sequence), chunk, value_width_, nullptr,
                           to.v + first * padded_size(value_width_));
  }

  void run_kernel(const ChunkSlots& chunk_slots, const ChunkPairs<T>& pairs,
                  const Buffers& to) const {
    KeyRun runs[2];
    auto args = detail::chunk_args(shape_, value_width_,
                                   detail::logit_scale<T>(options_.scale, shape_.width));
    args.q = {to.q, padded_size(shape_.width), 1};
    args.k = {to.k, padded_size(shape_.width), 1};
    args.v = {to.v, padded_size(value_width_), 1};
    args.out = {to.out, padded_size(value_width_), 1};
    args.lse = {to.lse, 1, 1};
    args.map = pairs.score_map(false);
    args.key_end = 2 * options_.chunk;
    args.block.runs = runs;
    args.block.run_count = chunk_slots.runs(runs);
    args.scratch = to.kernel;
    for (Index i = 0; i < chunk_slots.own.count; i += detail::kChunkRows) {
      args.block.first = i;
      args.block.count = (std::min)(detail::kChunkRows, chunk_slots.own.count - i);
      SoftmaxKernels<T>{}.block(args);
    }
  }

  /// Merges the results of a chunk's rows into those of the previous rounds.
  void merge(Index sequence, const SortedChunk& own, const Buffers& from) {
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
    if (value_width_ == 0) return;
    HashedRowKernels<T>{}.merge_rows({from.out, rows_of(out_, sequence), own.rows, own.count,
                                      value_width_, is_first ? nullptr : from.before, from.now,
                                      from.factor});
  }

  /// Writes the output of rows beyond the key length, which see nothing.
  void clear_beyond(Index sequence) const {
    constexpr T none = -std::numeric_limits<T>::infinity();
    const Index b = sequence / shape_.heads;
    const Index h = sequence % shape_.heads;
    for (Index row = sorted_.length(sequence); row < shape_.rows; ++row) {
      for (Index d = 0; d < value_width_; ++d) out_(b, h, row, d) = 0;
      if (!saved_.lse.empty()) saved_.lse(b, h, row, 0) = none;
      if (saved_.round_lse.empty()) continue;
      for (Index r = 0; r < options_.rounds; ++r) saved_.round_lse(b, h, row, r) = none;
    }
  }

  const ReformerOptions& options_;
  ReformerInputs<T> inputs_;
  ReformerShape shape_;
  const SortedRows<T>& sorted_;
  View<T> out_;
  ReformerSaved<T> saved_;
  Index value_width_;
  WorkerScratch slot_;
  Workspace sums_;     // [2, sequences, N] each row's largest log-sum-exp and sum of weights
  Workspace scratch_;  // [workers]
};

FOVEA_NAMESPACE_END
