// SPDX-License-Identifier: MIT
/// \file
/// The scalars of tensors: in which type one is stored, and in which it is computed with.
#pragma once

#include "fovea/core/config.hpp"

FOVEA_NAMESPACE_BEGIN

/// How the elements of a tensor lie in memory.
enum class Storage : unsigned char {
  native,    ///< as float or double, the type of the arithmetic
  bfloat16,  ///< the upper half of a float
  float16,   ///< IEEE 754 binary16
};

/// What the operators know of a scalar type: `Compute`, the type of its arithmetic, and `kStorage`.
/// The 16-bit types of Eigen enter in fovea/core/eigen.hpp.
template <class T>
struct ScalarTraits;

template <>
struct ScalarTraits<float> {
  using Compute = float;
  static constexpr Storage kStorage = Storage::native;
};

template <>
struct ScalarTraits<double> {
  using Compute = double;
  static constexpr Storage kStorage = Storage::native;
};

/// A type that the numbers of a tensor may have.
template <class T>
concept TensorScalar = requires {
  typename ScalarTraits<T>::Compute;
};

/// How tensors of T are stored.
template <class T>
inline constexpr Storage kStorage = ScalarTraits<T>::kStorage;

/// The type that tensors of T are computed in: float for the 16-bit types, else T itself.
template <class T>
using Compute = typename ScalarTraits<T>::Compute;

FOVEA_NAMESPACE_END
