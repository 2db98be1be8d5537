// SPDX-License-Identifier: MIT
/// \file
/// The forward pass of FSAT attention over a sequence that is spread over ranks. Every key knows
/// the queries that it has an edge from: its row goes to their ranks, which build the graph of
/// their own queries.
#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fovea/attention/fsat.hpp"
#include "fovea/attention/indexed/forward.hpp"
#include "fovea/core/index_span.hpp"
#include "fovea/distributed/indexed/fsat_graph_part.hpp"
#include "fovea/distributed/messages/call.hpp"
#include "fovea/distributed/messages/exchange.hpp"
#include "fovea/distributed/messages/requests.hpp"
#include "fovea/distributed/rows/own_range.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// One forward pass.
template <class T>
class FsatForwardPass {
 public:
  /// The type of the arithmetic.
  using C = Compute<T>;

  /// Takes the memory for tensors. That of messages, of the graph and of scratch depends on where
  /// edges lead, and is taken before `out` is written.
  /// \param inputs, out, saved those of this rank, checked
  /// \throws std::bad_alloc
  FsatForwardPass(const FsatOptions& options, const FsatInputs<T>& inputs, const View<T>& out,
                  const FsatSaved<T>& saved, const Rows& rows)
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
  FsatForwardPass(const FsatForwardPass&) = delete;
  FsatForwardPass& operator=(const FsatForwardPass&) = delete;

  /// The messages of this rank. \pre run was called
  Traffic traffic() const { return traffic_; }

  /// Sends keys to the queries that have edges to them, and attends; while keys and values travel,
  /// the graph is built. All messages are exchanged even if computing throws.
  /// \returns what computing has thrown, or null
  std::exception_ptr run(const ExecutorRef& executor) {
    std::exception_ptr error;
    LeadingEdges found = leading_edges(all_, rows_, error);
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
    traffic_ = keys.traffic() + dominant.traffic();
    return error;
  }

 private:
  /// The graph of this rank's queries, and what attends by it.
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

  /// What this rank's queries read, of all keys.
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
  const Rows& rows_;
  RowTensors<T> keys_;      // k and v
  RowTensors<C> dominant_;  // dominant indices
  FsatKeys<C> all_;
  Traffic traffic_;
};

namespace detail {

/// How many of a rank's rows lie before each length.
inline std::vector<Index> own_lengths(IndexSpan lengths, const std::vector<Range>& own) {
  std::vector<Index> counts;
  for (const Index length : lengths) counts.push_back(row_count(intersection(own, {{0, length}})));
  return counts;
}

/// What is the same on all ranks of a call, in words.
template <class T>
std::string fsat_text(const char* pass, const FsatInputs<T>& in, const Rows& rows) {
  std::string call = call_text(FsatAttention::name(), pass, in, rows);
  return call.append(", dominant ").append(sizes_text(in.dominant));
}

/// Checks what this rank brings to a call. \param check_tensors called with the inputs, and with
/// the lengths that its own rows have \throws std::invalid_argument
template <class T, class Check>
void check_fsat(const FsatAttention& op, const FsatInputs<T>& inputs, const Rows& rows,
                const Check& check_tensors) {
  const char* const name = FsatAttention::name();
  if (!inputs.random.is_none()) {
    refuse_given(name, "random", "the sequence is distributed over ranks");
  }
  if (op.options.max_length < rows.count()) {
    refuse(name, "max_length", std::to_string(op.options.max_length),
           "at least " + std::to_string(rows.count()) + ", the rows of the sequence");
  }
  check_call(name, inputs, rows, [&](FsatInputs<T> own) {
    // Dominant indices beyond the length are not read.
    const std::vector<Index> lengths = own_lengths(inputs.key_lengths, rows.own());
    own.key_lengths = lengths;
    check_tensors(own);
  });
}

}  // namespace detail

/// Computes FSAT attention over a sequence that is spread over ranks, on all of them together;
/// every rank calls it with its own rows. The bits are those of `op.forward` over the whole
/// sequence, for any number of ranks and any layout. \param inputs q, k, v and dominant of this
/// rank's rows, in ascending order: dominant indices are positions in the sequence; key lengths
/// count tokens of the whole sequence \param out [B, Hq, own rows, Dv], written \param saved lse of
/// the rank's rows \param executor as in `forward` of the operator \returns the messages of this
/// rank \throws as `forward` over softmax operators; std::invalid_argument also if random edges are
/// given
///
/// Cost: that of the rank's rows, and two passes over the dominant indices of its keys and of those
/// that it receives: each key goes once to every other rank that has a query with an edge to it,
/// and so do at most a twelfth as many that lie between them. Memory: the rank's keys, values and
/// dominant indices once more, those that it receives, and the graph of its queries.
template <class Out, class E = Serial, class T = Scalar<Out>>
Traffic forward(const FsatAttention& op, const InputsOf<FsatAttention, T>& inputs, Out&& out,
                const SavedOf<FsatAttention, T>& saved, const Rows& rows, E&& executor = {}) {
  const View<T> to(out);
  return detail::run_call(
      rows, op, detail::fsat_text(".forward", inputs, rows),
      [&] {
        detail::check_fsat(op, inputs, rows,
                           [&](const FsatInputs<T>& own) { op.check(own, to, saved); });
      },
      executor,
      [&](auto& /*threads*/) {
        return std::make_unique<FsatForwardPass<T>>(op.options, inputs, to, saved, rows);
      });
}

/// The same, where nothing is saved.
template <class Out, class E = Serial, class T = Scalar<Out>>
Traffic forward(const FsatAttention& op, const InputsOf<FsatAttention, T>& inputs, Out&& out,
                const Rows& rows, E&& executor = {}) {
  return forward(op, inputs, View<T>(out), FsatSaved<T>{}, rows, executor);
}

}  // namespace distributed

FOVEA_NAMESPACE_END
