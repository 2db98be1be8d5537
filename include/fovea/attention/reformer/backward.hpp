// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of Reformer attention over sorted rows.
#pragma once

#include <algorithm>
#include <cmath>

#include "fovea/attention/reformer/forward.hpp"

FOVEA_NAMESPACE_BEGIN

/// One backward pass. In round r, the weights of row i are w_ir p_ijr, where p is the softmax of
/// the round and w that of the row's log-sum-exps over rounds. So the gradients of a round are
/// those of a softmax whose incoming gradient is w_ir dO_i. The rounds are processed in order; in
/// each, a task computes the gradients of the rows of some chunks.
template <class T>
class ReformerBackward {
 public:
  /// \param sorted sorted before `compute`; it and the options must outlive this object
  ReformerBackward(const ReformerOptions& options, const ReformerInputs<T>& inputs,
                   const SortedRows<T>& sorted, const View<const T>& out,
                   const View<const T>& d_out, const ReformerGrads<T>& grads)
      : options_(options),
        inputs_(inputs),
        shape_(shape_of(inputs)),
        sorted_(sorted),
        out_(out),
        d_out_(d_out),
        grads_(grads),
        slot_(options, shape_) {}

  /// Bytes of scratch memory with that many workers.
  static Index workspace_bytes(const ReformerOptions& options, const ReformerShape& s,
                               Index workers) {
    return s.batch * s.heads * options.rounds * s.rows * kElement +
           workers * WorkerScratch(options, s).bytes;
  }

  /// Allocates the memory.
  /// \throws std::bad_alloc
  void take_memory(const ExecutorRef& executor) {
    auto&& memory = memory_of(executor);
    weights_ = memory.take(sorted_.sequences() * options_.rounds * shape_.rows, kElement);
    scratch_ = memory.take(worker_count(executor, tasks()), slot_.bytes);
  }

  /// Writes the gradients.
  /// \param round_lse [B, H, N, rounds], as written by `forward`
  /// \pre take_memory(executor) was called
  void compute(const View<const T>& round_lse, const ExecutorRef& executor) {
    for_each_task(executor, sorted_.sequences(), [&](Index s, Index) { weigh(s, round_lse); });
    for (Index r = 0; r < options_.rounds; ++r) {
      for_each_task(executor, tasks(), [&](Index task, Index worker) {
        differentiate(task / parts(), r, task % parts() * detail::kTaskChunks, round_lse,
                      scratch_.data<std::byte>() + worker * slot_.bytes);
      });
    }
  }

 private:
  static constexpr Index kElement = sizeof(T);

  /// The layout of a worker's memory, in elements.
  struct WorkerScratch {
    WorkerScratch(const ReformerOptions& options, const ReformerShape& s) {
      const Index c = options.chunk;
      rows = padded_size(c);
      queries = c * padded_size(s.width);
      values = c * padded_size(s.value_width);
      kernel = padded_size(
          (std::max)(softmax_grad_scratch(2 * c, s.width, s.value_width),
                     softmax_block_scratch((std::min)(c, detail::kChunkRows), s.width, 0)));
      bytes = (7 * queries + 6 * values + 2 * rows + kernel) * kElement +
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
          d_q(k + 2 * slot.queries),
          d_k(d_q + 2 * slot.queries),
          out(d_k + 2 * slot.queries),
          d_out(out + slot.values),
          v(d_out + slot.values),
          d_v(v + 2 * slot.values),
          lse(d_v + 2 * slot.values),
          lse_low(lse + slot.rows),
          kernel(lse_low + slot.rows),
          pairs(reinterpret_cast<std::byte*>(kernel + slot.kernel)) {}
    T* q;              // [c, D padded]
    T* k;              // [2 c, D padded], laid out by ChunkSlots
    T* d_q;            // [2 c, D padded]
    T* d_k;            // [2 c, D padded]
    T* out;            // [c, Dv padded]
    T* d_out;          // [c, Dv padded], times the weights of the round
    T* v;              // [2 c, Dv padded]
    T* d_v;            // [2 c, Dv padded]
    T* lse;            // [c]
    T* lse_low;        // [c]
    T* kernel;         // the kernel's scratch
    std::byte* pairs;  // memory of ChunkPairs
  };

