// SPDX-License-Identifier: MIT
/// \file
/// The feature maps of rows: what feature_map_test.cpp compiles once per level.

#include "fovea/simd/integers.inl.hpp"
#include "fovea/simd/register_block.inl.hpp"
#include "fovea/simd/stored_rows.inl.hpp"

#include "fovea/kernels/linear/feature_map.inl.hpp"

template <class T>
inline MapRows<T> map_functions() {
  return {&map_rows<T>, &slope_rows<T>};
}
