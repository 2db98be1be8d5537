// SPDX-License-Identifier: MIT
/// \file
/// Feature maps of vectors and of rows, and their derivatives. NaN stays NaN, infinities give the
/// limits, and there is no cancellation: near 0 a map keeps its relative accuracy.
///
/// "Error a, b | c, d" is in ulp, as in simd/math.inl.hpp.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/linear/feature_map.hpp"
#include "fovea/simd/math.inl.hpp"
#include "fovea/simd/stored_rows.inl.hpp"
#endif

/// Coefficients of e^r on [-ln(2)/2, ln(2)/2], the lowest first, by Sollya's fpminimax. The
/// relative error is 3.8e-9 (float) and 4.5e-18 (double).
template <class T>
struct ExpPolynomial;
template <>
struct ExpPolynomial<float> {
  static constexpr float kCoefficients[] = {
      1.0f, 1.0f, 0x1.fffff8p-2f, 0x1.55548cp-3f, 0x1.555b82p-5f, 0x1.123cfcp-7f, 0x1.686a68p-10f};
};
template <>
struct ExpPolynomial<double> {
  static constexpr double kCoefficients[] = {1.0,
                                             1.0,
                                             0x1.000000000000cp-1,
                                             0x1.555555555551bp-3,
                                             0x1.555555554fe6p-5,
                                             0x1.111111111fa0cp-7,
                                             0x1.6c16c185ebf0dp-10,
                                             0x1.a01a0155899a1p-13,
                                             0x1.a019960c40f9bp-16,
                                             0x1.71dec61d97e23p-19,
                                             0x1.28b0a8fb1af21p-22,
                                             0x1.ae14874a8348bp-26};
};

/// e^min(x, 0) with gradual underflow. It is cheaper than `exp`, but not monotone: results for
/// neighbouring numbers may be out of order by one ulp. Error 0.89, 0.87 | 1.17, 1.15.
template <class T>
FOVEA_INLINE Vec<T> exp_below_zero(Vec<T> x) {
  using C = MathConstants<T>;
  const Vec<T> clamped =
      maximum(set1(C::kExpMin), minimum(zero<T>(), x));  // in this order, NaN stays NaN
  const Vec<T> shifted = fma(clamped, set1(C::kLog2E), set1(C::kMagic));
  const Vec<T> n = shifted - set1(C::kMagic);
  const Vec<T> r = fma(n, set1(-C::kLn2Low), fma(n, set1(-C::kLn2High), clamped));
  return scale_by_shifted(polynomial(r, ExpPolynomial<T>::kCoefficients), n, shifted);
}

/// sech^2 x = 4 e / (1 + e)^2 with e = exp(-2 |x|). Error 4.25, 4.25 | 4.25, 4.25.
template <class T>
FOVEA_INLINE Vec<T> sech_squared(Vec<T> x) {
  using C = MathConstants<T>;
  const Vec<T> minus = from_bits<T>(bits(x) | set1_int<T>(C::kSignMask));
  // 4 e is computed directly: if e is subnormal, 4 e may be normal.
  SplitPower<T> power = split_exp(maximum(set1(C::kExpMin), minus + minus));
  power.n = power.n + set1_int<T>(2);
  const Vec<T> four_e = join(power);
  const Vec<T> sum = fma(four_e, set1(T(0.25)), set1(T(1)));
  return four_e / (sum * sum);
}

/// phi for a kind that is not `own`. The error of elu is 0.89, 0.87 | 1.17, 1.15; that of tanh is
/// as in simd/math.inl.hpp, and that of tanh + 1 as for sigmoid there.
template <FeatureMapKind K, class T>
FOVEA_INLINE Vec<T> feature(Vec<T> x) {
  if constexpr (K == FeatureMapKind::elu_plus_one) {
    return maximum(zero<T>(), x) + exp_below_zero(x);  // the first is 0, or the second is 1
  } else if constexpr (K == FeatureMapKind::elu_minus_plus_one) {
    return feature<FeatureMapKind::elu_plus_one>(zero<T>() - x);
  } else if constexpr (K == FeatureMapKind::tanh_plus_one) {
    const Vec<T> half = sigmoid(x + x);
    return half + half;
  } else if constexpr (K == FeatureMapKind::tanh) {
    return tanh(x);
  } else if constexpr (K == FeatureMapKind::identity) {
    return x;
  } else {
    static_assert(K == FeatureMapKind::relu);
    return maximum(zero<T>(), x);
  }
}

/// phi' for a kind that is not `own`. At a kink the slope of elu is 1, and that of relu is 0.
template <FeatureMapKind K, class T>
FOVEA_INLINE Vec<T> feature_slope(Vec<T> x) {
  if constexpr (K == FeatureMapKind::elu_plus_one) {
    return exp_below_zero(x);
  } else if constexpr (K == FeatureMapKind::elu_minus_plus_one) {
    // A subtraction might be fused with the last product in it, and change the sign of 0.
    const Vec<T> size = exp_below_zero(zero<T>() - x);
    return from_bits<T>(bits(size) | set1_int<T>(MathConstants<T>::kSignMask));
  } else if constexpr (K == FeatureMapKind::relu) {
    const Vec<T> not_above = select(x < set1(T(1)), zero<T>(), x);  // 0 or NaN
    return select(x > zero<T>(), set1(T(1)), not_above);
  } else if constexpr (K == FeatureMapKind::identity) {
    return set1(T(1));
  } else {
    return sech_squared(x);
  }
}