  Index parts() const {
    const Index chunks = (shape_.rows + options_.chunk - 1) / options_.chunk;
    return (chunks + detail::kTaskChunks - 1) / detail::kTaskChunks;
  }
  Index tasks() const { return sorted_.sequences() * parts(); }
  Index d() const { return padded_size(shape_.width); }
  Index dv() const { return padded_size(shape_.value_width); }
  bool wants_rows() const { return !grads_.qk.empty(); }
  bool wants_values() const { return !grads_.v.empty(); }

  /// The rows of a sequence in a tensor.
  template <class X>
  Matrix<X> rows_of(const View<X>& x, Index sequence) const {
    return detail::head_matrix(x, sequence / shape_.heads, sequence % shape_.heads, 0);
  }
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
    const auto clear = [&](const View<T>& grad) {
      for (Index row = sorted_.length(sequence); row < grad.rows(); ++row) {
        for (Index c = 0; c < grad.width(); ++c) grad(b, h, row, c) = 0;
      }
    };
    clear(grads_.qk);
    clear(grads_.v);
  }

  /// Writes or adds to the gradients of the rows of consecutive chunks of a round.
  void differentiate(Index sequence, Index round, Index first, const View<const T>& round_lse,
                     std::byte* memory) {
    const Index end = (std::min)(first + detail::kTaskChunks, sorted_.chunks(sequence));
    if (first >= end) return;
    const Buffers to(slot_, memory);
    ChunkPairs<T> pairs(options_, sorted_, to.pairs);
    ChunkSlots chunk_slots;
    for (Index n = first; n < end; ++n) {
      const SortedChunk own = sorted_.chunk(sequence, round, n);
      chunk_slots = ChunkSlots::of(own, sorted_.before(sequence, own), options_.chunk);
      gather_keys(sequence, chunk_slots.own, chunk_slots.own_first, to);
      if (n == first) gather_keys(sequence, chunk_slots.before, chunk_slots.before_first(), to);
      clear_sums(chunk_slots.own_first, to);
      if (n == first) clear_sums(chunk_slots.before_first(), to);
      prepare(sequence, chunk_slots, round_lse, pairs, to);
      add_pairs(chunk_slots, pairs, {0, 1, 2 * options_.chunk},
                to.d_q + chunk_slots.own_first * d(), to);
      if (n > first) finish(sequence, chunk_slots.before, chunk_slots.before_first(), to);
    }
    // The first rows of the next task also see the last chunk of this one.
    const SortedChunk last = chunk_slots.own;
    const Index at = chunk_slots.own_first;
    const SortedChunk after = sorted_.after(sequence, last);
    if (after.count > 0) {
      chunk_slots = {after, last, options_.chunk, options_.chunk - at};
      gather_keys(sequence, after, chunk_slots.own_first, to);
      prepare(sequence, chunk_slots, round_lse, pairs, to);
      add_pairs(chunk_slots, pairs, {at, 1, last.count}, nullptr, to);
    }
    finish(sequence, last, at, to);
  }

  void gather_keys(Index sequence, const SortedChunk& chunk, Index first, const Buffers& to) const {
    detail::gather_rows<T>(rows_of(inputs_.qk, sequence), chunk, shape_.width,
                           sorted_.inverse_norms(sequence), to.k + first * d());
    detail::gather_rows<T>(rows_of(inputs_.v, sequence), chunk, shape_.value_width, nullptr,
                           to.v + first * dv());
  }
  void clear_sums(Index first, const Buffers& to) const {
    std::fill_n(to.d_k + first * d(), options_.chunk * d(), T{0});
    std::fill_n(to.d_v + first * dv(), options_.chunk * dv(), T{0});
  }

