// SPDX-License-Identifier: MIT
/// \file
/// Builds the graph of one FSAT head from its edges: computes their queries, and sorts by these
/// with a counting sort, on one thread or, if there are fewer graphs than threads, in steps whose
/// parts are divided among threads.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>

#include "fovea/attention/fsat/options.hpp"
#include "fovea/kernels/indexed/table.hpp"
#include "fovea/patterns/pattern.hpp"
#include "fovea/simd/matrix.hpp"
#include "fovea/simd/padding.hpp"

FOVEA_NAMESPACE_BEGIN

/// The sources of one head's graph, and where it is written.
/// \tparam T float or double
template <class T>
struct HeadEdges {
  Matrix<const T> dominant = {};    ///< [n, M]
  Matrix<const Index> random = {};  ///< [n, M] the queries of random edges; if empty: drawn
  Index slots_per_key = 0;          ///< M
  Index edges_of_key = 0;           ///< the edges that a key can have: M or 2 M
  Index length = 0;                 ///< n, the tokens that have edges
  Index rows = 0;                   ///< rows of the sequence; those from n on are empty
  Index sequence = 0;               ///< number of the sequence, for the draws
  Index head = 0;                   ///< number of the head, for the draws
  Index* begin = nullptr;           ///< [rows + 1] where each row begins, written
  Index* keys = nullptr;            ///< [n, edges_of_key] the keys of the rows, written
  T* confidences = nullptr;         ///< [n, edges_of_key] their confidences, written
  Index* slots_of_keys = nullptr;   ///< [n, edges_of_key] their slots, written; null: not wanted

  /// The distance I - Ibar, rounded once.
  static T distance_of(Index i, T ibar) {
    return static_cast<T>(static_cast<double>(i) - static_cast<double>(ibar));
  }
  /// The slot of edge e of a key.
  Index slot_of(Index e) const { return e < slots_per_key ? e : e - slots_per_key; }
  /// The distance of query i from the dominant index of edge e of key j.
  T distance(Index i, Index j, Index e) const {
    return distance_of(i, dominant.data[j * dominant.row + slot_of(e) * dominant.column]);
  }

  /// Computes the queries of all edges of some keys; keys from n on have none.
  /// \param to [keys, edges_of_key], written
  void point(const Range& some, const FsatOptions& options, Index* to) const noexcept {
    if (options.edges != EdgeSource::random) point_predicted(some, options, to);
    if (options.edges == EdgeSource::predicted) return;
    const Index behind = options.edges == EdgeSource::both ? slots_per_key : 0;
    if (random.data != nullptr) return point_given(some, to + behind);
    GraphKernels<T>{}.random_points({.seed = options.seed,
                                     .batch = sequence,
                                     .head = head,
                                     .first = some.begin,
                                     .keys = some.end - some.begin,
                                     .slots_per_key = slots_per_key,
                                     .length = length,
                                     .points = to + behind,
                                     .row = edges_of_key});
  }

  /// Converts some entries' distances to confidences.
  void weigh(const Range& places, const FsatOptions& options) const noexcept {
    constexpr double two_pi = 6.28318530717958647693;
    const double variance = options.variance_or_default();
    const bool is_relative = options.confidence == Confidence::relative;
    const T peak = is_relative ? T(1) : static_cast<T>(1 / std::sqrt(two_pi * variance));
    GraphKernels<T>{}.normal_density({confidences + places.begin, places.end - places.begin,
                                      static_cast<T>(-0.5 / variance), peak});
  }

