// SPDX-License-Identifier: MIT
/// \file
/// Positive random features: logits by a product with the projection in reduction blocks of
/// kReductionBlock columns, references, and the exponential of the difference. A feature is at
/// most 1. Errors of a logit, and relative errors of its feature, are relative to the magnitude of
/// its products.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/linear/feature_map.inl.hpp"
#include "fovea/kernels/linear/random_features.hpp"
#include "fovea/kernels/linear/running_state.inl.hpp"
#include "fovea/simd/lane_sums.inl.hpp"
#include "fovea/simd/rows_to_lanes.inl.hpp"
#endif

/// Prepares a projection for the other kernels.
template <class T>
void pack_projection(const ProjectionArgs<T>& args) noexcept {
  const Matrix<const T>& w = args.projection;
  rows_to_lanes(w.data, w.row, w.column, args.features, args.width, args.factor, args.turned,
                padded_row<T>(args.features));
  if (args.rows == nullptr) return;
  const Index row = padded_row<T>(args.width);
  pack_padded_rows(stored(w), args.features, args.width, args.rows);
  for (Index i = 0; i < args.features * row; i += kLanes<T>) {
    store(args.rows + i, load(args.rows + i) * set1(args.factor));
  }
}

/// |x|^2, summed in the lanes of a cache line.
template <class T>
FOVEA_INLINE T squared_norm(const T* x, Index width) {
  constexpr Index w = kLanes<T>;
  constexpr int vectors = kSumLanes<T> / w;
  Vec<T> sum[vectors];
  FOVEA_UNROLL
  for (int v = 0; v < vectors; ++v) sum[v] = zero<T>();
  for (Index c = 0; c < width; c += vectors * w) {
    FOVEA_UNROLL
    for (int v = 0; v < vectors; ++v) {
      const Index at = c + v * w;
      if (at >= width) break;
      const Vec<T> y = at + w <= width ? load(x + at) : load_first(x + at, width - at);
      sum[v] = fma(y, y, sum[v]);
    }
  }
  return total_of_lanes(sum);
}

/// Computes the logits of V vectors of features.
template <int V, class T>
struct LogitColumns {
  const T* x;  // [count, D]
  Index x_row;
  const T* turned;  // [D, row], from the group's first feature on
  Index row;
  Index width;
  const T* norms;  // [count], subtracted; null: none
  RowPrefetcher<0>& ahead;
  T* logits;  // [count, row], likewise

  template <int R>
  FOVEA_INLINE void run(Index i) const {
    ahead.prefetch(R);
    RegisterBlock<R, V, T> sum;
    sum.clear();
    sum.template multiply_add_chains<kReductionBlock>(x + i * x_row, x_row, turned, row, width,
                                                      logits + i * row, row);
    if (norms != nullptr) {
      FOVEA_UNROLL
      for (int r = 0; r < R; ++r) {
        const Vec<T> norm = set1(norms[i + r]);
        FOVEA_UNROLL
        for (int v = 0; v < V; ++v) sum.at[r][v] = sum.at[r][v] - norm;
      }
    }
    sum.store_to(logits + i * row, row);
  }
};

/// Computes the logits of rows.
template <class T>
void feature_logits(const FeatureLogitsArgs<T>& args) noexcept {
  const Index row = padded_row<T>(args.features);
  const T* x = args.x.data;
  Index x_row = args.x.row;
  if (args.x.column != 1) {
    x_row = padded_row<T>(args.width);
    pack_rows(stored(args.x), args.count, args.width, args.scratch, x_row);
    x = args.scratch;
  }
  alignas(kVecBytes) T norms[kFeatureRows];
  const bool has_norms = args.norm_factor != 0;
  for (Index i = 0; has_norms && i < args.count; ++i) {
    norms[i] = args.norm_factor * squared_norm(x + i * x_row, args.width);
  }
  auto ahead =
      RowPrefetcher<0>::template of<T>(stored(args.x), args.count, 1, args.next, args.width);
  for_register_blocks<T>(args.count, row, [&]<int V>(Index c) {
    return LogitColumns<V, T>{x,     x_row,          args.turned + c,
                              row,   args.width,     has_norms ? norms : nullptr,
                              ahead, args.logits + c};
  });
}

/// x in the lanes before feature n, 0 in the others. \param c feature of lane 0
template <class T>
FOVEA_INLINE Vec<T> first_features(Vec<T> x, Index c, Index n) {
  if (c + kLanes<T> <= n) return x;
  return select(lane_index<T>() < set1_int<T>(static_cast<Int<T>>(larger(n - c, 0))), x, zero<T>());
}

/// Writes the features of the rows' keys, up to the first logit above the reference.
template <class T>
void key_features(FeatureRowsArgs<T>& args) noexcept {
  constexpr Index w = kLanes<T>;
  const Index row = padded_row<T>(args.features);
  for (args.mapped = 0; args.mapped < args.count; ++args.mapped) {
    T* const rows = args.rows + args.mapped * row;
    IntVec<T> above = set1_int<T>(0);
    for (Index c = 0; c < row; c += w) {
      above = above | (load(rows + c) > load(args.reference + c));
    }
    if (mask_bits(above) != 0) return;
    for (Index c = 0; c < row; c += w) {
      const Vec<T> y = exp_below_zero(load(rows + c) - load(args.reference + c));
      store(rows + c, first_features(y, c, args.features));
    }
  }
}

