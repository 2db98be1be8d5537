// SPDX-License-Identifier: MIT
/// \file
/// Matrices for kernels: a pointer and two strides.
#pragma once

#include "fovea/core/scalar.hpp"

FOVEA_NAMESPACE_BEGIN

/// A matrix whose element (i, c) is data[i * row + c * column].
template <class T>
struct Matrix {
  T* data = nullptr;  ///< element (0, 0)
  Index row = 0;      ///< stride from row to row, in elements
  Index column = 1;   ///< stride from column to column, in elements
};

/// A matrix to read, stored in S: element (i, c) is i * row + c * column elements of that type
/// after `data`. The storage is part of the type, so that float kernels contain no conversions.
template <Storage S = Storage::native>
struct StoredMatrix {
  const void* data = nullptr;  ///< element (0, 0)
  Index row = 0;               ///< stride from row to row, in elements of S
  Index column = 1;            ///< stride from column to column, in elements of S
};

/// A matrix to write, stored in S, or in the arithmetic type if it `is_wide`, so that intermediate
/// results are not rounded.
template <Storage S = Storage::native>
struct OutputMatrix {
  void* data = nullptr;  ///< element (0, 0)
  Index row = 0;         ///< stride from row to row, in elements of S
  Index column = 1;      ///< stride from column to column, in elements of S
  bool is_wide = false;  ///< whether elements, and strides, are of the arithmetic type
};

/// The same matrix, stored in the arithmetic type.
template <class T>
constexpr StoredMatrix<> stored(const Matrix<T>& m) {
  return {m.data, m.row, m.column};
}

/// The same matrix to write, among tensors of the arithmetic type.
template <class T>
constexpr OutputMatrix<> output(const Matrix<T>& m) {
  return {m.data, m.row, m.column};
}

/// The same matrix to write, among tensors stored in S.
template <Storage S, class T>
constexpr OutputMatrix<S> wide_output(const Matrix<T>& m) {
  return {m.data, m.row, m.column, true};
}

FOVEA_NAMESPACE_END