 private:
  /// Computes the query Ip of every slot, which come first for each key.
  void point_predicted(const Range& some, const FsatOptions& options, Index* to) const noexcept {
    // A power of two, exact in T; the largest Index would be rounded up.
    constexpr Index half = (std::numeric_limits<Index>::max)() / 2 + 1;
    constexpr T most = static_cast<T>(half);
    const Index last = (std::min)(options.max_length - 1, length);
    const HeadEdges of = *this;  // a copy, which no store can change
    for (Index j = some.begin; j < some.end; ++j) {
      const T* const from = of.dominant.data + j * of.dominant.row;
      for (Index m = 0; m < of.slots_per_key; ++m) {
        const auto floor = static_cast<Index>((std::min)(from[m * of.dominant.column], most));
        to[m] = (std::min)(floor, last);
      }
      to += of.edges_of_key;
    }
  }

  /// Copies the given queries of the random edges.
  void point_given(const Range& some, Index* to) const noexcept {
    for (Index j = some.begin; j < some.end; ++j) {
      const Index* const from = random.data + j * random.row;
      for (Index m = 0; m < slots_per_key; ++m) to[m] = from[m * random.column];
      to += edges_of_key;
    }
  }
};

/// Builds the graph of one head on one thread.
/// \tparam T float or double
template <class T>
class EdgeSort {
 public:
  /// Integers of scratch for a head of that many tokens.
  static Index scratch_size(Index tokens, Index edges_of_key) {
    return tokens * (1 + edges_of_key);
  }

  /// \param options must outlive this object
  /// \param scratch [scratch_size(...)]
  EdgeSort(const HeadEdges<T>& edges, const FsatOptions& options, Index* scratch)
      : of_(edges), options_(options), marks_(scratch), points_(scratch + edges.length) {}

  /// Builds the graph.
  void run() const noexcept {
    std::fill_n(of_.begin, of_.rows + 1, Index{0});
    std::fill_n(marks_, of_.length, Index{-1});
    of_.point({0, of_.length}, options_, points_);
    count_edges();
    for (Index i = 0; i < of_.rows; ++i) of_.begin[i + 1] += of_.begin[i];
    place_edges();
    // Each row's begin was advanced to its end, which is the next row's begin.
    std::copy_backward(of_.begin, of_.begin + of_.rows, of_.begin + of_.rows + 1);
    of_.begin[0] = 0;
    of_.weigh({0, of_.begin[of_.rows]}, options_);
  }

 private:
  /// Sets begin[i + 1] to the number of keys of row i, and marks each row's last key.
  void count_edges() const noexcept {
    const HeadEdges<T> of = of_;
    Index* const marks = marks_;
    const Index* to = points_;
    for (Index j = 0; j < of.length; ++j) {
      for (Index e = 0; e < of.edges_of_key; ++e) {
        const Index i = *to++;
        if (i >= of.length || marks[i] == j) continue;
        marks[i] = j;
        ++of.begin[i + 1];
      }
    }
  }

  /// Writes each row's keys with their distances and slots.
  void place_edges() const noexcept {
    const HeadEdges<T> of = of_;
    Index* const marks = marks_;
    const Index* to = points_;
    for (Index j = 0; j < of.length; ++j) {
      const T* const from = of.dominant.data + j * of.dominant.row;
      for (Index e = 0; e < of.edges_of_key; ++e) {
        const Index i = *to++;
        if (i >= of.length) continue;
        const T distance = of.distance_of(i, from[of.slot_of(e) * of.dominant.column]);
        Index at = of.begin[i] - 1;
        if (marks[i] == ~j) {  // otherwise the last key of the row is an earlier one
          if (!(std::abs(distance) < std::abs(of.confidences[at]))) continue;
        } else {
          marks[i] = ~j;
          at = of.begin[i]++;
          of.keys[at] = j;
        }
        of.confidences[at] = distance;
        if (of.slots_of_keys != nullptr)
          of.slots_of_keys[at] = j * of.slots_per_key + of.slot_of(e);
      }
    }
  }

  const HeadEdges<T> of_;
  const FsatOptions& options_;
  Index* const marks_;   // [n] the last key counted, or placed
  Index* const points_;  // [n, edges_of_key] the query of an edge, or n
};