/// Whether the functions of rows below compute phi or its derivative.
enum class FeaturePart : std::uint8_t { value, slope };

template <FeatureMapKind K, FeaturePart P, class T>
FOVEA_INLINE Vec<T> feature_part(Vec<T> x) {
  if constexpr (P == FeaturePart::value) return feature<K>(x);
  if constexpr (P == FeaturePart::slope) return feature_slope<K>(x);
}

/// Writes to[i, c] = phi(from[i, c]), with 0 from `width` on to the end of the padded row. It may
/// work in place.
template <FeatureMapKind K, FeaturePart P, class T>
FOVEA_NOINLINE void map_native_rows(const T* from, Index from_row, Index count, Index width, T* to,
                                    Index to_row) {
  constexpr Index w = kLanes<T>;
  for (Index i = 0; i < count; ++i) {
    const T* from_i = from + i * from_row;
    T* to_i = to + i * to_row;
    Index c = 0;
    FOVEA_UNROLL_BY(4)
    for (; c + w <= width; c += w) store(to_i + c, feature_part<K, P>(load(from_i + c)));
    if (c < width) {
      const IntVec<T> within = lane_index<T>() < set1_int<T>(static_cast<Int<T>>(width - c));
      const Vec<T> y = feature_part<K, P>(load_first(from_i + c, width - c));
      store(to_i + c, select(within, y, zero<T>()));
      c += w;
    }
    for (; c < padded_row<T>(width); c += w) store(to_i + c, zero<T>());
  }
}

/// The same with a user's function, in place.
template <class T>
FOVEA_NOINLINE void map_rows_by(void (*function)(const T*, T*, Index) noexcept, Index count,
                                Index width, T* rows, Index row) {
  constexpr Index most = 128;
  alignas(kVecBytes) T x[most];
  for (Index i = 0; i < count; ++i) {
    T* rows_i = rows + i * row;
    for (Index c = 0; c < width; c += most) {
      const Index n = smaller(most, width - c);
      __builtin_memcpy(x, rows_i + c, static_cast<std::size_t>(n) * sizeof(T));
      function(x, rows_i + c, n);
    }
    for (Index c = width; c < padded_row<T>(width); ++c) rows_i[c] = T{};
  }
}

template <FeaturePart P, Storage S, class T>
FOVEA_INLINE void map_rows_part(const FeatureMapArgs<T>& map, const StoredMatrix<S>& x, Index count,
                                Index width, T* to, Index to_row) {
  const T* from = static_cast<const T*>(x.data);
  Index from_row = x.row;
  if (map.kind == FeatureMapKind::own || x.column != 1 || S != Storage::native) {
    pack_rows(x, count, width, to, to_row);
    from = to;
    from_row = to_row;
  }
  switch (map.kind) {
    using enum FeatureMapKind;
    case elu_plus_one:
      return map_native_rows<elu_plus_one, P>(from, from_row, count, width, to, to_row);
    case elu_minus_plus_one:
      return map_native_rows<elu_minus_plus_one, P>(from, from_row, count, width, to, to_row);
    case tanh_plus_one:
      return map_native_rows<tanh_plus_one, P>(from, from_row, count, width, to, to_row);
    case FeatureMapKind::tanh:
      return map_native_rows<FeatureMapKind::tanh, P>(from, from_row, count, width, to, to_row);
    case relu:
      return map_native_rows<relu, P>(from, from_row, count, width, to, to_row);
    case identity:
      return map_native_rows<identity, P>(from, from_row, count, width, to, to_row);
    case own:
      return map_rows_by(P == FeaturePart::value ? map.value : map.derivative, count, width, to,
                         to_row);
  }
}

/// Writes to[i, c] = phi(x[i, c]), with 0 from `width` on to the end of the padded row.
/// \param x [count, width], in any storage
/// \param to [count, padded_row(width)], with row stride to_row
template <Storage S, class T>
FOVEA_NOINLINE void map_rows(const FeatureMapArgs<T>& map, const StoredMatrix<S>& x, Index count,
                             Index width, T* to, Index to_row) {
  map_rows_part<FeaturePart::value>(map, x, count, width, to, to_row);
}

/// Writes to[i, c] = phi'(x[i, c]), likewise.
template <class T>
FOVEA_NOINLINE void slope_rows(const FeatureMapArgs<T>& map, const StoredMatrix<>& x, Index count,
                               Index width, T* to, Index to_row) {
  map_rows_part<FeaturePart::slope>(map, x, count, width, to, to_row);
}
