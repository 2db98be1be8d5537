// SPDX-License-Identifier: MIT
/// \file
/// What both passes of Reformer attention share: the rows of a chunk and of the preceding one,
/// gathered in the memory of a worker, and the forward kernel's call for them.
#pragma once

#include <algorithm>

#include "fovea/attention/call/logit_scale.hpp"
#include "fovea/attention/reformer/chunk_pairs.hpp"
#include "fovea/kernels/softmax/grad.hpp"
#include "fovea/kernels/softmax/table.hpp"
#include "fovea/patterns/pattern.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// The number of chunks in a task: neighbours share keys.
inline constexpr Index kTaskChunks = 16;
/// The largest number of query rows that is passed to the forward kernel at once.
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

}  // namespace detail

/// The memory of a worker for a chunk of c rows and its 2 c candidates, laid out by ChunkSlots.
/// Rows are padded.
template <class T>
struct ChunkBuffers {
  /// \param value_width of the values that are computed, or 0   \param differentiates whether this
  /// is a backward pass   \param memory null: only the size is computed
  ChunkBuffers(const ReformerOptions& options, const ReformerShape& s, Index value_width,
               bool differentiates, std::byte* memory) {
    const Index c = options.chunk;
    const Index width = padded_size(s.width);
    const Index values = padded_size(value_width);
    Index kernel_elements =
        softmax_block_scratch((std::min)(c, detail::kChunkRows), s.width, value_width);
    const auto take = [&](Index elements) {
      T* const at = memory == nullptr ? nullptr : reinterpret_cast<T*>(memory + bytes);
      bytes += elements * Index{sizeof(T)};
      return at;
    };
    // Matrices precede the numbers of single rows: with these between them, the backward pass took
    // 2 to 3 % longer.
    q = take(c * width);
    k = take(2 * c * width);
    v = take(2 * c * values);
    out = take(c * values);
    if (differentiates) {
      d_q = take(2 * c * width);
      d_k = take(2 * c * width);
      d_v = take(2 * c * values);
      d_out = take(c * values);
      lse = take(padded_size(c));
      lse_low = take(padded_size(c));
      kernel_elements =
          (std::max)(kernel_elements, softmax_grad_scratch(2 * c, s.width, value_width));
    } else {
      lse = take(padded_size(c));
      before = take(padded_size(c));
      now = take(padded_size(c));
      factor = take(padded_size(c));
    }
    kernel = take(padded_size(kernel_elements));
    pairs = memory + bytes;
    bytes = padded_size(bytes + ChunkPairs<T>::size_bytes(options), kWorkspaceAlignment);
  }

  Index bytes = 0;             ///< the size of all
  T* q;                        ///< [c, D]
  T* k;                        ///< [2 c, D]
  T* v;                        ///< [2 c, Dv]
  T* out;                      ///< [c, Dv]
  T* lse;                      ///< [c]
  T* before = nullptr;         ///< [c] rows are merged by these three
  T* now = nullptr;            ///< [c]
  T* factor = nullptr;         ///< [c]
  T* d_q = nullptr;            ///< [2 c, D]
  T* d_k = nullptr;            ///< [2 c, D]
  T* d_v = nullptr;            ///< [2 c, Dv]
  T* d_out = nullptr;          ///< [c, Dv], times the weights of the round
  T* lse_low = nullptr;        ///< [c]
  T* kernel;                   ///< the kernel's scratch
  std::byte* pairs = nullptr;  ///< memory of ChunkPairs
};

/// The common base of both passes. A task processes some chunks of a round.
template <class T>
class ReformerPass {
 protected:
  static constexpr Index kElement = sizeof(T);  ///< bytes of a number

  /// \param sorted sorted before the pass is computed; it and the options must outlive this object
  ReformerPass(const ReformerOptions& options, const ReformerInputs<T>& inputs,
               const SortedRows<T>& sorted)
      : options_(options),
        inputs_(inputs),
        shape_(shape_of(inputs)),
        sorted_(sorted),
        scale_(detail::logit_scale<T>(options.scale, shape_.width)) {}
  ~ReformerPass() = default;

  /// The number of tasks of a sequence.
  Index parts() const {
    const Index chunks = (shape_.rows + options_.chunk - 1) / options_.chunk;
    return (chunks + detail::kTaskChunks - 1) / detail::kTaskChunks;
  }
  /// The number of tasks.
  Index tasks() const { return sorted_.sequences() * parts(); }

