// SPDX-License-Identifier: MIT
/// \file
/// Arguments of the kernels of attention over sorted rows: the buckets of a hash, and the
/// normalisation of a matrix of sorting logits.
#pragma once

#include <cstdint>

#include "fovea/simd/matrix.hpp"
#include "fovea/simd/padding.hpp"
#include "fovea/simd/softmax_constants.hpp"

FOVEA_NAMESPACE_BEGIN

/// The bucket number of rows whose products contain NaN: none.
inline constexpr std::int32_t kNoBucket = -1;

/// The buckets of rows: the place of the first maximum of [y, -y], or kNoBucket.
template <class T>
struct BucketArgs {
  const T* products = nullptr;      ///< [width, stride], y of each row in a column
  Index stride = 0;                 ///< at least `rows`
  Index rows = 0;                   ///< number of rows
  Index width = 0;                  ///< number of products of a row: half of the buckets
  std::int32_t* buckets = nullptr;  ///< [rows], written
};

/// Rows of the softmax of some keys, merged into those of other keys: row rows[i] of `to` becomes
/// (to before[i] + x now[i]) factor[i], or x factor[i].
template <class T>
struct MergeRowsArgs {
  const T* x = nullptr;                ///< [count, padded_size(width)]
  Matrix<T> to;                        ///< the rows of a head, of `width` columns
  const std::int32_t* rows = nullptr;  ///< [count]
  Index count = 0;                     ///< number of rows
  Index width = 0;                     ///< number of columns
  const T* before = nullptr;           ///< [count]; null: `to` is not read
  const T* now = nullptr;              ///< [count], if there is a `before`
  const T* factor = nullptr;           ///< [count]
};

/// The gradients of rows x that are queries, and with k = x inverse also keys: d_q becomes scale
/// (d_q + inverse (d_k - k <k, d_k>)), without the product if the length of x was too small to be
/// its divisor.
template <class T>
struct UnitRowGradArgs {
  T* d_q = nullptr;                    ///< [count, padded_size(width)], replaced
  const T* d_k = nullptr;              ///< [count, padded_size(width)]
  const T* k = nullptr;                ///< [count, padded_size(width)]
  const T* inverse = nullptr;          ///< of each row of the head
  const std::int32_t* rows = nullptr;  ///< [count] the rows of the head
  Index count = 0;                     ///< number of rows
  Index width = 0;                     ///< number of columns
  T scale = 1;                         ///< factor
};

/// Rows with a smaller length are divided by this instead.
inline constexpr double kLeastLength = 1e-12;

/// A step of the normalisation of a matrix of logarithms, column by column: the logarithm of each
/// column's sum of exponentials is subtracted from it. Or, given the gradient of the result, the
/// gradient of the input. Sums run in reduction blocks of kReductionBlock rows, added in order.
template <class T>
struct LogColumnsArgs {
  /// [rows, columns]: normalised in place; for the gradient, the step's result, read
  T* logs = nullptr;
  T* gradient = nullptr;  ///< [rows, columns], replaced; null: the step itself is computed
  Index rows = 0;         ///< number of rows
  Index columns = 0;      ///< number of columns, dense
};

/// The exponentials of numbers.
template <class T>
struct ExpArgs {
  const T* x = nullptr;  ///< [count]
  T* to = nullptr;       ///< [count], written
  Index count = 0;       ///< number of elements
};

FOVEA_NAMESPACE_END
