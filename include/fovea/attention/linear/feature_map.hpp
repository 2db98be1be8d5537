// SPDX-License-Identifier: MIT
/// \file
/// Feature maps phi of the far field, which replace softmax attention's exp(<q, k>) by <phi(q),
/// phi(k)> (FMMformer, section 3.2; MATHS.md, section 4).
#pragma once

#include <array>
#include <concepts>

#include "fovea/kernels/linear/feature_map.hpp"

FOVEA_NAMESPACE_BEGIN

/// The map elu(x) + 1, the paper's phi_1: exp(x) for x < 0, otherwise x + 1.
struct EluPlusOne {
  /// The formula, for error messages.
  static constexpr const char* name() { return "elu(x) + 1"; }
  /// The map is never negative.
  static constexpr bool kNonNegative = true;
  /// The kernels' name for it.
  static constexpr FeatureMapKind kKind = FeatureMapKind::elu_plus_one;
};

/// The map elu(-x) + 1, the paper's phi_2.
struct EluMinusPlusOne {
  /// The formula, for error messages.
  static constexpr const char* name() { return "elu(-x) + 1"; }
  /// The map is never negative.
  static constexpr bool kNonNegative = true;
  /// The kernels' name for it.
  static constexpr FeatureMapKind kKind = FeatureMapKind::elu_minus_plus_one;
};

/// The map tanh(x) + 1 = 2 sigmoid(2 x), the third in the authors' code.
struct TanhPlusOne {
  /// The formula, for error messages.
  static constexpr const char* name() { return "tanh(x) + 1"; }
  /// The map is never negative.
  static constexpr bool kNonNegative = true;
  /// The kernels' name for it.
  static constexpr FeatureMapKind kKind = FeatureMapKind::tanh_plus_one;
};

/// The map tanh(x), the paper's phi_3. Denominators may vanish or be negative, so an operator with
/// this map requires a Denominator.
struct Tanh {
  /// The formula, for error messages.
  static constexpr const char* name() { return "tanh(x)"; }
  /// The map can be negative.
  static constexpr bool kNonNegative = false;
  /// The kernels' name for it.
  static constexpr FeatureMapKind kKind = FeatureMapKind::tanh;
};

/// The map max(x, 0). Denominators may vanish.
struct Relu {
  /// The formula, for error messages.
  static constexpr const char* name() { return "max(x, 0)"; }
  /// The map is never negative.
  static constexpr bool kNonNegative = true;
  /// The kernels' name for it.
  static constexpr FeatureMapKind kKind = FeatureMapKind::relu;
};

/// A feature map of the library.
template <class M>
concept BuiltInFeatureMap = requires {
  { M::kKind } -> std::convertible_to<FeatureMapKind>;
};

/// A user's feature map: a function of one number, and its derivative.
template <class M, class T>
concept OwnFeatureMap = requires(T x) {
  { M::value(x) }
  noexcept->std::convertible_to<T>;
  { M::derivative(x) }
  noexcept->std::convertible_to<T>;
};

/// A feature map: one of the library's, or a user's. It is applied to each element of q and k. Its
/// constant kNonNegative says whether it is never negative; otherwise a denominator policy is
/// required.
template <class M, class T = float>
concept FeatureMap = (BuiltInFeatureMap<M> || OwnFeatureMap<M, T>)&&requires {
  { M::name() } -> std::convertible_to<const char*>;
  { M::kNonNegative } -> std::convertible_to<bool>;
};

namespace detail {

template <class M, class T>
void map_values(const T* x, T* y, Index n) noexcept {
  for (Index i = 0; i < n; ++i) y[i] = M::value(x[i]);
}
template <class M, class T>
void map_derivatives(const T* x, T* y, Index n) noexcept {
  for (Index i = 0; i < n; ++i) y[i] = M::derivative(x[i]);
}

/// The map as the kernels take it.
template <class M, class T>
constexpr FeatureMapArgs<T> map_args() {
  if constexpr (BuiltInFeatureMap<M>) {
    return {M::kKind};
  } else {
    static_assert(OwnFeatureMap<M, T>, "a feature map needs noexcept value(x) and derivative(x)");
    return {FeatureMapKind::own, &map_values<M, T>, &map_derivatives<M, T>};
  }
}

}  // namespace detail

FOVEA_NAMESPACE_END
