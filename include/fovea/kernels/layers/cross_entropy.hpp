// SPDX-License-Identifier: MIT
/// \file
/// Arguments of the softmax cross-entropy kernel.
#pragma once

#include "fovea/core/index_span.hpp"

FOVEA_NAMESPACE_BEGIN

/// Rows of logits with a target each. Rows are dense.
template <class T>
struct CrossEntropyArgs {
  const T* x = nullptr;      ///< [rows, classes] the logits
  Index x_row = 0;           ///< row stride of x in elements
  IndexSpan targets = {};    ///< [rows] classes; rows with a negative one are ignored
  T* d = nullptr;            ///< [rows, classes] the gradient, written; null: not requested
  Index d_row = 0;           ///< row stride of d in elements
  double* losses = nullptr;  ///< [rows] -log softmax(x)[target], or 0, written
  Index rows = 0;            ///< number of rows
  Index classes = 0;         ///< number of columns
  double share = 1;          ///< factor of the gradient
};

FOVEA_NAMESPACE_END
