// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of the far field: the division of work among threads, and the order of sums,
/// so that the bits do not depend on threads.
#pragma once

#include <optional>
#include <vector>

#include "fovea/attention/call/head_matrix.hpp"
#include "fovea/attention/linear/causal_gradients.hpp"
#include "fovea/attention/linear/segment_sums.hpp"

FOVEA_NAMESPACE_BEGIN

/// One backward pass of a far field's terms. d_out is multiplied by the far field's `weights`.
/// Causal sums: CausalGradients. Non-causal sums: totals, segments of rows, totals of these,
/// segments of tokens. Delta rule: a task is a key head with its query heads.
/// \tparam Field a LinearTerms of T
template <class T, class Field>
class LinearBackward {
 public:
  /// \param weights the weights of the far field; they must outlive this object
  /// \param accumulate whether to add to the gradients of q, k and v, instead of overwriting them
  LinearBackward(const LinearFamilyInputs<T>& inputs, const Field& far_field,
                 const FarWeights<T>& weights, const View<const T>& d_out,
                 const LinearFamilyGrads<T>& grads, bool accumulate)
      : call_(inputs, far_field, weights, d_out, grads), accumulate_(accumulate) {}
  LinearBackward(const LinearBackward&) = delete;
  LinearBackward& operator=(const LinearBackward&) = delete;

  /// Allocates all memory for `compute` with the same executor.
  /// \param wants_products whether `products` will be passed to `compute`
  /// \throws std::bad_alloc
  void reserve(bool wants_products, const ExecutorRef& executor) {
    auto&& memory = memory_of(executor);
    Index tasks = 0;
    if (Field::kHasSums && call_.far_field.causal)
      tasks = causal_.reserve(wants_products, executor);
    if (Field::kHasSums && !call_.far_field.causal)
      tasks = reserve_not_causal(wants_products, memory);
    if (Field::kHasDelta) tasks = (std::max)(tasks, reserve_delta(wants_products));
    slot_ = padded_row<T>(slot_elements(call_.shape, call_.far_field));
    scratch_ = memory.take(worker_count(executor, tasks), slot_ * Index{sizeof(T)});
  }

  /// Writes the gradients.
  /// \throws as require() of the executor's memory, before anything is written
  /// \param products [Hq], or null: the sums over batch and rows of <weight d_out_i, far_i> are
  /// added to it
  /// \pre reserve was called, once
  void compute(double* products, const ExecutorRef& executor) {
    memory_of(executor).require();
    bool add = accumulate_;
    if constexpr (Field::kHasSums) {
      if (call_.far_field.causal) {
        causal_.run(
            products, add, [&](Index worker) { return scratch(worker); }, executor);
      } else {
        run_not_causal(products, add, executor);
      }
      add = true;
    }
    if constexpr (Field::kHasDelta) run_delta(products, add, executor);
  }

 private:
  static Index slot_elements(const AttentionShape& shape, const Field& far_field) {
    Index elements = 0;
    if (Field::kHasSums) {
      elements =
          (std::max)(linear_grad_scratch<T>(far_field.features(shape.width), shape.value_width),
                     linear_sum_scratch<T>(far_field.linear_shape(shape)));
    }
    if (Field::kHasDelta) {
      const Index group = detail::group_size(shape.query_heads, shape.key_heads);
      elements = (std::max)(
          elements, delta_grad_scratch<T>(shape.keys, group, shape.width, shape.value_width));
    }
    return elements;
  }

  T* scratch(Index worker) { return scratch_.template data<T>() + worker * slot_; }

  /// Data of non-causal sums: the segments of rows and of tokens, and their totals.
  struct NotCausal {
    SegmentSums<T> of_keys;
    SegmentSums<T> of_rows;
    SequenceTasks rows;
    SequenceTasks tokens;
    PartialProducts<T> found;
  };

  template <class Memory>
  Index reserve_not_causal(bool wants_products, Memory&& memory) {
    const LinearShape linear = call_.far_field.linear_shape(call_.shape);
    const auto keys = [&](Index s) { return call_.sequences[s].keys; };
    const auto queries = [&](Index s) { return call_.sequences[s].queries; };
    const NotCausal& made = not_causal_.emplace(NotCausal{
        SegmentSums<T>(call_.sequences, call_.shape.key_heads, 1, linear, keys),
        SegmentSums<T>(call_.sequences, call_.shape.query_heads, call_.group(), linear, queries),
        segment_tasks(call_.shape.query_heads, queries),
        segment_tasks(call_.shape.key_heads, keys),
        {}});
    not_causal_->found = PartialProducts<T>(wants_products, made.rows.count());
    not_causal_->of_keys.reserve(memory);
    not_causal_->of_rows.reserve(memory);
    return (std::max)({made.of_keys.most_tasks(), made.of_rows.most_tasks(), made.tokens.count()});
  }

