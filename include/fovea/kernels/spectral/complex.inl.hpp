// SPDX-License-Identifier: MIT
/// \file
/// Complex numbers in lanes: loads and stores of interleaved numbers in either direction, and
/// small discrete Fourier transforms in registers.
///
/// Numbers computed in whole registers at one level may be a remainder at another level with wider
/// registers, computed one at a time. Both must give the same bits. So no product here is an
/// operand of a sum, which a compiler might fuse: fused operations are written as `fma`, and common
/// factors of a sum's terms are applied to the sum.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/simd/transpose.inl.hpp"
#include "fovea/simd/vec_operations.inl.hpp"
#endif

/// One number with the operations of a Vec: for the remainder at the end of a row.
template <class T>
struct One {
  T raw;
};

template <class T>
FOVEA_INLINE One<T> operator+(One<T> a, One<T> b) {
  return {a.raw + b.raw};
}
template <class T>
FOVEA_INLINE One<T> operator-(One<T> a, One<T> b) {
  return {a.raw - b.raw};
}
template <class T>
FOVEA_INLINE One<T> operator*(One<T> a, One<T> b) {
  return {a.raw * b.raw};
}
/// a * b + c, rounded once at the levels where a Vec rounds once.
template <class T>
FOVEA_INLINE One<T> fma(One<T> a, One<T> b, One<T> c) {
  if constexpr (!Arch::kHasFma) return {a.raw * b.raw + c.raw};
  if constexpr (sizeof(T) == 4) return {__builtin_fmaf(a.raw, b.raw, c.raw)};
  if constexpr (sizeof(T) == 8) return {__builtin_fma(a.raw, b.raw, c.raw)};
}

template <class V>
FOVEA_INLINE V negative(V a) {
  return {-a.raw};
}

/// A V with x in all lanes.
template <class V, class T>
FOVEA_INLINE V sharded_over(T x) {
  if constexpr (std::is_same_v<V, One<T>>) return {x};
  if constexpr (std::is_same_v<V, Vec<T>>) return set1<T>(x);
}

/// The number of lanes of V.
template <class V>
inline constexpr int kLanesOf = 1;
template <class T>
inline constexpr int kLanesOf<Vec<T>> = kLanes<T>;

/// A complex number in each lane.
template <class V>
struct ComplexVec {
  V re;
  V im;
};

template <class V>
FOVEA_INLINE ComplexVec<V> operator+(ComplexVec<V> a, ComplexVec<V> b) {
  return {a.re + b.re, a.im + b.im};
}
template <class V>
FOVEA_INLINE ComplexVec<V> operator-(ComplexVec<V> a, ComplexVec<V> b) {
  return {a.re - b.re, a.im - b.im};
}
template <class V>
FOVEA_INLINE ComplexVec<V> operator*(ComplexVec<V> a, ComplexVec<V> b) {
  return {fma(a.re, b.re, negative(a.im * b.im)), fma(a.re, b.im, a.im * b.re)};
}
/// a + b * c
template <class V>
FOVEA_INLINE ComplexVec<V> multiply_add(ComplexVec<V> a, ComplexVec<V> b, ComplexVec<V> c) {
  return {fma(negative(b.im), c.im, fma(b.re, c.re, a.re)), fma(b.im, c.re, fma(b.re, c.im, a.im))};
}
/// a times a factor. The result may be stored or multiplied, but not added, as a compiler might
/// fuse that sum.
template <class V>
FOVEA_INLINE ComplexVec<V> scaled(ComplexVec<V> a, V factor) {
  return {a.re * factor, a.im * factor};
}
template <class V>
FOVEA_INLINE ComplexVec<V> conjugate(ComplexVec<V> a) {
  return {a.re, negative(a.im)};
}
template <class V>
FOVEA_INLINE ComplexVec<V> times_i(ComplexVec<V> a) {
  return {negative(a.im), a.re};
}
template <class V>
FOVEA_INLINE ComplexVec<V> times_minus_i(ComplexVec<V> a) {
  return {a.im, negative(a.re)};
}
template <class V>
FOVEA_INLINE ComplexVec<V> swapped(ComplexVec<V> a) {
  return {a.im, a.re};
}

