// SPDX-License-Identifier: MIT
/// \file
/// The passes of Sinkhorn attention.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "fovea/attention/call/logit_scale.hpp"
#include "fovea/attention/call/saved.hpp"
#include "fovea/attention/sinkhorn/sorted_blocks.hpp"
#include "fovea/kernels/softmax/table.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// The largest number of query rows that is passed to the kernels at once.
inline constexpr Index kSortedBlockRows = 128;

/// The kernels' arguments for a block of queries of a head.
template <class T>
SoftmaxBlockArgs<T> sinkhorn_block_args(const SinkhornCall<T>& call, SortedBlocks<T>& blocks,
                                        Index sequence, Index head, Index number) {
  SoftmaxBlockArgs<T> args;
  const Index block = call.options.block;
  args.q = head_stored(call.inputs.q, call.batch(sequence), head, number * block);
  args.k = {blocks.keys.sorted(sequence, number), call.shape.width, 1};
  args.v = {blocks.values.sorted(sequence, number), call.shape.value_width, 1};
  args.width = call.shape.width;
  args.value_width = call.shape.value_width;
  args.scale = logit_scale<T>(call.options.scale, call.shape.width);
  args.in_tiles = true;
  args.key_end = 2 * block;
  args.block.run_count = 1;
  return args;
}

/// Calls the kernel for all rows of a block.
template <class T>
void run_sorted_block(SoftmaxBlockArgs<T> args, Index rows) {
  const KeyRun run{0, 1, args.key_end};
  args.block.runs = &run;
  for (Index i = 0; i < rows; i += kSortedBlockRows) {
    args.block.first = i;
    args.block.count = (std::min)(kSortedBlockRows, rows - i);
    SoftmaxKernels<T>{}.block(args);
  }
}

}  // namespace detail

/// One forward pass, some sequences at a time: first their sorted blocks, then attention.
template <class T>
class SinkhornForward {
 public:
  /// \param call must outlive this object
  SinkhornForward(const SinkhornCall<T>& call, const View<T>& out, const SoftmaxSaved<T>& saved)
      : call_(call), out_(out), saved_(saved), blocks_(call) {}

  /// Computes the pass.
  /// \throws std::bad_alloc before anything is written
  void run(const ExecutorRef& executor) {
    const Index at_once = sinkhorn_sequences_at_once(call_.options, call_.shape);
    const Index parts = this->parts();
    const Index slot =
        padded_size(softmax_block_scratch((std::min)(call_.options.block, detail::kSortedBlockRows),
                                          call_.shape.width, call_.shape.value_width));
    blocks_.take_memory(executor);
    scratch_ = memory_of(executor).take(worker_count(executor, at_once * call_.group() * parts),
                                        slot * Index{sizeof(T)});
    if (executor.only_counts()) return;
    for (Index first = 0; first < call_.sequences(); first += at_once) {
      const Index count = (std::min)(at_once, call_.sequences() - first);
      blocks_.make({first, first + count}, executor);
      for_each_task(executor, count * call_.group() * parts, [&](Index task, Index worker) {
        const Index head = task / parts;
        process_rows(first + head / call_.group(), head % call_.group(), task % parts,
                     scratch_.template data<T>() + worker * slot);
      });
    }
  }

 private:
  /// The blocks of a task.
  Index together() const { return (std::max)(Index{1}, 256 / call_.options.block); }
  Index parts() const { return (call_.most_blocks() + together() - 1) / together(); }

