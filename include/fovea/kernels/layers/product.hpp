// SPDX-License-Identifier: MIT
/// \file
/// Arguments of the matrix-product kernels: products of tokens or gradients with weights, and sums
/// over tokens for gradients of weights.
#pragma once

#include "fovea/simd/matrix.hpp"

FOVEA_NAMESPACE_BEGIN

/// The rows of a product computed at once: a multiple of a register block's rows at every level, so
/// that tasks of this size leave no small block.
inline constexpr Index kProductRows = 192;
/// The same for rows with strided steps, which are packed.
inline constexpr Index kPackedRows = 96;

/// The product to[i, j] = sum_s a[i, s] b[s, j], to which a bias or to[i, j] itself is added. The
/// sum runs in reduction blocks of kReductionBlock steps, added in order, so the bits of an element
/// depend only on its row of a and its column of b. Weights may be stored in 16 bits.
template <class T, Storage S = Storage::native>
struct ProductArgs {
  Matrix<const T> a;        ///< [rows, steps], with a stride of 1 in a row or in a column
  StoredMatrix<S> b;        ///< [steps, columns], with a stride of 1 in a row or in a column
  T* to = nullptr;          ///< [rows, columns], dense rows, which share no element with a and b
  Index to_row = 0;         ///< row stride of `to` in elements
  Index rows = 0;           ///< number of rows
  Index columns = 0;        ///< number of columns
  Index steps = 0;          ///< number of products per element; if 0, the sum is 0
  const T* bias = nullptr;  ///< [columns] added to each row; null: nothing
  bool add = false;         ///< whether to[i, j] is added; then there is no bias
};

/// The sum to[c] += sum_i rows[i, c], in the order of the rows.
template <class T>
struct RowSumArgs {
  const T* rows = nullptr;  ///< [count, width], dense rows
  Index row = 0;            ///< row stride in elements
  Index count = 0;          ///< number of rows
  Index width = 0;          ///< number of columns
  T* to = nullptr;          ///< [width]
};

FOVEA_NAMESPACE_END
