// SPDX-License-Identifier: MIT
/// \file
/// What the parts of a backward pass share: the call's tensors, and each worker's memory.
#pragma once

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "fovea/attention/softmax/head_plans.hpp"
#include "fovea/attention/softmax/lse_low_parts.hpp"
#include "fovea/core/executor_ref.hpp"
#include "fovea/core/workspace.hpp"
#include "fovea/kernels/softmax/table.hpp"
#include "fovea/simd/padding.hpp"

FOVEA_NAMESPACE_BEGIN

/// One call of `backward`.
template <class T>
class BackwardCall {
 public:
  /// Bytes of one number.
  static constexpr Index kElement = sizeof(T);

  /// \param call, plans must outlive this object
  BackwardCall(const SoftmaxCall<T>& call, const HeadPlans& plans, const View<const T>& out,
               const SoftmaxSaved<T>& saved, const View<const T>& d_out,
               const SoftmaxGrads<T>& grads, const View<const T>& d_lse = {})
      : call_(call),
        plans_(plans),
        out_(out),
        saved_(saved),
        d_out_(d_out),
        d_lse_(d_lse),
        grads_(grads),
        lse_low_(call, plans, saved.lse),
        slot_(call.shape()),
        most_runs_(plans.most_runs()) {}

  /// Allocates the scratch memory for that many workers. No part of the pass has more tasks than
  /// most_tasks().
  /// \param memory the call's (memory_of)
  /// \throws std::bad_alloc
  template <class Memory>
  void take_scratch(Index workers, Memory&& memory) {
    scratch_ = memory.take(workers, slot_.elements * kElement);
    blocks_ = memory.take(workers, BlockStorage::bytes(most_runs_));
    lse_low_.take_by_shape(memory);
  }

  /// Looks for rows with a large lse, and allocates memory for them.
  /// \pre lse holds what `forward` saved
  /// \throws std::bad_alloc
  template <class Memory>
  void look_for_large(Memory&& memory) {
    lse_low_.look(memory);
  }

  /// Computes the low parts of large lse. Called after look_for_large and before the kernels.
  void find_lse_low(const ExecutorRef& executor) {
    lse_low_.find(executor, [this](Index worker) {
      Buffers own = buffers(worker);
      return LseScratch<T>{std::move(own.storage), own.kernel};
    });
  }

  /// Uses low parts of lse computed elsewhere, in place of look_for_large and find_lse_low.
  template <class Memory>
  void give_lse_low(const View<const T>& low, Memory&& memory) {
    lse_low_.give(low, memory);
  }

  /// The low parts of a head's lse, [Nq]; null if no row has a large lse.
  const T* lse_low(const Sequence& s, Index h) const { return lse_low_.of(s, h); }

  /// The inputs and options.
  const SoftmaxCall<T>& call() const { return call_; }
  /// The sequences of the call.
  const Sequences<T>& sequences() const { return call_.sequences(); }
  /// The plans of all heads.
  const HeadPlans& plans() const { return plans_; }
  /// The gradients to write.
  const SoftmaxGrads<T>& grads() const { return grads_; }
  /// Hq.
  Index query_heads() const { return call_.inputs().q.heads(); }
  /// Hk.
  Index key_heads() const { return call_.inputs().k.heads(); }

  /// An upper bound on the number of tasks in any part of the pass.
  Index most_tasks() const {
    Index most_parts = 1;
    const Index sequences = call_.sequences().count();
    for (Index pass = 0; pass < plans_.pass_count(); ++pass) {
      for (Index s = 0; s < call_.sequences().different(); ++s) {
        for (Index h = 0; h < plans_.period(); ++h) {
          const AnyPlan& plan = plans_.plan(pass, s, h);
          most_parts = (std::max)({most_parts, plan.block_count(), plan.key_block_count()});
        }
      }
    }
    return (sequences * most_parts + 1) * (std::max)({query_heads(), key_heads(), Index{1}});
  }

  /// One worker's memory.
  struct Buffers {
    BlockStorage storage;  ///< the runs of a query block
    T* kernel;    ///< softmax_grad_scratch(...) elements, or the scratch of low parts of lse
    T* d_q;       ///< [rows of a block of queries, padded_size(D)]
    T* d_k;       ///< [rows of blocks of keys, padded_size(D)]
    T* d_v;       ///< [rows of blocks of keys, padded_size(Dv)]
    T* packed_k;  ///< keys if their rows are far apart in k; shape as d_k
    T* packed_v;  ///< values if their rows are far apart in v; shape as d_v
  };
  /// The memory of a worker.
  Buffers buffers(Index worker) {
    T* const kernel = scratch_.template data<T>() + worker * slot_.elements;
    T* const d_q = kernel + slot_.kernel;
    T* const d_k = d_q + slot_.queries;
    T* const d_v = d_k + slot_.keys;
    T* const packed_k = d_v + slot_.values;
    return {storage(worker), kernel, d_q, d_k, d_v, packed_k, packed_k + slot_.keys};
  }