/// The parts that tokens are cut into, both as keys that have edges and as queries that get them.
/// There are few, so that edges can be counted for each pair of a key part and a query part.
class TokenParts {
 public:
  /// \param tokens L of the tensors, which alone determines the length of a part
  explicit TokenParts(Index tokens) {
    while (tokens > kMost << shift_) ++shift_;
  }

  /// The number of parts of that many tokens.
  Index count(Index tokens) const { return (tokens + (Index{1} << shift_) - 1) >> shift_; }
  /// A token's part.
  Index part_of(Index token) const { return token >> shift_; }
  /// The tokens of a part, out of `end` tokens.
  Range operator()(Index part, Index end) const {
    return {part << shift_, (std::min)((part + 1) << shift_, end)};
  }

 private:
  static constexpr Index kMost = 64;

  int shift_ = 9;
};

/// Builds the graph of one head in two steps. First each key part sorts its edges by query parts,
/// and removes duplicates; then each query part sorts its edges from all key parts by queries.
/// Every list depends only on the order of the edges, so it equals EdgeSort's, whichever thread
/// builds which part.
/// Cost: that of EdgeSort from 65536 tokens on, where memory dominates, and up to twice as much
/// below.
/// \tparam T float or double
template <class T>
class SharedEdgeSort {
 public:
  /// Bytes of scratch for a head of that many tokens.
  static Index scratch_bytes(Index tokens, Index edges_of_key) {
    const Index parts = TokenParts(tokens).count(tokens);
    return parts * (parts + 1) * Index{sizeof(Index)} +
           padded_size(tokens * edges_of_key * Index{sizeof(Edge)}, Index{sizeof(Index)});
  }

  /// \param options must outlive this object
  /// \param tokens L of the tensors
  /// \param scratch scratch_bytes(...), aligned to 8 bytes
  SharedEdgeSort(const HeadEdges<T>& edges, const FsatOptions& options, Index tokens,
                 std::byte* scratch)
      : of_(edges),
        options_(options),
        cut_(tokens),
        parts_(cut_.count(edges.length)),
        counts_(reinterpret_cast<Index*>(scratch)),
        begins_(counts_ + parts_ * parts_),
        edges_(reinterpret_cast<Edge*>(begins_ + parts_)) {}

  /// The number of parts of each step.
  Index parts() const { return parts_; }

  /// The first step, for part p of the keys.
  void sort(Index p) const noexcept {
    const Range keys = cut_(p, of_.length);
    of_.point(keys, options_, queries_of(keys.begin));
    Index* const ends = counts_ + p * parts_;
    std::fill_n(ends, parts_, Index{0});
    count_edges(keys, ends);
    Index first = 0;
    for (Index n = 0; n < parts_; ++n) first += std::exchange(ends[n], first);
    scatter_edges(keys, ends);
  }

  /// Between the steps: computes where the rows of each query part begin, and writes the begins of
  /// those after the last token.
  void find_begins() const noexcept {
    Index first = 0;
    for (Index p = 0; p < parts_; ++p) {
      begins_[p] = first;
      for (Index keys = 0; keys < parts_; ++keys) first += std::ssize(segment(keys, p));
    }
    of_.begin[0] = 0;
    std::fill(of_.begin + of_.length + 1, of_.begin + of_.rows + 1, first);
  }

  /// The second step, for part p of the queries.
  void place(Index p) const noexcept {
    const Range rows = cut_(p, of_.length);
    // A row's end entry holds its begin until all of its keys are placed.
    Index* const ends = of_.begin + rows.begin + 1;
    std::fill_n(ends, rows.end - rows.begin, Index{0});
    for (Index keys = 0; keys < parts_; ++keys) {
      for (const Edge& edge : segment(keys, p)) ++ends[edge.row];
    }
    Index first = begins_[p];
    for (Index r = 0; r < rows.end - rows.begin; ++r) first += std::exchange(ends[r], first);
    for (Index keys = 0; keys < parts_; ++keys) place(segment(keys, p), cut_(keys, 0).begin, ends);
    of_.weigh({begins_[p], first}, options_);
  }

