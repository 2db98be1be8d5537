// SPDX-License-Identifier: MIT
/// \file
/// The operations of simd/vec.inl.hpp over arrays: what vec_test.cpp compiles once per level.

/// Masks and integers go back as the bits of a Vec.
template <class T>
FOVEA_INLINE Vec<T> apply(VecOp op, Vec<T> a, Vec<T> b, Vec<T> c) {
  switch (op) {
    case VecOp::add:
      return a + b;
    case VecOp::subtract:
      return a - b;
    case VecOp::multiply:
      return a * b;
    case VecOp::divide:
      return a / b;
    case VecOp::fused:
      return fma(a, b, c);
    case VecOp::maximum:
      return maximum(a, b);
    case VecOp::minimum:
      return minimum(a, b);
    case VecOp::less:
      return from_bits<T>(a < b);
    case VecOp::greater:
      return from_bits<T>(a > b);
    case VecOp::equal:
      return from_bits<T>(a == b);
    case VecOp::choose:
      return select(a < b, b, c);
    case VecOp::int_add:
      return from_bits<T>(bits(a) + bits(b));
    case VecOp::int_subtract:
      return from_bits<T>(bits(a) - bits(b));
    case VecOp::int_and:
      return from_bits<T>(bits(a) & bits(b));
    case VecOp::int_or:
      return from_bits<T>(bits(a) | bits(b));
    case VecOp::int_not:
      return from_bits<T>(~bits(a));
    case VecOp::shift_left:
      return from_bits<T>(bits(a) << kShift);
    case VecOp::shift_right:
      return from_bits<T>(bits(a) >> kShift);
    case VecOp::square_root:
      return square_root(a);
    case VecOp::int_less:
      return from_bits<T>(bits(a) < bits(b));
    case VecOp::int_greater:
      return from_bits<T>(bits(a) > bits(b));
  }
  return a;
}

/// y[i] = op(a[i], b[i], c[i]) for i in [0, n); the tail runs the same code on padded vectors.
template <class T>
inline void elementwise(VecOp op, const T* a, const T* b, const T* c, T* y, Index n) {
  Index i = 0;
  for (; i + kLanes<T> <= n; i += kLanes<T>)
    store(y + i, apply(op, load(a + i), load(b + i), load(c + i)));
  if (i < n) {
    const Index rest = n - i;
    store_first(
        y + i, apply(op, load_first(a + i, rest), load_first(b + i, rest), load_first(c + i, rest)),
        rest);
  }
}

/// One vector each of: zero, set1(x), set1_int(the bits of x), lane_index, load_int(lanes).
template <class T>
inline void constants(T x, const Int<T>* lanes, T* y) {
  store(y, zero<T>());
  store(y + kLanes<T>, set1(x));
  store(y + 2 * kLanes<T>, from_bits<T>(set1_int<T>(__builtin_bit_cast(Int<T>, x))));
  store(y + 3 * kLanes<T>, from_bits<T>(lane_index<T>()));
  store(y + 4 * kLanes<T>, from_bits<T>(load_int<T>(lanes)));
}

/// A whole vector whose first n lanes are x.
template <class T>
inline void pad(const T* x, T* y, Index n) {
  store(y, load_first(x, n));
}

template <class T>
inline bool any_of(const Int<T>* mask) {
  return any(load_int<T>(mask));
}

/// The selected lanes of x and of their bits, packed.
template <class T>
inline void pack_lanes(const T* x, std::uint32_t bits_set, T* y, Int<T>* integers) {
  store_lanes(y, load(x), bits_set);
  store_lanes_int<T>(integers, bits(load(x)), bits_set);
}

/// The first n of kLanes<double> elements as double, and their squares rounded to T.
template <class T>
inline void widen(const T* x, double* y, T* squares, Index n) {
  const bool is_whole = n == kLanes<double>;
  const Vec<double> wide = is_whole ? load_wide(x) : load_wide_first(x, n);
  store(y, wide);
  if (is_whole) store_narrow(squares, wide * wide);
  if (!is_whole) store_narrow_first(squares, wide * wide, n);
}

template <class T>
inline VecOperations<T, Int<T>> operations() {
  return {kLanes<T>,  &elementwise<T>, &constants<T>,  &pad<T>,
          &any_of<T>, &pack_lanes<T>,  kLanes<double>, &widen<T>};
}