  void process_rows(Index sequence, Index head_of_group, Index part, T* scratch) {
    const Index head = call_.key_head(sequence) * call_.group() + head_of_group;
    const Index block = call_.options.block;
    const Index end = (std::min)((part + 1) * together(), call_.most_blocks());
    for (Index u = part * together(); u < end; ++u) {
      if (u >= call_.blocks(sequence)) {
        const auto clear = [&](const View<T>& to, T x) {
          detail::fill_rows(to, call_.batch(sequence), head, u * block, (u + 1) * block, x);
        };
        clear(out_, 0);
        clear(saved_.lse, -std::numeric_limits<T>::infinity());
        continue;
      }
      auto args = detail::sinkhorn_block_args(call_, blocks_, sequence, head, u);
      args.out = detail::head_output(out_, call_.batch(sequence), head, u * block);
      if (!saved_.lse.empty()) {
        args.lse = detail::head_matrix(saved_.lse, call_.batch(sequence), head, u * block);
      }
      args.scratch = scratch;
      detail::run_sorted_block(args, block);
    }
  }

  const SinkhornCall<T>& call_;
  View<T> out_;
  SoftmaxSaved<T> saved_;
  SortedBlocks<T> blocks_;
  Workspace scratch_;  // [workers]
};

/// One backward pass, some sequences at a time. A task computes a block of queries and the
/// gradients of the 2 b keys and values that it attends to. The gradients of sorted blocks are then
/// propagated to the blocks that they are sums of, and to the sorting logits.
template <class T>
class SinkhornBackward {
 public:
  /// \param call must outlive this object
  SinkhornBackward(const SinkhornCall<T>& call, const View<const T>& out,
                   const SoftmaxSaved<T>& saved, const View<const T>& d_out,
                   const SinkhornGrads<T>& grads)
      : call_(call),
        out_(out),
        saved_(saved),
        d_out_(d_out),
        grads_(grads),
        blocks_(call),
        d_k_(call, call.shape.width),
        d_v_(call, call.shape.value_width),
        slot_(call.options, call.shape) {}

  /// Writes the gradients.
  /// \throws std::bad_alloc before anything is written
  void run(const ExecutorRef& executor) {
    const AttentionShape& s = call_.shape;
    const Index at_once = sinkhorn_sequences_at_once(call_.options, s);
    const Index most = call_.most_blocks();
    auto&& memory = memory_of(executor);
    blocks_.take_memory(executor);
    d_k_.take_memory(memory);
    d_v_.take_memory(memory);
    d_weights_ = memory.take(at_once * most * most, kElement);
    scratch_ = memory.take(worker_count(executor, at_once * (std::max)(most, Index{1})),
                           slot_.elements * kElement);
    if (executor.only_counts()) return;
    for (Index first = 0; first < call_.sequences(); first += at_once) {
      const Range sequences = {first, (std::min)(first + at_once, call_.sequences())};
      blocks_.make(sequences, executor);
      for_each_task(executor, (sequences.end - first) * most, [&](Index task, Index worker) {
        differentiate(first + task / most, task % most, slot(worker));
      });
      if (!grads_.k.empty()) blocks_.unsort(d_k_, executor);
      if (!grads_.v.empty()) blocks_.unsort(d_v_, executor);
      if (!grads_.sorting.empty()) differentiate_sorting(sequences, executor);
      write_keys(sequences, executor);
    }
  }

 private:
  static constexpr Index kElement = sizeof(T);

  /// The layout of a worker's memory, in elements.
  struct WorkerScratch {
    WorkerScratch(const SinkhornOptions& options, const AttentionShape& s) {
      const Index b = options.block;
      const Index blocks = s.queries / b;
      rows = padded_size(b);
      queries = b * padded_size(s.width);
      values = b * padded_size(s.value_width);
      const Index kernel = padded_size(
          (std::max)(softmax_grad_scratch(2 * b, s.width, s.value_width),
                     softmax_block_scratch((std::min)(b, detail::kSortedBlockRows), s.width, 0)));
      elements = padded_size(
          (std::max)(rows + 3 * queries + 2 * values + kernel,
                     SortingWeights<T>::grad_scratch_elements(options.iterations, blocks)));
    }
    Index rows, queries, values, elements;
  };

