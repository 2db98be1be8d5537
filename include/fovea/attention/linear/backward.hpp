// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of the far field: which thread computes what, and in which order sums are
/// taken, so that the bits do not depend on threads.
#pragma once

#include <optional>
#include <vector>

#include "fovea/attention/call/head_matrix.hpp"
#include "fovea/attention/linear/segment_sums.hpp"
#include "fovea/kernels/linear/grad.hpp"

FOVEA_NAMESPACE_BEGIN

/// One backward pass of the terms of a far field. d_out is multiplied by the far field's `weights`.
/// Sums that are causal: first the rows of each query head, then the tokens of each key head
/// backwards. Sums that are not causal: totals, segments of rows, totals of these, segments of
/// tokens. Terms of the delta rule: a task is a key head with its query heads.
/// \tparam Field a LinearTerms of T
template <class T, class Field>
class LinearBackward {
 public:
  /// \param weights the weights of the far field; they must outlive this object
  /// \param accumulate whether to add to the gradients of q, k and v, instead of overwriting them
  LinearBackward(const LinearFamilyInputs<T>& inputs, const Field& far,
                 const FarWeights<T>& weights, const View<const T>& d_out,
                 const LinearFamilyGrads<T>& grads, bool accumulate)
      : inputs_(inputs),
        shape_(shape_of(inputs)),
        far_(far),
        weights_(weights),
        sequences_(inputs),
        d_out_(d_out),
        grads_(grads),
        accumulate_(accumulate) {}

  /// Bytes of scratch memory with that many workers.
  static Index workspace_bytes(const AttentionShape& shape, const Field& far, Index workers) {
    Index elements = workers * padded_row<T>(slot_elements(shape, far));
    Index sums = 0;
    if (Field::kHasSums && far.causal) {
      elements += shape.batch * shape.query_heads *
                  linear_grad_saved<T>(shape.queries, shape.width, far.linear_maps());
    } else if (Field::kHasSums) {
      const LinearShape linear = far.linear_shape(shape);
      sums = SegmentSums<T>::bytes(shape.batch * shape.key_heads, shape.keys, linear) +
             SegmentSums<T>::bytes(shape.batch * shape.query_heads, shape.queries, linear);
    }
    return elements * Index{sizeof(T)} + sums;
  }

  /// Takes all the memory that `compute` needs with the same executor.
  /// \param wants_products whether `compute` will be given `products`
  /// \throws std::bad_alloc
  template <class E>
  void reserve(bool wants_products, E&& executor) {
    auto&& memory = memory_of(executor);
    Index tasks = 0;
    if (Field::kHasSums && far_.causal) tasks = reserve_causal(wants_products, memory);
    if (Field::kHasSums && !far_.causal) tasks = reserve_not_causal(wants_products, memory);
    if (Field::kHasDelta) tasks = (std::max)(tasks, reserve_delta(wants_products));
    slot_ = padded_row<T>(slot_elements(shape_, far_));
    scratch_ = memory.take(worker_count(executor, tasks), slot_ * Index{sizeof(T)});
  }

  /// Writes the gradients.
  /// \throws what require() of the executor's memory does, before anything is written
  /// \param products [Hq], or null: the sums over batch and rows of <weight d_out_i, far_i> are
  /// added to it
  /// \pre reserve was called, once
  template <class E>
  void compute(double* products, E&& executor) {
    memory_of(executor).require();
    bool add = accumulate_;
    if constexpr (Field::kHasSums) {
      if (far_.causal) {
        run_causal(products, add, executor);
      } else {
        run_not_causal(products, add, executor);
      }
      add = true;
    }
    if constexpr (Field::kHasDelta) run_delta(products, add, executor);
  }

 private:
  static Index slot_elements(const AttentionShape& shape, const Field& far) {
    Index elements = 0;
    if (Field::kHasSums) {
      elements = (std::max)(linear_grad_scratch<T>(shape.width, shape.value_width),
                            linear_sum_scratch<T>(far.linear_shape(shape)));
    }
    if (Field::kHasDelta) {
      const Index group = detail::group_size(shape.query_heads, shape.key_heads);
      elements = (std::max)(
          elements, delta_grad_scratch<T>(shape.keys, group, shape.width, shape.value_width));
    }
    return elements;
  }

  Index group() const { return detail::group_size(shape_.query_heads, shape_.key_heads); }
  bool wants_keys() const { return !grads_.k.is_none() || !grads_.v.is_none(); }

