// SPDX-License-Identifier: MIT
/// \file
/// What the kernels of functions of single elements take.
#pragma once

#include "fovea/core/config.hpp"

FOVEA_NAMESPACE_BEGIN

/// Rows of elements, to each of which one function is applied. Rows are dense; `*_row` is the
/// number of elements from one row to the next. `to` may be x or d.
template <class T>
struct ElementArgs {
  const T* x = nullptr;  ///< [rows, width] what the function takes; of a sigmoid's gradient, its y
  Index x_row = 0;       ///< of x
  const T* d = nullptr;  ///< [rows, width] of a gradient, that of the function's result
  Index d_row = 0;       ///< of d
  T* to = nullptr;       ///< [rows, width]
  Index to_row = 0;      ///< of to
  Index rows = 0;        ///< number of rows
  Index width = 0;       ///< number of columns
  T factor = 1;          ///< of a sigmoid, what it is multiplied by
};

FOVEA_NAMESPACE_END
