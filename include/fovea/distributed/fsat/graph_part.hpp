// SPDX-License-Identifier: MIT
/// \file
/// The distributed graph of FSAT attention: each rank builds the parts that it needs, for some
/// queries and some keys.
#pragma once

#include <algorithm>
#include <cmath>
#include <exception>
#include <utility>
#include <vector>

#include "fovea/attention/fsat/lists.hpp"
#include "fovea/core/index_span.hpp"
#include "fovea/distributed/rows/places_of_rows.hpp"
#include "fovea/distributed/rows/row_set.hpp"
#include "fovea/distributed/sharding.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The edges of some keys, a few per key, in all sequences and heads.
/// \tparam T float or double
template <class T>
class FsatKeys {
 public:
  /// \param dominant [B, Hq, L, M] with valid rows for some keys
  /// \param key_lengths [B], or empty; they must outlive this object
  FsatKeys(const FsatOptions& options, const View<const T>& dominant, IndexSpan key_lengths)
      : options_(options), dominant_(dominant), key_lengths_(key_lengths) {}

  /// The maximum number of edges of a key.
  Index edges_of_key() const { return dominant_.width() * options_.edges_per_slot(); }
  /// The number of tokens of a sequence with edges.
  Index length(Index batch) const { return key_lengths_.value_or(batch, dominant_.rows()); }
  /// L, the tokens of a sequence.
  Index tokens() const { return dominant_.rows(); }
  /// M, the dominant indices of a key.
  Index width() const { return dominant_.width(); }
  /// The query heads of a sequence.
  Index heads_of_sequence() const { return dominant_.heads(); }
  /// The query heads of all sequences.
  Index heads() const { return dominant_.batch() * dominant_.heads(); }
  /// The options.
  const FsatOptions& options() const { return options_; }

  /// The edges of a head.
  /// \param head of those of all sequences
  HeadEdges<T> of_head(Index head) const {
    HeadEdges<T> edges;
    edges.sequence = head / dominant_.heads();
    edges.head = head % dominant_.heads();
    edges.dominant = fovea::detail::head_matrix(dominant_, edges.sequence, edges.head, 0);
    edges.slots_per_key = dominant_.width();
    edges.edges_of_key = edges_of_key();
    edges.length = length(edges.sequence);
    edges.rows = dominant_.rows();
    return edges;
  }

  /// Elements of scratch that for_each_edge needs.
  Index points() const { return kAtOnce * edges_of_key(); }

  /// Calls f(key, edge, query) for the edges of some keys of a head, in the order of keys and
  /// slots. \param keys ascending, disjoint   \param scratch [points()]
  template <class F>
  void for_each_edge(const HeadEdges<T>& of, const std::vector<Range>& keys, Index* scratch,
                     const F& f) const {
    for (const Range& range : keys) {
      const Index end = (std::min)(range.end, of.length);
      for (Index first = range.begin; first < end; first += kAtOnce) {
        const Range some = {first, (std::min)(first + kAtOnce, end)};
        of.point(some, options_, scratch);
        const Index* query = scratch;
        for (Index j = some.begin; j < some.end; ++j) {
          for (Index e = 0; e < of.edges_of_key; ++e, ++query) {
            if (*query < of.length) f(j, e, *query);
          }
        }
      }
    }
  }

 private:
  static constexpr Index kAtOnce = 64;  // keys whose edges are found at once

  FsatOptions options_;
  View<const T> dominant_;
  IndexSpan key_lengths_;
};

/// The targets of the edges of a rank's keys.
struct EdgeTargets {
  std::vector<std::vector<Range>> keys_of_ranks;  ///< the keys that go to each other rank
  std::vector<Range> queries;                     ///< the queries with an edge to one
};

