// SPDX-License-Identifier: MIT
/// \file
/// Rotary positions: pairs of channels are rotated by angles.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/layers/layers.hpp"
#include "fovea/simd/stored_rows.inl.hpp"
#include "fovea/simd/transpose.inl.hpp"
#endif

/// Writes up to `lanes` elements of a row from column c on; nothing from \p end on.
/// \param row place of the row's first element
template <Storage S, class T>
FOVEA_INLINE void store_until(void* to, Index row, Index c, Index end, Vec<T> x) {
  if (end - c >= kLanes<T>) {
    store_stored<S, T>(to, row + c, x);
  } else {
    store_stored_first<S, T>(to, row + c, x, end - c);
  }
}

/// Rotates the pairs (a[i], b[i]), i < pairs, of elements stored in S.
/// \param sign 1, or -1 to rotate back
template <Storage S, class T>
FOVEA_INLINE void turn_pairs(void* a, void* b, const T* cosines, const T* sines, Index pairs,
                             T sign) {
  for (Index c = 0; c < pairs; c += kLanes<T>) {
    const Vec<T> from_a = load_columns<S, T>(a, 0, 1, c, pairs);
    const Vec<T> from_b = load_columns<S, T>(b, 0, 1, c, pairs);
    const Vec<T> cosine = load_columns(cosines, 1, c, pairs);
    const Vec<T> sine = load_columns(sines, 1, c, pairs);
    store_until<S>(a, 0, c, pairs, fma(from_a, cosine, from_b * (sine * set1(-sign))));
    store_until<S>(b, 0, c, pairs, fma(from_b, cosine, from_a * (sine * set1(sign))));
  }
}

/// Swaps neighbouring lanes: a1 a0 a3 a2 ...
template <class T, int... Lane>
FOVEA_INLINE Vec<T> neighbours_swapped(Vec<T> a, std::integer_sequence<int, Lane...> /*lanes*/) {
  return {__builtin_shufflevector(a.raw, a.raw, (Lane ^ 1)...)};
}

/// Rotates the pairs (x[2 i], x[2 i + 1]) of all heads of row n in registers, with the operations
/// of turn_pairs. A piece's cosines and sines are broadcast to both channels once for all heads.
template <class T, Storage S>
FOVEA_INLINE void turn_neighbours(const RotaryArgs<T, S>& p, Index n, T sign) {
  constexpr Index piece = 64;
  constexpr Index w = kLanes<T>;
  alignas(kVecBytes) T cosines[2 * piece];
  alignas(kVecBytes) T sines[2 * piece];
  for (Index begin = 0; begin < p.pairs; begin += piece) {
    const Index count = smaller(p.pairs - begin, piece);
    for (Index c = 0; c < count; c += w) {
      const auto read = [&](const Matrix<const T>& table) {
        return load_columns(table.data + n * table.row, table.column, begin + c, p.pairs);
      };
      const Vec<T> cosine = read(p.cosines);
      const Vec<T> of_first = read(p.sines) * set1(-sign);
      const Vec<T> of_second = read(p.sines) * set1(sign);
      store(cosines + 2 * c, interleave<false>(cosine, cosine));
      store(cosines + 2 * c + w, interleave<true>(cosine, cosine));
      store(sines + 2 * c, interleave<false>(of_first, of_second));
      store(sines + 2 * c + w, interleave<true>(of_first, of_second));
    }
    for (Index h = 0; h < p.heads; ++h) {
      const Index at = n * p.x.row + h * p.x_head + 2 * begin;
      for (Index c = 0; c < 2 * count; c += w) {
        const Vec<T> from = load_columns<S, T>(p.x.data, at, 1, c, 2 * count);
        const Vec<T> other = neighbours_swapped(from, std::make_integer_sequence<int, kLanes<T>>());
        const Vec<T> turned = fma(from, load(cosines + c), other * load(sines + c));
        store_until<S>(p.x.data, at, c, 2 * count, turned);
      }
    }
  }
}

/// Rotates pairs with strided channels, through a contiguous piece.
/// \param first, second the places of the channels of pair 0 \param step stride of pairs
/// \param cosines, sines of the row
template <Storage S, class T>
FOVEA_INLINE void turn_apart(void* x, Index first, Index second, Index step,
                             const Matrix<const T>& cosines, const Matrix<const T>& sines,
                             Index pairs, T sign) {
  constexpr Index piece = 64;
  alignas(kVecBytes) T a[piece];  // or 16-bit elements
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

/// Rotates all heads of all rows.
template <class T, Storage S>
void turn_heads(const RotaryArgs<T, S>& p) {
  const T sign = p.is_back ? T(-1) : T(1);
  const Index channel = p.x.column;
  const bool halves = p.pairing == RotaryPairing::halves;
  for (Index n = 0; n < p.rows; ++n) {
    const Matrix<const T> cosines{p.cosines.data + n * p.cosines.row, 0, p.cosines.column};
    const Matrix<const T> sines{p.sines.data + n * p.sines.row, 0, p.sines.column};
    const bool tables_are_dense = cosines.column == 1 && sines.column == 1;
    if (!halves && channel == 1) {
      turn_neighbours(p, n, sign);
      continue;
    }
    for (Index h = 0; h < p.heads; ++h) {
      const Index at = n * p.x.row + h * p.x_head;
      if (!halves) {
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
