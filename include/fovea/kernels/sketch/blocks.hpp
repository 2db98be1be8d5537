// SPDX-License-Identifier: MIT
/// \file
/// The keys of a sketch in blocks of keys that are near each other, and what is known of a block
/// without looking at its keys: so the choice can leave most blocks closed (select_blocks.inl.hpp).
#pragma once

#include <cstdint>
#include <type_traits>

#include "fovea/simd/padding.hpp"

FOVEA_NAMESPACE_BEGIN

/// The number of rows that the kernel scores together.
inline constexpr Index kSketchRows = 4;

/// The keys of a block. Smaller blocks are bounded better, and there are more bounds to compute: in
/// measurements with 16384 and 65536 keys blocks of 32 keys took about as long.
inline constexpr Index kBlockKeys = 64;

/// The most columns of a sketch that is divided into blocks. The more there are, the less near each
/// other are the keys of a block, and the more second moments it has.
inline constexpr Index kMostBlockWidth = 8;

/// The largest number of a key in a block: its square is finite.
template <class T>
inline constexpr T kMostBlockKey = T(0x1p50);

/// A run of keys that is divided into blocks has a multiple of this many, so that vectors of any
/// level hold bounds of its blocks alone.
inline constexpr Index kSegmentKeys = kBlockKeys * kPadding;

/// A run of keys of a sequence that is divided into blocks.
struct SketchSegment {
  Index first;  ///< its first key
  Index keys;   ///< how many keys it has, a multiple of kSegmentKeys
  Index block;  ///< its first block
};

/// The numbers that are kept of a block: the mean of each column; the largest distance from it in
/// each column; and the second moments about the mean, (c, c) and twice (c, c') for c < c', row by
/// row.
constexpr Index sketch_moments(Index width) { return 2 * width + width * (width + 1) / 2; }

/// Sketch keys in blocks.
template <class T>
struct SketchBlocks {
  /// The integers that count keys beside numbers of T.
  using Position = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;

  /// [width, keys_row]: key n of block b in column c is keys[c * keys_row + b * kBlockKeys + n].
  const T* keys = nullptr;
  Index keys_row = 0;  ///< elements from one column of the keys to the next
  /// Which key of the sequence that is: positions[b * kBlockKeys + n].
  const Position* positions = nullptr;
  /// [sketch_moments(width), moments_row]: number m of block b is moments[m * moments_row + b].
  const T* moments = nullptr;
  Index moments_row = 0;  ///< elements from one of the numbers to the next
  /// [width]: no key of a segment is larger in a column; infinity if one is above
  /// kMostBlockKey or no number.
  const T* largest = nullptr;
  /// By first key, and among segments that begin at the same key the longest one first. Those that
  /// rows look at are the longest ones that lie before the last key that a row sees.
  const SketchSegment* segments = nullptr;
  Index segment_count = 0;  ///< number of segments
  /// Rows that see fewer keys in blocks look at all keys.
  Index least_keys = 0;
};

/// Elements of T of scratch that the choice by blocks needs beside that of the exhaustive one.
constexpr Index sketch_block_scratch(Index keys, Index width) {
  const Index of_blocks = padded_size(keys / kBlockKeys) + kPadding;
  const Index of_keys = padded_size(keys) + 2 * kPadding;  // sketch_room(keys)
  return (kSketchRows * 5 + 1) * of_blocks + 2 * of_keys +
         padded_size(kSketchRows * sketch_moments(width) + width) + kPadding;
}

FOVEA_NAMESPACE_END
