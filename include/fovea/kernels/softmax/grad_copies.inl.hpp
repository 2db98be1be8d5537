// SPDX-License-Identifier: MIT
/// \file
/// The parts of softmax attention's backward pass other than pairs: copies of rows, writing of
/// gradients, and gradients of sinks.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/softmax/grad_rows.inl.hpp"
#endif

/// Copies rows of a tensor.
template <class T>
void packed_rows(const PackedRowsArgs<T>& args) noexcept {
  copy_rows(args.from, args.first, args.step, args.count, args.width, args.rows);
}

/// Computes to = scale rows, or to = to + scale rows.
template <class T>
void scaled_rows(const ScaledRowsArgs<T>& args) noexcept {
  const Index padded = padded_size(args.width);
  const Vec<T> scale = set1(args.scale);
  for (Index i = 0; i < args.count; ++i) {
    prefetch_ahead<1>(args.to, args.first, args.step, i, args.count, args.width);
    const T* from = args.rows + i * padded;
    T* to = args.to.data + (args.first + args.step * i) * args.to.row;
    for (Index c = 0; c < args.width; c += kLanes<T>) {
      Vec<T> before = zero<T>();
      if (args.add) before = load_columns<T>(to, args.to.column, c, args.width);
      store_columns(to, args.to.column, c, args.width, fma(load(from + c), scale, before));
    }
  }
}

/// Adds rows to the gradient of the sink of one head. Rows without keys do not contribute.
template <class T>
void sink_grad(const SinkGradArgs<T>& args) noexcept {
  GradRows<T> rows(args.head, args.scratch);
  const T sink = logit_factor(*args.head.sink);
  // Lanes without a row add nothing, including those beyond the sums.
  T total[2 * kSinkSums] = {};
  for (Index n = 0; n < kSinkSums; ++n) total[n] = args.sums[n];
  Index count = 0;
  for (Index first = args.row_begin; first < args.row_end; first += count) {
    const Index place = first % kSinkSums;
    count = smaller(kSinkSums - place, args.row_end - first);
    rows.load_sums(first, 1, count);
    for (Index g = 0; g < kGradTile / kGradGroup<T>; ++g) {
      for (Index i = 0; i < kGradGroup<T>; i += kLanes<T>) {
        T* sum = total + place + g * kGradGroup<T> + i;
        const Vec<T> lse = load(rows.lse(g) + i);
        Vec<T> below = set1(sink) - lse;
        if (rows.lse_low(g) != nullptr) below = below - load(rows.lse_low(g) + i);
        const Vec<T> term = softmax_weight(below) * load(rows.delta(g) + i);
        const IntVec<T> sees_none = lse == set1(std::numeric_limits<T>::infinity());
        store(sum, select(sees_none, load(sum), load(sum) - term));
      }
    }
  }
  for (Index n = 0; n < kSinkSums; ++n) args.sums[n] = total[n];
}
