// SPDX-License-Identifier: MIT
/// \file
/// The graph of FSAT attention over ranks: each rank builds the rows of its own queries, of the
/// keys that point at them.
#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <vector>

#include "fovea/attention/fsat/graph.hpp"
#include "fovea/attention/indexed/forward.hpp"
#include "fovea/distributed/places_of_rows.hpp"
#include "fovea/distributed/row_set.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The edges of some keys of all sequences and heads, of which each key has a few.
/// \tparam T float or double
template <class T>
class FsatKeys {
 public:
  /// \param dominant [B, Hq, L, M] of which the rows of some keys may be read
  /// \param key_lengths [B], or empty; they must outlive this object
  FsatKeys(const FsatOptions& options, const View<const T>& dominant,
           std::span<const Index> key_lengths)
      : options_(options), dominant_(dominant), key_lengths_(key_lengths) {}

  /// The edges that one key can have.
  Index edges_of_key() const { return dominant_.width() * FsatGraph<T>::edges_per_slot(options_); }
  /// The number of tokens of a sequence that have edges.
  Index length(Index batch) const {
    return key_lengths_.empty() ? dominant_.rows() : key_lengths_[static_cast<std::size_t>(batch)];
  }
  /// The query heads of all sequences.
  Index heads() const { return dominant_.batch() * dominant_.heads(); }
  /// What the options say.
  const FsatOptions& options() const { return options_; }

  /// The edges of a head.
  /// \param head of those of all sequences
  HeadEdges<T> of_head(Index head) const {
    HeadEdges<T> edges;
    edges.sequence = head / dominant_.heads();
    edges.head = head % dominant_.heads();
    edges.dominant = fovea::detail::head_matrix(dominant_, edges.sequence, edges.head, 0);
    edges.slots = dominant_.width();
    edges.edges_of_key = edges_of_key();
    edges.length = length(edges.sequence);
    edges.rows = dominant_.rows();
    return edges;
  }

  /// Calls f(key, edge, query) for the edges of some keys of a head, in the order of keys and
  /// slots. \param keys ascending, disjoint   \param points [edges_of_key()] scratch
  template <class F>
  void for_each_edge(const HeadEdges<T>& of, const std::vector<Range>& keys, Index* points,
                     const F& f) const {
    for (const Range& range : keys) {
      for (Index j = range.begin; j < (std::min)(range.end, of.length); ++j) {
        of.point({j, j + 1}, options_, points);
        for (Index e = 0; e < of.edges_of_key; ++e) {
          if (points[e] < of.length) f(j, e, points[e]);
        }
      }
    }
  }

 private:
  FsatOptions options_;
  View<const T> dominant_;
  std::span<const Index> key_lengths_;
};

/// The graphs of all heads, of the queries of this rank alone.
/// \tparam T float or double
template <class T>
class OwnFsatGraph {
 public:
  /// Takes all memory.
  /// \param all must outlive this object   \param places of the layout's rows, likewise
  /// \param keys all that have an edge from a query of this rank, ascending, disjoint
  /// \throws std::bad_alloc
  OwnFsatGraph(const FsatKeys<T>& all, const PlacesOfRows& places, std::vector<Range> keys,
               int rank, Index own_rows, Index workers)
      : all_(all),
        places_(places),
        keys_of_rank_(std::move(keys)),
        rank_(rank),
        rows_(own_rows),
        edges_(row_count(keys_of_rank_) * all.edges_of_key()),
        begin_(all.heads(), (own_rows + 1) * Index{sizeof(Index)}),
        keys_(all.heads(), edges_ * Index{sizeof(Index)}),
        confidences_(all.heads(), edges_ * Index{sizeof(T)}),
        scratch_(workers, slot() * Index{sizeof(Index)}) {}

