// SPDX-License-Identifier: MIT
/// \file
/// The sparse graph of FSAT attention (Zhuang et al. 2022, section 4.1; MATHS.md, section 6). It is
/// made of the dominant indices, and consists of rows of keys with confidences.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "fovea/attention/call/head_matrix.hpp"
#include "fovea/attention/call/sequences.hpp"
#include "fovea/attention/fsat/options.hpp"
#include "fovea/core/workspace.hpp"
#include "fovea/kernels/indexed/table.hpp"

FOVEA_NAMESPACE_BEGIN

/// The graphs of some heads. Slot m of key j has an edge from query Ip[j, m], one from query Ir[j,
/// m], or both, as the options say. If a sequence has the length n, edges are among its first n
/// tokens.
/// Of several edges from one query to one key the one with the largest confidence stays: the one
/// with the smallest |I - Ibar|, even where both confidences have underflowed to 0. Among equal
/// ones a predicted edge comes before a random one, and then the smaller m.
/// Each query has its keys as a row, in ascending order. Rows come from a counting sort of the
/// edges in the order of keys and slots, one task for each head of a sequence, so the bits are the
/// same for any number of threads. It checks nothing.
/// Cost: two passes over the slots. Memory: for each slot and head 8 bytes and one number (twice
/// that in training, and twice that with gradients), and for each query 8 bytes; for each worker 8
/// bytes for each edge and query of one head.
/// \tparam T float or double
template <class T>
class FsatGraph {
 public:
  /// \param dominant [B, Hq, L, M]
  /// \param sequences number of sequences that a row of L tokens holds: 1, or that of the packed
  /// ones
  /// \param with_gradients whether lead_back will be called
  FsatGraph(const View<const T>& dominant, const FsatOptions& options, Index sequences,
            bool with_gradients)
      : dominant_(dominant),
        options_(options),
        begins_(dominant.rows() + sequences),
        with_gradients_(with_gradients) {}

  /// The number of edges that one slot can have: 1 or 2.
  static Index edges_per_slot(const FsatOptions& options) {
    return options.edges == EdgeSource::both ? 2 : 1;
  }
  /// The number of edges that one key can have.
  Index edges_per_key() const { return dominant_.width() * edges_per_slot(options_); }
  /// The largest number of edges of one head.
  Index head_edges() const { return dominant_.rows() * edges_per_key(); }
  /// The place of a sequence's first edge among those of its head.
  Index first_edge(const Sequence& s) const { return s.first_key * edges_per_key(); }
  /// Whether there is room for gradients.
  bool with_gradients() const { return with_gradients_; }

  /// Bytes of memory for the graphs of that many heads of L = length tokens and M = slots, built by
  /// that many workers.
  static Index size_bytes(const FsatOptions& options, Index length, Index slots, Index sequences,
                          Index heads, Index workers, bool with_gradients) {
    const Index edges = length * slots * edges_per_slot(options);
    const Index indices = length + sequences + edges * (with_gradients ? 2 : 1);
    const Index numbers = edges * (with_gradients ? 2 : 1);
    return heads * (indices * kIndex + numbers * Index{sizeof(T)}) +
           workers * (length + edges) * kIndex;
  }

  /// Takes the memory for that many graphs at once.
  /// \param memory that of the call (memory_of)
  /// \throws std::bad_alloc
  template <class Memory>
  void take_memory(Index heads, Index workers, Memory&& memory) {
    const Index edges = head_edges();
    begin_ = memory.take(heads, begins_ * kIndex);
    keys_ = memory.take(heads, edges * kIndex);
    confidences_ = memory.take(heads, edges * Index{sizeof(T)});
    if (with_gradients_) {
      slots_ = memory.take(heads, edges * kIndex);
      d_confidences_ = memory.take(heads, edges * Index{sizeof(T)});
    }
    scratch_ = memory.take(workers, scratch_size() * kIndex);
  }

