// SPDX-License-Identifier: MIT
/// \file
/// The keys and values that blocks of queries attend to, for several key heads at once: for each
/// block the sorted block, followed by its own.
#pragma once

#include <algorithm>

#include "fovea/attention/call/head_matrix.hpp"
#include "fovea/attention/sinkhorn/sorting_weights.hpp"
#include "fovea/core/executor_ref.hpp"
#include "fovea/core/workspace.hpp"
#include "fovea/kernels/layers/table.hpp"

FOVEA_NAMESPACE_BEGIN

/// The sizes of a call of Sinkhorn attention. Here, a sequence is a key head of a batch entry.
template <class T>
struct SinkhornCall {
  const SinkhornOptions& options;           ///< of the operator
  const SinkhornInputs<T>& inputs;          ///< of the call
  AttentionShape shape = shape_of(inputs);  ///< sizes of the call

  /// The number of sequences.
  Index sequences() const { return shape.batch * shape.key_heads; }
  /// The batch entry of a sequence.
  Index batch(Index sequence) const { return sequence / shape.key_heads; }
  /// The key head of a sequence.
  Index key_head(Index sequence) const { return sequence % shape.key_heads; }
  /// The number of query heads of a key head.
  Index group() const { return detail::group_size(shape.query_heads, shape.key_heads); }
  /// The number of blocks of a sequence of full length.
  Index most_blocks() const { return shape.queries / options.block; }
  /// The number of blocks of a sequence.
  Index blocks(Index sequence) const {
    if (inputs.key_lengths.empty()) return most_blocks();
    return inputs.key_lengths[static_cast<std::size_t>(batch(sequence))] / options.block;
  }
  /// The matrix of a sequence in k, v, the sorting logits, or their gradients.
  template <class X>
  Matrix<X> of_keys(const View<X>& x, Index sequence, Index row = 0) const {
    return detail::head_matrix(x, batch(sequence), key_head(sequence), row);
  }
};

/// Elements from the 2 b rows of a block to those of the next block. This is not a power of 2:
/// products go through the blocks, which would then map to few cache sets.
constexpr Index sorted_block_stride(Index block, Index width) {
  return 2 * block * width + kPadding;
}

/// Elements of the keys and values that a sequence's blocks attend to.
constexpr Index sorted_sequence_elements(const SinkhornOptions& options, const AttentionShape& s) {
  return s.keys / options.block *
         (sorted_block_stride(options.block, s.width) +
          sorted_block_stride(options.block, s.value_width));
}

/// The number of sequences that are computed at once: as many as have 2^23 numbers in their blocks,
/// at least one.
inline Index sinkhorn_sequences_at_once(const SinkhornOptions& options, const AttentionShape& s) {
  constexpr Index most = Index{1} << 23;
  const Index of_one = (std::max)(Index{1}, sorted_sequence_elements(options, s));
  return std::clamp(most / of_one, Index{1}, (std::max)(Index{1}, s.batch * s.key_heads));
}

/// Keys and values of some sequences: [blocks, 2 b, D] and [blocks, 2 b, Dv] for each, where the
/// first b rows of a block are the sorted ones.
template <class T>
class SortedBlocks {
 public:
  /// \param call must outlive this object
  explicit SortedBlocks(const SinkhornCall<T>& call) : call_(call) {}

  /// Bytes of memory for that many workers.
  static Index size_bytes(const SinkhornOptions& options, const AttentionShape& s, Index workers) {
    const Index blocks = s.queries / options.block;
    return (sinkhorn_sequences_at_once(options, s) *
                (sorted_sequence_elements(options, s) + blocks * blocks) +
            workers * padded_size(SortingWeights<T>::scratch_elements(blocks))) *
           kElement;
  }

  /// Allocates the memory.
  /// \throws std::bad_alloc
  void take_memory(const ExecutorRef& executor) {
    auto&& memory = memory_of(executor);
    const AttentionShape& s = call_.shape;
    const Index at_once = sinkhorn_sequences_at_once(call_.options, s);
    const Index blocks = call_.most_blocks();
    k_ = memory.take(at_once * blocks * sorted_block_stride(block(), s.width), kElement);
    v_ = memory.take(at_once * blocks * sorted_block_stride(block(), s.value_width), kElement);
    weights_ = memory.take(at_once * blocks * blocks, kElement);
    scratch_ = memory.take(worker_count(executor, at_once),
                           padded_size(SortingWeights<T>::scratch_elements(blocks)) * kElement);
  }

