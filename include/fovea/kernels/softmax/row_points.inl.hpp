// SPDX-License-Identifier: MIT
/// \file
/// What the kernels of few query rows go by: the points of a run of keys, and the running softmax
/// of the rows over a segment of them.

#if !defined(FOVEA_LEVEL)  // Read alone: what it stands on.
#pragma once
#include "fovea/kernels/softmax/row.hpp"
#include "fovea/simd/integers.inl.hpp"
#endif

/// The running softmax of some rows, as it lies in memory (softmax_row_part).
template <class T>
struct RowSoftmax {
  T* max_logit;  // [rows]
  T* sum;        // [rows]
  T* saw;        // [rows] 1 if the row saw a key, else 0: by pattern, mask and bias, not by logits
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

/// A run of keys by its points: where these are in the sequence, and in k and v.
struct RunPoints {
  KeyRun run{};
  Index first = 0;     // the run's first point
  Index end = 0;       // one past the last point that lies before key_end
  Index phase = 0;     // position of point 0
  Index row = 0;       // row of point 0
  Index row_step = 1;  // rows from one point to the next

  RunPoints() = default;
  RunPoints(const KeyRun& keys, const KeyRows& rows, Index key_end)
      : run(keys),
        first(run.first / run.step),
        end(first + run_keys(run, key_end)),
        phase(run.first - run.step * first),
        row(rows.row(run.first) - rows.step(run.step) * first),
        row_step(rows.step(run.step)) {}

  FOVEA_INLINE Index position(Index n) const { return phase + run.step * n; }

  /// The points that row i of the block sees.
  FOVEA_INLINE KeyRange seen_by(Index i) const {
    if (run.lower == nullptr) return {first, end};
    return {first + run.lower[i], smaller(first + run.upper[i], end)};
  }
};
