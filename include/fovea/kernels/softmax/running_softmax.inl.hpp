// SPDX-License-Identifier: MIT
/// \file
/// The running softmax of the queries of a sub-block, which are V vectors: merging of its parts,
/// carrying between passes, and writing.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/softmax/block.hpp"
#include "fovea/simd/rows_to_lanes.inl.hpp"
#include "fovea/simd/softmax_weight.inl.hpp"
#endif

/// The factors that rescale two sums, of weights or of values, to their common maximum.
template <class T>
struct MergeFactors {
  Vec<T> max_logit;
  Vec<T> total;
  Vec<T> part;

  FOVEA_INLINE MergeFactors(Vec<T> max_of_total, Vec<T> max_of_part) {
    max_logit = maximum(max_of_total, max_of_part);
    const Vec<T> shift = finite_shift(max_logit);
    total = softmax_weight(max_of_total - shift);
    part = softmax_weight(max_of_part - shift);
  }
};

/// For each query the largest logit, the sum of weights relative to it, and the weighted sum of
/// values.
template <int V, class T>
struct RunningSoftmax {
  static constexpr Index kRow = V * kLanes<T>;

  T* max_logit;  // [kRow]
  T* sum;        // [kRow]
  T* acc;        // [Dv padded, kRow]

  /// Resets it to no keys. Values are set by the first reduction block, or by clear_values.
  FOVEA_INLINE void clear() const {
    FOVEA_UNROLL
    for (int v = 0; v < V; ++v) {
      store(max_logit + v * kLanes<T>, set1(kMinusInfinity<T>));
      store(sum + v * kLanes<T>, zero<T>());
    }
  }
  FOVEA_INLINE void clear_values(Index value_width) const {
    for (Index i = 0; i < value_width * kRow; i += kLanes<T>) store(acc + i, zero<T>());
  }

  /// Adds a part whose keys follow its own. Merging nothing, or into nothing, is exact.
  FOVEA_NOINLINE void merge(const RunningSoftmax& part, Index value_width) const {
    for (Index lane = 0; lane < kRow; lane += kLanes<T>) {
      const MergeFactors<T> factors(load(max_logit + lane), load(part.max_logit + lane));
      store(max_logit + lane, factors.max_logit);
      store(sum + lane, fma(load(sum + lane), factors.total, load(part.sum + lane) * factors.part));
      for (Index i = lane; i < value_width * kRow; i += kRow) {
        store(acc + i, fma(load(acc + i), factors.total, load(part.acc + i) * factors.part));
      }
    }
  }
};

/// The rows of a block that are one sub-block: first + step * [0, count) of q, out and lse.
struct SubRows {
  Index first;
  Index step;
  Index count;
};

/// The rows of a matrix of T, from the first one on.
template <class T>
FOVEA_INLINE Matrix<T> rows_of(const Matrix<T>& m, const SubRows& rows) {
  return {m.data + rows.first * m.row, rows.step * m.row, m.column};
}

/// Loads earlier passes' largest logits and sums, and which rows have seen a key.
/// \param seen [V * lanes]: all 0 before; -1 after for rows that have seen a key
template <int V, class T>
FOVEA_NOINLINE void resume_rows(const CarriedSoftmax<T>& carry, const SubRows& rows,
                                const RunningSoftmax<V, T>& state, Int<T>* seen) {
  state.clear();
  for (Index i = 0; i < rows.count; ++i) {
    const T* from = carry.rows + 3 * (rows.first + rows.step * i);
    state.max_logit[i] = from[0];
    state.sum[i] = from[1];
    seen[i] = from[2] != 0 ? -1 : 0;
  }
}

/// Loads earlier passes' sums of values.
template <int V, class T>
FOVEA_INLINE void resume_values(const CarriedSoftmax<T>& carry, const SubRows& rows,
                                Index value_width, const RunningSoftmax<V, T>& state) {
  const Matrix<T> from = rows_of(carry.acc, rows);
  rows_to_lanes(from.data, from.row, from.column, rows.count, value_width, T{1}, state.acc,
                V * kLanes<T>);
}

/// Writes the sums of values row by row: merged into earlier passes' sums, and divided.
template <int V, class T>
struct FinishedRows {
  static constexpr Index kRow = V * kLanes<T>;

