// SPDX-License-Identifier: MIT
/// \file
/// The scalar types of tensors: how each one is stored, and in which type it is computed with.
#pragma once

#include "fovea/core/config.hpp"

// Eigen's types of 16 bits, which <Eigen/Core> defines: declared here, so that their tensors need
// no other header of this library than those of floats.
namespace Eigen {
struct bfloat16;
struct half;
}  // namespace Eigen

FOVEA_NAMESPACE_BEGIN

/// How the elements of a tensor lie in memory.
enum class Storage : unsigned char {
  native,    ///< stored as float or double, the type of the arithmetic
  bfloat16,  ///< the upper half of a float
  float16,   ///< IEEE 754 binary16
};

/// What the operators know of a scalar type T: `Compute` is the type of its arithmetic, and
/// `kStorage` says how it is stored.
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

/// Eigen's bfloat16 is stored in 16 bits and computed in float.
template <>
struct ScalarTraits<Eigen::bfloat16> {
  using Compute = float;                                  ///< The type of the arithmetic.
  static constexpr Storage kStorage = Storage::bfloat16;  ///< How the elements lie in memory.
};

/// Eigen's half is stored in 16 bits and computed in float.
template <>
struct ScalarTraits<Eigen::half> {
  using Compute = float;                                 ///< The type of the arithmetic.
  static constexpr Storage kStorage = Storage::float16;  ///< How the elements lie in memory.
};

/// A type that the elements of a tensor may have, because it has ScalarTraits.
template <class T>
concept TensorScalar = requires {
  typename ScalarTraits<T>::Compute;
};

/// How the elements of tensors of T are stored.
template <class T>
inline constexpr Storage kStorage = ScalarTraits<T>::kStorage;

namespace detail {

/// T itself for what is no TensorScalar, so that a call with such tensors gets as far as the
/// sentence that says so.
template <class T>
struct ComputeOf {
  using Type = T;
};
template <TensorScalar T>
struct ComputeOf<T> {
  using Type = typename ScalarTraits<T>::Compute;
};

}  // namespace detail

/// The type in which tensors of T are computed: float for the 16-bit types, and T itself otherwise.
template <class T>
using Compute = typename detail::ComputeOf<T>::Type;

FOVEA_NAMESPACE_END