  T* scratch(Index worker) { return scratch_.template data<T>() + worker * slot_; }

  /// The matrix of a head from a row on; no matrix if the tensor is none.
  template <class U>
  static Matrix<U> matrix(const View<U>& x, Index b, Index h, Index row) {
    return x.is_none() ? Matrix<U>{} : detail::head_matrix(x, b, h, row);
  }

  /// Rows of one query head, from row `first` of its sequence on.
  LinearGradRows<T> rows_of(const Sequence& s, Index head, Index first) const {
    LinearGradRows<T> rows;
    rows.q = matrix(inputs_.q, s.batch, head, s.first_query + first);
    rows.d_out = matrix(d_out_, s.batch, head, s.first_query + first);
    rows.far_weight = weights_.far(head);
    rows.d_q = matrix(grads_.q, s.batch, head, s.first_query + first);
    return rows;
  }

  /// Tokens of one key head, from token `first` of its sequence on.
  LinearGradTokens<T> tokens_of(const Sequence& s, Index key_head, Index first, Index count) const {
    const Index row = s.first_key + first;
    return {matrix(inputs_.k, s.batch, key_head, row), matrix(inputs_.v, s.batch, key_head, row),
            matrix(grads_.k, s.batch, key_head, row), matrix(grads_.v, s.batch, key_head, row),
            count};
  }

  /// The number of tokens of a sequence that a row can see.
  Index seen(const Sequence& s) const {
    const bool has_rows = s.queries > 0 && shape_.query_heads > 0;
    return has_rows ? s.key_end : 0;
  }

  /// Writes zeros where no kernel does: to tokens that no row can see, and to rows that can see
  /// none.
  void clear_unseen(bool add) const {
    if (add) return;
    for (Index n = 0; n < sequences_.count(); ++n) {
      const Sequence s = sequences_[n];
      for (const View<T>& x : {grads_.k, grads_.v}) {
        clear(x, s.batch, s.first_key + seen(s), s.keys - seen(s));
      }
      if (s.key_end == 0) clear(grads_.q, s.batch, s.first_query, s.queries);
    }
  }
  static void clear(const View<T>& x, Index b, Index first, Index count) {
    if (x.is_none()) return;
    for (Index h = 0; h < x.heads(); ++h) {
      for (Index n = first; n < first + count; ++n) {
        for (Index c = 0; c < x.width(); ++c) x(b, h, n, c) = T(0);
      }
    }
  }

  /// What each task has found of a product. It is added up in the order of the tasks.
  class Found {
   public:
    Found() = default;
    Found(bool wanted, Index tasks) : found_(static_cast<std::size_t>(wanted ? tasks : 0)) {}

    T* at(Index task) { return found_.empty() ? nullptr : &found_[static_cast<std::size_t>(task)]; }

    /// \param products [Hq]
    /// \param head_of called as head_of(task), gives the query head of a task
    template <class HeadOf>
    void add_up(double* products, const HeadOf& head_of) const {
      for (std::size_t n = 0; n < found_.size(); ++n) {
        products[head_of(static_cast<Index>(n))] += static_cast<double>(found_[n]);
      }
    }

   private:
    std::vector<T> found_;
  };

  /// What all tasks of causal sums share.
  struct Causal {
    Workspace saved;  // rows [B, Hq, Nq] of saved_row elements
    Index saved_row = 0;
    std::vector<LinearGradRows<T>> rows;  // [sequences, Hq]
    Found found;
  };

  LinearGradCausalArgs<T> causal_args(const Sequence& s, Index head, Index heads, bool add,
                                      Index worker) {
    LinearGradCausalArgs<T> args;
    args.tokens = tokens_of(s, head / group(), 0, s.key_end);
    args.width = shape_.width;
    args.value_width = shape_.value_width;
    args.maps = far_.linear_maps();
    args.rows = causal_.rows.data() + s.index * shape_.query_heads + head;
    args.heads = heads;
    args.row_count = s.queries;
    args.first_position = far_.first_position(s.queries, s.keys);
    args.accumulate = add;
    const Index before = shape_.query_heads * (s.batch * shape_.queries + s.first_query);
    args.saved = causal_.saved.template data<T>() + (before + head * s.queries) * causal_.saved_row;
    args.scratch = scratch(worker);
    return args;
  }