  /// Builds the graph of a head of all sequences.
  void build(Index head, Index worker) {
    Index* const marks = scratch_.template data<Index>() + worker * slot();
    Index* const points = marks + rows_;
    const HeadEdges<T> of = all_.of_head(head);
    Index* const begin = begins(head);
    Index* const keys = keys_.template data<Index>() + head * edges_;
    T* const distances = confidences_.template data<T>() + head * edges_;
    std::fill_n(begin, rows_ + 1, Index{0});
    std::fill_n(marks, rows_, Index{-1});
    for_each_own_edge(of, points, [&](Index j, Index, Index, Index row) {
      if (marks[row] == j) return;
      marks[row] = j;
      ++begin[row + 1];
    });
    for (Index r = 0; r < rows_; ++r) begin[r + 1] += begin[r];
    for_each_own_edge(of, points, [&](Index j, Index e, Index i, Index row) {
      const T distance = of.distance(i, j, e);
      if (marks[row] == ~j) {  // of two edges of a query and a key the nearer one stays
        T& before = distances[begin[row] - 1];
        if (std::abs(distance) < std::abs(before)) before = distance;
        return;
      }
      marks[row] = ~j;
      keys[begin[row]] = j;
      distances[begin[row]++] = distance;
    });
    // Each row's begin has moved to its end, where the next row began.
    std::copy_backward(begin, begin + rows_, begin + rows_ + 1);
    begin[0] = 0;
    HeadEdges<T> found = of;
    found.confidences = distances;
    found.weigh({0, begin[rows_]}, all_.options());
  }

  /// The rows of keys of a head.
  KeyLists rows(Index head, Index tokens, Index key_end) const {
    KeyLists lists;
    lists.data = keys_.template data<Index>() + head * edges_;
    lists.begin = begin_.template data<Index>() + head * (rows_ + 1);
    lists.length = tokens;
    lists.key_end = key_end;
    return lists;
  }
  /// The confidences of a head, in the order of the rows.
  const T* confidences(Index head) const { return confidences_.template data<T>() + head * edges_; }
  /// The edges that a head has room for.
  Index edges() const { return edges_; }

 private:
  /// Elements of scratch of a worker.
  Index slot() const { return rows_ + all_.edges_of_key(); }
  Index* begins(Index head) { return begin_.template data<Index>() + head * (rows_ + 1); }

  /// Calls f(key, edge, query, row) for the edges of this rank's queries.
  template <class F>
  void for_each_own_edge(const HeadEdges<T>& of, Index* points, const F& f) const {
    all_.for_each_edge(of, keys_of_rank_, points, [&](Index j, Index e, Index i) {
      if (places_.rank(i) == rank_) f(j, e, i, places_.place(i));
    });
  }

  const FsatKeys<T>& all_;
  const PlacesOfRows& places_;
  std::vector<Range> keys_of_rank_;
  int rank_;
  Index rows_;
  Index edges_;
  Workspace begin_;        // [heads, rows + 1]
  Workspace keys_;         // [heads, edges]
  Workspace confidences_;  // [heads, edges]
  Workspace scratch_;      // [workers, slot()]
};

/// The graph in the form that passes over lists of keys read.
/// \tparam T float or double
template <class T>
class OwnFsatLists {
 public:
  /// The lists may be as long as the sequence.
  static constexpr bool kBuilt = true;

  /// \param graph must outlive this object   \param scale scale of the logits; not set: 1/sqrt(D)
  /// \param tokens L
  OwnFsatLists(const OwnFsatGraph<T>& graph, const std::optional<double>& scale, Index tokens)
      : graph_(&graph), scale_({.scale = scale}), tokens_(tokens) {}

  /// The scale of the logits for queries of D = width.
  template <class U>
  U scale_of(Index width) const {
    return scale_.template scale_of<U>(width);
  }
  /// The places of the longest list.
  Index length() const { return tokens_; }
  /// The largest number of edges of one query head.
  Index entries() const { return graph_->edges(); }
  /// The rows of keys of a head.
  KeyLists rows(const Sequence& s, Index /*h*/, Index place) const {
    return graph_->rows(place, s.keys, s.key_end);
  }
  /// The confidences, in the order of the rows' keys.
  const T* factors(const Sequence& /*s*/, Index place) const { return graph_->confidences(place); }

 private:
  const OwnFsatGraph<T>* graph_;
  IndexedOptions scale_;
  Index tokens_;
};

}  // namespace distributed

FOVEA_NAMESPACE_END
