// SPDX-License-Identifier: MIT
/// \file
/// Included by fsat_forward.hpp, where it is documented.
#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fovea/attention/fsat.hpp"
#include "fovea/attention/indexed/backward.hpp"
#include "fovea/attention/indexed/forward.hpp"
#include "fovea/distributed/fsat/graph_part.hpp"
#include "fovea/distributed/fsat_forward.hpp"
#include "fovea/distributed/indexed/query_rows.hpp"
#include "fovea/distributed/messages/attention_calls.hpp"
#include "fovea/distributed/messages/exchange.hpp"
#include "fovea/distributed/messages/pass.hpp"
#include "fovea/distributed/messages/requests.hpp"
#include "fovea/distributed/rows/own_range.hpp"
#include "fovea/distributed/rows/row_tensors.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// One forward pass.
template <class T>
class FsatForwardPass final : public RankPass {
 public:
  /// The arithmetic type.
  using C = Compute<T>;

  /// Allocates the memory for tensors. Memory of messages, graph and scratch depends on the edges,
  /// and is allocated before `out` is written.
  /// \param call checked   \throws std::bad_alloc
  explicit FsatForwardPass(const ShardedForwardCall<FsatAttention, T>& call)
      : call_(call),
        inputs_(call.inputs),
        rows_(call.rows),
        keys_(inputs_.q.batch(), rows_.count(),
              {{inputs_.k.heads(), inputs_.k.width()}, {inputs_.v.heads(), inputs_.v.width()}},
              &rows_.kept_memory()),
        dominant_(inputs_.q.batch(), rows_.count(),
                  {{inputs_.dominant.heads(), inputs_.dominant.width()}}),
        all_(call.op.options, View<const C>(dominant_.tensor(0)), inputs_.key_lengths) {
    keys_.expect(rows_.own());
    keys_.put(0, inputs_.k, rows_.own());
    keys_.put(1, inputs_.v, rows_.own());
    dominant_.put(0, inputs_.dominant, rows_.own());
  }

  /// Sends keys to the queries that have edges to them, and attends; the graph is built while keys
  /// and values are sent.
  std::exception_ptr run(const ExecutorRef& executor) override {
    std::exception_ptr error;
    EdgeTargets found = leading_edges(all_, rows_, error);
    const ExchangePlan plan = announced(rows_.ranks(), std::move(found.keys_of_ranks));
    const std::vector<Range> there = plan.with_received(rows_.own(), rows_.count());
    const std::vector<Range> received = plan.with_received({}, rows_.count());
    keys_.forget_all_but(there);
    keys_.expect(received);
    dominant_.expect(received);
    Exchange keys(rows_.ranks(), keys_, {plan});
    Exchange dominant(rows_.ranks(), dominant_, {plan});
    keys.begin();
    dominant.run();
    std::optional<Part> part;
    if (!error) {
      error = fovea::detail::caught([&] {
        if (has_rows(inputs_.q)) part.emplace(*this, there, executor);
      });
    }
    keys.begin_stage(0);
    if (!error && part) error = fovea::detail::caught([&] { part->attention.compute(executor); });
    keys.end();
    return error;
  }

 private:
  /// The graph of this rank's queries, and the pass that attends along it.
  struct Part {
    Part(const FsatForwardPass& pass, const std::vector<Range>& keys, const ExecutorRef& executor)
        : graph(pass.all_, pass.rows_.own(), keys, false, false),
          lists(graph, pass.call_.op.options.scale),
          attention(pass.whole(), lists, pass.call_.out, pass.call_.saved) {
      const Index heads = pass.all_.heads();
      graph.take_memory(heads, heads, worker_count(executor, heads), memory_of(executor));
      attention.take_scratch(executor);
      for_each_task(executor, heads,
                    [&](Index head, Index worker) { graph.build(head, head, worker); });
    }

    FsatGraphPart<C> graph;
    FsatLists<FsatGraphPart<C>> lists;
    IndexedForward<T, FsatLists<FsatGraphPart<C>>> attention;
  };

  /// The inputs of this rank's queries, for all keys.
  IndexedInputs<T> whole() const {
    auto made = fovea::detail::inputs_as<IndexedInputs<T>>(inputs_);
    made.k = keys_.tensor(0);
    made.v = keys_.tensor(1);
    return made;
  }

  const ShardedForwardCall<FsatAttention, T>& call_;
  const FsatInputs<T>& inputs_;
  const Sharding& rows_;
  RowTensors<T> keys_;      // k and v
  RowTensors<C> dominant_;  // dominant indices
  FsatKeys<C> all_;
};

/// One backward pass. Every rank takes the same steps, whichever gradients it requests.
template <class T>
class FsatBackwardPass final : public RankPass {
 public:
  /// Allocates the memory for tensors. Memory of messages and received rows depends on the edges,
  /// and is allocated before gradients are written.
  /// \param call checked   \throws std::bad_alloc
  explicit FsatBackwardPass(const ShardedBackwardCall<FsatAttention, T>& call)
      : call_(call),
        inputs_(call.inputs),
        rows_(call.rows),
        keys_(inputs_.q.batch(), rows_.count(),
              {{inputs_.k.heads(), inputs_.k.width()},
               {inputs_.v.heads(), inputs_.v.width()},
               {inputs_.dominant.heads(), inputs_.dominant.width()}}),
        queries_(inputs_.q, call.out, call.d_out, View<const T>(call.saved.lse), rows_),
        all_(call.op.options, View<const T>(keys_.tensor(2)), inputs_.key_lengths) {
    keys_.expect(rows_.own());
    keys_.put(0, inputs_.k, rows_.own());
    keys_.put(1, inputs_.v, rows_.own());
    keys_.put(2, inputs_.dominant, rows_.own());
  }