/// Finds the targets of the edges of this rank's keys; none on failure.
/// \param error the exception that was thrown, or null
template <class T>
EdgeTargets leading_edges(const FsatKeys<T>& all, const Sharding& rows, std::exception_ptr& error) {
  EdgeTargets found;
  found.keys_of_ranks.resize(static_cast<std::size_t>(rows.ranks().size()));
  error = fovea::detail::caught([&] {
    const RowOwners ranks(rows.layout());
    const PlacesInRanges own(rows.own());
    std::vector<RowSet> keys(found.keys_of_ranks.size(), RowSet(own.count()));
    RowSet queries(rows.count());
    std::vector<Index> points(static_cast<std::size_t>(all.points()));
    for (Index head = 0; head < all.heads(); ++head) {
      all.for_each_edge(all.of_head(head), rows.own(), points.data(), [&](Index j, Index, Index i) {
        queries.add(i);
        const int other = ranks.rank(i);
        if (other == rows.ranks().rank()) return;
        keys[static_cast<std::size_t>(other)].add(own.place(j));
      });
    }
    for (std::size_t rank = 0; rank < keys.size(); ++rank) {
      found.keys_of_ranks[rank] = own.rows(with_small_gaps(keys[rank].ranges()));
    }
    found.queries = queries.ranges();
  });
  return found;
}

/// A part of the graphs of all heads: some queries, and some keys.
/// \tparam T float or double
template <class T>
class FsatGraphPart {
 public:
  /// The type of the confidences.
  using Scalar = T;

  /// \param all must outlive this object
  /// \param queries those with rows here, ascending, disjoint
  /// \param keys those whose edges are included, likewise
  /// \param by_place whether rows refer to keys by place among `keys`, or else by position
  /// \param with_gradients whether gradients of confidences are requested
  FsatGraphPart(const FsatKeys<T>& all, const std::vector<Range>& queries, std::vector<Range> keys,
                bool by_place, bool with_gradients)
      : all_(all),
        rows_(queries),
        ranges_(std::move(keys)),
        places_(ranges_),
        by_place_(by_place),
        with_gradients_(with_gradients) {}

  /// Allocates the memory for the graphs of that many heads at once, built by that many workers.
  /// \throws std::bad_alloc
  template <class Memory>
  void take_memory(Index heads, Index /*graphs*/, Index workers, Memory&& memory) {
    begin_ = memory.take(heads, (rows_.count() + 1) * kIndex);
    keys_ = memory.take(heads, head_edges() * kIndex);
    confidences_ = memory.take(heads, head_edges() * Index{sizeof(T)});
    scratch_ = memory.take(workers, slot() * kIndex);
    if (!with_gradients_) return;
    slots_ = memory.take(heads, head_edges() * kIndex);
    d_confidences_ = memory.take(heads, head_edges() * Index{sizeof(T)});
  }

  /// Builds the graph of a head of those of all sequences.
  /// \param place its place among those that there is memory for
  void build(Index head, Index place, Index worker) {
    Index* const marks = scratch_.template data<Index>() + worker * slot();
    Index* const points = marks + rows_.count();
    const HeadEdges<T> of = all_.of_head(head);
    const Index rows = rows_.count();
    Index* const begin = begin_.template data<Index>() + place * (rows + 1);
    T* const distances = confidences_.template data<T>() + place * head_edges();
    std::fill_n(begin, rows + 1, Index{0});
    std::fill_n(marks, rows, Index{-1});
    for_each_edge(of, points, [&](Index j, Index, Index, Index row) {
      if (marks[row] == j) return;
      marks[row] = j;
      ++begin[row + 1];
    });
    for (Index r = 0; r < rows; ++r) begin[r + 1] += begin[r];
    for_each_edge(of, points, [&](Index j, Index e, Index i, Index row) {
      const T distance = of.distance(i, j, e);
      if (marks[row] != ~j) {
        marks[row] = ~j;
        put(place, begin[row]++, j, distance, of.slot_of(e));
      } else if (std::abs(distance) < std::abs(distances[begin[row] - 1])) {
        // Of two edges between a query and a key, the nearer one is kept.
        put(place, begin[row] - 1, j, distance, of.slot_of(e));
      }
    });
    // Each row's begin has advanced to its end, the next row's begin.
    std::copy_backward(begin, begin + rows, begin + rows + 1);
    begin[0] = 0;
    HeadEdges<T> found = of;
    found.confidences = distances;
    found.weigh({0, begin[rows]}, all_.options());
  }

  /// Builds the graphs of some heads.
  /// \param head_of called as head_of(n), returns the GraphHead of graph n
  template <class HeadOf>
  void build(Index graphs, const HeadOf& head_of, const ExecutorRef& executor) {
    for_each_task(executor, graphs, [&](Index n, Index worker) {
      const GraphHead of = head_of(n);
      build(of.sequence.batch * all_.heads_of_sequence() + of.head, of.place, worker);
    });
  }