 private:
  /// One edge. Rows and keys are relative to their parts, which have fewer than 2^32.
  struct Edge {
    std::uint32_t row;
    std::uint32_t key;
    std::uint32_t slot;
    T distance;
  };

  /// The edges from a query part to a key part, after the first step.
  std::span<const Edge> segment(Index keys, Index queries) const {
    const Index* const ends = counts_ + keys * parts_;
    const Index begin = queries == 0 ? 0 : ends[queries - 1];
    return {edges_ + cut_(keys, 0).begin * of_.edges_of_key + begin,
            static_cast<std::size_t>(ends[queries] - begin)};
  }

  /// The queries of key j's edges; n where there is none. Stored where the rows' keys will be.
  Index* queries_of(Index j) const { return of_.keys + j * of_.edges_of_key; }

  /// Removes duplicate edges of some keys, and counts the rest by query parts.
  void count_edges(const Range& keys, Index* counts) const noexcept {
    const TokenParts cut = cut_;
    const Index length = of_.length;
    const Index edges = of_.edges_of_key;
    for (Index j = keys.begin; j < keys.end; ++j) {
      Index* const queries = queries_of(j);
      for (Index e = 0; e < edges; ++e) {
        const Index i = queries[e];
        if (i >= length) continue;
        Index f = 0;
        while (queries[f] != i) ++f;
        if (f == e) {
          ++counts[cut.part_of(i)];
        } else {
          leave_out_one(j, queries, f, e);
        }
      }
    }
  }

  /// Removes one of the edges e and f < e of key j from the same query: the one farther from its
  /// dominant index, or the later one if equal.
  void leave_out_one(Index j, Index* queries, Index f, Index e) const noexcept {
    const Index i = queries[e];
    const bool is_nearer = std::abs(of_.distance(i, j, e)) < std::abs(of_.distance(i, j, f));
    queries[is_nearer ? f : e] = of_.length;
  }

  /// Writes the edges of some keys by query parts.
  /// \param places where each part's edges go
  void scatter_edges(const Range& keys, Index* places) const noexcept {
    const TokenParts cut = cut_;
    const Index length = of_.length;
    const Index edges = of_.edges_of_key;
    Edge* const to = edges_ + keys.begin * edges;
    for (Index j = keys.begin; j < keys.end; ++j) {
      const Index* const queries = queries_of(j);
      for (Index e = 0; e < edges; ++e) {
        const Index i = queries[e];
        if (i >= length) continue;
        const Index part = cut.part_of(i);
        to[places[part]++] = {static_cast<std::uint32_t>(i - cut(part, 0).begin),
                              static_cast<std::uint32_t>(j - keys.begin),
                              static_cast<std::uint32_t>(of_.slot_of(e)), of_.distance(i, j, e)};
      }
    }
  }

  /// Writes the keys of edges to their rows, with their distances and slots.
  /// \param first_key the first key of their part
  /// \param ends where the rows end so far
  void place(std::span<const Edge> edges, Index first_key, Index* ends) const noexcept {
    Index* const keys = of_.keys;
    T* const distances = of_.confidences;
    Index* const edge_slots = of_.slots_of_keys;
    for (const Edge& edge : edges) {
      const Index at = ends[edge.row]++;
      keys[at] = first_key + Index{edge.key};
      distances[at] = edge.distance;
      if (edge_slots != nullptr) edge_slots[at] = keys[at] * of_.slots_per_key + Index{edge.slot};
    }
  }

  const HeadEdges<T> of_;
  const FsatOptions& options_;
  const TokenParts cut_;
  const Index parts_;
  Index* const counts_;  // [key parts, query parts] where the edges of each end
  Index* const begins_;  // [query parts] where their rows begin
  Edge* const edges_;    // [n, edges_of_key] each key part by query parts
};

FOVEA_NAMESPACE_END