  Index row_heads() const { return sequences_.count() * shape_.query_heads; }
  Index key_heads() const { return sequences_.count() * shape_.key_heads; }

  /// Takes the memory for causal sums, and returns the largest number of tasks of a step; the other
  /// functions of this kind do the same.
  template <class Memory>
  Index reserve_causal(bool wants_products, Memory&& memory) {
    causal_.saved_row = linear_grad_saved<T>(1, shape_.width, far_.linear_maps());
    causal_.saved = memory.take(shape_.batch * shape_.query_heads * shape_.queries,
                                causal_.saved_row * Index{sizeof(T)});
    causal_.rows.resize(static_cast<std::size_t>(row_heads()));
    causal_.found = Found(wants_products, row_heads());
    return (std::max)(row_heads(), key_heads());
  }

  template <class E>
  void run_causal(double* products, bool add, E&& executor) {
    clear_unseen(add);
    for_each_task(executor, row_heads(), [&](Index task, Index worker) {
      const Sequence s = sequences_[task / shape_.query_heads];
      const Index head = task % shape_.query_heads;
      LinearGradRows<T>& rows = causal_.rows[static_cast<std::size_t>(task)];
      rows = rows_of(s, head, 0);
      rows.d_out_times_out = causal_.found.at(task);
      if (seen(s) == 0) return;
      LinearGradKernels<T>{}.causal_rows(causal_args(s, head, 1, add, worker));
    });
    causal_.found.add_up(products, [&](Index task) { return task % shape_.query_heads; });
    if (!wants_keys()) return;
    for_each_task(executor, key_heads(), [&](Index task, Index worker) {
      const Sequence s = sequences_[task / shape_.key_heads];
      const Index head = task % shape_.key_heads * group();
      if (seen(s) == 0) return;
      LinearGradKernels<T>{}.causal_keys(causal_args(s, head, group(), add, worker));
    });
  }

  /// What sums that are not causal need: the segments of rows and of tokens, and their totals.
  struct NotCausal {
    SegmentSums<T> of_keys;
    SegmentSums<T> of_rows;
    SequenceTasks rows;
    SequenceTasks tokens;
    Found found;
  };

  template <class Memory>
  Index reserve_not_causal(bool wants_products, Memory&& memory) {
    const LinearShape linear = far_.linear_shape(shape_);
    const auto keys = [&](Index s) { return sequences_[s].keys; };
    const auto queries = [&](Index s) { return sequences_[s].queries; };
    const NotCausal& made = not_causal_.emplace(
        NotCausal{SegmentSums<T>(sequences_, shape_.key_heads, 1, linear, keys),
                  SegmentSums<T>(sequences_, shape_.query_heads, group(), linear, queries),
                  segment_tasks(shape_.query_heads, queries),
                  segment_tasks(shape_.key_heads, keys),
                  {}});
    not_causal_->found = Found(wants_products, made.rows.count());
    not_causal_->of_keys.reserve(memory);
    not_causal_->of_rows.reserve(memory);
    return (std::max)({made.of_keys.most_tasks(), made.of_rows.most_tasks(), made.tokens.count()});
  }

  template <class E>
  void run_not_causal(double* products, bool add, E&& executor) {
    NotCausal& all = *not_causal_;
    clear_unseen(add);
    all.of_keys.compute(
        executor, [&](Index s) { return seen(sequences_[s]); },
        [&](const SequenceTask& segment, T* sums, Index worker) {
          LinearKernels<T>{}.sum(segment_sum_args(inputs_, far_, sequences_[segment.sequence],
                                                  segment, sums, scratch(worker)));
        });
    all.of_rows.compute(
        executor, [&](Index s) { return seen(sequences_[s]) == 0 ? 0 : sequences_[s].queries; },
        [&](const SequenceTask& segment, T* sums, Index worker) {
          LinearGradRowsArgs<T> args = row_args(segment, add, sums, worker);
          args.total = all.of_keys.total(segment.sequence, segment.head / group());
          args.rows.d_out_times_out =
              all.found.at(all.rows.number(segment.sequence, segment.head, segment.part));
          LinearGradKernels<T>{}.rows(args);
        });
    all.found.add_up(products, [&](Index task) { return all.rows[task].head; });
    if (!wants_keys()) return;
    for_each_task(executor, all.tokens.count(), [&](Index task, Index worker) {
      const SequenceTask segment = all.tokens[task];
      if (segment.part * kLinearSegment >= seen(sequences_[segment.sequence])) return;
      LinearGradKeysArgs<T> args = key_args(segment, add, worker);
      args.total = all.of_rows.total(segment.sequence, segment.head * group());
      LinearGradKernels<T>{}.keys(args);
    });
  }

