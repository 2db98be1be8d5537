// SPDX-License-Identifier: MIT
/// \file
/// The feature maps of rows: what feature_map_test.cpp compiles once per level.

#include "fovea/kernels/linear/feature_map.inl.hpp"

template <fovea::Storage S, class T>
inline MappedRows<S, T> value_function() {
  return &map_rows<S, T>;
}
template <class T>
inline MappedRows<fovea::Storage::native, T> slope_function() {
  return &slope_rows<T>;
}
