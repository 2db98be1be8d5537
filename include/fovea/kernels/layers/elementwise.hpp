// SPDX-License-Identifier: MIT
/// \file
/// Arguments of the element-wise kernels.
#pragma once

#include "fovea/core/config.hpp"

FOVEA_NAMESPACE_BEGIN

/// Rows of elements for an element-wise function. Rows are dense; `*_row` are row strides in
/// elements. `to` may be x or d.
template <class T>
struct ElementArgs {
  const T* x = nullptr;  ///< [rows, width] the argument; for a sigmoid's gradient, its y
  Index x_row = 0;       ///< of x
  const T* d = nullptr;  ///< [rows, width] for gradients, that of the function's result
  Index d_row = 0;       ///< of d
  T* to = nullptr;       ///< [rows, width]
  Index to_row = 0;      ///< of to
  Index rows = 0;        ///< number of rows
  Index width = 0;       ///< number of columns
  T factor = 1;          ///< the factor of a sigmoid
};

FOVEA_NAMESPACE_END