  T* slot(Index worker) { return scratch_.template data<T>() + worker * slot_.elements; }
  Index block() const { return call_.options.block; }
  T* d_weights(Index sequence) {
    const Index at_once = sinkhorn_sequences_at_once(call_.options, call_.shape);
    return d_weights_.template data<T>() +
           sequence % at_once * call_.most_blocks() * call_.most_blocks();
  }

  /// Computes the gradients of a block of queries, and of its keys and values.
  void differentiate(Index sequence, Index number, T* memory) {
    const Index b = call_.batch(sequence);
    const Index first_head = call_.key_head(sequence) * call_.group();
    if (number >= call_.blocks(sequence)) {
      for (Index g = 0; g < call_.group(); ++g) clear(grads_.q, b, first_head + g, number);
      return;
    }
    T* const lse_low = memory;
    T* const d_q = lse_low + slot_.rows;
    SoftmaxGradArgs<T> args;
    args.d_k = d_q + slot_.queries;
    args.d_v = args.d_k + 2 * slot_.queries;
    args.scratch = args.d_v + 2 * slot_.values;
    for (Index h = first_head; h < first_head + call_.group(); ++h) {
      set_head(sequence, h, number, lse_low, args);
      args.add = h > first_head;
      add_rows(args, grads_.q.empty() ? nullptr : d_q);
      if (grads_.q.empty()) continue;
      SoftmaxGradKernels<T>{}.scaled_rows({d_q,
                                           detail::head_matrix(grads_.q, b, h, number * block()), 0,
                                           1, block(), call_.shape.width, args.head.scale, false});
    }
    const AttentionShape& s = call_.shape;
    const auto keep = [&](const T* rows, T* to, Index width, T scale) {
      SoftmaxGradKernels<T>{}.scaled_rows(
          {rows, {to, width, 1}, 0, 1, 2 * block(), width, scale, false});
    };
    keep(args.d_k, d_k_.sorted(sequence, number), s.width, args.head.scale);
    keep(args.d_v, d_v_.sorted(sequence, number), s.value_width, T{1});
  }

  /// Passes the rows of a query head to the kernel, and computes the rounding error of a large lse.
  void set_head(Index sequence, Index h, Index number, T* lse_low, SoftmaxGradArgs<T>& args) {
    auto forward = detail::sinkhorn_block_args(call_, blocks_, sequence, h, number);
    const Index b = call_.batch(sequence);
    const Index row = number * block();
    SoftmaxGradHead<T>& head = args.head;
    head.q = detail::head_matrix(call_.inputs.q, b, h, row);
    head.out = detail::head_matrix(out_, b, h, row);
    head.d_out = detail::head_matrix(d_out_, b, h, row);
    head.lse = detail::head_matrix(View<const T>(saved_.lse), b, h, row);
    head.width = forward.width;
    head.value_width = forward.value_width;
    head.scale = forward.scale;
    head.key_end = forward.key_end;
    args.keys = {0, 1, forward.key_end};
    args.k = {blocks_.keys.sorted(sequence, number), head.width, 1};
    args.v = {blocks_.values.sorted(sequence, number), head.value_width, 1};
    bool is_large = false;
    for (Index i = 0; i < block(); ++i) {
      is_large = is_large || !(std::abs(head.lse.data[i * head.lse.row]) <= T{kLargeLse});
    }
    head.lse_low = is_large ? lse_low : nullptr;
    if (!is_large) return;
    forward.value_width = 0;
    forward.lse = detail::head_matrix(saved_.lse, b, h, row);
    forward.lse_low = lse_low;
    forward.scratch = args.scratch;
    detail::run_sorted_block(forward, block());
  }

  void add_rows(SoftmaxGradArgs<T> args, T* d_q) const {
    const KeyRun run{0, 1, args.head.key_end};
    args.block.runs = &run;
    args.block.run_count = 1;
    for (Index i = 0; i < block(); i += kMaxBlockRows) {
      args.block.first = i;
      args.block.count = (std::min)(kMaxBlockRows, block() - i);
      args.row_end = args.block.count;
      args.d_q = d_q == nullptr ? nullptr : d_q + i * padded_size(call_.shape.width);
      SoftmaxGradKernels<T>{}.grad(args);
      args.add = true;
    }
  }