  std::exception_ptr run(const ExecutorRef& executor) override {
    std::exception_ptr error;
    EdgeTargets found = leading_edges(all_, rows_, error);
    const ExchangePlan of_keys = announced(rows_.ranks(), std::move(found.keys_of_ranks));
    exchange_rows(rows_.ranks(), keys_, of_keys);
    if (!error) {
      error = fovea::detail::caught(
          [&] { prepare_rows(of_keys.with_received(rows_.own(), rows_.count()), executor); });
    }
    exchange_rows(rows_.ranks(), queries_.tensors(),
                  requested(rows_.ranks(), rows_.layout(), found.queries));
    if (!error) error = fovea::detail::caught([&] { compute(found.queries, executor); });
    return error;
  }

 private:
  using Lists = FsatLists<FsatGraphPart<T>>;
  using Backward = IndexedBackward<T, Lists>;

  /// Prepares the gradients of this rank's queries, with all their keys.
  /// \param keys all that have an edge from a query of this rank
  void prepare_rows(const std::vector<Range>& keys, const ExecutorRef& executor) {
    row_graph_.emplace(all_, rows_.own(), keys, false, false);
    auto of_rows = fovea::detail::inputs_as<IndexedInputs<T>>(inputs_);
    of_rows.k = keys_.tensor(0);
    of_rows.v = keys_.tensor(1);
    row_pass_.emplace(of_rows, Lists(*row_graph_, call_.op.options.scale), call_.out, call_.saved,
                      call_.d_out, IndexedGrads<T>{call_.grads.q, {}, {}});
    row_pass_->reserve(executor);
    queries_.put_lse_low([&](const View<T>& to) { row_pass_->find_lse_low(to, executor); });
  }

  /// \param queries all that have an edge to a key of this rank
  void compute(const std::vector<Range>& queries, const ExecutorRef& executor) {
    const auto own = fovea::detail::inputs_as<IndexedInputs<T>>(inputs_);
    // This rank's keys, with all their queries.
    typename QueryRows<T>::GatheredRows some(queries_, queries);
    FsatGraphPart<T> key_graph(all_, queries, rows_.own(), true, !call_.grads.dominant.empty());
    IndexedInputs<T> of_keys = own;
    of_keys.q = some.q.view();
    of_keys.key_lengths = {};
    Backward key_pass(of_keys, {key_graph, call_.op.options.scale, call_.grads.dominant},
                      View<const T>(some.out.view()), {some.lse.view()},
                      View<const T>(some.d_out.view()), {{}, call_.grads.k, call_.grads.v});
    key_pass.give_lse_low(View<const T>(some.lse_low.view()));
    key_pass.reserve(executor);
    if (!call_.grads.q.empty()) row_pass_->compute(executor);
    key_pass.compute(executor);
  }

  const ShardedBackwardCall<FsatAttention, T>& call_;
  const FsatInputs<T>& inputs_;
  const Sharding& rows_;
  RowTensors<T> keys_;    // k, v and dominant
  QueryRows<T> queries_;  // tensors of query rows
  FsatKeys<T> all_;
  std::optional<FsatGraphPart<T>> row_graph_;
  std::optional<Backward> row_pass_;
};

namespace detail {

/// Checks this rank's arguments. \param check_tensors called with the inputs and the lengths of its
/// own rows \throws std::invalid_argument
template <class Call, class Check>
void check_fsat(const Call& call, const Check& check_tensors) {
  const char* const name = FsatAttention::name();
  if (!call.inputs.random.empty()) {
    refuse_given(name, "random", "the sequence is distributed over ranks");
  }
  const Index most = call.op.options.max_length;
  if (most < call.rows.count()) {
    refuse(name, "max_length", std::to_string(most),
           "at least " + std::to_string(call.rows.count()) + ", the rows of the sequence");
  }
  check_call(call, [&](auto own) {
    // Dominant indices beyond the length are not read.
    const std::vector<Index> lengths = own_lengths(call.inputs.key_lengths, call.rows);
    own.key_lengths = lengths;
    check_tensors(own);
  });
}

/// Makes a call, whose arguments `check` checks, by a pass.
template <template <class> class Pass, class T, class Call>
CommStats run_fsat(const Call& call, FunctionRef<void()> check) {
  const std::string text = call_text(call) + ", dominant " + sizes_text(call.inputs.dominant);
  return run_call(call, text, check,
                  [&](const ExecutorRef& /*threads*/) { return std::make_unique<Pass<T>>(call); });
}

}  // namespace detail

template <class T>
CommStats forward(const ShardedForwardCall<FsatAttention, T>& call) {
  return detail::run_fsat<FsatForwardPass, T>(call, [&] {
    detail::check_fsat(call,
                       [&](const FsatInputs<T>& own) { call.op.check(own, call.out, call.saved); });
  });
}

template <class T>
CommStats backward(const ShardedBackwardCall<FsatAttention, T>& call) {
  return detail::run_fsat<FsatBackwardPass, T>(call, [&] {
    detail::check_fsat(call, [&](const FsatInputs<T>& own) {
      call.op.check_backward(own, call.out, call.saved, call.d_out, call.grads);
    });
  });
}

FOVEA_RANKS_PASSES(FORWARD, FsatAttention)
FOVEA_IN_SHORT_UNIT(FOVEA_RANKS_FORWARD, FsatAttention)
FOVEA_RANKS_PASSES(BACKWARD, FsatAttention)

}  // namespace distributed

FOVEA_NAMESPACE_END
