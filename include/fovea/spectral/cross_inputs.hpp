// SPDX-License-Identifier: MIT
/// \file
/// Inputs and gradients of HiddenStateCross.
#pragma once

#include "fovea/core/index_span.hpp"
#include "fovea/core/members.hpp"

FOVEA_NAMESPACE_BEGIN

/// The inputs of a cross, with any strides.
template <class T>
struct CrossInputs {
  ViewMember<const T> f1;  ///< [B, 1, L, C] the first mapped states
  ViewMember<const T> f2;  ///< [B, 1, L, C] the second mapped states
  /// [B] the rows of each sequence, in [0, L]; if empty, all L
  IndexSpan key_lengths = {};
};

/// The outputs of a backward pass. A gradient with an empty view is not computed.
template <class T>
struct CrossGrads {
  ViewMember<T> f1 = {};  ///< [B, 1, L, C] the gradient of f1
  ViewMember<T> f2 = {};  ///< [B, 1, L, C] the gradient of f2
};

FOVEA_NAMESPACE_END
