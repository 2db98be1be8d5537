// SPDX-License-Identifier: MIT
/// \file
/// Adds rows of one softmax to arbitrary rows of another.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/sorting/sorting.hpp"
#include "fovea/simd/storage.inl.hpp"
#endif

/// Merges some rows.
template <class T>
void merge_rows(const MergeRowsArgs<T>& args) {
  for (Index i = 0; i < args.count; ++i) {
    const T* const x = args.x + i * padded_size(args.width);
    T* const to = args.to.data + args.rows[i] * args.to.row;
    const Vec<T> factor = set1(args.factor[i]);
    for (Index c = 0; c < args.width; c += kLanes<T>) {
      Vec<T> sum = load(x + c);
      if (args.before != nullptr) {
        const Vec<T> held = load_columns<T>(to, args.to.column, c, args.width);
        sum = fma(sum, set1(args.now[i]), held * set1(args.before[i]));
      }
      store_columns(to, args.to.column, c, args.width, sum * factor);
    }
  }
}
