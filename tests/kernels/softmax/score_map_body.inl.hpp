// SPDX-License-Identifier: MIT
/// \file
/// The tile functions of the score map: what score_map_test.cpp compiles once per level. A tile has
/// kTileLanes lanes at every level.

#include "fovea/kernels/softmax/visible_keys.inl.hpp"

#include "fovea/kernels/softmax/tile.inl.hpp"

#include "fovea/kernels/softmax/score_map.inl.hpp"

#include "fovea/kernels/softmax/score_map_tile.inl.hpp"

template <class T>
inline constexpr int kTileVectors = kTileLanes / kLanes<T>;

template <class T>
TilePlace place_of(const TileCase<T>& tile) {
  return {tile.row, tile.row_step, tile.rows, tile.key, tile.key_step, tile.first_position};
}

/// The bounds of a case, or null.
template <class T>
const LaneBounds<kTileVectors<T>, T>* bounds_of(const TileCase<T>& tile,
                                                LaneBounds<kTileVectors<T>, T>& storage) {
  if (tile.lower == nullptr) return nullptr;
  for (int lane = 0; lane < kTileLanes; ++lane) {
    storage.lower[lane] = static_cast<Int<T>>(tile.lower[lane]);
    storage.upper[lane] = static_cast<Int<T>>(tile.upper[lane]);
  }
  return &storage;
}

template <class T>
void cap(const TileCase<T>& tile, T* scores, T* most) {
  cap_tile<kTileVectors<T>>(tile.map, tile.begin, tile.end, scores, most);
}

template <class T>
void shift(const TileCase<T>& tile, T* scores, Int<T>* seen, T* most) {
  LaneBounds<kTileVectors<T>, T> storage;
  shift_tile<kTileVectors<T>>(tile.map, place_of(tile), bounds_of(tile, storage), tile.begin,
                              tile.end, scores, seen, most);
}

/// visible [keys, kTileLanes]
template <class T>
void visibility(const TileCase<T>& tile, Int<T>* visible) {
  LaneBounds<kTileVectors<T>, T> storage;
  const auto* bounds = bounds_of(tile, storage);
  for (Index j = tile.begin; j < tile.end; ++j) {
    for (int v = 0; v < kTileVectors<T>; ++v) {
      store_int<T>(visible + j * kTileLanes + v * kLanes<T>,
                   visible_lanes<kTileVectors<T>>(tile.map, place_of(tile), bounds, j, v));
    }
  }
}

template <class T>
void drop(const TileCase<T>& tile, T* weights, T* factors) {
  dropout_tile<kTileVectors<T>>(tile.map.dropout, place_of(tile), tile.begin, tile.end, weights);
  dropout_factors<kTileVectors<T>>(tile.map.dropout, place_of(tile), tile.begin, tile.end, factors);
}

template <class T>
inline TileOperations<T, Int<T>> operations() {
  return {&cap<T>, &shift<T>, &visibility<T>, &drop<T>};
}
