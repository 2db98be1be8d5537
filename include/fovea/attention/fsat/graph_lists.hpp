// SPDX-License-Identifier: MIT
/// \file
/// The graph of FSAT attention as the passes over lists of keys read it: rows of keys whose weights
/// are multiplied by the confidences.
#pragma once

#include "fovea/attention/fsat/graph.hpp"
#include "fovea/attention/indexed/forward.hpp"

FOVEA_NAMESPACE_BEGIN

/// Lists that are built for some heads at a time. \tparam T float or double
template <class T>
class FsatLists {
 public:
  static constexpr bool kBuilt = true;

  /// \param graph outlives it   \param d_dominant [B, Hq, L, M], or none
  FsatLists(FsatGraph<T>& graph, const std::optional<double>& scale, Index tokens,
            const View<T>& d_dominant = {})
      : graph_(&graph), scale_({.scale = scale}), tokens_(tokens), d_dominant_(d_dominant) {}

  template <class U>
  U scale_of(Index width) const {
    return scale_.template scale_of<U>(width);
  }
  /// Every key may be in one row.
  Index length() const { return tokens_; }
  Index entries() const { return graph_->head_edges(); }
  Index first_entry(const Sequence& s) const { return graph_->first_edge(s); }

  /// \throws std::bad_alloc
  void take_memory(Index heads, Index workers) { graph_->take_memory(heads, workers); }
  void build(const Sequence& s, Index h, Index place, Index worker) {
    graph_->build(s, h, place, worker);
  }

  KeyLists rows(const Sequence& s, Index /*h*/, Index place) const {
    return graph_->rows(s, place);
  }
  const T* factors(const Sequence& s, Index place) const { return graph_->confidences(s, place); }
  T* d_factors(const Sequence& s, Index place) const {
    return graph_->with_gradients() ? graph_->d_confidences(s, place) : nullptr;
  }

  /// \pre the rows of the head have written d_factors
  void take_gradients(const Sequence& s, Index h, Index place) const {
    if (graph_->with_gradients()) graph_->lead_back(s, h, place, d_dominant_);
  }

 private:
  FsatGraph<T>* graph_;
  IndexedOptions scale_;
  Index tokens_;
  View<T> d_dominant_;
};

FOVEA_NAMESPACE_END
