// SPDX-License-Identifier: MIT
/// \file
/// A tensor of key indices that owns its memory.
#pragma once

#include <vector>

#include "fovea/core/view.hpp"

FOVEA_NAMESPACE_BEGIN

/// Lists of keys, [B, Hq, Nq, K] row-major: in each row ascending, -1 behind the last one.
class IndexTensor {
 public:
  IndexTensor() = default;

  /// Filled with -1. \throws std::invalid_argument extents that make no tensor; std::bad_alloc
  explicit IndexTensor(const Shape& shape)
      : shape_(shape), values_(static_cast<std::size_t>(checked_size(shape)), Index{-1}) {}

  const Shape& shape() const { return shape_; }
  View<Index> view() { return {values_.data(), shape_}; }
  View<const Index> view() const { return {values_.data(), shape_}; }
  Index operator()(Index b, Index h, Index i, Index n) const { return view()(b, h, i, n); }

 private:
  static Index checked_size(const Shape& shape) {
    const Index element = -1;
    return View<const Index>(&element, shape).size();
  }

  Shape shape_ = {};
  std::vector<Index> values_;
};

/// An IndexTensor is taken wherever a view of indices is.
template <>
struct ViewTraits<IndexTensor> {
  using Scalar = Index;
  static View<Index> view(IndexTensor& x) { return x.view(); }
  static View<const Index> view(const IndexTensor& x) { return x.view(); }
};

FOVEA_NAMESPACE_END
