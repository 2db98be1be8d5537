// SPDX-License-Identifier: MIT
/// \file
/// Elements of T as vectors of double, for sums that need more precision than T.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/simd/vec_operations.inl.hpp"
#endif

/// Floats for the lanes of a Vec<double>.
struct HalfVec {
  using Raw __attribute__((vector_size(kVecBytes / 2))) = float;
  using Unaligned __attribute__((vector_size(kVecBytes / 2), aligned(alignof(float)), may_alias)) =
      float;
};

/// Loads as many elements as a Vec<double> has lanes. \p p need not be aligned.
FOVEA_INLINE Vec<double> load_wide(const double* p) { return load(p); }
FOVEA_INLINE Vec<double> load_wide(const float* p) {
  const HalfVec::Raw half = *reinterpret_cast<const HalfVec::Unaligned*>(p);
  return {__builtin_convertvector(half, Vec<double>::Raw)};
}

/// Writes the lanes, rounded to T.
FOVEA_INLINE void store_narrow(double* p, Vec<double> a) { store(p, a); }
FOVEA_INLINE void store_narrow(float* p, Vec<double> a) {
  *reinterpret_cast<HalfVec::Unaligned*>(p) = __builtin_convertvector(a.raw, HalfVec::Raw);
}

/// The first \p n elements, the other lanes 0; reads nothing beyond p + n.
template <class T>
FOVEA_INLINE Vec<double> load_wide_first(const T* p, Index n) {
  double lanes[kLanes<double>] = {};
  for (Index lane = 0; lane < n; ++lane) lanes[lane] = static_cast<double>(p[lane]);
  return load(lanes);
}

/// Writes the first \p n lanes, rounded to T.
template <class T>
FOVEA_INLINE void store_narrow_first(T* p, Vec<double> a, Index n) {
  alignas(kVecBytes) double lanes[kLanes<double>];
  store(lanes, a);
  for (Index lane = 0; lane < n; ++lane) p[lane] = static_cast<T>(lanes[lane]);
}
