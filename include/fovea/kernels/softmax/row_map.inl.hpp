// SPDX-License-Identifier: MIT
/// \file
/// The score map of one query row, whose keys are in the lanes.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/softmax/row_points.inl.hpp"
#include "fovea/kernels/softmax/score_map.inl.hpp"
#include "fovea/kernels/softmax/score_modifier.inl.hpp"
#include "fovea/simd/stored_rows.inl.hpp"
#endif

/// The score map of a row for the keys of a tile, which are points of a run.
template <class T>
struct RowMap {
  const ScoreMap<T>& map;
  const RunPoints& points;
  KeyRange keys;
  Index query;     // row of q
  Index position;  // of that row

  /// Applies the map, and finds the keys that it hides. \param scores, visible [keys]
  FOVEA_NOINLINE void apply(T* scores, Int<T>* visible) const {
    const SoftCapFactors<T> cap = cap_factors(map.soft_cap);
    for (Index n = 0; map.soft_cap != 0 && n < keys.end - keys.begin; n += kLanes<T>) {
      store(scores + n, cap_logits(load(scores + n), cap));
    }
    if (map.modifier.is_used()) {
      const PairRow pairs{
          map.dropout.batch, map.dropout.head,      position, 0, points.position(keys.begin),
          points.run.step,   keys.end - keys.begin, query};
      modify_row<T>(map.modifier, pairs, scores, nullptr);
    }
    const Matrix<const T> bias = row_of(map.bias);
    const Matrix<const bool> mask = row_of(map.mask);
    for (Index j = keys.begin; j < keys.end; j += kLanes<T>) {
      T* const p = scores + (j - keys.begin);
      Vec<T> t = load(p);
      IntVec<T> sees = set1_int<T>(-1);
      if (bias.data != nullptr) {
        const Vec<T> more = load_columns(bias.data, bias.column, j, keys.end);
        t = add_bias(t, more);
        sees = ~hides_pair(more);
      }
      if (mask.data != nullptr) sees = sees & load_mask(mask, j, keys.end);
      if (map.alibi_slope != 0) {
        t = subtract_alibi(t, alibi_factor(map.alibi_slope),
                           lane_positions<T>(position - points.position(j), -points.run.step));
      }
      store(p, t);
      if (map.hides()) store_int<T>(visible + (j - keys.begin), sees);
    }
  }

  /// Multiplies the weights of a reduction block by their dropout factors.
  /// \param weights those of the tile
  FOVEA_NOINLINE void drop(const KeyRange& chain, T* weights) const {
    const DropoutFactors<T> factors(map.dropout);
    const IntVec<T> i = lane_positions<T>(position, 0);
    for (Index j = chain.begin; j < chain.end; j += kLanes<T>) {
      const IntVec<T> key = lane_positions<T>(points.position(j), points.run.step);
      const IntVec<T> inside = lane_index<T>() < set1_int<T>(static_cast<Int<T>>(chain.end - j));
      T* const p = weights + (j - keys.begin);
      store(p, select(inside, load(p) * factors.factor(i, key), load(p)));
    }
  }

 private:
  /// The query's row of a matrix of logits; its columns are the run's points.
  template <class X>
  Matrix<const X> row_of(const Matrix<const X>& m) const {
    if (m.data == nullptr) return {};
    return {m.data + query * m.row + points.phase * m.column, 0, m.column * points.run.step};
  }

  /// The lane masks of keys [j, j + lanes), cut to `end`.
  static FOVEA_INLINE IntVec<T> load_mask(const Matrix<const bool>& mask, Index j, Index end) {
    alignas(kVecBytes) Int<T> lanes[kLanes<T>] = {};
    for (Index i = 0; i < smaller(kLanes<T>, end - j); ++i) {
      lanes[i] = mask.data[(j + i) * mask.column] ? -1 : 0;
    }
    return load_int<T>(lanes);
  }
};
