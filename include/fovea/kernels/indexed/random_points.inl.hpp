// SPDX-License-Identifier: MIT
/// \file
/// The random edges of FSAT in training (section 4.1), drawn for each slot of each key.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/indexed/random_points.hpp"
#include "fovea/simd/integers.inl.hpp"
#include "fovea/simd/philox.inl.hpp"
#endif

/// Writes the points of all slots, several vectors at a time.
FOVEA_NOINLINE inline void random_points(const RandomPointsArgs& args) noexcept {
  constexpr Index w = kLanes<double>;
  constexpr int vectors = 4;  // with independent rounds
  const DrawSource source{args.seed, static_cast<std::uint32_t>(args.batch),
                          static_cast<std::uint32_t>(args.head)};
  const double scale = static_cast<double>(args.length) * 0x1p-53;
  const Index end = args.keys * args.slots_per_key;
  Index key = args.first;
  Index slot = 0;
  for (Index n = 0; n < end; n += vectors * w) {
    alignas(kVecBytes) std::int64_t keys[vectors * w];
    alignas(kVecBytes) std::int64_t slot_numbers[vectors * w];
    alignas(kVecBytes) std::int64_t numerators[vectors * w];
    for (int lane = 0; lane < vectors * w; ++lane) {
      keys[lane] = key;
      slot_numbers[lane] = slot;
      const bool is_last = ++slot == args.slots_per_key;
      slot = is_last ? 0 : slot;
      key += is_last ? 1 : 0;
    }
    LowHalves i[vectors];
    LowHalves j[vectors];
    FOVEA_UNROLL
    for (int v = 0; v < vectors; ++v) {
      i[v] = load_int<double>(keys + v * w);
      j[v] = load_int<double>(slot_numbers + v * w);
    }
    PhiloxWords words[vectors];
    source.words(i, j, words);
    FOVEA_UNROLL
    for (int v = 0; v < vectors; ++v) store_int<double>(numerators + v * w, wide_draw(words[v]));
    const Index count = smaller(vectors * w, end - n);
    for (Index lane = 0; lane < count; ++lane) {
      args.points[(keys[lane] - args.first) * args.row + slot_numbers[lane]] =
          static_cast<Index>(static_cast<double>(numerators[lane]) * scale);
    }
  }
}
