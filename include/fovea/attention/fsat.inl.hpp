// SPDX-License-Identifier: MIT
/// \file
/// Included by fsat.hpp, where it is documented.
#pragma once

#include <cstddef>

#include "fovea/attention/call/compiled.hpp"
#include "fovea/attention/fsat.hpp"
#include "fovea/attention/fsat/check.hpp"
#include "fovea/attention/fsat/graph.hpp"
#include "fovea/attention/fsat/lists.hpp"
#include "fovea/attention/indexed/backward.hpp"
#include "fovea/attention/indexed/forward.hpp"

FOVEA_NAMESPACE_BEGIN

/// Writes every slot's query for every key, and -1 for keys from the key length on. Checks nothing.
/// \param edges [B, Hq, L, graph.edges_per_key()], written
/// \throws std::bad_alloc
template <class C, class S>
void write_fsat_edges(const FsatGraph<C>& graph, const FsatOptions& options, const S& sequences,
                      const View<Index>& edges, const ExecutorRef& executor) {
  const Index width = graph.edges_per_key();
  const Index tasks = sequences.count() * edges.heads();
  auto&& memory = memory_of(executor);
  Workspace scratch = memory.take(worker_count(executor, tasks), width * Index{sizeof(Index)});
  memory.require();
  for_each_task(executor, tasks, [&](Index task, Index worker) {
    const Sequence s = sequences[task / edges.heads()];
    const Index h = task % edges.heads();
    const HeadEdges<C> of = graph.sources_of(s, h);
    Index* const queries = scratch.template data<Index>() + worker * width;
    for (Index j = 0; j < s.keys; ++j) {
      if (j < s.key_end) of.point({j, j + 1}, options, queries);
      for (Index e = 0; e < width; ++e) {
        const bool is_edge = j < s.key_end && queries[e] < s.key_end;
        edges(s.batch, h, s.first_key + j, e) = is_edge ? queries[e] : -1;
      }
    }
  });
}

namespace detail {

/// The number of sequences per batch entry: more than 1 only if they are packed.
template <class T>
Index sequences_of_a_row(const FsatInputs<T>& inputs) {
  const Sequences<T> sequences(inputs);
  return sequences.packed() ? sequences.count() : 1;
}

}  // namespace detail

template <class T>
void FsatAttention::check_read(const Inputs<T>& inputs) const {
  check_fsat_inputs(name(), options, inputs);
}

template <class T>
void FsatAttention::check_values(const Inputs<T>& inputs) const {
  check_dominant(name(), inputs);
  check_random(name(), options, inputs);
}

template <class T>
void FsatAttention::check_edges(const Inputs<T>& inputs, const View<Index>& edges) const {
  check_read(inputs);
  check_values(inputs);
  const fovea::Shape shape = {inputs.q.batch(), inputs.q.heads(), inputs.q.rows(),
                              inputs.dominant.width() * options.edges_per_slot()};
  for (std::size_t d = 0; d < 4; ++d) {
    detail::check_extent(name(), "edges", edges.shape(), d, shape[d], "as in the call's edges");
  }
  detail::check_distinct(name(), "edges", edges);
  detail::check_apart(name(), "edges", edges, "dominant", inputs.dominant);
  detail::check_apart(name(), "edges", edges, "random", inputs.random);
}

template <class T>
void FsatAttention::write_edges(const Inputs<T>& inputs, const View<Index>& edges,
                                const ExecutorRef& executor) const {
  const FsatGraph<Compute<T>> graph(inputs.dominant, options, detail::sequences_of_a_row(inputs),
                                    false, inputs.random);
  write_fsat_edges(graph, options, Sequences<T>(inputs), edges, executor);
}

template <class T>
void FsatAttention::run_backward(const Inputs<T>& inputs, const View<const T>& out,
                                 const Saved<T>& saved, const View<const T>& d_out,
                                 const Grads<T>& grads, const ExecutorRef& executor) const {
  FsatGraph<T> graph(inputs.dominant, options, detail::sequences_of_a_row(inputs),
                     !grads.dominant.empty(), inputs.random);
  const FsatLists<FsatGraph<T>> lists(graph, options.scale, grads.dominant);
  auto&& threads = for_work(executor, [&] { return list_products(shape_of(inputs), lists); });
  IndexedBackward<T, FsatLists<FsatGraph<T>>>(detail::inputs_as<IndexedInputs<T>>(inputs), lists,
                                              out, saved, d_out, {grads.q, grads.k, grads.v})
      .run(threads);
}

template <class T>
void FsatAttention::run(const Inputs<T>& inputs, const View<T>& out, const Saved<T>& saved,
                        const ExecutorRef& executor) const {
  using C = Compute<T>;
  const Sequences<T> sequences(inputs);
  const Index heads = inputs.q.heads();
  const Index graphs = sequences.count() * heads;
  FsatGraph<C> graph(inputs.dominant, options, detail::sequences_of_a_row(inputs), false,
                     inputs.random);
  const FsatLists<FsatGraph<C>> lists(graph, options.scale);
  auto&& threads = for_work(executor, [&] { return list_products(shape_of(inputs), lists); });
  graph.take_memory(inputs.q.batch() * heads, graphs, worker_count(threads, kFarPosition),
                    memory_of(threads));
  IndexedForward<T, FsatLists<FsatGraph<C>>> attention(detail::inputs_as<IndexedInputs<T>>(inputs),
                                                       lists, out, saved);
  attention.take_scratch(threads);
  if (threads.only_counts()) return;
  const auto head_of = [&](Index n) {
    const Sequence s = sequences[n / heads];
    return GraphHead{s, n % heads, s.batch * heads + n % heads};
  };
  graph.build(graphs, head_of, threads);
  attention.compute(threads);
}

FOVEA_COMPILED_FORWARD(FsatAttention)
FOVEA_COMPILED_BACKWARD(FsatAttention)

#define FOVEA_FSAT_EDGES(Op, T)                                                                  \
  template void Op::check_edges<T>(const Op::Inputs<T>&, const View<Index>&) const;              \
  template void Op::write_edges<T>(const Op::Inputs<T>&, const View<Index>&, const ExecutorRef&) \
      const;
FOVEA_IN_FLOAT_UNIT(FOVEA_FSAT_EDGES, FsatAttention)
FOVEA_IN_SHORT_UNIT(FOVEA_FSAT_EDGES, FsatAttention)
FOVEA_IN_DOUBLE_UNIT(FOVEA_FSAT_EDGES, FsatAttention)

FOVEA_NAMESPACE_END
