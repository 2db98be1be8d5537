// SPDX-License-Identifier: MIT
/// \file
/// The sparse graph of FSAT attention (Zhuang et al. 2022, section 4.1; MATHS.md, section 6). Built
/// from the dominant indices, it consists of rows of keys with confidences.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "fovea/attention/call/head_matrix.hpp"
#include "fovea/attention/call/sequences.hpp"
#include "fovea/attention/fsat/edge_sort.hpp"
#include "fovea/core/executor_ref.hpp"
#include "fovea/core/rounded.hpp"
#include "fovea/core/workspace.hpp"

FOVEA_NAMESPACE_BEGIN

/// A head of a sequence, and the location of its graph.
struct GraphHead {
  Sequence sequence;  ///< the sequence
  Index head = 0;     ///< number of the head
  Index place = 0;    ///< the head's index among those in memory
};

/// A backward pass's edge data, in the order of rows.
template <class T>
struct EdgeGradients {
  const T* confidences = nullptr;     ///< the confidence of each
  const T* d_confidences = nullptr;   ///< its gradient
  const Index* edge_slots = nullptr;  ///< its slot j M + m
};

/// Adds the contribution of some edges of query i to the gradients of dominant indices.
/// \param dominant [keys, M]   \param width M   \param to [keys, M]
template <class T>
void add_gradients_of_edges(const FsatOptions& options, const Matrix<const T>& dominant,
                            Index width, Index i, const Range& edges, const EdgeGradients<T>& of,
                            const Matrix<T>& to) noexcept {
  const T precision = static_cast<T>(1 / options.variance_or_default());
  for (Index e = edges.begin; e < edges.end; ++e) {
    const Index j = of.edge_slots[e] / width;
    const Index m = of.edge_slots[e] % width;
    const T ibar = dominant.data[j * dominant.row + m * dominant.column];
    const T distance = HeadEdges<T>::distance_of(i, ibar);
    T flows = of.d_confidences[e];
    if (options.truncate_gradient && flows > 0) flows = 0;  // NaN is kept
    to.data[j * to.row + m * to.column] +=
        rounded(flows * of.confidences[e] * (distance * precision));
  }
}

/// The graphs of some heads. Slot m of key j has an edge from query Ip[j, m], one from query Ir[j,
/// m], or both, depending on the options. In a sequence of length n, edges are among the first n
/// tokens.
/// Of several edges from one query to one key the one with the largest confidence is kept: the one
/// with the smallest |I - Ibar|, even if both confidences have underflowed to 0. Among equal ones,
/// predicted edges precede random ones, and then the smaller m wins.
/// Each query has its keys as a row, in ascending order, from a counting sort of the edges in the
/// order of keys and slots. A task is a head of a sequence (EdgeSort), or, if there are fewer heads
/// than threads and they are not small, a part of one (SharedEdgeSort); the bits are the same.
/// Checks nothing.
/// Cost: two passes over the slots. Memory: for each slot and head 8 bytes and one number (twice
/// that in training, and twice that with gradients), and for each query 8 bytes; for each graph
/// that is being built 8 bytes for each edge and query of a head, or, if threads share it, 16 (in
/// double 24) for each edge, and at most 33 KB.
/// \tparam T float or double
template <class T>
class FsatGraph {
 public:
  /// The type of the confidences.
  using Scalar = T;

  /// \param dominant [B, Hq, L, M]
  /// \param sequences number of sequences in a row of L tokens: 1 unless packed
  /// \param with_gradients whether lead_back will be called
  /// \param random [B, Hq, L, M] the queries of random edges; if empty: drawn
  FsatGraph(const View<const T>& dominant, const FsatOptions& options, Index sequences,
            bool with_gradients, const View<const Index>& random = {})
      : dominant_(dominant),
        random_(random),
        options_(options),
        begins_(dominant.rows() + sequences),
        with_gradients_(with_gradients) {}

  /// The number of edges that one key can have.
  Index edges_per_key() const { return dominant_.width() * options_.edges_per_slot(); }
  /// The largest number of edges of one head.
  Index head_edges() const { return dominant_.rows() * edges_per_key(); }
  /// The most keys of a row: every key may have an edge to it.
  Index most_keys() const { return dominant_.rows(); }
  /// The index of a sequence's first edge among those of its head.
  Index first_edge(const Sequence& s) const { return s.first_key * edges_per_key(); }
  /// Whether there is room for gradients.
  bool with_gradients() const { return with_gradients_; }