  /// Builds the graph of head h of sequence s.
  /// \param place the head's place among those that there is memory for
  void build(const Sequence& s, Index h, Index place, Index worker) noexcept {
    Index* const marks = scratch_.template data<Index>() + worker * scratch_size();
    Building graph{detail::head_matrix(dominant_, s.batch, h, s.first_key),
                   dominant_.width(),
                   s.key_end,
                   begin_.template data<Index>() + begin_at(place, s),
                   marks,
                   marks + dominant_.rows()};
    std::fill_n(graph.begin, s.keys + 1, Index{0});
    std::fill_n(marks, s.key_end, Index{-1});
    if (options_.edges != EdgeSource::random) point_predicted(graph);
    if (options_.edges != EdgeSource::predicted) point_randomly(graph, s, h);
    count_edges(graph);
    for (Index i = 0; i < s.keys; ++i) graph.begin[i + 1] += graph.begin[i];
    T* const x = confidences_.template data<T>() + edge_at(place, s);
    place_edges(graph, x, edge_at(place, s));
    // Each row's begin has moved to its end, where the next row began.
    const Index count = graph.begin[s.keys];
    std::copy_backward(graph.begin, graph.begin + s.keys, graph.begin + s.keys + 1);
    graph.begin[0] = 0;
    GraphKernels<T>{}.normal_density({x, count, static_cast<T>(-0.5 / variance()), peak()});
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
  const Index* slots(const Sequence& s, Index place) const {
    return slots_.template data<Index>() + edge_at(place, s);
  }

  /// Where the gradients of the confidences are to be written.
  /// \pre with_gradients()
  T* d_confidences(const Sequence& s, Index place) {
    return d_confidences_.template data<T>() + edge_at(place, s);
  }

  /// Writes the gradient of the dominant indices of head h of sequence s, made of the gradients of
  /// its confidences.
  /// \param to [B, Hq, L, M], written
  void lead_back(const Sequence& s, Index h, Index place, const View<T>& to) noexcept {
    const Matrix<const T> from = detail::head_matrix(dominant_, s.batch, h, s.first_key);
    const Matrix<T> out = detail::head_matrix(to, s.batch, h, s.first_key);
    const Index width = dominant_.width();
    for (Index j = 0; j < s.keys; ++j) {
      for (Index m = 0; m < width; ++m) out.data[j * out.row + m * out.column] = 0;
    }
    const Index* const first = begin_.template data<Index>() + begin_at(place, s);
    const T* const confidence = confidences(s, place);
    const T* const d_confidence = d_confidences(s, place);
    const Index* const slot = slots(s, place);
    const T precision = static_cast<T>(1 / variance());
    for (Index i = 0; i < s.key_end; ++i) {
      for (Index e = first[i]; e < first[i + 1]; ++e) {
        const Index j = slot[e] / width;
        const Index m = slot[e] % width;
        const T distance = distance_of(i, from.data[j * from.row + m * from.column]);
        T flows = d_confidence[e];
        if (options_.truncate_gradient && flows > 0) flows = 0;  // a NaN stays
        out.data[j * out.row + m * out.column] += flows * confidence[e] * (distance * precision);
      }
    }
  }

 private:
  static constexpr Index kIndex = sizeof(Index);

  /// One graph while it is being built.
  struct Building {
    Matrix<const T> dominant;  // [keys, M]
    Index slots;               // M
    Index length;              // n
    Index* begin;              // [rows + 1]
    Index* marks;              // [rows] the last key that was counted, or placed
    Index* points;             // [n, edges per key] the query of an edge, or n
  };

  Index edge_at(Index place, const Sequence& s) const {
    return place * head_edges() + first_edge(s);
  }
  /// The place of a sequence's first begin. Each of the packed sequences has one more begin than
  /// rows.
  Index begin_at(Index place, const Sequence& s) const {
    return place * begins_ + s.first_key + (s.index - s.batch);
  }
  Index scratch_size() const { return dominant_.rows() * (1 + edges_per_key()); }
  bool has_both() const { return options_.edges == EdgeSource::both; }
  double variance() const { return options_.variance_or_default(); }

  T peak() const {
    constexpr double two_pi = 6.28318530717958647693;
    if (options_.confidence == Confidence::relative) return 1;
    return static_cast<T>(1 / std::sqrt(two_pi * variance()));
  }

  /// The distance I - Ibar, rounded once.
  static T distance_of(Index i, T dominant) {
    return static_cast<T>(static_cast<double>(i) - static_cast<double>(dominant));
  }

  /// Sets the query Ip of every slot.
  void point_predicted(const Building& graph) const noexcept {
    // This is a power of two, so that T can hold it; the largest Index would be rounded up.
    constexpr T most = static_cast<T>((std::numeric_limits<Index>::max)() / 2 + 1);
    const Index last = options_.max_length - 1;
    Index* to = graph.points;
    for (Index j = 0; j < graph.length; ++j) {
      const T* const from = graph.dominant.data + j * graph.dominant.row;
      for (Index m = 0; m < graph.slots; ++m) {
        const auto floor = static_cast<Index>((std::min)(from[m * graph.dominant.column], most));
        to[m] = (std::min)((std::min)(floor, last), graph.length);
      }
      to += edges_per_key();
    }
  }

  /// Sets the query Ir of every slot, behind the predicted ones of its key.
  void point_randomly(const Building& graph, const Sequence& s, Index h) const noexcept {
    GraphKernels<T>{}.random_points({.seed = options_.seed,
                                     .batch = s.index,
                                     .head = h,
                                     .keys = graph.length,
                                     .slots = graph.slots,
                                     .length = graph.length,
                                     .points = graph.points + (has_both() ? graph.slots : 0),
                                     .row = edges_per_key()});
  }

  /// Sets begin[i + 1] to the number of keys of row i, and leaves a mark of each row's last key.
  void count_edges(const Building& graph) const noexcept {
    const Index* to = graph.points;
    const Index edges = edges_per_key();
    for (Index j = 0; j < graph.length; ++j) {
      for (Index e = 0; e < edges; ++e) {
        const Index i = *to++;
        if (i >= graph.length || graph.marks[i] == j) continue;
        graph.marks[i] = j;
        ++graph.begin[i + 1];
      }
    }
  }

  /// Writes the keys of each row with their distances, and the slots that they come from.
  void place_edges(const Building& graph, T* distances, Index first) noexcept {
    Index* const keys = keys_.template data<Index>() + first;
    Index* const slots = with_gradients_ ? slots_.template data<Index>() + first : nullptr;
    const Index* to = graph.points;
    const Index edges = edges_per_key();
    for (Index j = 0; j < graph.length; ++j) {
      const T* const from = graph.dominant.data + j * graph.dominant.row;
      for (Index e = 0; e < edges; ++e) {
        const Index i = *to++;
        if (i >= graph.length) continue;
        const Index m = e < graph.slots ? e : e - graph.slots;
        const T distance = distance_of(i, from[m * graph.dominant.column]);
        Index at = graph.begin[i] - 1;
        if (graph.marks[i] == ~j) {  // otherwise the last key of the row is an earlier one
          if (!(std::abs(distance) < std::abs(distances[at]))) continue;
        } else {
          graph.marks[i] = ~j;
          at = graph.begin[i]++;
          keys[at] = j;
        }
        distances[at] = distance;
        if (slots != nullptr) slots[at] = j * graph.slots + m;
      }
    }
  }

  View<const T> dominant_;
  FsatOptions options_;
  Index begins_;  // begins of a head
  bool with_gradients_;
  Workspace begin_;          // [heads, begins]
  Workspace keys_;           // [heads, edges]
  Workspace confidences_;    // [heads, edges] distances, until all of them are there
  Workspace slots_;          // [heads, edges]
  Workspace d_confidences_;  // [heads, edges]
  Workspace scratch_;        // [workers] marks, points
};

FOVEA_NAMESPACE_END
