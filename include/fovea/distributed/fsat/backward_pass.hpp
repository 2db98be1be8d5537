// SPDX-License-Identifier: MIT
/// \file
/// One rank's backward pass of FSAT attention.
#pragma once

#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include "fovea/attention/fsat/options.hpp"
#include "fovea/attention/indexed/backward.hpp"
#include "fovea/distributed/fsat/graph_part.hpp"
#include "fovea/distributed/indexed/query_rows.hpp"
#include "fovea/distributed/messages/exchange.hpp"
#include "fovea/distributed/messages/pass.hpp"
#include "fovea/distributed/messages/requests.hpp"
#include "fovea/distributed/rows/row_tensors.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// One backward pass. Every rank takes the same steps, whichever gradients it requests.
template <class T>
class FsatBackwardPass final : public RankPass {
 public:
  /// Allocates the memory for tensors. Memory of messages and received rows depends on the edges,
  /// and is allocated before gradients are written.
  /// \param inputs, out, saved, d_out, grads this rank's, checked
  /// \throws std::bad_alloc
  FsatBackwardPass(const FsatOptions& options, const FsatInputs<T>& inputs,
                   const View<const T>& out, const FsatSaved<T>& saved, const View<const T>& d_out,
                   const FsatGrads<T>& grads, const Sharding& rows)
      : options_(options),
        inputs_(inputs),
        out_(out),
        saved_(saved),
        d_out_(d_out),
        grads_(grads),
        rows_(rows),
        keys_(inputs.q.batch(), rows.count(),
              {{inputs.k.heads(), inputs.k.width()},
               {inputs.v.heads(), inputs.v.width()},
               {inputs.dominant.heads(), inputs.dominant.width()}}),
        queries_(inputs.q, out, d_out, View<const T>(saved.lse), rows),
        all_(options, View<const T>(keys_.tensor(2)), inputs.key_lengths) {
    keys_.expect(rows.own());
    keys_.put(0, inputs.k, rows.own());
    keys_.put(1, inputs.v, rows.own());
    keys_.put(2, inputs.dominant, rows.own());
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
  using Backward = IndexedBackward<T, FsatListsPart<T>>;

  /// Prepares the gradients of this rank's queries, with all their keys.
  /// \param keys all that have an edge from a query of this rank
  void prepare_rows(const std::vector<Range>& keys, const ExecutorRef& executor) {
    row_graph_.emplace(all_, rows_.own(), keys, false, false);
    auto of_rows = fovea::detail::inputs_as<IndexedInputs<T>>(inputs_);
    of_rows.k = keys_.tensor(0);
    of_rows.v = keys_.tensor(1);
    row_pass_.emplace(of_rows, FsatListsPart<T>(*row_graph_, options_.scale), out_, saved_, d_out_,
                      IndexedGrads<T>{grads_.q, {}, {}});
    row_pass_->reserve(executor);
    queries_.put_lse_low([&](const View<T>& to) { row_pass_->find_lse_low(to, executor); });
  }

  /// \param queries all that have an edge to a key of this rank
  void compute(const std::vector<Range>& queries, const ExecutorRef& executor) {
    const auto own = fovea::detail::inputs_as<IndexedInputs<T>>(inputs_);
    // This rank's keys, with all their queries.
    typename QueryRows<T>::GatheredRows some(queries_, queries);
    FsatGraphPart<T> key_graph(all_, queries, rows_.own(), true, !grads_.dominant.empty());
    IndexedInputs<T> of_keys = own;
    of_keys.q = some.q.view();
    of_keys.key_lengths = {};
    Backward key_pass(of_keys, {key_graph, options_.scale, grads_.dominant},
                      View<const T>(some.out.view()), {some.lse.view()},
                      View<const T>(some.d_out.view()), {{}, grads_.k, grads_.v});
    key_pass.give_lse_low(View<const T>(some.lse_low.view()));
    key_pass.reserve(executor);
    if (!grads_.q.empty()) row_pass_->compute(executor);
    key_pass.compute(executor);
  }

  FsatOptions options_;
  FsatInputs<T> inputs_;
  View<const T> out_;
  FsatSaved<T> saved_;
  View<const T> d_out_;
  FsatGrads<T> grads_;
  const Sharding& rows_;
  RowTensors<T> keys_;    // k, v and dominant
  QueryRows<T> queries_;  // tensors of query rows
  FsatKeys<T> all_;
  std::optional<FsatGraphPart<T>> row_graph_;
  std::optional<Backward> row_pass_;
};

}  // namespace distributed

FOVEA_NAMESPACE_END
