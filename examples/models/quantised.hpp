// SPDX-License-Identifier: MIT
/// \file
/// The formats of numbers in GGUF files: floats, and blocks of 32 small integers with one scale.
/// The formats with super-blocks (Q4_K and others) are not supported.
#pragma once

#include <Eigen/Core>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <fovea/io/dtype.hpp>

namespace models {

using fovea::Index;

/// Numbers in blocks.
struct BlockFormat {
  std::uint32_t type;  ///< what files call it
  Index numbers;       ///< the numbers of a block
  Index bytes;         ///< the bytes of a block
  /// Converts `count` numbers, whole blocks, at any address to floats.
  void (*decode)(const std::byte* from, Index count, float* to);
};

namespace detail {

inline constexpr Index kBlock = 32;

template <class T>
T read_as(const std::byte* from) {
  T value;
  std::memcpy(static_cast<void*>(&value), from, sizeof(T));
  return value;
}

template <class T>
void decode_floats(const std::byte* from, Index count, float* to) {
  for (Index i = 0; i < count; ++i) {
    to[i] = static_cast<float>(read_as<T>(from + i * Index{sizeof(T)}));
  }
}

inline std::uint32_t byte_at(const std::byte* from, Index i) {
  return std::to_integer<std::uint32_t>(from[i]);
}

/// Blocks of integers of `Bits` bits, Bits being 4 or 5: a scale, the least number if HasLeast,
/// the fifth bits if there are any, and 16 bytes with the four lower bits of numbers i and i + 16.
/// Without a least number, the integers count from -2^(Bits - 1) on.
template <int Bits, bool HasLeast>
struct Packed {
  static constexpr Index kHead = HasLeast ? 4 : 2;
  static constexpr Index kHigh = Bits == 5 ? 4 : 0;
  static constexpr Index kBytes = kHead + kHigh + kBlock / 2;

  static void decode(const std::byte* from, Index count, float* to) {
    for (Index first = 0; first < count; first += kBlock, from += kBytes, to += kBlock) {
      const auto scale = static_cast<float>(read_as<Eigen::half>(from));
      const float least = HasLeast ? static_cast<float>(read_as<Eigen::half>(from + 2))
                                   : -scale * static_cast<float>(1 << (Bits - 1));
      std::uint32_t high = 0;
      if constexpr (Bits == 5) high = read_as<std::uint32_t>(from + kHead);
      const std::byte* const low = from + kHead + kHigh;
      for (Index i = 0; i < kBlock; ++i) {
        const std::uint32_t pair = byte_at(low, i % (kBlock / 2));
        const std::uint32_t four = i < kBlock / 2 ? pair & 15U : pair >> 4U;
        const std::uint32_t integer = four | (high >> i & 1U) << 4U;
        to[i] = static_cast<float>(integer) * scale + least;
      }
    }
  }
};

/// Blocks of a scale and 32 signed bytes.
inline void decode_bytes(const std::byte* from, Index count, float* to) {
  for (Index first = 0; first < count; first += kBlock, from += kBlock + 2, to += kBlock) {
    const auto scale = static_cast<float>(read_as<Eigen::half>(from));
    for (Index i = 0; i < kBlock; ++i) {
      to[i] = static_cast<float>(read_as<std::int8_t>(from + 2 + i)) * scale;
    }
  }
}

}  // namespace detail

/// The supported formats.
inline constexpr std::array<BlockFormat, 8> kBlockFormats = {{
    {0, 1, 4, detail::decode_floats<float>},
    {1, 1, 2, detail::decode_floats<Eigen::half>},
    {2, detail::kBlock, detail::Packed<4, false>::kBytes, detail::Packed<4, false>::decode},
    {3, detail::kBlock, detail::Packed<4, true>::kBytes, detail::Packed<4, true>::decode},
    {6, detail::kBlock, detail::Packed<5, false>::kBytes, detail::Packed<5, false>::decode},
    {7, detail::kBlock, detail::Packed<5, true>::kBytes, detail::Packed<5, true>::decode},
    {8, detail::kBlock, detail::kBlock + 2, detail::decode_bytes},
    {30, 1, 2, detail::decode_floats<Eigen::bfloat16>},
}};

/// The format with this number; null if it is not known.
inline const BlockFormat* format_of(std::uint32_t type) {
  for (const BlockFormat& format : kBlockFormats) {
    if (format.type == type) return &format;
  }
  return nullptr;
}

}  // namespace models
