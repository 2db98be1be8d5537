// SPDX-License-Identifier: MIT
/// \file
/// The keys and values that blocks of queries attend to, for several key heads at once: for each
/// block the sorted block, followed by its own.
#pragma once

#include <algorithm>

#include "fovea/attention/call/head_matrix.hpp"
#include "fovea/attention/call/shapes.hpp"
#include "fovea/attention/sinkhorn/sorting_weights.hpp"
#include "fovea/core/executor_ref.hpp"
#include "fovea/core/workspace.hpp"
#include "fovea/kernels/layers/table.hpp"
#include "fovea/patterns/pattern.hpp"

FOVEA_NAMESPACE_BEGIN

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

/// Keys, values, or their gradients of the sequences that are computed at once: for each block the
/// b rows of the sorted block, followed by its own.
template <class T>
class BlockPairs {
 public:
  const Index width;   ///< the number of columns
  const Index stride;  ///< elements from block to block

  /// \param call must outlive this object
  BlockPairs(const SinkhornCall<T>& call, Index columns)
      : width(columns),
        stride(sorted_block_stride(call.options.block, columns)),
        call_(call),
        at_once_(sinkhorn_sequences_at_once(call.options, call.shape)) {}

  /// Allocates the memory. \throws std::bad_alloc
  void take_memory(ExecutorRef::Memory memory) {
    rows_ = memory.take(at_once_ * call_.most_blocks() * stride, Index{sizeof(T)});
  }

  /// [b, width]: the rows of a sorted block.
  T* sorted(Index sequence, Index number) {
    const Index of_all = sequence % at_once_ * call_.most_blocks() + number;
    return rows_.template data<T>() + of_all * stride;
  }
  /// [b, width]: the rows of the block itself.
  T* own(Index sequence, Index number) {
    return sorted(sequence, number) + call_.options.block * width;
  }

 private:
  const SinkhornCall<T>& call_;
  Index at_once_;
  Workspace rows_;  // [sequences at once, blocks, stride]
};

/// The keys and values that the blocks of some sequences attend to, and the weights that sort them.
template <class T>
class SortedBlocks {
 public:
  /// \param call must outlive this object
  explicit SortedBlocks(const SinkhornCall<T>& call)
      : keys(call, call.shape.width), values(call, call.shape.value_width), call_(call) {}

  /// Allocates the memory.
  /// \throws std::bad_alloc
  void take_memory(const ExecutorRef& executor) {
    const Index at_once = sinkhorn_sequences_at_once(call_.options, call_.shape);
    keys.take_memory(executor.memory());
    values.take_memory(executor.memory());
    weights_ = executor.memory().take(at_once * square(), kElement);
    scratch_ = executor.memory().take(worker_count(executor, at_once), slot() * kElement);
  }

  /// Computes the blocks of some sequences.
  /// \pre take_memory(executor) was called
  void make(const Range& sequences, const ExecutorRef& executor) {
    sequences_ = sequences;
    const SortingWeights<T> weights(call_.options.iterations);
    for_each_task(executor, count(), [&](Index n, Index worker) {
      const Index s = sequences.begin + n;
      weights.compute(call_.of_keys(call_.inputs.sorting, s), call_.blocks(s), this->weights(s),
                      scratch_.template data<T>() + worker * slot());
    });
    const Index most = call_.most_blocks();
    for_each_task(executor, count() * most, [&](Index task, Index) {
      const Index s = sequences.begin + task / most;
      const Index w = task % most;
      if (w >= call_.blocks(s)) return;
      const auto copy = [&](const View<const T>& from, BlockPairs<T>& to) {
        detail::copy_rows(call_.of_keys(from, s, w * block()), block(), to.width,
                          Matrix<T>{to.own(s, w), to.width, 1});
      };
      copy(call_.inputs.k, keys);
      copy(call_.inputs.v, values);
    });
    multiply(keys, Direction::sort, executor);
    multiply(values, Direction::sort, executor);
  }

  /// Adds the gradients of sorted blocks to those of the blocks that they are sums of.
  void unsort(BlockPairs<T>& gradients, const ExecutorRef& executor) {
    multiply(gradients, Direction::unsort, executor);
  }

  /// [blocks, blocks]: the weights of a sequence.
  T* weights(Index sequence) {
    return weights_.template data<T>() + (sequence - sequences_.begin) * square();
  }

  BlockPairs<T> keys;    ///< those that blocks of queries attend to
  BlockPairs<T> values;  ///< likewise

 private:
  static constexpr Index kElement = sizeof(T);
  enum class Direction { sort, unsort };

  Index count() const { return sequences_.end - sequences_.begin; }
  Index block() const { return call_.options.block; }
  Index square() const { return call_.most_blocks() * call_.most_blocks(); }
  Index slot() const {
    return padded_size(SortingWeights<T>::scratch_elements(call_.most_blocks()));
  }

  /// Sorted blocks are the products of the weights W with the blocks themselves; unsorting adds the
  /// products of W^T with the sorted blocks. A task computes some columns of all blocks.
  void multiply(BlockPairs<T>& rows, Direction direction, const ExecutorRef& executor) {
    constexpr Index at_once = 256;
    const Index columns = block() * rows.width;
    const Index tasks = (columns + at_once - 1) / at_once;
    const bool sorts = direction == Direction::sort;
    for_each_task(executor, count() * tasks, [&](Index task, Index) {
      const Index s = sequences_.begin + task / tasks;
      const Index first = task % tasks * at_once;
      const Index blocks = call_.blocks(s);
      if (blocks == 0) return;
      T* const sorted = rows.sorted(s, 0) + first;
      T* const own = rows.own(s, 0) + first;
      ProductKernels<T>{}.multiply(
          {.a = {weights(s), sorts ? blocks : 1, sorts ? 1 : blocks},
           .b = stored(Matrix<const T>{sorts ? own : sorted, rows.stride, 1}),
           .to = sorts ? sorted : own,
           .to_row = rows.stride,
           .rows = blocks,
           .columns = (std::min)(at_once, columns - first),
           .steps = blocks,
           .add = !sorts});
    });
  }

  const SinkhornCall<T>& call_;
  Range sequences_;    // the current sequences
  Workspace weights_;  // [sequences at once, blocks, blocks]
  Workspace scratch_;  // [workers]
};

FOVEA_NAMESPACE_END