  alignas(kVecBytes) T from_carried[kRow];
  alignas(kVecBytes) T from_part[kRow];
  alignas(kVecBytes) T inverse[kRow];
  const Int<T>* seen;
  Matrix<T> carried;  // null data: nothing to merge
  bool divides = false;
  Index width;

  FOVEA_INLINE Vec<T> operator()(Vec<T> x, Index i, Index c) const {
    if (carried.data != nullptr) {
      const Vec<T> before = load_columns(carried.data + i * carried.row, carried.column, c, width);
      x = fma(before, set1(from_carried[i]), x * set1(from_part[i]));
    }
    if (!divides) return x;
    return seen[i] == 0 ? zero<T>() : x * set1(inverse[i]);
  }
};

/// The destination of this pass's rows.
template <class T, Storage S>
FOVEA_INLINE OutputMatrix<S> output_of(const SoftmaxBlockArgs<T, S>& args) {
  return args.carry.suspends ? wide_output<S>(args.carry.acc) : args.out;
}

/// Ends a pass for the rows of a sub-block. Writes out and lse (+0 and -infinity for rows without
/// keys), or the low parts of lse, or leaves the total to the next pass.
/// \param total the total before `part`
/// \param merges whether the total's values are still in the earlier passes' acc; otherwise all is
/// in `part`
/// \param seen [V * lanes] -1 for rows that have seen a key, else 0
template <int V, class T, Storage S>
FOVEA_NOINLINE void finish_rows(const SoftmaxBlockArgs<T, S>& args, const SubRows& rows,
                                const RunningSoftmax<V, T>& part, bool merges,
                                const RunningSoftmax<V, T>& total, const Int<T>* seen) {
  constexpr Index row = V * kLanes<T>;
  const CarriedSoftmax<T>& carry = args.carry;
  FinishedRows<V, T> finished;
  finished.seen = seen;
  finished.width = args.value_width;
  finished.divides = !carry.suspends;
  if (merges) finished.carried = rows_of(carry.acc, rows);
  alignas(kVecBytes) T lse[row];
  const int lift = args.map.exponent_bias;
  for (Index lane = 0; lane < row; lane += kLanes<T>) {
    Vec<T> most = load(part.max_logit + lane);
    Vec<T> sum = load(part.sum + lane);
    if (merges) {
      const MergeFactors<T> factors(load(total.max_logit + lane), most);
      most = factors.max_logit;
      sum = fma(load(total.sum + lane), factors.total, sum * factors.part);
      store(finished.from_carried + lane, factors.total);
      store(finished.from_part + lane, factors.part);
    }
    if (carry.suspends) {
      store(part.max_logit + lane, most);
      store(part.sum + lane, sum);
      continue;
    }
    Vec<T> rescale = set1<T>(1);
    if (args.sink != nullptr) rescale = add_sink(*args.sink, lift, most, sum);
    if (args.lse_low != nullptr) {
      store(lse + lane, zero<T>());
      for (Index i = lane; i < smaller(lane + kLanes<T>, rows.count); ++i) {
        lse[i] = args.lse.data[(rows.first + rows.step * i) * args.lse.row];
      }
      store(lse + lane, lse_low_part(load(lse + lane), most, sum, lift));
      continue;
    }
    store(finished.inverse + lane, rescale / sum);
    store(lse + lane,
          select(load_int<T>(seen + lane), log_sum_exp(most, sum, lift), set1(kMinusInfinity<T>)));
  }
  if (args.lse_low != nullptr && !carry.suspends) {
    for (Index i = 0; i < rows.count; ++i) args.lse_low[rows.first + rows.step * i] = lse[i];
    return;
  }
  lanes_to_rows(part.acc, row, every_row<T>(output_of(args), rows.first, rows.step), rows.count,
                args.value_width, finished);
  if (carry.suspends) {
    for (Index i = 0; i < rows.count; ++i) {
      T* at = carry.rows + 3 * (rows.first + rows.step * i);
      at[0] = part.max_logit[i];
      at[1] = part.sum[i];
      at[2] = seen[i] != 0 ? 1 : 0;
    }
  } else if (args.lse.data != nullptr) {
    for (Index i = 0; i < rows.count; ++i) {
      args.lse.data[(rows.first + rows.step * i) * args.lse.row] = lse[i];
    }
  }
}
