// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of causal sums: the division of work among threads.
#pragma once

#include <algorithm>
#include <vector>

#include "fovea/attention/linear/backward_call.hpp"
#include "fovea/core/executor_ref.hpp"
#include "fovea/core/workspace.hpp"

FOVEA_NAMESPACE_BEGIN

/// The gradients of causal sums: first the rows, with the tokens' state, then the tokens backwards,
/// with the rows' state. A task is first a query head of a sequence, then a key head. If there are
/// fewer key heads than threads and sequences are long, threads share each head's chunks, some at a
/// time (GradStates): parts of them are summed, then the states before them are computed, and then
/// parts of them read these. The bits are the same.
/// Cost if threads share: the features of each row and token are recomputed, and the chunks'
/// products are written and read twice. Memory: GradStates for each key head, independent of the
/// number of tokens and maps.
/// \tparam Field a LinearTerms of T
template <class T, class Field>
class CausalGradients {
 public:
  /// The common part of the pass.
  using Call = LinearBackwardCall<T, Field>;

  /// \param call must outlive this object
  explicit CausalGradients(const Call& call) : call_(call) {}
  CausalGradients(const CausalGradients&) = delete;
  CausalGradients& operator=(const CausalGradients&) = delete;

  /// Allocates the memory.
  /// \param wants_products whether `products` will be passed to `run`
  /// \return the largest number of tasks of a step
  /// \throws std::bad_alloc
  Index reserve(bool wants_products, const ExecutorRef& executor) {
    auto&& memory = memory_of(executor);
    const AttentionShape& shape = call_.shape;
    saved_row_ = linear_grad_saved<T>(1, call_.far_field.features(shape.width),
                                      call_.far_field.linear_maps(shape.width));
    saved_ =
        memory.take(shape.batch * shape.query_heads * shape.queries, saved_row_ * Index{sizeof(T)});
    rows_.resize(static_cast<std::size_t>(call_.row_heads()));
    found_ = PartialProducts<T>(wants_products, call_.row_heads());
    shared_ = call_.sequences.are_alike() && is_shared(shape, worker_count(executor, kFarPosition));
    if (!shared_) return (std::max)(call_.row_heads(), call_.key_heads());
    states_ =
        memory.take(call_.key_heads(), state_elements(shape, call_.far_field) * Index{sizeof(T)});
    const Index ranges = (std::max)(chain_ranges(false), chain_ranges(true));
    return (std::max)(call_.row_heads(), call_.key_heads() * (std::max)(kGradParts, ranges));
  }

  /// Writes the gradients.
  /// \param products [Hq], to which the sums of products are added; or null
  /// \param add whether to add to the gradients
  /// \param scratch called as scratch(worker), returns linear_grad_scratch(...) elements
  template <class Scratch>
  void run(double* products, bool add, const Scratch& scratch, const ExecutorRef& executor) {
    call_.clear_unseen(add);
    for (Index n = 0; n < call_.row_heads(); ++n) {
      LinearGradRows<T>& rows = rows_[static_cast<std::size_t>(n)];
      const Index head = n % call_.shape.query_heads;
      rows = call_.rows_of(call_.sequences[n / call_.shape.query_heads], head, 0);
      rows.d_out_times_out = found_.at(n);
    }
    if (shared_) {
      share(false, add, scratch, executor);
    } else {
      for_each_head(1, executor, [&](const Sequence& s, Index head, Index worker) {
        LinearGradKernels<T>{}.causal_rows(args_of(s, head, 1, add, scratch(worker)));
      });
    }
    found_.add_up(products, [&](Index task) { return task % call_.shape.query_heads; });
    if (!call_.wants_keys()) return;
    if (shared_) return share(true, add, scratch, executor);
    for_each_head(call_.group(), executor, [&](const Sequence& s, Index head, Index worker) {
      LinearGradKernels<T>{}.causal_keys(args_of(s, head, call_.group(), add, scratch(worker)));
    });
  }

 private:
  /// Matrix elements per task of a scan over chunks.
  static constexpr Index kReductionBlockElements = 1024;

  static bool is_shared(const AttentionShape& shape, Index workers) {
    return shape.batch * shape.key_heads < workers && shape.keys >= 2 * kStateSegment;
  }
  static Index state_elements(const AttentionShape& shape, const Field& far_field) {
    const Index group = detail::group_size(shape.query_heads, shape.key_heads);
    return linear_grad_shared_elements<T>(far_field.features(shape.width), shape.value_width,
                                          group);
  }

  LinearGradCausalArgs<T> args_of(const Sequence& s, Index head, Index heads, bool add,
                                  T* scratch) {
    const AttentionShape& shape = call_.shape;
    LinearGradCausalArgs<T> args;
    args.tokens = call_.tokens_of(s, head / call_.group(), 0, s.key_end);
    args.width = call_.far_field.features(shape.width);
    args.value_width = shape.value_width;
    args.maps = call_.far_field.linear_maps(shape.width);
    args.rows = rows_.data() + s.index * shape.query_heads + head;
    args.heads = heads;
    args.row_count = s.queries;
    args.first_position = s.first_position;
    args.accumulate = add;
    const Index before = shape.query_heads * (s.batch * shape.queries + s.first_query);
    args.saved = saved_.template data<T>() + (before + head * s.queries) * saved_row_;
    args.scratch = scratch;
    return args;
  }

