// SPDX-License-Identifier: MIT
/// \file
/// Matrices as kernels see them: a pointer and two strides.
#pragma once

#include <type_traits>

#include "fovea/core/scalar.hpp"

FOVEA_NAMESPACE_BEGIN

/// A matrix whose element (i, c) is data[i * row + c * column].
template <class T>
struct Matrix {
  T* data = nullptr;
  Index row = 0;
  Index column = 1;
};

/// A matrix in its storage type: element (i, c) stands i * row + c * column elements of that type
/// after `data`. \tparam Void void or const void
template <class Void>
struct StoredMatrix {
  Void* data = nullptr;
  Index row = 0;
  Index column = 1;
  Storage storage = Storage::native;
};

/// The same matrix, stored in the type of the arithmetic.
template <class T>
constexpr auto stored(const Matrix<T>& m) {
  using Void = std::conditional_t<std::is_const_v<T>, const void, void>;
  return StoredMatrix<Void>{m.data, m.row, m.column, Storage::native};
}

FOVEA_NAMESPACE_END