  /// The rows of keys of a graph.
  KeyLists rows(const Sequence& /*s*/, Index place) const {
    KeyLists lists;
    lists.data = keys_.template data<Index>() + place * head_edges();
    lists.begin = begins(place);
    lists.length = most_keys();
    lists.key_end = most_keys();
    return lists;
  }
  /// The confidences of a graph, in the order of the rows.
  const T* confidences(const Sequence& /*s*/, Index place) const {
    return confidences_.template data<T>() + place * head_edges();
  }
  /// Where to write the gradients of its confidences. \pre with_gradients()
  T* d_confidences(const Sequence& /*s*/, Index place) {
    return d_confidences_.template data<T>() + place * head_edges();
  }
  /// Whether gradients of confidences are requested.
  bool with_gradients() const { return with_gradients_; }
  /// The capacity in edges of a head.
  Index head_edges() const { return places_.count() * all_.edges_of_key(); }
  /// The offset of a sequence's first edge among those of its head.
  static Index first_edge(const Sequence& /*s*/) { return 0; }
  /// The number of keys that rows may refer to.
  Index most_keys() const { return by_place_ ? places_.count() : all_.tokens(); }

  /// Writes the gradients of the dominant indices of a head's keys, computed from those of its
  /// confidences.
  /// \param to [B, Hq, keys, M], written   \pre gradients of confidences are requested, and written
  void lead_back(const Sequence& s, Index head, Index place, const View<T>& to) {
    const Index width = to.width();
    const Matrix<T> out = fovea::detail::head_matrix(to, s.batch, head, 0);
    for (Index j = 0; j < to.rows(); ++j) {
      for (Index m = 0; m < width; ++m) out.data[j * out.row + m * out.column] = 0;
    }
    const HeadEdges<T> of = all_.of_head(s.batch * all_.heads_of_sequence() + head);
    const Index* const first = begins(place);
    const EdgeGradients<T> found = {confidences(s, place), d_confidences(s, place),
                                    slots_.template data<Index>() + place * head_edges()};
    // Slots refer to keys by their places.
    const std::vector<T> dominant = dominant_of_keys(of);
    const Matrix<const T> from = {dominant.data(), width, 1};
    for (Index r = 0; r < rows_.count(); ++r) {
      add_gradients_of_edges<T>(all_.options(), from, width, rows_.row(r), {first[r], first[r + 1]},
                                found, out);
    }
  }

 private:
  static constexpr Index kIndex = sizeof(Index);

  /// Scratch elements per worker.
  Index slot() const { return rows_.count() + all_.points(); }
  const Index* begins(Index place) const {
    return begin_.template data<Index>() + place * (rows_.count() + 1);
  }

  void put(Index place, Index at, Index j, T distance, Index slot) {
    const Index number = by_place_ ? places_.place(j) : j;
    keys_.template data<Index>()[place * head_edges() + at] = number;
    confidences_.template data<T>()[place * head_edges() + at] = distance;
    if (!with_gradients_) return;
    slots_.template data<Index>()[place * head_edges() + at] = number * all_.width() + slot;
  }

  std::vector<T> dominant_of_keys(const HeadEdges<T>& of) const {
    std::vector<T> all;
    for (const Range& range : ranges_) {
      for (Index j = range.begin; j < range.end; ++j) {
        for (Index m = 0; m < of.slots_per_key; ++m) {
          all.push_back(of.dominant.data[j * of.dominant.row + m * of.dominant.column]);
        }
      }
    }
    return all;
  }

  /// Calls f(key, edge, query, row) for the edges of queries with rows.
  template <class F>
  void for_each_edge(const HeadEdges<T>& of, Index* points, const F& f) const {
    all_.for_each_edge(of, ranges_, points, [&](Index j, Index e, Index i) {
      const Index row = rows_.place(i);
      if (row >= 0) f(j, e, i, row);
    });
  }

  const FsatKeys<T>& all_;
  PlacesInRanges rows_;
  std::vector<Range> ranges_;
  PlacesInRanges places_;  // of keys
  bool by_place_;
  bool with_gradients_;
  Workspace begin_;          // [heads, rows + 1]
  Workspace keys_;           // [heads, edges]
  Workspace confidences_;    // [heads, edges]
  Workspace slots_;          // [heads, edges]
  Workspace d_confidences_;  // [heads, edges]
  Workspace scratch_;        // [workers, slot()]
};

}  // namespace distributed

FOVEA_NAMESPACE_END
