// SPDX-License-Identifier: MIT
/// \file
/// Rotary positions: pairs of channels are turned by angles.

#if !defined(FOVEA_LEVEL)  // Read alone: what it stands on.
#pragma once
#include "fovea/kernels/layers/rotary.hpp"
#include "fovea/simd/stored_rows.inl.hpp"
#endif

/// Writes up to `lanes` elements from c on; nothing from \p end on.
template <Storage S, class T>
FOVEA_INLINE void store_until(void* to, Index c, Index end, Vec<T> x) {
  if (end - c >= kLanes<T>) {
    store_stored<S, T>(to, c, x);
  } else {
    store_stored_first<S, T>(to, c, x, end - c);
  }
}

/// Turns the pairs (a[i], b[i]), i < pairs, of elements that are stored in S.
/// \param sign 1, or -1 to turn back
template <Storage S, class T>
FOVEA_INLINE void turn_pairs(void* a, void* b, const T* cosines, const T* sines, Index pairs,
                             T sign) {
  for (Index c = 0; c < pairs; c += kLanes<T>) {
    const Vec<T> from_a = load_columns<S, T>(a, 0, 1, c, pairs);
    const Vec<T> from_b = load_columns<S, T>(b, 0, 1, c, pairs);
    const Vec<T> cosine = load_columns(cosines, 1, c, pairs);
    const Vec<T> sine = load_columns(sines, 1, c, pairs);
    store_until<S>(a, c, pairs, fma(from_a, cosine, from_b * (sine * set1(-sign))));
    store_until<S>(b, c, pairs, fma(from_b, cosine, from_a * (sine * set1(sign))));
  }
}

/// Turns pairs whose channels do not lie side by side, by way of a piece where they do.
/// \param first, second the places of the channels of pair 0 \param step from pair to pair
/// \param cosines, sines of the row
template <Storage S, class T>
FOVEA_INLINE void turn_apart(void* x, Index first, Index second, Index step,
                             const Matrix<const T>& cosines, const Matrix<const T>& sines,
                             Index pairs, T sign) {
  constexpr Index piece = 64;
  alignas(kVecBytes) T a[piece];  // or elements of 16 bits
  alignas(kVecBytes) T b[piece];
  T own_cosines[piece];
  T own_sines[piece];
  for (Index begin = 0; begin < pairs; begin += piece) {
    const Index count = smaller(pairs - begin, piece);
    for (Index i = 0; i < count; ++i) {
      copy_element<S, T>(a, i, x, first + (begin + i) * step);
      copy_element<S, T>(b, i, x, second + (begin + i) * step);
    }
    const T* cosine = cosines.data + begin;
    const T* sine = sines.data + begin;
    if (cosines.column != 1 || sines.column != 1) {
      for (Index i = 0; i < count; ++i) {
        own_cosines[i] = cosines.data[(begin + i) * cosines.column];
        own_sines[i] = sines.data[(begin + i) * sines.column];
      }
      cosine = own_cosines;
      sine = own_sines;
    }
    turn_pairs<S>(a, b, cosine, sine, count, sign);
    for (Index i = 0; i < count; ++i) {
      copy_element<S, T>(x, first + (begin + i) * step, a, i);
      copy_element<S, T>(x, second + (begin + i) * step, b, i);
    }
  }
}

/// Turns all heads of all rows.
template <class T, Storage S>
void turn_heads(const RotaryArgs<T, S>& p) {
  const T sign = p.is_back ? T(-1) : T(1);
  const Index channel = p.x.column;
  const bool halves = p.pairing == RotaryPairing::halves;
  for (Index n = 0; n < p.rows; ++n) {
    const Matrix<const T> cosines{p.cosines.data + n * p.cosines.row, 0, p.cosines.column};
    const Matrix<const T> sines{p.sines.data + n * p.sines.row, 0, p.sines.column};
    const bool tables_are_dense = cosines.column == 1 && sines.column == 1;
    for (Index h = 0; h < p.heads; ++h) {
      const Index at = n * p.x.row + h * p.x_head;
      if (!halves && channel == 1) {  // the usual layout, with steps that the compiler knows
        turn_apart<S>(p.x.data, at, at + 1, 2, cosines, sines, p.pairs, sign);
      } else if (!halves) {
        turn_apart<S>(p.x.data, at, at + channel, 2 * channel, cosines, sines, p.pairs, sign);
      } else if (channel == 1 && tables_are_dense) {
        char* const a = static_cast<char*>(p.x.data) + at * kStoredBytes<S, T>;
        turn_pairs<S>(a, a + p.pairs * kStoredBytes<S, T>, cosines.data, sines.data, p.pairs, sign);
      } else {
        turn_apart<S>(p.x.data, at, at + p.pairs * channel, channel, cosines, sines, p.pairs, sign);
      }
    }
  }
}