  /// The sources of the graph of head h of sequence s.
  HeadEdges<T> sources_of(const Sequence& s, Index h) const {
    HeadEdges<T> edges;
    edges.dominant = detail::head_matrix(dominant_, s.batch, h, s.first_key);
    if (!random_.empty()) edges.random = detail::head_matrix(random_, s.batch, h, s.first_key);
    edges.slots_per_key = dominant_.width();
    edges.edges_of_key = edges_per_key();
    edges.length = s.key_end;
    edges.rows = s.keys;
    edges.sequence = s.index;
    edges.head = h;
    return edges;
  }

  /// Allocates the memory for the graphs of that many heads at once.
  /// \param graphs number of graphs: packed sequences have one for each sequence and head
  /// \param workers number of threads that build them
  /// \param memory the call's (memory_of)
  /// \throws std::bad_alloc
  template <class Memory>
  void take_memory(Index heads, Index graphs, Index workers, Memory&& memory) {
    const Index edges = head_edges();
    begin_ = memory.take(heads, begins_ * kIndex);
    keys_ = memory.take(heads, edges * kIndex);
    confidences_ = memory.take(heads, edges * Index{sizeof(T)});
    if (with_gradients_) {
      slots_ = memory.take(heads, edges * kIndex);
      d_confidences_ = memory.take(heads, edges * Index{sizeof(T)});
    }
    scratch_ = memory.take(1, scratch_bytes(dominant_.rows(), edges_per_key(), graphs, workers));
  }

  /// Builds the graph of head h of sequence s.
  /// \param place the head's index among those in memory
  void build(const Sequence& s, Index h, Index place, Index worker) noexcept {
    const Index size = EdgeSort<T>::scratch_size(dominant_.rows(), edges_per_key());
    EdgeSort<T>(edges_of({s, h, place}), options_, scratch_.template data<Index>() + worker * size)
        .run();
  }

  /// Builds the graphs of some heads. If there are fewer than threads, and they are not small,
  /// threads share each graph.
  /// \param graphs number of graphs
  /// \param head_of called as head_of(n), returns the GraphHead of graph n
  /// \pre take_memory was called for at least as many graphs, and the executor's workers
  template <class HeadOf>
  void build(Index graphs, const HeadOf& head_of, const ExecutorRef& executor) {
    if (are_shared(head_edges(), graphs, worker_count(executor, kFarPosition))) {
      return build_shared(graphs, head_of, executor);
    }
    for_each_task(executor, graphs, [&](Index n, Index worker) {
      const GraphHead of = head_of(n);
      build(of.sequence, of.head, of.place, worker);
    });
  }

  /// The rows of keys of a graph.
  KeyLists rows(const Sequence& s, Index place) const {
    KeyLists lists;
    lists.data = keys_.template data<Index>() + edge_at(place, s);
    lists.begin = begin_.template data<Index>() + begin_at(place, s);
    lists.length = s.keys;
    lists.key_end = s.key_end;
    return lists;
  }

  /// The confidences of the edges, in the order of the rows.
  const T* confidences(const Sequence& s, Index place) const {
    return confidences_.template data<T>() + edge_at(place, s);
  }

  /// The slot j M + m of each edge, in the order of the rows.
  /// \pre with_gradients()
  const Index* edge_slots(const Sequence& s, Index place) const {
    return slots_.template data<Index>() + edge_at(place, s);
  }

  /// The gradients of the confidences, to be written.
  /// \pre with_gradients()
  T* d_confidences(const Sequence& s, Index place) {
    return d_confidences_.template data<T>() + edge_at(place, s);
  }

