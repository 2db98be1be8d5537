// SPDX-License-Identifier: MIT
/// \file
/// The kernels' integer functions. std::min and the like must not be used in a region: a
/// standard-library function instantiated there would be linked into baseline code.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/simd/levels/read_alone.inl.hpp"
#endif

constexpr Index smaller(Index a, Index b) { return a < b ? a : b; }
constexpr Index larger(Index a, Index b) { return a < b ? b : a; }
constexpr Index clamped(Index x, Index low, Index high) { return smaller(larger(x, low), high); }

/// The keys of a run before key_end: t in [0, run_keys).
constexpr Index run_keys(const KeyRun& run, Index key_end) {
  const Index below = key_end - run.first;
  return below <= 0 ? 0 : smaller(run.count, (below + run.step - 1) / run.step);
}

/// A matrix stored in the arithmetic type.
template <class T>
FOVEA_INLINE Matrix<const T> native(const StoredMatrix<>& m) {
  return {static_cast<const T*>(m.data), m.row, m.column};
}
template <class T>
FOVEA_INLINE Matrix<T> native(const OutputMatrix<>& m) {
  return {static_cast<T*>(m.data), m.row, m.column};
}