  /// Gathers the queries of a chunk, and computes the rounding errors of large log-sum-exps.
  void prepare(Index sequence, const ChunkSlots& chunk_slots, const View<const T>& round_lse,
               ChunkPairs<T>& pairs, const Buffers& to) {
    const SortedChunk& own = chunk_slots.own;
    const Index b = sequence / shape_.heads;
    const Index h = sequence % shape_.heads;
    detail::gather_rows<T>(rows_of(inputs_.qk, sequence), own, shape_.width, nullptr, to.q);
    detail::gather_rows<T>(rows_of(out_, sequence), own, shape_.value_width, nullptr, to.out);
    detail::gather_rows<T>(rows_of(d_out_, sequence), own, shape_.value_width,
                           weights(sequence, own.round), to.d_out);
    bool is_large = false;
    for (Index i = 0; i < own.count; ++i) {
      to.lse[i] = round_lse(b, h, own.rows[i], own.round);
      to.lse_low[i] = 0;
      is_large = is_large || !(std::abs(to.lse[i]) <= T{kLargeLse});
    }
    pairs.prepare(sequence, chunk_slots);
    if (!is_large) return;
    KeyRun runs[2];
    auto args = detail::chunk_args(shape_, 0, detail::logit_scale<T>(options_.scale, shape_.width));
    args.q = {to.q, d(), 1};
    args.k = {to.k, d(), 1};
    args.v = {to.v, dv(), 1};
    args.lse = {to.lse, 1, 1};
    args.lse_low = to.lse_low;
    args.map = pairs.score_map(false);
    args.key_end = 2 * options_.chunk;
    args.block.runs = runs;
    args.block.run_count = chunk_slots.runs(runs);
    args.scratch = to.kernel;
    for (Index i = 0; i < own.count; i += detail::kChunkRows) {
      args.block.first = i;
      args.block.count = (std::min)(detail::kChunkRows, own.count - i);
      SoftmaxKernels<T>{}.block(args);
    }
  }

  /// Adds the contributions of a chunk's queries to the gradients of some keys and values, and
  /// computes the gradients of the queries.
  /// \param d_q of the chunk's queries, written; null: not computed
  void add_pairs(const ChunkSlots& chunk_slots, const ChunkPairs<T>& pairs, const GradKeys& keys,
                 T* d_q, const Buffers& to) const {
    KeyRun runs[2];
    SoftmaxGradArgs<T> args;
    args.head.q = {to.q, d(), 1};
    args.head.out = {to.out, dv(), 1};
    args.head.d_out = {to.d_out, dv(), 1};
    args.head.lse = {to.lse, 1, 1};
    args.head.lse_low = to.lse_low;
    args.head.width = shape_.width;
    args.head.value_width = shape_.value_width;
    args.head.scale = detail::logit_scale<T>(options_.scale, shape_.width);
    args.head.map = pairs.score_map(true);
    args.head.key_end = 2 * options_.chunk;
    args.block.runs = runs;
    args.block.run_count = chunk_slots.runs(runs);
    args.keys = keys;
    args.k = {to.k + keys.first * d(), d(), 1};
    args.v = {to.v + keys.first * dv(), dv(), 1};
    if (wants_rows()) args.d_k = to.d_k + keys.first * d();
    if (wants_values()) args.d_v = to.d_v + keys.first * dv();
    args.add = true;
    args.scratch = to.kernel;
    for (Index i = 0; i < chunk_slots.own.count; i += kMaxBlockRows) {
      args.block.first = i;
      args.block.count = (std::min)(kMaxBlockRows, chunk_slots.own.count - i);
      args.row_end = args.block.count;
      if (wants_rows() && d_q != nullptr) args.d_q = d_q + i * d();
      SoftmaxGradKernels<T>{}.grad(args);
    }
  }

  /// Writes or adds to the gradients of a chunk's rows, whose sums are in a slot.
  void finish(Index sequence, const SortedChunk& chunk, Index first, const Buffers& to) const {
    const bool adds = chunk.round > 0;
    if (wants_values()) {
      scatter(to.d_v + first * dv(), chunk, rows_of(grads_.v, sequence), shape_.value_width, adds);
    }
    if (!wants_rows()) return;
    const T scale = detail::logit_scale<T>(options_.scale, shape_.width);
    const T* const inverse = sorted_.inverse_norms(sequence);
    HashedRowKernels<T>{}.unit_row_grads({to.d_q + first * d(), to.d_k + first * d(),
                                          to.k + first * d(), inverse, chunk.rows, chunk.count,
                                          shape_.width, scale});
    scatter(to.d_q + first * d(), chunk, rows_of(grads_.qk, sequence), shape_.width, adds);
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

  const ReformerOptions& options_;
  ReformerInputs<T> inputs_;
  ReformerShape shape_;
  const SortedRows<T>& sorted_;
  View<const T> out_;
  View<const T> d_out_;
  ReformerGrads<T> grads_;
  WorkerScratch slot_;
  Workspace weights_;  // [sequences, rounds, N]
  Workspace scratch_;  // [workers]
};

FOVEA_NAMESPACE_END
