// SPDX-License-Identifier: MIT
/// \file
/// The keys of a sketch in blocks of nearby keys, with statistics that let the choice skip most
/// blocks (select_blocks.inl.hpp).
#pragma once

#include <cstdint>
#include <type_traits>

#include "fovea/simd/padding.hpp"

FOVEA_NAMESPACE_BEGIN

/// The number of rows scored together.
inline constexpr Index kSketchRows = 4;

/// The keys of a block. Smaller blocks have tighter but more bounds: measured with 16384 and 65536
/// keys, blocks of 32 keys took about as long.
inline constexpr Index kBlockKeys = 64;

/// The maximum columns of a sketch that is divided into blocks. With more columns, the keys of a
/// block are farther apart, and have more second moments.
inline constexpr Index kMostBlockWidth = 8;

/// The largest number of a key in a block: its square is finite.
template <class T>
inline constexpr T kMostBlockKey = T(0x1p50);

/// Runs of keys divided into blocks are multiples of this, so that vectors of any level hold bounds
/// only of their blocks.
inline constexpr Index kSegmentKeys = kBlockKeys * kPadding;

/// A run of keys divided into blocks.
struct SketchSegment {
  Index first;  ///< its first key
  Index keys;   ///< its number of keys, a multiple of kSegmentKeys
  Index block;  ///< its first block
};

/// The statistics of a block: the mean of each column; the largest distance from it in each column;
/// and the second moments about the mean, (c, c) and twice (c, c') for c < c', row by row.
constexpr Index sketch_moments(Index width) { return 2 * width + width * (width + 1) / 2; }

/// Sketch keys in blocks.
template <class T>
struct SketchBlocks {
  /// The integers that count keys, of T's size.
  using Position = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;

  /// [width, keys_row]: key n of block b in column c is keys[c * keys_row + b * kBlockKeys + n].
  const T* keys = nullptr;
  Index keys_row = 0;  ///< column stride of the keys in elements
  /// The key's position in the sequence: positions[b * kBlockKeys + n].
  const Position* positions = nullptr;
  /// [sketch_moments(width), moments_row]: number m of block b is moments[m * moments_row + b].
  const T* moments = nullptr;
  Index moments_row = 0;  ///< stride of the numbers in elements
  /// [width]: an upper bound of segments' keys in each column; infinity if one is above
  /// kMostBlockKey or NaN.
  const T* largest = nullptr;
  /// Sorted by first key, then longest first. Rows use the longest ones before their last visible
  /// key.
  const SketchSegment* segments = nullptr;
  Index segment_count = 0;  ///< number of segments
  /// Rows that see fewer keys in blocks read all keys.
  Index least_keys = 0;
};

/// Elements of T of additional scratch for the choice by blocks.
constexpr Index sketch_block_scratch(Index keys, Index width) {
  const Index of_blocks = padded_size(keys / kBlockKeys) + kPadding;
  const Index of_keys = padded_size(keys) + 2 * kPadding;  // sketch_room(keys)
  return (kSketchRows * 5 + 1) * of_blocks + 2 * of_keys +
         padded_size(kSketchRows * sketch_moments(width) + width) + kPadding;
}

FOVEA_NAMESPACE_END
