// SPDX-License-Identifier: MIT
/// \file
/// store_lanes, unfused.inl.hpp and the counting of sampling.inl.hpp over arrays: what
/// sketch_math_test.cpp compiles once per level.

#include "fovea/kernels/sketch/unfused.inl.hpp"

#include "fovea/kernels/sketch/sampling.inl.hpp"

/// The elements below a bound, packed. \returns how many
template <class T>
inline Index below(const T* x, Index n, T bound, T* values, Int<T>* places) {
  Index count = 0;
  for (Index i = 0; i < n; i += kLanes<T>) {
    const Vec<T> v = load(x + i);
    const std::uint32_t mask = mask_bits(v < set1(bound));
    store_lanes(values + count, v, mask);
    store_lanes_int<T>(places + count, lane_index<T>() + set1_int<T>(static_cast<Int<T>>(i)), mask);
    count += bit_count(mask);
  }
  return count;
}

template <class T>
inline void exp2_of(const T* x, Index n, T* y) {
  for (Index i = 0; i < n; i += kLanes<T>) store(y + i, unfused_exp2(load(x + i)));
}

/// x * y + z, rounded twice.
template <class T>
inline void product_sum(const T* x, const T* y, const T* z, Index n, T* to) {
  for (Index i = 0; i < n; i += kLanes<T>) {
    store(to + i, product(load(x + i), load(y + i)) + load(z + i));
  }
}

inline void largest(const std::int64_t* numbers, Index n, Index wanted, std::int64_t low,
                    std::int64_t high, std::int64_t* value, Index* equal) {
  const LargestNumbers made = largest_numbers(numbers, n, wanted, low, high);
  *value = made.value;
  *equal = made.equal;
}

inline void order_bits(const double* x, Index n, std::int64_t* to) {
  for (Index i = 0; i < n; i += kLanes<double>) {
    store_int<double>(to + i, ordered_bits(load(x + i)));
  }
}

template <class T>
inline SketchMath<T> operations() {
  return {&below<T>, &exp2_of<T>, &product_sum<T>, &largest, &order_bits};
}
