// SPDX-License-Identifier: MIT
/// \file
/// The sums over tokens of linear attention: the sizes of summed groups, and the memory layout of
/// sums.
#pragma once

#include "fovea/simd/matrix.hpp"
#include "fovea/simd/padding.hpp"

FOVEA_NAMESPACE_BEGIN

/// The number of tokens of a chunk. Chunks begin at multiples of it, counted from the first token.
/// Pairs within a chunk are computed individually; the state represents all earlier tokens.
inline constexpr Index kLinearChunk = 32;

/// The number of tokens of a segment of a running state. Segments begin at multiples of it. The
/// products of chunks are summed from 0 within a segment, and this sum is added once to a
/// double-width base. That bounds the length of chains of roundings.
inline constexpr Index kStateSegment = 512;

/// The number of tokens of a segment for linear_sum, where no rows read in between.
inline constexpr Index kLinearSegment = 1024;

/// The sizes of the state of some feature maps.
struct LinearShape {
  Index maps = 1;         ///< number of feature maps
  Index width = 0;        ///< D
  Index value_width = 0;  ///< Dv
};

/// The size of a row of n elements padded to a cache line: the same at every level.
template <class T>
constexpr Index padded_row(Index n) {
  return padded_size(n, 64 / static_cast<Index>(sizeof(T)));
}

/// Elements of the sums of one map: the state [D, Dv padded], then the normaliser [D padded].
template <class T>
constexpr Index linear_map_elements(Index width, Index value_width) {
  return width * padded_row<T>(value_width) + padded_row<T>(width);
}

/// Elements of LinearSumArgs::sums.
template <class T>
constexpr Index linear_sum_elements(const LinearShape& shape) {
  return shape.maps * linear_map_elements<T>(shape.width, shape.value_width);
}

/// The number of chunks of a segment of a running state.
inline constexpr Index kSegmentChunks = kStateSegment / kLinearChunk;

/// The number of segments summed before rows read them. Those of one map with D = Dv = 64 take 3.3
/// MB in float, so they stay in a shared cache.
inline constexpr Index kSharedSegments = 8;

/// The number of chunks summed before rows read them.
inline constexpr Index kSharedChunks = kSharedSegments * kSegmentChunks;

/// Elements of SharedSums of one map.
template <class T>
constexpr Index linear_shared_elements(Index width, Index value_width) {
  const Index matrix = width * padded_row<T>(value_width);
  const Index row = padded_row<T>(width);
  const Index segment = matrix * (2 + kSegmentChunks) + row * kSegmentChunks * (1 + kLinearChunk);
  return 2 * (matrix + row) + kSharedSegments * segment;
}

/// The sums of kSharedSegments segments of one key head, and their memory layout. Segments and
/// chunks are numbered from the first one of these.
template <class T>
struct SharedSums {
  T* data = nullptr;      ///< [maps, linear_shared_elements], aligned to 64 bytes
  Index width = 0;        ///< D
  Index value_width = 0;  ///< Dv
  Index chunks = 0;       ///< summed whole chunks, at most kSharedChunks

  /// The summed chunks of segment s.
  constexpr Index chunks_of(Index s) const {
    const Index rest = chunks - s * kSegmentChunks;
    return rest < 0 ? 0 : rest < kSegmentChunks ? rest : kSegmentChunks;
  }

  /// The state of map l before the first segment, in two words, [2, linear_map_elements].
  constexpr T* words(Index l) const {
    return data + l * linear_shared_elements<T>(width, value_width);
  }
  /// The state of map l at the start of segment s, [D, Dv padded].
  constexpr T* start(Index l, Index s) const {
    return words(l) + 2 * linear_map_elements<T>(width, value_width) + s * matrix();
  }
  /// The sum of the first n chunks of segment s, [D, Dv padded].
  constexpr T* sum(Index l, Index s, Index n) const {
    return start(l, kSharedSegments) + (s * (kSegmentChunks + 1) + n) * matrix();
  }
  /// For chunk c, [D padded]: its contribution to the normaliser, later the normaliser before it.
  constexpr T* normaliser(Index l, Index c) const {
    return sum(l, kSharedSegments, 0) + c * padded_row<T>(width);
  }
  /// The features of the keys of chunk c, [kLinearChunk, D padded].
  constexpr T* features(Index l, Index c) const {
    return normaliser(l, kSharedChunks + c * kLinearChunk);
  }

 private:
  constexpr Index matrix() const { return width * padded_row<T>(value_width); }
};

FOVEA_NAMESPACE_END
