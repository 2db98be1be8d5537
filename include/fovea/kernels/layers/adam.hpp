// SPDX-License-Identifier: MIT
/// \file
/// Arguments of the optimiser kernels.
#pragma once

#include "fovea/core/config.hpp"

FOVEA_NAMESPACE_BEGIN

/// One step of Adam for some weights.
template <class T>
struct AdamArgs {
  T* weights = nullptr;         ///< [count]
  const T* gradient = nullptr;  ///< [count]
  T* mean = nullptr;            ///< [count] mean of the gradients
  T* square = nullptr;          ///< [count] mean of their squares
  Index count = 0;              ///< number of weights
  T share = 1;                  ///< factor of the gradient, by clipping
  T beta1 = 0;                  ///< decay of the mean
  T beta2 = 0;                  ///< decay of the mean square
  T rest1 = 1;                  ///< 1 - beta1, rounded once
  T rest2 = 1;                  ///< 1 - beta2, rounded once
  T rate = 0;                   ///< learning rate / (1 - beta1^t)
  T unbias2 = 1;                ///< 1 / (1 - beta2^t)
  T epsilon = 0;                ///< added to the root
  T kept = 1;                   ///< the factor of weight decay
};

FOVEA_NAMESPACE_END
