// SPDX-License-Identifier: MIT
/// \file
/// The bucket of each row: the first maximum of its products and their negatives. A comparison
/// rounds nothing, so the buckets are those of the products at every level.

#if !defined(FOVEA_LEVEL)  // Read alone: what it stands on.
#pragma once
#include "fovea/kernels/sorting/sorting.hpp"
#include "fovea/simd/integers.inl.hpp"
#include "fovea/simd/vec_operations.inl.hpp"
#endif

/// The place of the first element that is x, of `width`; `width` if there is none.
template <class T>
FOVEA_INLINE Index first_place(const T* row, Index width, T x) {
  Index c = 0;
  for (; c + kLanes<T> <= width; c += kLanes<T>) {
    if (any(load(row + c) == set1(x))) break;
  }
  while (c < width && !(row[c] == x)) ++c;
  return c;
}

/// Finds the buckets of some rows.
template <class T>
void find_buckets(const BucketArgs<T>& args) {
  const IntVec<T> magnitude = set1_int<T>(~MathConstants<T>::kSignMask);
  for (Index i = 0; i < args.rows; ++i) {
    const T* const row = args.products + i * args.width;
    Vec<T> most = zero<T>();
    IntVec<T> numbers = set1_int<T>(-1);
    for (Index c = 0; c < args.width; c += kLanes<T>) {
      const Index n = smaller(kLanes<T>, args.width - c);
      const Vec<T> y = n == kLanes<T> ? load(row + c) : load_first(row + c, n);
      numbers = numbers & (y == y);
      most = maximum(most, from_bits<T>(bits(y) & magnitude));
    }
    if (any(~numbers)) {
      args.buckets[i] = kNoBucket;
      continue;
    }
    T largest = 0;
    FOVEA_UNROLL
    for (int lane = 0; lane < kLanes<T>; ++lane) {
      largest = largest < most.raw[lane] ? most.raw[lane] : largest;
    }
    const Index above = first_place(row, args.width, largest);
    const Index place =
        above < args.width ? above : args.width + first_place(row, args.width, -largest);
    args.buckets[i] = static_cast<std::int32_t>(place);
  }
}
