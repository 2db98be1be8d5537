// SPDX-License-Identifier: MIT
/// \file
/// The bucket of each row: the first maximum of its products and their negatives. Comparisons are
/// exact, so the buckets are the same at every level.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/sorting/sorting.hpp"
#include "fovea/simd/integers.inl.hpp"
#include "fovea/simd/vec_operations.inl.hpp"
#endif

/// The first maximum of a sequence, in each lane.
template <class T>
struct FirstMaximum {
  Vec<T> most;
  IntVec<T> place;

  FOVEA_INLINE void take(Vec<T> x, IntVec<T> at) {
    const IntVec<T> is_more = x > most;
    most = select(is_more, x, most);
    place = (place & ~is_more) | (at & is_more);
  }
};

/// Finds the buckets of some rows, with rows in the lanes.
template <class T>
void find_buckets(const BucketArgs<T>& args) {
  for (Index i = 0; i < args.rows; i += kLanes<T>) {
    const Index n = smaller(kLanes<T>, args.rows - i);
    const Vec<T> least = set1(-std::numeric_limits<T>::infinity());
    FirstMaximum<T> above{least, set1_int<T>(0)};
    FirstMaximum<T> below = above;
    IntVec<T> numbers = set1_int<T>(-1);
    for (Index c = 0; c < args.width; ++c) {
      const T* const at = args.products + c * args.stride + i;
      const Vec<T> y = n == kLanes<T> ? load(at) : load_first(at, n);
      const IntVec<T> place = set1_int<T>(static_cast<Int<T>>(c));
      numbers = numbers & (y == y);
      above.take(y, place);
      below.take(Vec<T>{-y.raw}, place);
    }
    const IntVec<T> is_below = below.most > above.most;
    const IntVec<T> half = set1_int<T>(static_cast<Int<T>>(args.width));
    const IntVec<T> bucket = (above.place & ~is_below) | ((below.place + half) & is_below);
    const IntVec<T> found = (bucket & numbers) | (set1_int<T>(kNoBucket) & ~numbers);
    alignas(kVecBytes) Int<T> lanes[kLanes<T>];
    store_int<T>(lanes, found);
    for (Index lane = 0; lane < n; ++lane) {
      args.buckets[i + lane] = static_cast<std::int32_t>(lanes[lane]);
    }
  }
}
