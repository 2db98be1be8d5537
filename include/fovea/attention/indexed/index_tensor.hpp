// SPDX-License-Identifier: MIT
/// \file
/// A tensor of key indices that owns its memory.
#pragma once

#include <vector>

#include "fovea/core/view.hpp"

FOVEA_NAMESPACE_BEGIN

/// Lists of keys, [B, Hq, Nq, K] in row-major order. In each row keys ascend, with -1 after the
/// last one.
class IndexTensor {
 public:
  /// An empty tensor.
  IndexTensor() = default;

  /// A tensor of this shape, filled with -1.
  /// \throws std::invalid_argument if the extents are invalid; std::bad_alloc
  explicit IndexTensor(const Shape& shape)
      : shape_(shape), values_(static_cast<std::size_t>(checked_size(shape)), Index{-1}) {}

  /// The extents B, Hq, Nq and K.
  const Shape& shape() const { return shape_; }
  /// A view to write to; it is valid as long as the tensor.
  View<Index> view() { return {values_.data(), shape_}; }
  /// A view to read; it is valid as long as the tensor.
  View<const Index> view() const { return {values_.data(), shape_}; }
  /// Entry n of row i of head h of batch entry b.
  Index operator()(Index b, Index h, Index i, Index n) const { return view()(b, h, i, n); }

 private:
  static Index checked_size(const Shape& shape) {
    const Index element = -1;
    return View<const Index>(&element, shape).size();
  }

  Shape shape_ = {};
  std::vector<Index> values_;
};

/// Allows an IndexTensor wherever a view of indices is allowed.
template <>
struct ViewTraits<IndexTensor> {
  /// The type of the elements.
  using Scalar = Index;
  /// A view to write to.
  static View<Index> view(IndexTensor& x) { return x.view(); }
  /// A view to read.
  static View<const Index> view(const IndexTensor& x) { return x.view(); }
};

FOVEA_NAMESPACE_END
