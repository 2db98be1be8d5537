// SPDX-License-Identifier: MIT
/// \file
/// Outputs FSAT attention's edges.
#pragma once

#include "fovea/attention/fsat/graph.hpp"

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

FOVEA_NAMESPACE_END
