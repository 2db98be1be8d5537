// SPDX-License-Identifier: MIT
/// \file
/// Feature maps for kernels. Their bodies are in feature_map.inl.hpp, compiled once per
/// instruction-set level.
#pragma once

#include <cstdint>

#include "fovea/core/scalar.hpp"

FOVEA_NAMESPACE_BEGIN

/// The maps supported by kernels.
enum class FeatureMapKind : std::uint8_t {
  elu_plus_one,        ///< elu(x) + 1
  elu_minus_plus_one,  ///< elu(-x) + 1
  tanh_plus_one,       ///< tanh(x) + 1
  tanh,                ///< tanh(x)
  relu,                ///< max(x, 0)
  identity,            ///< x itself, for precomputed features
  own                  ///< a user's map, given as functions
};

/// An element-wise map phi.
template <class T>
struct FeatureMapArgs {
  /// Which map it is.
  FeatureMapKind kind = FeatureMapKind::elu_plus_one;
  /// Writes y[i] = phi(x[i]) for i < n. Null except for `own`. x and y do not overlap.
  void (*value)(const T* x, T* y, Index n) noexcept = nullptr;
  /// Writes y[i] = phi'(x[i]) for i < n. Null except for `own`. x and y do not overlap.
  void (*derivative)(const T* x, T* y, Index n) noexcept = nullptr;
};

FOVEA_NAMESPACE_END
