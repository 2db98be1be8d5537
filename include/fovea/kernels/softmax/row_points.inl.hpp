// SPDX-License-Identifier: MIT
/// \file
/// Helpers of the kernels for few query rows: the points of a run of keys, and the rows' running
/// softmax over a segment.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/softmax/row.hpp"
#include "fovea/simd/integers.inl.hpp"
#endif

/// The running softmax of some rows, in memory (softmax_row_part).
template <class T>
struct RowSoftmax {
  T* max_logit;  // [rows]
  T* sum;        // [rows]
  T* saw;        // [rows] 1 if the row saw a key (by pattern, mask and bias, not logits), else 0
  T* acc;        // [rows, acc_row]
  Index acc_row;

  RowSoftmax(T* part, Index rows, Index value_width)
      : max_logit(part),
        sum(max_logit + padded_size(rows)),
        saw(sum + padded_size(rows)),
        acc(saw + padded_size(rows)),
        acc_row(padded_size(value_width)) {}
};

/// The points [begin, end) of a run.
struct KeyRange {
  Index begin;
  Index end;

  FOVEA_INLINE KeyRange within(Index low, Index high) const {
    return {larger(begin, low), smaller(end, high)};
  }
  FOVEA_INLINE bool empty() const { return begin >= end; }
};

/// A run of keys as points: their positions in the sequence, and in k and v.
struct RunPoints {
  KeyRun run{};
  Index first = 0;     // the run's first point
  Index end = 0;       // one past the last point before key_end
  Index phase = 0;     // position of point 0
  Index row = 0;       // row of point 0
  Index row_step = 1;  // row stride of points

  RunPoints() = default;
  RunPoints(const KeyRun& keys, const KeyRows& rows, Index key_end)
      : run(keys),
        first(run.first / run.step),
        end(first + run_keys(run, key_end)),
        phase(run.first - run.step * first),
        row(rows.row(run.first) - rows.step(run.step) * first),
        row_step(rows.step(run.step)) {}

  FOVEA_INLINE Index position(Index n) const { return phase + run.step * n; }

  /// The points visible to row i of the block.
  FOVEA_INLINE KeyRange seen_by(Index i) const {
    if (run.lower == nullptr) return {first, end};
    return {first + run.lower[i], smaller(first + run.upper[i], end)};
  }
};