/// Takes the lanes First, First + Step, ... of a and b, where the lanes of b follow those of a.
template <int First, int Step, class T, int... In>
FOVEA_INLINE Vec<T> pick(Vec<T> a, Vec<T> b, std::integer_sequence<int, In...>) {
  return {__builtin_shufflevector(a.raw, b.raw, (First + Step * In)...)};
}

/// Takes the lanes First, First - 1, ... of a and b alternately.
template <int First, class T, int... In>
FOVEA_INLINE Vec<T> weave_down(Vec<T> a, Vec<T> b, std::integer_sequence<int, In...>) {
  return {__builtin_shufflevector(a.raw, b.raw, (In % 2 * kLanes<T> + First - In / 2)...)};
}

/// Loads the complex numbers p[0], p[1], ... or, if Down, p[0], p[-1], ...
template <class V, bool Down, class T>
FOVEA_INLINE ComplexVec<V> load_complex(const T* p) {
  if constexpr (std::is_same_v<V, One<T>>) {
    return {{p[0]}, {p[1]}};
  } else {
    constexpr int w = kLanes<T>;
    constexpr int last = 2 * w - 2;
    const std::make_integer_sequence<int, w> lanes{};
    if constexpr (Down) p -= last;
    const Vec<T> a = load(p);
    const Vec<T> b = load(p + w);
    if constexpr (Down) return {pick<last, -2>(a, b, lanes), pick<last + 1, -2>(a, b, lanes)};
    if constexpr (!Down) return {pick<0, 2>(a, b, lanes), pick<1, 2>(a, b, lanes)};
  }
}

/// Stores complex numbers where load_complex loads them.
template <bool Down, class V, class T>
FOVEA_INLINE void store_complex(T* p, ComplexVec<V> x) {
  if constexpr (std::is_same_v<V, One<T>>) {
    p[0] = x.re.raw;
    p[1] = x.im.raw;
  } else if constexpr (Down) {
    constexpr int w = kLanes<T>;
    const std::make_integer_sequence<int, w> lanes{};
    p -= 2 * w - 2;
    store(p, weave_down<w - 1>(x.re, x.im, lanes));
    store(p + w, weave_down<w / 2 - 1>(x.re, x.im, lanes));
  } else {
    store(p, interleave<false>(x.re, x.im));
    store(p + kLanes<T>, interleave<true>(x.re, x.im));
  }
}

/// cos(2 pi j / 16) for j = 0 ... 8.
inline constexpr double kCosines[9] = {
    1, 0.92387953251128675613,  0.70710678118654752440,  0.38268343236508977173,
    0, -0.38268343236508977173, -0.70710678118654752440, -0.92387953251128675613,
    -1};

/// a e^{-2 pi i j / 16} for j = 0 ... 7.
template <class T, class V>
FOVEA_INLINE ComplexVec<V> turned(ComplexVec<V> a, int j) {
  if (j == 0) return a;
  if (j == 4) return times_minus_i(a);
  const T cosine = static_cast<T>(kCosines[j]);
  const T sine = static_cast<T>(kCosines[j < 4 ? 4 - j : j - 4]);
  return a * ComplexVec<V>{sharded_over<V>(cosine), sharded_over<V>(-sine)};
}

/// out[s] = sum_q a[q] e^{-2 pi i q s / n}.
/// \tparam Half whether a[q] is 0 from n/2 on; these a[q] are not read
template <int n, bool Half, class T, class V>
FOVEA_INLINE void transform(const ComplexVec<V> (&a)[n], ComplexVec<V> (&out)[n]) {
  if constexpr (n == 1) {
    out[0] = a[0];
  } else {
    ComplexVec<V> even[n / 2], odd[n / 2], even_out[n / 2], odd_out[n / 2];
    FOVEA_UNROLL
    for (int q = 0; q < n / 2; ++q) {
      if constexpr (Half) {
        even[q] = a[q];
        odd[q] = turned<T>(a[q], q * (16 / n));
      } else {
        even[q] = a[q] + a[q + n / 2];
        odd[q] = turned<T>(a[q] - a[q + n / 2], q * (16 / n));
      }
    }
    transform<n / 2, false, T>(even, even_out);
    transform<n / 2, false, T>(odd, odd_out);
    FOVEA_UNROLL
    for (int s = 0; s < n / 2; ++s) {
      out[2 * s] = even_out[s];
      out[2 * s + 1] = odd_out[s];
    }
  }
}
