// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of softmax attention: which thread computes what, and in which order sums are
/// taken, so that the bits depend on no thread.
#pragma once

#include <atomic>
#include <cmath>
#include <memory>

#include "fovea/attention/softmax_call.hpp"
#include "fovea/core/executor.hpp"
#include "fovea/core/workspace.hpp"
#include "fovea/kernels/table.hpp"
#include "fovea/patterns/partition.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// Places where tasks add in turn. A task may wait only for tasks of lower numbers: those have been
/// taken before it, so the lowest one at work never waits.
class Turns {
 public:
  explicit Turns(Index places)
      : next_(places == 0 ? nullptr : std::make_unique<std::atomic<int>[]>(as_size(places))) {}

  /// Calls f when `turn` others have had their turn at the place.
  template <class F>
  void take(Index place, Index turn, F&& f) {
    std::atomic<int>& next = next_[as_size(place)];
    const int mine = static_cast<int>(turn);
    for (int now = next.load(std::memory_order_acquire); now != mine;
         now = next.load(std::memory_order_acquire)) {
      next.wait(now, std::memory_order_acquire);
    }
    f();
    next.store(mine + 1, std::memory_order_release);
    next.notify_all();
  }

 private:
  static std::size_t as_size(Index i) { return static_cast<std::size_t>(i); }

  std::unique_ptr<std::atomic<int>[]> next_;
};

/// Whether a block of queries may see one of the keys [first, last).
inline bool meets(const QueryBlock& block, Index first, Index last) {
  for (Index r = 0; r < block.run_count; ++r) {
    const KeyRun& run = block.runs[r];
    const Index end = run.first + run.step * (run.count - 1) + 1;
    if (run.count == 0 || end <= first || last <= run.first) continue;
    const Index t = first <= run.first ? 0 : (first - run.first + run.step - 1) / run.step;
    if (run.first + run.step * t < last) return true;
  }
  return false;
}

}  // namespace detail

/// One backward pass. A task is a block of keys of one key head: it owns the gradients of those
/// keys and values, and goes over all blocks of queries that see them; to the gradient of a block
/// of queries the tasks add in the order of their keys. The plan of P is a PartitionedPlan whose
/// blocks of keys are without gaps.
template <class T, class P>
class SoftmaxBackward {
 public:
  SoftmaxBackward(const SoftmaxCall<T, P>& call, const View<const T>& out, const Saved<T>& saved,
                  const View<const T>& d_out, const Grads<T>& grads)
      : call_(call), out_(out), saved_(saved), d_out_(d_out), grads_(grads) {}

  /// Bytes of scratch with that many workers.
  static Index workspace_bytes(const AttentionShape& shape, Index workers) {
    return workers * Slot(shape).elements * static_cast<Index>(sizeof(T));
  }

  template <class E>
  void run(E&& executor) {
    const Slot slot(call_.shape());
    const auto& sequences = call_.sequences();
    const SequenceTasks blocks(sequences, call_.inputs().q.heads(),
                               [&](Index s) { return call_.plan(sequences[s]).block_count(); });
    const SequenceTasks keys(sequences, call_.inputs().k.heads(),
                             [&](Index s) { return call_.plan(sequences[s]).key_block_count(); });
    detail::Turns turns(blocks.count());
    // No part of the pass has more tasks: those of the bias are blocks of either kind per query
    // head.
    const Index heads = call_.inputs().q.heads();
    const Index most_tasks = blocks.count() + keys.count() * std::max(Index{1}, heads) + heads;
    Workspace scratch(worker_count(executor, most_tasks),
                      slot.elements * static_cast<Index>(sizeof(T)));
    T* const memory = scratch.data<T>();
    if (!grads_.q.is_none()) zero(executor, grads_.q);
    if (!(grads_.q.is_none() && grads_.k.is_none() && grads_.v.is_none())) {
      // Neighbours are blocks of different heads, which take no turns with each other, and under a
      // causal pattern those with the most queries come first.
      const Index all_heads = sequences.count() * call_.inputs().k.heads();
      const Index stride = sequences.packed() ? 1 : keys.count() / std::max(Index{1}, all_heads);
      const auto numbered = [&](Index task) {
        return stride <= 1 ? task : task % all_heads * stride + task / all_heads;
      };
      for_each_task(executor, keys.count(), [&](Index task, Index worker) {
        key_task(keys[numbered(task)], blocks, turns, slot, memory + worker * slot.elements);
      });
    }
    if (!grads_.bias.is_none()) run_bias(executor, slot, memory);
    if (!grads_.sink.empty()) run_sink(executor, slot, memory);
  }

