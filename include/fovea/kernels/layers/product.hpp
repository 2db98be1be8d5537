// SPDX-License-Identifier: MIT
/// \file
/// What the kernels of matrix products take: the product of tokens with weights, of gradients with
/// weights, and the sums over tokens that the gradients of weights are.
#pragma once

#include "fovea/simd/matrix.hpp"

FOVEA_NAMESPACE_BEGIN

/// The rows that a product takes at once: a multiple of the rows of a register block at every
/// level. Tasks of so many rows leave no small block.
inline constexpr Index kProductRows = 192;
/// The same of rows whose steps lie apart, which are packed.
inline constexpr Index kPackedRows = 96;

/// The product to[i, j] = sum_s a[i, s] b[s, j], to which a bias or to[i, j] itself is added. The
/// sum runs in chains of kChain steps, which are added in order, so the bits of an element depend
/// on its row of a and its column of b alone. Weights may be stored in 16 bits.
template <class T, Storage S = Storage::native>
struct ProductArgs {
  Matrix<const T> a;        ///< [rows, steps], with a stride of 1 in a row or in a column
  StoredMatrix<S> b;        ///< [steps, columns], with a stride of 1 in a row or in a column
  T* to = nullptr;          ///< [rows, columns], dense rows, which share no element with a and b
  Index to_row = 0;         ///< elements from one row of `to` to the next
  Index rows = 0;           ///< number of rows
  Index columns = 0;        ///< number of columns
  Index steps = 0;          ///< number of products of an element; if it is 0, the sum is 0
  const T* bias = nullptr;  ///< [columns] what is added to each row; null: nothing
  bool add = false;         ///< whether to[i, j] is added; then there is no bias
};

/// The sum to[c] += sum_i rows[i, c], in the order of the rows.
template <class T>
struct RowSumArgs {
  const T* rows = nullptr;  ///< [count, width], dense rows
  Index row = 0;            ///< elements from one row to the next
  Index count = 0;          ///< number of rows
  Index width = 0;          ///< number of columns
  T* to = nullptr;          ///< [width]
};

FOVEA_NAMESPACE_END
