// SPDX-License-Identifier: MIT
/// \file
/// Loads and stores of simd/storage.inl.hpp over arrays: what storage_test.cpp compiles once per
/// level.

/// y[i] = x[i] for i in [0, n), from one storage type to the type of the arithmetic.
template <Storage S, class T>
inline void load_all(const void* x, T* y, Index n) {
  Index i = 0;
  for (; i + kLanes<T> <= n; i += kLanes<T>) store(y + i, load_stored<S, T>(x, i));
  if (i < n) store_first(y + i, load_stored_first<S, T>(x, i, n - i), n - i);
}

/// The same the other way.
template <Storage S, class T>
inline void store_all(const T* x, void* y, Index n) {
  Index i = 0;
  for (; i + kLanes<T> <= n; i += kLanes<T>) store_stored<S, T>(y, i, load(x + i));
  if (i < n) store_stored_first<S, T>(y, i, load_first(x + i, n - i), n - i);
}

/// A whole vector whose first n lanes are x.
template <Storage S, class T>
inline void pad_stored(const void* x, T* y, Index n) {
  store(y, load_stored_first<S, T>(x, 0, n));
}

template <Storage S, class T>
inline StorageOperations<T> storage_operations() {
  return {kLanes<T>, &load_all<S, T>, &store_all<S, T>, &pad_stored<S, T>};
}