  /// Writes the gradients of the sorting logits.
  void differentiate_sorting(const Range& sequences, const ExecutorRef& executor) {
    constexpr Index columns = 64;
    const Index count = sequences.end - sequences.begin;
    const Index tasks = (call_.most_blocks() + columns - 1) / columns;
    for_each_task(executor, count * tasks, [&](Index task, Index) {
      const Index s = sequences.begin + task / tasks;
      const Index w = task % tasks * columns;
      const Index some = (std::min)(columns, call_.blocks(s) - w);
      if (some > 0) differentiate_weights(s, w, some);
    });
    for_each_task(executor, count, [&](Index n, Index worker) {
      const Index s = sequences.begin + n;
      const Index blocks = call_.blocks(s);
      const Matrix<T> to = call_.of_keys(grads_.sorting, s);
      SortingWeights<T>(call_.options.iterations)
          .differentiate(call_.of_keys(call_.inputs.sorting, s), blocks, blocks_.weights(s),
                         d_weights(s), to, slot(worker));
      for (Index u = 0; u < call_.most_blocks(); ++u) {
        for (Index w = u < blocks ? blocks : 0; w < call_.most_blocks(); ++w) {
          to.data[u * to.row + w * to.column] = 0;
        }
      }
    });
  }
  /// Computes the gradients of the weights of some blocks of keys: products of the gradients of
  /// sorted blocks with blocks.
  void differentiate_weights(Index sequence, Index w, Index count) {
    const Index blocks = call_.blocks(sequence);
    ProductArgs<T> product;
    product.to = d_weights(sequence) + w;
    product.to_row = blocks;
    product.rows = blocks;
    product.columns = count;
    const auto add = [&](BlockPairs<T>& d_rows, BlockPairs<T>& rows) {
      product.a = {d_rows.sorted(sequence, 0), rows.stride, 1};
      product.b = {rows.own(sequence, w), 1, rows.stride};
      product.steps = call_.options.block * rows.width;
      ProductKernels<T>{}.multiply(product);
      product.add = true;
    };
    add(d_k_, blocks_.keys);
    add(d_v_, blocks_.values);
  }

  /// Writes the gradients of keys and values.
  void write_keys(const Range& sequences, const ExecutorRef& executor) {
    const Index most = call_.most_blocks();
    for_each_task(executor, (sequences.end - sequences.begin) * most, [&](Index task, Index) {
      const Index s = sequences.begin + task / most;
      const Index w = task % most;
      const Index block = call_.options.block;
      const auto write = [&](const View<T>& to, BlockPairs<T>& from) {
        if (to.empty()) return;
        if (w >= call_.blocks(s)) return clear(to, call_.batch(s), call_.key_head(s), w);
        detail::copy_rows(Matrix<T>{from.own(s, w), from.width, 1}, block, from.width,
                          call_.of_keys(to, s, w * block));
      };
      write(grads_.k, d_k_);
      write(grads_.v, d_v_);
    });
  }

  void clear(const View<T>& grad, Index b, Index h, Index number) const {
    detail::fill_rows(grad, b, h, number * block(), (number + 1) * block(), T{0});
  }

  const SinkhornCall<T>& call_;
  View<const T> out_;
  SoftmaxSaved<T> saved_;
  View<const T> d_out_;
  SinkhornGrads<T> grads_;
  SortedBlocks<T> blocks_;
  BlockPairs<T> d_k_;
  BlockPairs<T> d_v_;
  WorkerScratch slot_;
  Workspace d_weights_;  // [sequences at once, blocks, blocks]
  Workspace scratch_;    // [workers]
};

FOVEA_NAMESPACE_END