  /// The kernels' arguments for query head h of a sequence.
  SoftmaxGradHead<T> head(const Sequence& s, Index h) const {
    const SoftmaxInputs<T>& in = call_.inputs();
    SoftmaxGradHead<T> head;
    head.q = detail::head_matrix(in.q, s.batch, h, s.first_query);
    head.out = detail::head_matrix(out_, s.batch, h, s.first_query);
    head.d_out = detail::head_matrix(d_out_, s.batch, h, s.first_query);
    head.lse = detail::head_matrix(View<const T>(saved_.lse), s.batch, h, s.first_query);
    head.lse_low = lse_low_.of(s, h);
    if (!d_lse_.empty()) head.d_lse = detail::head_matrix(d_lse_, s.batch, h, s.first_query);
    head.width = in.q.width();
    head.value_width = in.v.width();
    head.scale = call_.scale();
    head.sink = call_.sink(h);
    head.map = call_.score_map(s, h);
    head.first_position = s.first_position;
    head.key_end = s.key_end;
    return head;
  }

  /// Passes a block's keys and values to the kernel.
  /// \param row the row of the buffers where they are packed if necessary
  void set_keys(const KeyBlock& keys, const Sequence& s, Index key_head, Index row,
                const Buffers& buffers, SoftmaxGradArgs<T>& args) const {
    const SoftmaxInputs<T>& in = call_.inputs();
    args.keys = {keys.first, keys.step, keys.count};
    args.k = near_rows(detail::head_matrix(in.k, s.batch, key_head, s.first_key), keys,
                       in.k.width(), buffers.packed_k + row * padded_size(in.k.width()));
    args.v = near_rows(detail::head_matrix(in.v, s.batch, key_head, s.first_key), keys,
                       in.v.width(), buffers.packed_v + row * padded_size(in.v.width()));
  }

  /// Adds query rows of a sequence to the gradient of head h's sink.
  /// \param sums [kSinkSums], added to; their sum in order is the gradient
  /// \pre the low parts of lse are computed
  void add_to_sink(const Sequence& s, Index h, const Range& rows, T* sums, Index worker) {
    SoftmaxGradKernels<T>{}.sink_grad(
        {head(s, h), rows.begin, rows.end, sums, buffers(worker).kernel});
  }
  /// Writes the gradients of the sinks.
  /// \pre as above, and the scratch was allocated for the executor
  void write_sinks(const ExecutorRef& executor) {
    for_each_task(executor, query_heads(), [&](Index h, Index worker) {
      T total = 0;
      for (Index s = 0; s < sequences().count(); ++s) {
        const Sequence sequence = sequences()[s];
        T sums[kSinkSums] = {};
        add_to_sink(sequence, h, {0, sequence.queries}, sums, worker);
        total += std::accumulate(sums, sums + kSinkSums, T{0});
      }
      grads_.sink[static_cast<std::size_t>(h)] = total;
    });
  }

  /// The factor that removes the exponent bias of the weights from the kernels' sums. Exact.
  T unlift() const {
    return call_.inputs().alibi_slopes.empty() ? T{1} : T{1} / static_cast<T>(1 << kAlibiLift);
  }

 private:
  /// How the scratch of one worker is divided, in elements.
  struct WorkerScratch {
    explicit WorkerScratch(const AttentionShape& shape) {
      const Index rows = key_block_rows(shape.keys);
      kernel = softmax_grad_scratch(rows, shape.width, shape.value_width);
      keys = rows * padded_size(shape.width);
      values = rows * padded_size(shape.value_width);
      queries = block_rows(shape.queries) * padded_size(shape.width);
      elements = (std::max)(kernel + 2 * keys + 2 * values + queries,
                            LseLowParts<T>::scratch_elements(shape));
      elements = padded_size(elements);
    }
    Index kernel, keys, values, queries;
    Index elements;
  };

  BlockStorage storage(Index worker) {
    return {most_runs_, blocks_.data<std::byte>() + worker * BlockStorage::bytes(most_runs_)};
  }

  /// Some rows as the kernels read them: copied to `packed` if they are far apart.
  static Matrix<const T> near_rows(const Matrix<const T>& m, const KeyBlock& rows, Index width,
                                   T* packed) {
    if (are_near(m, rows.step, width)) {
      return {m.data + rows.first * m.row, rows.step * m.row, 1};
    }
    SoftmaxGradKernels<T>{}.packed_rows({m, rows.first, rows.step, rows.count, width, packed});
    return {packed, padded_size(width), 1};
  }

  const SoftmaxCall<T>& call_;
  const HeadPlans& plans_;
  View<const T> out_;
  SoftmaxSaved<T> saved_;
  View<const T> d_out_;
  View<const T> d_lse_;
  SoftmaxGrads<T> grads_;
  LseLowParts<T> lse_low_;
  WorkerScratch slot_;
  Index most_runs_;
  Workspace scratch_;  // [workers]
  Workspace blocks_;   // [workers] BlockStorage
};

FOVEA_NAMESPACE_END
