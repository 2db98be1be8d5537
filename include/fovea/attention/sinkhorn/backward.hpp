// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of Sinkhorn attention.
#pragma once

#include <algorithm>
#include <cmath>

#include "fovea/attention/sinkhorn/forward.hpp"

FOVEA_NAMESPACE_BEGIN

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
        slot_(call.options, call.shape) {}

  /// Bytes of scratch memory with that many workers.
  static Index workspace_bytes(const SinkhornOptions& options, const AttentionShape& s,
                               Index workers) {
    const Index blocks = s.queries / options.block;
    return SortedBlocks<T>::size_bytes(options, s, workers) +
           (sinkhorn_sequences_at_once(options, s) *
                (sorted_sequence_elements(options, s) + 2 * blocks * blocks) +
            workers * WorkerScratch(options, s).elements) *
               kElement;
  }

  /// Writes the gradients.
  /// \throws std::bad_alloc before anything is written
  void run(const ExecutorRef& executor) {
    const AttentionShape& s = call_.shape;
    const Index at_once = sinkhorn_sequences_at_once(call_.options, s);
    const Index most = call_.most_blocks();
    auto&& memory = memory_of(executor);
    blocks_.take_memory(executor);
    d_k_ = memory.take(at_once * most * sorted_block_stride(block(), s.width), kElement);
    d_v_ = memory.take(at_once * most * sorted_block_stride(block(), s.value_width), kElement);
    transposed_ = memory.take(at_once * most * most, kElement);
    d_weights_ = memory.take(at_once * most * most, kElement);
    scratch_ = memory.take(worker_count(executor, at_once * (std::max)(most, Index{1})),
                           slot_.elements * kElement);
    for (Index first = 0; first < call_.sequences(); first += at_once) {
      first_ = first;
      count_ = (std::min)(at_once, call_.sequences() - first);
      blocks_.make(first, count_, executor);
      for_each_task(executor, count_ * most, [&](Index task, Index worker) {
        differentiate(first + task / most, task % most, slot(worker));
      });
      if (!grads_.k.empty() || !grads_.v.empty()) unsort(executor);
      if (!grads_.sorting.empty()) differentiate_sorting(executor);
      write_keys(executor);
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
  /// The gradients of the keys or values of a block, [2 b, width].
  T* of_block(Workspace& rows, Index sequence, Index number, Index width) {
    const Index of_all = (sequence - first_) * call_.most_blocks() + number;
    return rows.template data<T>() + of_all * sorted_block_stride(block(), width);
  }
  T* matrix(Workspace& all, Index sequence) {
    const Index blocks = call_.most_blocks();
    return all.template data<T>() + (sequence - first_) * blocks * blocks;
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
    keep(args.d_k, of_block(d_k_, sequence, number, s.width), s.width, args.head.scale);
    keep(args.d_v, of_block(d_v_, sequence, number, s.value_width), s.value_width, T{1});
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
    args.k = {blocks_.keys(sequence, number), head.width, 1};
    args.v = {blocks_.values(sequence, number), head.value_width, 1};
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

  /// Adds the gradients of sorted blocks to those of the blocks that they are sums of.
  void unsort(const ExecutorRef& executor) {
    for_each_task(executor, count_, [&](Index n, Index) {
      const Index s = first_ + n;
      SortingWeights<T>::transpose(blocks_.weights(s), call_.blocks(s), matrix(transposed_, s));
    });
    const auto columns = [&](Index width) {
      return SortedBlocks<T>::column_tasks(block() * width);
    };
    const Index of_keys = grads_.k.empty() ? 0 : columns(call_.shape.width);
    const Index tasks = of_keys + (grads_.v.empty() ? 0 : columns(call_.shape.value_width));
    for_each_task(executor, count_ * tasks, [&](Index task, Index) {
      const Index s = first_ + task / tasks;
      const Index part = task % tasks;
      const bool is_keys = part < of_keys;
      const Index width = is_keys ? call_.shape.width : call_.shape.value_width;
      unsort_columns(s, of_block(is_keys ? d_k_ : d_v_, s, 0, width), width,
                     (is_keys ? part : part - of_keys) * SortedBlocks<T>::kTaskColumns);
    });
  }
  void unsort_columns(Index sequence, T* rows, Index width, Index first) {
    const Index blocks = call_.blocks(sequence);
    ProductArgs<T> product;
    product.a = {matrix(transposed_, sequence), blocks, 1};
    product.b = {rows + first, sorted_block_stride(block(), width), 1};
    product.to = rows + block() * width + first;
    product.to_row = sorted_block_stride(block(), width);
    product.rows = blocks;
    product.columns = (std::min)(SortedBlocks<T>::kTaskColumns, block() * width - first);
    product.steps = blocks;
    product.add = true;
    if (blocks > 0) ProductKernels<T>{}.multiply(product);
  }

  /// Writes the gradients of the sorting logits.
  void differentiate_sorting(const ExecutorRef& executor) {
    constexpr Index columns = 64;
    const Index tasks = (call_.most_blocks() + columns - 1) / columns;
    for_each_task(executor, count_ * tasks, [&](Index task, Index) {
      const Index s = first_ + task / tasks;
      const Index w = task % tasks * columns;
      const Index count = (std::min)(columns, call_.blocks(s) - w);
      if (count > 0) differentiate_weights(s, w, count);
    });
    for_each_task(executor, count_, [&](Index n, Index worker) {
      const Index s = first_ + n;
      const Index blocks = call_.blocks(s);
      const Matrix<T> to = call_.of_keys(grads_.sorting, s);
      SortingWeights<T>(call_.options.iterations)
          .differentiate(call_.of_keys(call_.inputs.sorting, s), blocks, blocks_.weights(s),
                         matrix(d_weights_, s), to, slot(worker));
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
    product.to = matrix(d_weights_, sequence) + w;
    product.to_row = blocks;
    product.rows = blocks;
    product.columns = count;
    const auto add = [&](const T* d_rows, const T* own, Index width) {
      product.a = {d_rows, sorted_block_stride(block(), width), 1};
      product.b = {own, 1, sorted_block_stride(block(), width)};
      product.steps = block() * width;
      ProductKernels<T>{}.multiply(product);
      product.add = true;
    };
    const AttentionShape& s = call_.shape;
    add(of_block(d_k_, sequence, 0, s.width), blocks_.keys(sequence, w, true), s.width);
    add(of_block(d_v_, sequence, 0, s.value_width), blocks_.values(sequence, w, true),
        s.value_width);
  }

  /// Writes the gradients of keys and values.
  void write_keys(const ExecutorRef& executor) {
    const Index most = call_.most_blocks();
    for_each_task(executor, count_ * most, [&](Index task, Index) {
      const Index s = first_ + task / most;
      const Index w = task % most;
      const auto write = [&](const View<T>& to, Workspace& rows) {
        if (to.empty()) return;
        if (w >= call_.blocks(s)) return clear(to, call_.batch(s), call_.key_head(s), w);
        const T* const from = of_block(rows, s, w, to.width()) + block() * to.width();
        const Matrix<T> into = call_.of_keys(to, s, w * block());
        for (Index i = 0; i < block(); ++i) {
          const T* const row = from + i * to.width();
          T* const at = into.data + i * into.row;
          if (into.column == 1) {
            std::copy_n(row, to.width(), at);
          } else {
            for (Index c = 0; c < to.width(); ++c) at[c * into.column] = row[c];
          }
        }
      };
      write(grads_.k, d_k_);
      write(grads_.v, d_v_);
    });
  }

  void clear(const View<T>& grad, Index b, Index h, Index number) const {
    if (grad.empty()) return;
    for (Index n = number * block(); n < (number + 1) * block(); ++n) {
      for (Index c = 0; c < grad.width(); ++c) grad(b, h, n, c) = 0;
    }
  }

  const SinkhornCall<T>& call_;
  View<const T> out_;
  SoftmaxSaved<T> saved_;
  View<const T> d_out_;
  SinkhornGrads<T> grads_;
  SortedBlocks<T> blocks_;
  WorkerScratch slot_;
  Index first_ = 0;  // the first of the current sequences, and their number
  Index count_ = 0;
  Workspace d_k_;         // [sequences at once, blocks, 2 b, D], laid out as in SortedBlocks
  Workspace d_v_;         // [sequences at once, blocks, 2 b, Dv]
  Workspace transposed_;  // [sequences at once, blocks, blocks] the weights
  Workspace d_weights_;   // [sequences at once, blocks, blocks]
  Workspace scratch_;     // [workers]
};

FOVEA_NAMESPACE_END
