// SPDX-License-Identifier: MIT
/// \file
/// One rank's forward pass of FSAT attention.
#pragma once

#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include "fovea/attention/fsat/options.hpp"
#include "fovea/attention/indexed/forward.hpp"
#include "fovea/distributed/fsat/graph_part.hpp"
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
  /// \param inputs, out, saved this rank's, checked
  /// \throws std::bad_alloc
  FsatForwardPass(const FsatOptions& options, const FsatInputs<T>& inputs, const View<T>& out,
                  const FsatSaved<T>& saved, const Sharding& rows)
      : options_(options),
        inputs_(inputs),
        out_(out),
        saved_(saved),
        rows_(rows),
        keys_(inputs.q.batch(), rows.count(),
              {{inputs.k.heads(), inputs.k.width()}, {inputs.v.heads(), inputs.v.width()}},
              &rows.kept_memory()),
        dominant_(inputs.q.batch(), rows.count(),
                  {{inputs.dominant.heads(), inputs.dominant.width()}}),
        all_(options, View<const C>(dominant_.tensor(0)), inputs.key_lengths) {
    keys_.expect(rows.own());
    keys_.put(0, inputs.k, rows.own());
    keys_.put(1, inputs.v, rows.own());
    dominant_.put(0, inputs.dominant, rows.own());
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
          lists(graph, pass.options_.scale),
          attention(pass.whole(), lists, pass.out_, pass.saved_) {
      const Index heads = pass.all_.heads();
      graph.take_memory(heads, worker_count(executor, heads), memory_of(executor));
      attention.take_scratch(executor);
      for_each_task(executor, heads,
                    [&](Index head, Index worker) { graph.build(head, head, worker); });
    }

    FsatGraphPart<C> graph;
    FsatListsPart<C> lists;
    IndexedForward<T, FsatListsPart<C>> attention;
  };

  /// The inputs of this rank's queries, for all keys.
  IndexedInputs<T> whole() const {
    auto made = fovea::detail::inputs_as<IndexedInputs<T>>(inputs_);
    made.k = keys_.tensor(0);
    made.v = keys_.tensor(1);
    return made;
  }

  FsatOptions options_;
  FsatInputs<T> inputs_;
  View<T> out_;
  FsatSaved<T> saved_;
  const Sharding& rows_;
  RowTensors<T> keys_;      // k and v
  RowTensors<C> dominant_;  // dominant indices
  FsatKeys<C> all_;
};

}  // namespace distributed

FOVEA_NAMESPACE_END