  /// Writes the gradient of the dominant indices of head h of sequence s from the gradients of its
  /// confidences.
  /// \param to [B, Hq, L, M], written
  void lead_back(const Sequence& s, Index h, Index place, const View<T>& to) noexcept {
    const Matrix<const T> from = detail::head_matrix(dominant_, s.batch, h, s.first_key);
    const Matrix<T> out = detail::head_matrix(to, s.batch, h, s.first_key);
    const Index width = dominant_.width();
    for (Index j = 0; j < s.keys; ++j) {
      for (Index m = 0; m < width; ++m) out.data[j * out.row + m * out.column] = 0;
    }
    const Index* const first = begin_.template data<Index>() + begin_at(place, s);
    const EdgeGradients<T> edges = {confidences(s, place), d_confidences(s, place),
                                    edge_slots(s, place)};
    for (Index i = 0; i < s.key_end; ++i) {
      add_gradients_of_edges<T>(options_, from, width, i, {first[i], first[i + 1]}, edges, out);
    }
  }

 private:
  static constexpr Index kIndex = sizeof(Index);

  /// Threads share a head's graph if it has at least this many edges; they are woken twice for it.
  /// (In measurements on two cores, two threads took 1.4 times as long as one with 2^14 edges,
  /// as long with 2^15, and 0.66 times as long with 2^16.)
  static constexpr Index kLeastShared = Index{1} << 16;

  /// Whether threads share graphs.
  static bool are_shared(Index edges_of_head, Index graphs, Index workers) {
    return graphs < workers && edges_of_head >= kLeastShared;
  }

  /// Bytes of scratch for building that many graphs, of heads of that many tokens, at once.
  static Index scratch_bytes(Index tokens, Index edges_of_key, Index graphs, Index workers) {
    if (are_shared(tokens * edges_of_key, graphs, workers)) {
      return graphs * SharedEdgeSort<T>::scratch_bytes(tokens, edges_of_key);
    }
    return (std::min)(graphs, workers) * EdgeSort<T>::scratch_size(tokens, edges_of_key) * kIndex;
  }

  template <class HeadOf>
  void build_shared(Index graphs, const HeadOf& head_of, const ExecutorRef& executor) {
    const Index tokens = dominant_.rows();
    const Index bytes = SharedEdgeSort<T>::scratch_bytes(tokens, edges_per_key());
    const auto sort_of = [&](Index n) {
      return SharedEdgeSort<T>(edges_of(head_of(n)), options_, tokens,
                               scratch_.template data<std::byte>() + n * bytes);
    };
    const Index parts = TokenParts(tokens).count(tokens);
    const auto each_part = [&](const auto& step) {
      for_each_task(executor, graphs * parts, [&](Index task, Index) {
        const SharedEdgeSort<T> sort = sort_of(task / parts);
        if (task % parts < sort.parts()) step(sort, task % parts);
      });
    };
    each_part([](const SharedEdgeSort<T>& sort, Index p) { sort.sort(p); });
    for (Index n = 0; n < graphs; ++n) sort_of(n).find_begins();
    each_part([](const SharedEdgeSort<T>& sort, Index p) { sort.place(p); });
  }

  /// The sources and the destination of a head's graph.
  HeadEdges<T> edges_of(const GraphHead& of) {
    const Sequence& s = of.sequence;
    const Index edges = edge_at(of.place, s);
    HeadEdges<T> to = sources_of(s, of.head);
    to.begin = begin_.template data<Index>() + begin_at(of.place, s);
    to.keys = keys_.template data<Index>() + edges;
    to.confidences = confidences_.template data<T>() + edges;
    if (with_gradients_) to.slots_of_keys = slots_.template data<Index>() + edges;
    return to;
  }

  Index edge_at(Index place, const Sequence& s) const {
    return place * head_edges() + first_edge(s);
  }
  /// The index of a sequence's first begin. Each packed sequence has one more begin than rows.
  Index begin_at(Index place, const Sequence& s) const {
    return place * begins_ + s.first_key + (s.index - s.batch);
  }

  View<const T> dominant_;
  View<const Index> random_;
  FsatOptions options_;
  Index begins_;  // begins of a head
  bool with_gradients_;
  Workspace begin_;          // [heads, begins]
  Workspace keys_;           // [heads, edges]
  Workspace confidences_;    // [heads, edges]
  Workspace slots_;          // [heads, edges]
  Workspace d_confidences_;  // [heads, edges]
  Workspace scratch_;        // [graphs being built] scratch of their sort
};

FOVEA_NAMESPACE_END