  /// Calls f(s, head, worker) for every `group`th query head of all sequences whose rows see
  /// tokens.
  template <class F>
  void for_each_head(Index group, const ExecutorRef& executor, const F& f) {
    const Index heads = call_.shape.query_heads / (std::max)(Index{1}, group);
    for_each_task(executor, call_.sequences.count() * heads, [&](Index task, Index worker) {
      const Sequence s = call_.sequences[task / heads];
      if (call_.seen(s) > 0) f(s, task % heads * group, worker);
    });
  }

  /// The states of a key head.
  GradStates<T> states(Index key_head, bool is_down, Index first) {
    const AttentionShape& shape = call_.shape;
    T* const data = states_.template data<T>() + key_head * state_elements(shape, call_.far_field);
    const Index width = call_.far_field.features(shape.width);
    GradStates<T> states = is_down
                               ? grad_row_states<T>(data, width, shape.value_width, call_.group())
                               : grad_token_states<T>(data, width, shape.value_width);
    states.first = first;
    return states;
  }
  Index chain_ranges(bool is_down) {
    return (states(0, is_down, 0).matrix + kReductionBlockElements - 1) / kReductionBlockElements;
  }

  /// One step of the pass, shared by threads: upwards with the tokens' state, or downwards with the
  /// rows' state.
  template <class Scratch>
  void share(bool is_down, bool add, const Scratch& scratch, const ExecutorRef& executor) {
    const AttentionShape& shape = call_.shape;
    // All sequences have the same rows at the same positions, but not the same number of tokens.
    const Index end = call_.sequences[0].first_position + shape.queries;
    const Index chunks = (std::max)(Index{1}, (end + kLinearChunk - 1) / kLinearChunk);
    const Index at_hand = GradStates<T>::chunks(is_down ? call_.group() : 1);
    for (Index map = 0; map < call_.far_field.map_count(); ++map) {
      for (Index n = 0; n < chunks; n += at_hand) {
        if (!is_down && n > 0 && n * kLinearChunk >= shape.keys) break;
        share_chunks(map, is_down, n, is_down ? chunks - 1 - n : n, add, scratch, executor);
      }
    }
    if (is_down) return;
    for_each_head(1, executor, [&](const Sequence& s, Index head, Index) {
      LinearGradKernels<T>{}.causal_products(args_of(s, head, 1, add, nullptr));
    });
  }

  /// \param n number of the scan's chunks before these
  /// \param first the first chunk of these
  template <class Scratch>
  void share_chunks(Index map, bool is_down, Index n, Index first, bool add, const Scratch& scratch,
                    const ExecutorRef& executor) {
    const auto part_of = [&](const Sequence& s, Index key_head, Index part, Index worker) {
      LinearGradPartArgs<T> args;
      args.of = args_of(s, key_head * call_.group(), call_.group(), add, scratch(worker));
      args.states = states(s.index * call_.shape.key_heads + key_head, is_down, first);
      args.map = map;
      args.part = part;
      args.clears = map == 0 && n == 0 && part == 0;
      return args;
    };
    for_each_part(kGradParts, executor,
                  [&](const Sequence& s, Index key_head, Index part, Index worker) {
                    LinearGradKernels<T>{}.part_sums(part_of(s, key_head, part, worker));
                  });
    const Index ranges = chain_ranges(is_down);
    for_each_part(ranges, executor, [&](const Sequence& s, Index key_head, Index part, Index) {
      LinearGradChainArgs<T> args;
      args.of = args_of(s, key_head * call_.group(), call_.group(), add, nullptr);
      args.states = states(s.index * call_.shape.key_heads + key_head, is_down, first);
      args.is_first = n == 0;
      args.begin = part * kReductionBlockElements;
      args.end = (std::min)(args.begin + kReductionBlockElements, args.states.matrix);
      args.with_vector = part == ranges - 1;
      LinearGradKernels<T>{}.chain(args);
    });
    for_each_part(kGradParts, executor,
                  [&](const Sequence& s, Index key_head, Index part, Index worker) {
                    LinearGradKernels<T>{}.part_reads(part_of(s, key_head, part, worker));
                  });
  }

  /// Calls f(s, key_head, part, worker) for all parts of the key heads of all sequences whose rows
  /// see tokens.
  template <class F>
  void for_each_part(Index parts, const ExecutorRef& executor, const F& f) {
    for_each_task(executor, call_.key_heads() * parts, [&](Index task, Index worker) {
      const Index head = task / parts;
      const Sequence s = call_.sequences[head / call_.shape.key_heads];
      if (call_.seen(s) > 0) f(s, head % call_.shape.key_heads, task % parts, worker);
    });
  }

  const Call& call_;
  Workspace saved_;  // rows [B, Hq, Nq] of saved_row_ elements
  Index saved_row_ = 0;
  std::vector<LinearGradRows<T>> rows_;  // [sequences, Hq]
  PartialProducts<T> found_;
  bool shared_ = false;
  Workspace states_;  // [key heads], if threads share these
};

FOVEA_NAMESPACE_END
