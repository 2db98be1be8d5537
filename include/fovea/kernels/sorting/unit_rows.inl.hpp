// SPDX-License-Identifier: MIT
/// \file
/// The gradient of rows through their division by their lengths. Products of rows are summed in the
/// same number of chains at every level, added in order.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/sorting/sorting.hpp"
#include "fovea/simd/storage.inl.hpp"
#endif

/// The product of two rows, in kPadding chains.
template <class T>
FOVEA_INLINE T unit_row_product(const T* a, const T* b, Index width) {
  constexpr int vectors = kPadding / kLanes<T>;
  Vec<T> sum[vectors];
  FOVEA_UNROLL
  for (int v = 0; v < vectors; ++v) sum[v] = zero<T>();
  for (Index c = 0; c < width; c += kPadding) {
    FOVEA_UNROLL
    for (int v = 0; v < vectors; ++v) {
      const Index at = c + v * kLanes<T>;
      const Index n = smaller(kLanes<T>, width - at);
      if (n == kLanes<T>) {
        sum[v] = fma(load(a + at), load(b + at), sum[v]);
      } else if (n > 0) {
        sum[v] = fma(load_first(a + at, n), load_first(b + at, n), sum[v]);
      }
    }
  }
  T total = 0;
  FOVEA_UNROLL
  for (int v = 0; v < vectors; ++v) {
    for (int lane = 0; lane < kLanes<T>; ++lane) total += sum[v].raw[lane];
  }
  return total;
}

/// Computes the gradients of some rows.
template <class T>
void unit_row_grads(const UnitRowGradArgs<T>& args) {
  const Index padded = padded_size(args.width);
  const Vec<T> scale = set1(args.scale);
  for (Index i = 0; i < args.count; ++i) {
    T* const d_q = args.d_q + i * padded;
    const T* const d_k = args.d_k + i * padded;
    const T* const k = args.k + i * padded;
    const T inverse = args.inverse[args.rows[i]];
    const bool is_unit = !(inverse >= static_cast<T>(1 / kLeastLength));
    const Vec<T> along = set1(is_unit ? -unit_row_product(k, d_k, args.width) : T{0});
    for (Index c = 0; c < args.width; c += kLanes<T>) {
      const Vec<T> across = is_unit ? fma(load(k + c), along, load(d_k + c)) : load(d_k + c);
      store(d_q + c, fma(across, set1(inverse), load(d_q + c)) * scale);
    }
  }
}