 private:
  /// One worker's scratch.
  struct Slot {
    explicit Slot(const AttentionShape& shape) {
      const Index keys = block_rows(shape.keys);
      kernel = softmax_grad_scratch(keys, shape.width, shape.value_width);
      d_k = keys * grad_padded(shape.width);
      d_v = keys * grad_padded(shape.value_width);
      d_q = block_rows(shape.queries) * grad_padded(shape.width);
      elements = (kernel + d_k + d_v + d_q + 15) / 16 * 16;
    }
    Index kernel, d_k, d_v, d_q;
    Index elements;
  };

  SoftmaxGradHead<T> head(const Sequence& s, Index h) const {
    const Inputs<T>& in = call_.inputs();
    SoftmaxGradHead<T> head;
    head.q = detail::head_matrix(in.q, s.batch, h, s.first_query);
    head.k = detail::head_matrix(in.k, s.batch, call_.key_head(h), s.first_key);
    head.v = detail::head_matrix(in.v, s.batch, call_.key_head(h), s.first_key);
    head.out = detail::head_matrix(out_, s.batch, h, s.first_query);
    head.d_out = detail::head_matrix(d_out_, s.batch, h, s.first_query);
    head.lse = detail::head_matrix(View<const T>(saved_.lse), s.batch, h, s.first_query);
    head.width = in.q.width();
    head.value_width = in.v.width();
    head.scale = call_.scale();
    head.sink = call_.sink(h);
    head.map = call_.score_map(s, h);
    head.first_position = call_.sequence_shape(s).first_position;
    head.key_end = s.key_end;
    return head;
  }

  /// The gradients of one block of keys and values, and what it adds to those of the queries.
  void key_task(const SequenceTask& task, const SequenceTasks& blocks, detail::Turns& turns,
                const Slot& slot, T* scratch) const {
    const Sequence s = call_.sequences()[task.sequence];
    const auto plan = call_.plan(s);
    const auto [first, last] = plan.key_block(task.part).span();
    const Index group = call_.inputs().q.heads() / call_.inputs().k.heads();
    SoftmaxGradArgs<T> args;
    args.key_first = first;
    args.key_last = last;
    args.scratch = scratch;
    T* const d_k = scratch + slot.kernel;
    T* const d_v = d_k + slot.d_k;
    if (!grads_.k.is_none()) args.d_k = d_k;
    if (!grads_.v.is_none()) args.d_v = d_v;
    if (!grads_.q.is_none()) args.d_q = d_v + slot.d_v;
    std::fill(d_k, d_v + slot.d_v, T{0});
    const BlockRange blocks_of_keys = plan.query_blocks(task.part);
    for (Index h = task.head * group; h < (task.head + 1) * group; ++h) {
      args.head = head(s, h);
      for (Index b = blocks_of_keys.begin; b < blocks_of_keys.end; ++b) {
        BlockStorage storage;
        args.block = plan.block(b, storage);
        if (!detail::meets(args.block, first, std::min(last, s.key_end))) continue;
        kernels<T>().softmax_grad(args);
        if (grads_.q.is_none()) continue;
        turns.take(blocks.number(task.sequence, h, b), turn(plan, args.block, s, task.part), [&] {
          add_rows(args.d_q, detail::head_matrix(grads_.q, s.batch, h, s.first_query), args.block);
        });
      }
    }
    write_rows(args.d_k, grads_.k, s, task.head, first, last, call_.scale() * unlift());
    write_rows(args.d_v, grads_.v, s, task.head, first, last, unlift());
  }

  /// How many blocks of keys before `part` a block of queries sees.
  template <class Plan>
  static Index turn(const Plan& plan, const QueryBlock& block, const Sequence& s, Index part) {
    Index before = 0;
    for (Index p = 0; p < part; ++p) {
      const auto [first, last] = plan.key_block(p).span();
      if (detail::meets(block, first, std::min(last, s.key_end))) ++before;
    }
    return before;
  }

  /// What brings the kernels' sums back from lifted weights: exact.
  T unlift() const {
    return call_.inputs().alibi_slopes.empty() ? T{1} : T{1} / static_cast<T>(1 << kAlibiLift);
  }

  void add_rows(const T* rows, const Matrix<T>& to, const QueryBlock& block) const {
    kernels<T>().scaled_rows({rows, to, block.first, block.step, block.count,
                              call_.inputs().q.width(), call_.scale() * unlift(), true});
  }

