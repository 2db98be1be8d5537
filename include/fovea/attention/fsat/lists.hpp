// SPDX-License-Identifier: MIT
/// \file
/// The graph of FSAT attention as lists of keys, of the whole sequence or of a rank's part of it.
#pragma once

#include <optional>

#include "fovea/attention/fsat/graph.hpp"
#include "fovea/attention/indexed/options.hpp"
#include "fovea/core/executor_ref.hpp"

FOVEA_NAMESPACE_BEGIN

/// Lists of keys that are built for some heads at a time, in the form read by passes over lists.
/// \tparam Graph an FsatGraph, or a class with the members that are called here
template <class Graph>
class FsatLists {
  using T = typename Graph::Scalar;

 public:
  /// The lists are built during the pass.
  static constexpr bool kBuilt = true;

  /// \param graph the graph, which must outlive this object
  /// \param scale scale of the logits; not set: 1/sqrt(D)
  /// \param d_dominant the gradient of the dominant indices of its keys, written; or none
  FsatLists(Graph& graph, const std::optional<double>& scale, const View<T>& d_dominant = {})
      : graph_(&graph), scale_({.scale = scale}), d_dominant_(d_dominant) {}

  /// The alignment of query rows, which is not used.
  static CausalAlignment alignment() { return CausalAlignment::bottom_right; }
  /// The scale of the logits for queries of D = width.
  template <class U>
  U scale_of(Index width) const {
    return scale_.template scale_of<U>(width);
  }
  /// The entries of the longest list: every key may be in one row.
  Index length() const { return graph_->most_keys(); }
  /// The largest number of edges of one query head.
  Index entries() const { return graph_->head_edges(); }
  /// The index of a sequence's first edge among those of its head.
  Index first_entry(const Sequence& s) const { return graph_->first_edge(s); }

  /// Allocates the memory for the graphs of that many heads at once.
  /// \param graphs number of the graphs
  /// \param workers number of threads that build them
  /// \param memory the call's (memory_of)
  /// \throws std::bad_alloc
  template <class Memory>
  void take_memory(Index heads, Index graphs, Index workers, Memory&& memory) {
    graph_->take_memory(heads, graphs, workers, memory);
  }
  /// Builds the graphs of some heads.
  /// \param head_of called as head_of(n), returns the sequence, head and index of graph n
  template <class HeadOf>
  void build(Index graphs, const HeadOf& head_of, const ExecutorRef& executor) {
    const auto graph_head_of = [&](Index n) {
      const auto piece = head_of(n);
      return GraphHead{piece.sequence, piece.head, piece.place};
    };
    graph_->build(graphs, graph_head_of, executor);
  }

  /// The rows of keys of a graph.
  KeyLists rows(const Sequence& s, Index /*h*/, Index place) const {
    return graph_->rows(s, place);
  }
  /// The confidences, in the order of the rows' keys.
  const T* factors(const Sequence& s, Index place) const { return graph_->confidences(s, place); }
  /// The gradients of the confidences, to be written; null if not wanted.
  T* d_factors(const Sequence& s, Index place) const {
    return graph_->with_gradients() ? graph_->d_confidences(s, place) : nullptr;
  }

  /// Writes the gradient of a head's dominant indices, if wanted.
  /// \pre the rows of the head have written d_factors
  void take_gradients(const Sequence& s, Index h, Index place) const {
    if (graph_->with_gradients()) graph_->lead_back(s, h, place, d_dominant_);
  }

 private:
  Graph* graph_;
  IndexedOptions scale_;
  View<T> d_dominant_;
};

FOVEA_NAMESPACE_END
