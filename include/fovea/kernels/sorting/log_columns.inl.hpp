// SPDX-License-Identifier: MIT
/// \file
/// Normalises the columns of a matrix in log space, forward and backward. Columns are in the lanes,
/// so that sums do not depend on the register width.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/sorting/sorting.hpp"
#include "fovea/simd/integers.inl.hpp"
#include "fovea/simd/softmax_weight.inl.hpp"
#endif

/// Some neighbouring columns of a matrix: a vector of them, or fewer.
template <class T>
struct LogColumns {
  const LogColumnsArgs<T>& args;
  Index first;
  Index count;

  FOVEA_INLINE Vec<T> read(const T* matrix, Index row) const {
    const T* const at = matrix + row * args.columns + first;
    return count == kLanes<T> ? load(at) : load_first(at, count);
  }
  FOVEA_INLINE void write(T* matrix, Index row, Vec<T> x) const {
    T* const at = matrix + row * args.columns + first;
    if (count == kLanes<T>) return store(at, x);
    store_first(at, x, count);
  }

  /// The sum of f(row) over all rows.
  template <class F>
  FOVEA_INLINE Vec<T> sum(const F& f) const {
    Vec<T> total = zero<T>();
    for (Index begin = 0; begin < args.rows; begin += kReductionBlock) {
      Vec<T> chain = zero<T>();
      const Index end = smaller(args.rows, begin + kReductionBlock);
      for (Index row = begin; row < end; ++row) chain = chain + f(row);
      total = total + chain;
    }
    return total;
  }

  FOVEA_INLINE void normalise() const {
    Vec<T> most = set1(kMinusInfinity<T>);
    for (Index row = 0; row < args.rows; ++row) most = maximum(most, read(args.logs, row));
    const Vec<T> shift = finite_shift(most);
    const Vec<T> total = sum([&](Index row) { return exp(read(args.logs, row) - shift); });
    const Vec<T> below = log(total);
    for (Index row = 0; row < args.rows; ++row) {
      write(args.logs, row, read(args.logs, row) - shift - below);
    }
  }

  FOVEA_INLINE void differentiate() const {
    const Vec<T> total = sum([&](Index row) { return read(args.gradient, row); });
    for (Index row = 0; row < args.rows; ++row) {
      const Vec<T> weight = exp(read(args.logs, row));
      write(args.gradient, row, fma(zero<T>() - weight, total, read(args.gradient, row)));
    }
  }
};

/// A step of the normalisation, or its gradient.
template <class T>
void log_columns(const LogColumnsArgs<T>& args) {
  for (Index c = 0; c < args.columns; c += kLanes<T>) {
    const LogColumns<T> columns{args, c, smaller(kLanes<T>, args.columns - c)};
    if (args.gradient == nullptr) {
      columns.normalise();
    } else {
      columns.differentiate();
    }
  }
}

/// Exponentials.
template <class T>
void exponentials(const ExpArgs<T>& args) {
  for (Index i = 0; i < args.count; i += kLanes<T>) {
    const Index n = smaller(kLanes<T>, args.count - i);
    if (n == kLanes<T>) {
      store(args.to + i, exp(load(args.x + i)));
    } else {
      store_first(args.to + i, exp(load_first(args.x + i, n)), n);
    }
  }
}