  /// Rows [first, last) of a sequence's keys or values.
  static void write_rows(const T* rows, const View<T>& to, const Sequence& s, Index head,
                         Index first, Index last, T scale) {
    if (rows == nullptr) return;
    kernels<T>().scaled_rows({rows, detail::head_matrix(to, s.batch, head, s.first_key), first, 1,
                              last - first, to.width(), scale, false});
  }

  /// Fills a tensor with +0.
  template <class E>
  static void zero(E&& executor, const View<T>& x) {
    constexpr Index rows = 512;
    const Index parts = (x.rows() + rows - 1) / rows;
    for_each_task(executor, x.batch() * x.heads() * parts, [&](Index task, Index) {
      const Index b = task / parts / x.heads();
      const Index h = task / parts % x.heads();
      const Index first = task % parts * rows;
      for (Index n = first; n < std::min(x.rows(), first + rows); ++n) {
        for (Index d = 0; d < x.width(); ++d) x(b, h, n, d) = 0;
      }
    });
  }

  /// The gradient of the bias: a task owns a part of it, and adds up what it was broadcast to.
  template <class E>
  void run_bias(E&& executor, const Slot& slot, T* scratch) {
    zero(executor, grads_.bias);
    const Shape& shape = grads_.bias.shape();
    const AttentionShape whole = call_.shape();
    // Without a dimension of rows the parts are blocks of keys; without either there is one part.
    const bool by_query = shape[2] != 1 || whole.queries == 1;
    const bool one_part = !by_query && (shape[3] == 1 && whole.keys != 1);
    Index parts = 0;
    for (Index s = 0; s < call_.sequences().count(); ++s) {
      const auto plan = call_.plan(call_.sequences()[s]);
      parts = std::max(parts, by_query ? plan.block_count() : plan.key_block_count());
    }
    if (one_part) parts = 1;
    const Index heads = shape[1];
    const Index batches = shape[0];
    for_each_task(executor, batches * heads * parts, [&](Index task, Index worker) {
      const Index cell = task / parts;
      for (Index s = 0; s < call_.sequences().count(); ++s) {
        const Sequence sequence = call_.sequences()[s];
        if (batches != 1 && sequence.batch != cell / heads) continue;
        for (Index h = 0; h < whole.query_heads; ++h) {
          if (heads != 1 && h != cell % heads) continue;
          bias_task(sequence, h, by_query, one_part ? -1 : task % parts,
                    scratch + worker * slot.elements);
        }
      }
    });
  }

  /// What one head of a sequence adds to a part of the bias: the blocks of queries or of keys of
  /// that number, or all of them.
  void bias_task(const Sequence& s, Index h, bool by_query, Index part, T* scratch) const {
    SoftmaxGradArgs<T> args;
    args.head = head(s, h);
    args.scratch = scratch;
    args.d_bias = detail::head_logits(grads_.bias, s.batch, h, s.first_query, s.first_key);
    const auto plan = call_.plan(s);
    for (Index b = 0; b < plan.block_count(); ++b) {
      if (by_query && part >= 0 && b != part) continue;
      BlockStorage storage;
      args.block = plan.block(b, storage);
      for (Index k = 0; k < plan.key_block_count(); ++k) {
        if (!by_query && part >= 0 && k != part) continue;
        const auto [first, last] = plan.key_block(k).span();
        if (!detail::meets(args.block, first, std::min(last, s.key_end))) continue;
        args.key_first = first;
        args.key_last = last;
        kernels<T>().softmax_grad(args);
      }
    }
  }

  /// The gradient of the sinks.
  template <class E>
  void run_sink(E&& executor, const Slot& slot, T* scratch) {
    for_each_task(executor, call_.inputs().q.heads(), [&](Index h, Index worker) {
      T total = 0;
      for (Index s = 0; s < call_.sequences().count(); ++s) {
        const Sequence sequence = call_.sequences()[s];
        T sum = 0;
        kernels<T>().sink_grad(
            {head(sequence, h), sequence.queries, &sum, scratch + worker * slot.elements});
        total += sum;
      }
      grads_.sink[static_cast<std::size_t>(h)] = total;
    });
  }

  const SoftmaxCall<T, P>& call_;
  View<const T> out_;
  Saved<T> saved_;
  View<const T> d_out_;
  Grads<T> grads_;
};

FOVEA_NAMESPACE_END
