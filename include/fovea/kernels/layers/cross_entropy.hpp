// SPDX-License-Identifier: MIT
/// \file
/// What the kernel of softmax cross entropy takes.
#pragma once

#include "fovea/core/index_span.hpp"

FOVEA_NAMESPACE_BEGIN

/// Rows of logits with a target each. Rows are dense.
template <class T>
struct CrossEntropyArgs {
  const T* x = nullptr;      ///< [rows, classes] the logits
  Index x_row = 0;           ///< elements from one row of x to the next
  IndexSpan targets = {};    ///< [rows] a class each; a row with a negative one does not count
  T* d = nullptr;            ///< [rows, classes] the gradient, written; null: not wanted
  Index d_row = 0;           ///< elements from one row of d to the next
  double* losses = nullptr;  ///< [rows] -log softmax(x)[target], or 0, written
  Index rows = 0;            ///< number of rows
  Index classes = 0;         ///< number of columns
  double share = 1;          ///< factor of the gradient
};

FOVEA_NAMESPACE_END