/// Writes the features of the rows' queries.
template <class T>
void query_features(const FeatureRowsArgs<T>& args) noexcept {
  constexpr Index w = kLanes<T>;
  const Index row = padded_row<T>(args.features);
  const Vec<T> lowest = set1(-MathConstants<T>::kInfinity);
  for (Index i = 0; i < args.count; ++i) {
    T* const rows = args.rows + i * row;
    Vec<T> most = lowest;
    for (Index c = 0; c < args.features; c += w) {
      Vec<T> x = load(rows + c) + load(args.reference + c);
      store(rows + c, x);
      if (c + w > args.features) {
        x = select(lane_index<T>() < set1_int<T>(static_cast<Int<T>>(args.features - c)), x,
                   lowest);
      }
      most = maximum(most, x);
    }
    most = largest_lane(most);
    for (Index c = 0; c < row; c += w) {
      store(rows + c, first_features(exp_below_zero(load(rows + c) - most), c, args.features));
    }
  }
}

/// The lowest reference: logits less it are finite if they are.
template <class T>
inline constexpr T kLowestReference = sizeof(T) == 4 ? T(-0x1p125) : T(-0x1p1021);

/// Sets the reference to the largest logit of each feature, or raises it.
template <class T>
void feature_maxima(const FeatureRowsArgs<T>& args) noexcept {
  constexpr Index w = kLanes<T>;
  const Index row = padded_row<T>(args.features);
  for (Index c = 0; c < row; c += w) {
    // In this order NaN is ignored: it reaches the features anyway.
    Vec<T> most = args.is_first ? set1(kLowestReference<T>) : load(args.reference + c);
    for (Index i = 0; i < args.count; ++i) most = maximum(load(args.rows + i * row + c), most);
    store(args.reference + c, most);
  }
  for (Index r = args.features; r < row; ++r) args.reference[r] = MathConstants<T>::kInfinity;
}

/// Raises a running reference.
template <class T>
void raise_reference(const RaiseReferenceArgs<T>& args) noexcept {
  constexpr Index w = kLanes<T>;
  const Index row = padded_row<T>(args.features);
  for (Index c = 0; c < row; c += w) {
    const Vec<T> x = load(args.logits + c);
    const Vec<T> raised = maximum(set1(kLowestReference<T>), x) + set1(kReferenceMargin<T>);
    Vec<T> reference = raised;
    Vec<T> factor = set1(T(1));
    if (!args.is_first) {
      const Vec<T> before = load(args.reference + c);
      const IntVec<T> above = x > before;
      factor = select(above, exp_below_zero(before - raised), factor);
      reference = select(above, raised, before);
    }
    store(args.reference + c, reference);
    store(args.factors + c, factor);
  }
  for (Index r = args.features; r < row; ++r) {
    args.reference[r] = MathConstants<T>::kInfinity;
    args.factors[r] = 1;
  }
}

/// Multiplies row r of a matrix by factor r, unless the factor is 1.
/// \param row a multiple of the lanes
template <class T>
FOVEA_NOINLINE void scale_matrix_rows(T* matrix, Index row, const T* factors, Index rows) {
  for (Index r = 0; r < rows; ++r) {
    if (factors[r] == 1) continue;
    for (Index c = 0; c < row; c += kLanes<T>) {
      T* const at = matrix + r * row + c;
      store(at, load(at) * set1(factors[r]));
    }
  }
}

/// Multiplies each row of a matrix by the factors.
template <class T>
FOVEA_NOINLINE void scale_matrix_columns(T* matrix, Index rows, Index row, const T* factors) {
  for (Index r = 0; r < rows; ++r) {
    for (Index c = 0; c < row; c += kLanes<T>) {
      T* const at = matrix + r * row + c;
      store(at, load(at) * load(factors + c));
    }
  }
}

/// Multiplies the sums, and the tokens, that a stream holds.
template <class T>
void scale_stream(const ScaleStreamArgs<T>& args) noexcept {
  const RunningState<T> s = running_state(args.state, args.width, args.value_width, 0);
  for (T* const sums : {s.high, s.low, s.local, s.read}) {
    scale_matrix_rows(sums, s.value_row, args.factors, args.width);
    scale_matrix_columns(sums + args.width * s.value_row, 1, s.row, args.factors);
  }
  scale_matrix_columns(s.features, kLinearChunk, s.row, args.factors);
  scale_matrix_columns(s.run, kLinearChunk, s.row, args.factors);
  scale_matrix_rows(s.lanes, kLinearChunk, args.factors, args.width);
}

/// Rescales the sums of segments to the largest reference.
template <class T>
void join_references(const JoinReferencesArgs<T>& args) noexcept {
  constexpr Index w = kLanes<T>;
  const Index value_row = padded_row<T>(args.value_width);
  const Index normaliser = args.width * value_row;
  T* const references = args.sums + linear_map_elements<T>(args.width, args.value_width);
  for (Index c = 0; c < padded_row<T>(args.width); c += w) {
    Vec<T> most = load((args.largest == nullptr ? references : args.largest) + c);
    for (Index s = 1; args.largest == nullptr && s < args.segments; ++s) {
      most = maximum(most, load(references + s * args.elements + c));
    }
    for (Index s = 0; s < args.segments; ++s) {
      alignas(kVecBytes) T factors[w];
      T* const reference = references + s * args.elements + c;
      const Vec<T> before = load(reference);
      store(factors, select(before == most, set1(T(1)), exp_below_zero(before - most)));
      store(reference, s == 0 && args.largest == nullptr ? most : zero<T>());
      T* const sums = args.sums + s * args.elements;
      scale_matrix_rows(sums + c * value_row, value_row, factors, clamped(args.width - c, 0, w));
      scale_matrix_columns(sums + normaliser + c, 1, w, factors);
    }
  }
}