  /// Allocates the workers' memory. \throws std::bad_alloc
  void take_scratch(const ExecutorRef& executor, Index value_width, bool differentiates) {
    value_width_ = value_width;
    differentiates_ = differentiates;
    slot_ = buffers(nullptr).bytes;
    scratch_ = memory_of(executor).take(worker_count(executor, tasks()), slot_);
  }
  /// Calls process(sequence, chunks, buffers) for ranges of chunks of all sequences.
  template <class F>
  void for_each_part(const ExecutorRef& executor, const F& process) {
    for_each_task(executor, tasks(), [&](Index task, Index worker) {
      const Index sequence = task / parts();
      const Index first = task % parts() * detail::kTaskChunks;
      const Index end = (std::min)(first + detail::kTaskChunks, sorted_.chunks(sequence));
      if (first >= end) return;
      process(sequence, Range{first, end}, buffers(scratch_.data<std::byte>() + worker * slot_));
    });
  }

  /// The slots of chunk n of a round.
  ChunkSlots slots_of_chunk(Index sequence, Index round, Index n) const {
    const SortedChunk own = sorted_.chunk(sequence, round, n);
    return ChunkSlots::of(own, sorted_.before(sequence, own), options_.chunk);
  }
  /// The rows of a sequence in a tensor.
  template <class X>
  Matrix<X> rows_of(const View<X>& x, Index sequence) const {
    return detail::head_matrix(x, sequence / shape_.heads, sequence % shape_.heads, 0);
  }
  /// Elements of a row of queries or keys.
  Index d() const { return padded_size(shape_.width); }
  /// Elements of a row of values.
  Index dv() const { return padded_size(value_width_); }

  /// Gathers the keys and values of a chunk in a slot, and its queries in q unless that is null.
  void gather_keys(Index sequence, const SortedChunk& chunk, Index first, const ChunkBuffers<T>& to,
                   T* q = nullptr) const {
    detail::gather_rows<T>(rows_of(inputs_.qk, sequence), chunk, shape_.width,
                           sorted_.inverse_norms(sequence), to.k + first * d(), q);
    if (value_width_ == 0) return;
    detail::gather_rows<T>(rows_of(inputs_.v, sequence), chunk, value_width_, nullptr,
                           to.v + first * dv());
  }

  /// Computes the softmax of a chunk's rows.
  /// \param lse_low if not null, the rounding errors of lse are written, and no values are computed
  void run_kernel(const ChunkSlots& chunk_slots, const ChunkPairs<T>& pairs,
                  const ChunkBuffers<T>& to, T* lse_low = nullptr) const {
    KeyRun runs[2];
    SoftmaxBlockArgs<T> args;
    args.width = shape_.width;
    args.value_width = lse_low == nullptr ? value_width_ : 0;
    args.scale = scale_;
    args.in_tiles = true;
    args.q = {to.q, d(), 1};
    args.k = {to.k, d(), 1};
    args.v = {to.v, dv(), 1};
    args.out = {to.out, dv(), 1};
    args.lse = {to.lse, 1, 1};
    args.lse_low = lse_low;
    args.map = pairs.score_map(false);
    args.key_end = 2 * options_.chunk;
    args.block.step = 1;
    args.block.runs = runs;
    args.block.run_count = chunk_slots.runs(runs);
    args.scratch = to.kernel;
    for (Index i = 0; i < chunk_slots.own.count; i += detail::kChunkRows) {
      args.block.first = i;
      args.block.count = (std::min)(detail::kChunkRows, chunk_slots.own.count - i);
      SoftmaxKernels<T>{}.block(args);
    }
  }

  const ReformerOptions& options_;  ///< the operator's
  ReformerInputs<T> inputs_;        ///< the call's
  ReformerShape shape_;             ///< their sizes
  const SortedRows<T>& sorted_;     ///< rows sorted into chunks
  T scale_;                         ///< of the logits

 private:
  ChunkBuffers<T> buffers(std::byte* memory) const {
    return {options_, shape_, value_width_, differentiates_, memory};
  }

  Index value_width_ = 0;  // of the values that are computed
  bool differentiates_ = false;
  Index slot_ = 0;     // bytes of a worker
  Workspace scratch_;  // [workers]
};

FOVEA_NAMESPACE_END