  void run_not_causal(double* products, bool add, const ExecutorRef& executor) {
    NotCausal& all = *not_causal_;
    call_.clear_unseen(add);
    all.of_keys.compute(
        executor, [&](Index s) { return call_.seen(call_.sequences[s]); },
        [&](const SequenceTask& segment, T* sums, Index worker) {
          LinearKernels<T>{}.sum(segment_sum_args(call_.inputs, call_.far_field,
                                                  call_.sequences[segment.sequence], segment, sums,
                                                  scratch(worker)));
        });
    all.of_rows.compute(
        executor,
        [&](Index s) {
          return call_.seen(call_.sequences[s]) == 0 ? 0 : call_.sequences[s].queries;
        },
        [&](const SequenceTask& segment, T* sums, Index worker) {
          LinearGradRowsArgs<T> args = call_.row_args(segment, add);
          args.sums = sums;
          args.scratch = scratch(worker);
          args.total = all.of_keys.total(segment.sequence, segment.head / call_.group());
          args.rows.d_out_times_out =
              all.found.at(all.rows.number(segment.sequence, segment.head, segment.part));
          LinearGradKernels<T>{}.rows(args);
        });
    all.found.add_up(products, [&](Index task) { return all.rows[task].head; });
    if (!call_.wants_keys()) return;
    for_each_task(executor, all.tokens.count(), [&](Index task, Index worker) {
      const SequenceTask segment = all.tokens[task];
      if (segment.part * kLinearSegment >= call_.seen(call_.sequences[segment.sequence])) return;
      LinearGradKeysArgs<T> args = call_.key_args(segment, add);
      args.scratch = scratch(worker);
      args.total = all.of_rows.total(segment.sequence, segment.head * call_.group());
      LinearGradKernels<T>{}.keys(args);
    });
  }

  template <class Rows>
  SequenceTasks segment_tasks(Index heads, const Rows& rows) const {
    return {call_.sequences, heads,
            [&](Index s, Index) { return SegmentSums<T>::segments(rows(s)); }};
  }

  /// The term of the delta rule.
  struct Delta {
    std::vector<LinearGradRows<T>> rows;  // [sequences, Hq]
    PartialProducts<T> found;
  };

  Index reserve_delta(bool wants_products) {
    delta_.rows.resize(static_cast<std::size_t>(call_.row_heads()));
    delta_.found = PartialProducts<T>(wants_products, call_.row_heads());
    return call_.key_heads();
  }

  void run_delta(double* products, bool add, const ExecutorRef& executor) {
    call_.clear_unseen(add);
    for (Index n = 0; n < call_.sequences.count(); ++n) {
      const Sequence s = call_.sequences[n];
      detail::fill_rows(call_.grads.beta, s.batch, s.first_key + call_.seen(s),
                        s.first_key + s.keys, T{0});
    }
    for_each_task(executor, call_.key_heads(), [&](Index task, Index worker) {
      const Sequence s = call_.sequences[task / call_.shape.key_heads];
      const Index key_head = task % call_.shape.key_heads;
      if (call_.seen(s) == 0) return;
      LinearGradRows<T>* const own = delta_.rows.data() + task * call_.group();
      DeltaGradArgs<T> args = call_.delta_args(s, key_head, {0, s.queries}, {0, s.key_end}, own);
      for (Index g = 0; g < call_.group(); ++g) {
        own[g].d_out_times_out = delta_.found.at(task * call_.group() + g);
      }
      args.first_position = s.first_position;
      args.accumulate = add;
      args.scratch = scratch(worker);
      LinearGradKernels<T>{}.delta(args);
    });
    delta_.found.add_up(products, [&](Index task) { return task % call_.shape.query_heads; });
  }

  LinearBackwardCall<T, Field> call_;
  bool accumulate_;
  CausalGradients<T, Field> causal_{call_};
  std::optional<NotCausal> not_causal_;
  Delta delta_;
  Workspace scratch_;
  Index slot_ = 0;
};

FOVEA_NAMESPACE_END
