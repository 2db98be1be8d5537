// SPDX-License-Identifier: MIT
/// \file
/// Rotary positions: pairs of channels are turned by angles.

#if !defined(FOVEA_LEVEL)  // Read alone: what it stands on.
#pragma once
#include "fovea/kernels/layers/columns.inl.hpp"
#include "fovea/kernels/layers/rotary.hpp"
#endif

/// Turns the pairs (a[i], b[i]), i < pairs. \param sign 1, or -1 to turn back
template <class T>
FOVEA_INLINE void turn_pairs(T* a, T* b, const T* cosines, const T* sines, Index pairs, T sign) {
  for_each_vector<T>(pairs, [&](Index c, auto lanes) {
    const Vec<T> from_a = lanes.read(a + c);
    const Vec<T> from_b = lanes.read(b + c);
    const Vec<T> cosine = lanes.read(cosines + c);
    const Vec<T> sine = lanes.read(sines + c) * set1(sign);
    const Vec<T> minus_sine = lanes.read(sines + c) * set1(-sign);
    lanes.write(a + c, fma(from_a, cosine, from_b * minus_sine));
    lanes.write(b + c, fma(from_b, cosine, from_a * sine));
  });
}

/// Turns neighbours, by way of a piece that has them apart.
template <class T>
FOVEA_INLINE void turn_neighbours(T* x, const T* cosines, const T* sines, Index pairs, T sign) {
  constexpr Index piece = 64;
  T a[piece];
  T b[piece];
  for (Index first = 0; first < pairs; first += piece) {
    const Index count = pairs - first < piece ? pairs - first : piece;
    T* const at = x + 2 * first;
    for (Index i = 0; i < count; ++i) {
      a[i] = at[2 * i];
      b[i] = at[2 * i + 1];
    }
    turn_pairs(a, b, cosines + first, sines + first, count, sign);
    for (Index i = 0; i < count; ++i) {
      at[2 * i] = a[i];
      at[2 * i + 1] = b[i];
    }
  }
}

/// Turns all heads of all rows.
template <class T>
void turn_heads(const RotaryArgs<T>& p) {
  const T sign = p.is_back ? T(-1) : T(1);
  for (Index n = 0; n < p.rows; ++n) {
    const T* const cosines = p.cosines + n * p.pairs;
    const T* const sines = p.sines + n * p.pairs;
    for (Index h = 0; h < p.heads; ++h) {
      T* const x = p.x + n * p.x_row + h * p.head_width;
      if (p.pairing == RotaryPairing::halves) {
        turn_pairs(x, x + p.pairs, cosines, sines, p.pairs, sign);
      } else {
        turn_neighbours(x, cosines, sines, p.pairs, sign);
      }
    }
  }
}
