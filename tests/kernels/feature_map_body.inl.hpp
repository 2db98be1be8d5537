// SPDX-License-Identifier: MIT
/// \file
/// The feature maps of rows: what feature_map_test.cpp compiles once per level.

#include "fovea/kernels/integers.inl.hpp"
#include "fovea/kernels/register_block.inl.hpp"
#include "fovea/kernels/stored_rows.inl.hpp"

#include "fovea/kernels/feature_map.inl.hpp"

template <class T>
inline MapRows<T> map_functions() {
  return {&map_rows<T>, &slope_rows<T>};
}
