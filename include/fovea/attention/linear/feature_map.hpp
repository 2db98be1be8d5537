// SPDX-License-Identifier: MIT
/// \file
/// Feature maps phi of the far field: what makes exp(<q, k>) of attention into <phi(q), phi(k)>
/// (FMMformer, section 3.2; MATHS.md, section 4).
#pragma once

#include <array>
#include <concepts>

#include "fovea/kernels/linear/feature_map.hpp"

FOVEA_NAMESPACE_BEGIN

/// elu(x) + 1, phi_1 of the paper: exp(x) for x < 0, else x + 1.
struct EluPlusOne {
  static constexpr const char* name() { return "elu(x) + 1"; }
  static constexpr bool kNonNegative = true;
  static constexpr FeatureMapKind kKind = FeatureMapKind::elu_plus_one;
};

/// elu(-x) + 1, phi_2 of the paper.
struct EluMinusPlusOne {
  static constexpr const char* name() { return "elu(-x) + 1"; }
  static constexpr bool kNonNegative = true;
  static constexpr FeatureMapKind kKind = FeatureMapKind::elu_minus_plus_one;
};

/// tanh(x) + 1 = 2 sigmoid(2 x), the third map of the authors' code.
struct TanhPlusOne {
  static constexpr const char* name() { return "tanh(x) + 1"; }
  static constexpr bool kNonNegative = true;
  static constexpr FeatureMapKind kKind = FeatureMapKind::tanh_plus_one;
};

/// tanh(x), phi_3 of the paper. Denominators may vanish or be negative: an operator with this map
/// asks for a Denominator.
struct Tanh {
  static constexpr const char* name() { return "tanh(x)"; }
  static constexpr bool kNonNegative = false;
  static constexpr FeatureMapKind kKind = FeatureMapKind::tanh;
};

/// max(x, 0). Denominators may vanish.
struct Relu {
  static constexpr const char* name() { return "max(x, 0)"; }
  static constexpr bool kNonNegative = true;
  static constexpr FeatureMapKind kKind = FeatureMapKind::relu;
};

/// A map that the library has.
template <class M>
concept BuiltInFeatureMap = requires {
  { M::kKind } -> std::convertible_to<FeatureMapKind>;
};

/// A map of one's own, of single numbers, and its derivative.
template <class M, class T>
concept OwnFeatureMap = requires(T x) {
  { M::value(x) }
  noexcept->std::convertible_to<T>;
  { M::derivative(x) }
  noexcept->std::convertible_to<T>;
};

/// A feature map: one of the library's, or one's own, applied to each element of q and k. Whether
/// it is never negative decides whether denominators need a policy.
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

/// A map as the kernels take it.
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