  /// Computes the blocks of sequences first, first + 1, ..., as many as are computed at once.
  /// \pre take_memory(executor) was called
  void make(Index first, Index count, const ExecutorRef& executor) {
    first_ = first;
    const SortingWeights<T> weights(call_.options.iterations);
    const Index slot = padded_size(SortingWeights<T>::scratch_elements(call_.most_blocks()));
    for_each_task(executor, count, [&](Index n, Index worker) {
      const Index s = first + n;
      weights.compute(call_.of_keys(call_.inputs.sorting, s), call_.blocks(s), this->weights(s),
                      scratch_.template data<T>() + worker * slot);
    });
    const Index most = call_.most_blocks();
    for_each_task(executor, count * most, [&](Index task, Index) {
      const Index s = first + task / most;
      const Index w = task % most;
      if (w >= call_.blocks(s)) return;
      copy(call_.of_keys(call_.inputs.k, s, w * block()), call_.shape.width, keys(s, w, true));
      copy(call_.of_keys(call_.inputs.v, s, w * block()), call_.shape.value_width,
           values(s, w, true));
    });
    sort(count, executor);
  }

  /// [2 b, D]: the keys of a block, or only its own b keys.
  T* keys(Index sequence, Index number, bool own = false) {
    return at(k_, sequence, number, own, call_.shape.width);
  }
  /// [2 b, Dv]: the values of a block, or only its own b values.
  T* values(Index sequence, Index number, bool own = false) {
    return at(v_, sequence, number, own, call_.shape.value_width);
  }
  /// [blocks, blocks]: the weights of a sequence.
  T* weights(Index sequence) {
    const Index blocks = call_.most_blocks();
    return weights_.template data<T>() + (sequence - first_) * blocks * blocks;
  }

  /// The number of columns of a product in one task.
  static constexpr Index kTaskColumns = 256;
  /// The number of tasks for a product with that many columns.
  static Index column_tasks(Index columns) { return (columns + kTaskColumns - 1) / kTaskColumns; }

 private:
  static constexpr Index kElement = sizeof(T);

  Index block() const { return call_.options.block; }
  T* at(Workspace& rows, Index sequence, Index number, bool own, Index width) {
    const Index of_all = (sequence - first_) * call_.most_blocks() + number;
    return rows.template data<T>() + of_all * sorted_block_stride(block(), width) +
           (own ? block() * width : 0);
  }

  void copy(const Matrix<const T>& from, Index width, T* to) const {
    for (Index i = 0; i < block(); ++i, to += width) {
      const T* const row = from.data + i * from.row;
      if (from.column == 1) {
        std::copy_n(row, width, to);
      } else {
        for (Index c = 0; c < width; ++c) to[c] = row[c * from.column];
      }
    }
  }

  /// Computes the sorted blocks from the original ones.
  void sort(Index count, const ExecutorRef& executor) {
    const Index of_keys = column_tasks(block() * call_.shape.width);
    const Index tasks = of_keys + column_tasks(block() * call_.shape.value_width);
    for_each_task(executor, count * tasks, [&](Index task, Index) {
      const Index s = first_ + task / tasks;
      const Index part = task % tasks;
      if (part < of_keys) {
        sort_columns(s, keys(s, 0), call_.shape.width, part * kTaskColumns);
      } else {
        sort_columns(s, values(s, 0), call_.shape.value_width, (part - of_keys) * kTaskColumns);
      }
    });
  }
  void sort_columns(Index sequence, T* rows, Index width, Index first) {
    const Index blocks = call_.blocks(sequence);
    ProductArgs<T> product;
    product.a = {weights(sequence), blocks, 1};
    product.b = {rows + block() * width + first, sorted_block_stride(block(), width), 1};
    product.to = rows + first;
    product.to_row = sorted_block_stride(block(), width);
    product.rows = blocks;
    product.columns = (std::min)(kTaskColumns, block() * width - first);
    product.steps = blocks;
    if (blocks > 0) ProductKernels<T>{}.multiply(product);
  }

  const SinkhornCall<T>& call_;
  Index first_ = 0;    // the first of the current sequences
  Workspace k_;        // [sequences at once, blocks, 2 b, D]
  Workspace v_;        // [sequences at once, blocks, 2 b, Dv]
  Workspace weights_;  // [sequences at once, blocks, blocks]
  Workspace scratch_;  // [workers]
};

FOVEA_NAMESPACE_END
