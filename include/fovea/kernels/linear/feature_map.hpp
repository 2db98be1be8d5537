// SPDX-License-Identifier: MIT
/// \file
/// Feature maps as kernels see them. Their bodies are feature_map.inl.hpp, compiled once per
/// instruction-set level.
#pragma once

#include <cstdint>

#include "fovea/core/scalar.hpp"

FOVEA_NAMESPACE_BEGIN

/// The maps that kernels know. `own` is a user's: it comes as functions.
enum class FeatureMapKind : std::uint8_t {
  elu_plus_one,        ///< elu(x) + 1
  elu_minus_plus_one,  ///< elu(-x) + 1
  tanh_plus_one,       ///< tanh(x) + 1
  tanh,
  relu,
  own
};

/// A map phi of single numbers.
template <class T>
struct FeatureMapArgs {
  FeatureMapKind kind = FeatureMapKind::elu_plus_one;
  /// y[i] = phi(x[i]) for i < n; only of an own map. x and y are apart.
  void (*value)(const T* x, T* y, Index n) noexcept = nullptr;
  /// y[i] = phi'(x[i])
  void (*derivative)(const T* x, T* y, Index n) noexcept = nullptr;
};

FOVEA_NAMESPACE_END
