// SPDX-License-Identifier: MIT
/// \file
/// Builds the graph of one FSAT head from its edges: computes their queries, and sorts by these
/// with a counting sort on one thread.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "fovea/attention/fsat/options.hpp"
#include "fovea/kernels/indexed/table.hpp"
#include "fovea/patterns/pattern.hpp"
#include "fovea/simd/matrix.hpp"

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

FOVEA_NAMESPACE_END