  template <class Rows>
  SequenceTasks segment_tasks(Index heads, const Rows& rows) const {
    return {sequences_, heads, [&](Index s, Index) { return SegmentSums<T>::segments(rows(s)); }};
  }

  LinearGradRowsArgs<T> row_args(const SequenceTask& segment, bool add, T* sums, Index worker) {
    const Sequence s = sequences_[segment.sequence];
    const Index first = segment.part * kLinearSegment;
    LinearGradRowsArgs<T> args;
    args.rows = rows_of(s, segment.head, first);
    args.row_count = (std::min)(kLinearSegment, s.queries - first);
    args.width = shape_.width;
    args.value_width = shape_.value_width;
    args.maps = far_.linear_maps();
    args.accumulate = add;
    args.sums = sums;
    args.scratch = scratch(worker);
    return args;
  }

  LinearGradKeysArgs<T> key_args(const SequenceTask& segment, bool add, Index worker) {
    const Sequence s = sequences_[segment.sequence];
    const Index first = segment.part * kLinearSegment;
    LinearGradKeysArgs<T> args;
    args.tokens = tokens_of(s, segment.head, first, (std::min)(kLinearSegment, s.key_end - first));
    args.width = shape_.width;
    args.value_width = shape_.value_width;
    args.maps = far_.linear_maps();
    args.accumulate = add;
    args.scratch = scratch(worker);
    return args;
  }

  /// The term of the delta rule.
  struct Delta {
    std::vector<LinearGradRows<T>> rows;  // [sequences, Hq]
    Found found;
  };

  Index reserve_delta(bool wants_products) {
    delta_.rows.resize(static_cast<std::size_t>(row_heads()));
    delta_.found = Found(wants_products, row_heads());
    return key_heads();
  }

  template <class E>
  void run_delta(double* products, bool add, E&& executor) {
    clear_unseen(add);
    for (Index n = 0; n < sequences_.count(); ++n) {
      const Sequence s = sequences_[n];
      clear(grads_.beta, s.batch, s.first_key + seen(s), s.keys - seen(s));
    }
    for_each_task(executor, key_heads(), [&](Index task, Index worker) {
      const Sequence s = sequences_[task / shape_.key_heads];
      const Index key_head = task % shape_.key_heads;
      if (seen(s) == 0) return;
      LinearGradRows<T>* const own = delta_.rows.data() + task * group();
      for (Index g = 0; g < group(); ++g) {
        own[g] = rows_of(s, key_head * group() + g, 0);
        own[g].d_out_times_out = delta_.found.at(task * group() + g);
      }
      LinearGradKernels<T>{}.delta(delta_args(s, key_head, own, add, worker));
    });
    delta_.found.add_up(products, [&](Index task) { return task % shape_.query_heads; });
  }

  DeltaGradArgs<T> delta_args(const Sequence& s, Index key_head, const LinearGradRows<T>* rows,
                              bool add, Index worker) {
    DeltaGradArgs<T> args;
    args.tokens = tokens_of(s, key_head, 0, s.key_end);
    args.beta = matrix(inputs_.beta, s.batch, key_head, s.first_key);
    args.d_beta = matrix(grads_.beta, s.batch, key_head, s.first_key);
    args.width = shape_.width;
    args.value_width = shape_.value_width;
    args.map = far_.deltas[0];
    args.rows = rows;
    args.heads = group();
    args.row_count = s.queries;
    args.first_position = far_.first_position(s.queries, s.keys);
    args.accumulate = add;
    args.scratch = scratch(worker);
    return args;
  }

  LinearFamilyInputs<T> inputs_;
  AttentionShape shape_;
  Field far_;
  const FarWeights<T>& weights_;
  Sequences<T> sequences_;
  View<const T> d_out_;
  LinearFamilyGrads<T> grads_;
  bool accumulate_;
  Causal causal_;
  std::optional<NotCausal> not_causal_;
  Delta delta_;
  Workspace scratch_;
  Index slot_ = 0;
};

FOVEA_NAMESPACE_END
