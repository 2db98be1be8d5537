// SPDX-License-Identifier: MIT
/// \file
/// Eigen's types of 16 bits as scalars of tensors, for those who have no use for Eigen's tensors.
#pragma once

#include <Eigen/Core>

#include "fovea/core/scalar.hpp"

FOVEA_NAMESPACE_BEGIN

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

FOVEA_NAMESPACE_END
