// SPDX-License-Identifier: MIT
/// \file
/// The scalar types of tensors: how each is stored, and the type used to compute with it.
#pragma once

#include "fovea/core/config.hpp"

// Eigen's 16-bit types, defined by <Eigen/Core>: declared here, so that their tensors need the same
// headers of this library as float tensors.
namespace Eigen {
struct bfloat16;
struct half;
}  // namespace Eigen

FOVEA_NAMESPACE_BEGIN

/// How a tensor's elements are stored.
enum class Storage : unsigned char {
  native,    ///< stored as float or double, the type of the arithmetic
  bfloat16,  ///< the upper half of a float
  float16,   ///< IEEE 754 binary16
};

/// Traits of a scalar type T: `Compute` is the type of its arithmetic, and `kStorage` says how it
/// is stored.
template <class T>
struct ScalarTraits;

/// Traits of float, stored and computed as float.
template <>
struct ScalarTraits<float> {
  using Compute = float;                                ///< The type of the arithmetic.
  static constexpr Storage kStorage = Storage::native;  ///< How the elements are stored.
};

/// Traits of double, stored and computed as double.
template <>
struct ScalarTraits<double> {
  using Compute = double;                               ///< The type of the arithmetic.
  static constexpr Storage kStorage = Storage::native;  ///< How the elements are stored.
};

/// Eigen's bfloat16 is stored in 16 bits and computed in float.
template <>
struct ScalarTraits<Eigen::bfloat16> {
  using Compute = float;                                  ///< The type of the arithmetic.
  static constexpr Storage kStorage = Storage::bfloat16;  ///< How the elements are stored.
};

/// Eigen's half is stored in 16 bits and computed in float.
template <>
struct ScalarTraits<Eigen::half> {
  using Compute = float;                                 ///< The type of the arithmetic.
  static constexpr Storage kStorage = Storage::float16;  ///< How the elements are stored.
};

/// An element type of tensors: one that has ScalarTraits.
template <class T>
concept TensorScalar = requires {
  typename ScalarTraits<T>::Compute;
};

/// How elements of type T are stored.
template <class T>
inline constexpr Storage kStorage = ScalarTraits<T>::kStorage;

namespace detail {

/// T itself if it is not a TensorScalar, so that a call with such tensors reaches the message about
/// it.
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
