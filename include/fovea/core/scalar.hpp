// SPDX-License-Identifier: MIT
/// \file
/// The scalar types of tensors: how each one is stored, and in which type it is computed with.
#pragma once

#include "fovea/core/config.hpp"

FOVEA_NAMESPACE_BEGIN

/// How the elements of a tensor lie in memory.
enum class Storage : unsigned char {
  native,    ///< stored as float or double, the type of the arithmetic
  bfloat16,  ///< the upper half of a float
  float16,   ///< IEEE 754 binary16
};

/// What the operators know of a scalar type T: `Compute` is the type of its arithmetic, and
/// `kStorage` says how it is stored. The traits of Eigen's 16-bit types are in
/// fovea/core/eigen_scalar.hpp.
template <class T>
struct ScalarTraits;

/// float is stored and computed as it is.
template <>
struct ScalarTraits<float> {
  using Compute = float;                                ///< The type of the arithmetic.
  static constexpr Storage kStorage = Storage::native;  ///< How the elements lie in memory.
};

/// double is stored and computed as it is.
template <>
struct ScalarTraits<double> {
  using Compute = double;                               ///< The type of the arithmetic.
  static constexpr Storage kStorage = Storage::native;  ///< How the elements lie in memory.
};

/// A type that the elements of a tensor may have, because it has ScalarTraits.
template <class T>
concept TensorScalar = requires {
  typename ScalarTraits<T>::Compute;
};

/// How the elements of tensors of T are stored.
template <class T>
inline constexpr Storage kStorage = ScalarTraits<T>::kStorage;

/// The type in which tensors of T are computed: float for the 16-bit types, and T itself otherwise.
template <class T>
using Compute = typename ScalarTraits<T>::Compute;

FOVEA_NAMESPACE_END
