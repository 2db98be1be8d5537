// SPDX-License-Identifier: MIT
/// \file
/// The matrix products of linear attention's backward pass: register blocks with the same order of
/// operations per element, and triangles that read no pair beyond the diagonal.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/linear/feature_map.inl.hpp"
#include "fovea/kernels/linear/linear.hpp"
#include "fovea/kernels/linear/running_state.inl.hpp"
#include "fovea/simd/register_block.inl.hpp"
#endif

/// The widths and padded row strides of one call, in whole cache lines.
template <class T>
struct GradWidths {
  GradWidths(Index width_, Index value_width_)
      : width(width_),
        value_width(value_width_),
        d(padded_row<T>(width)),
        dv(padded_row<T>(value_width)) {}

  Index width;        // D
  Index value_width;  // Dv
  Index d;            // elements of a padded row of D
  Index dv;
};

/// A bump allocator for scratch.
template <class T>
struct GradScratch {
  T* at;
  FOVEA_INLINE T* take(Index n) {
    T* const taken = at;
    at += n;
    return taken;
  }
};

/// The rows of the next tile, prefetched evenly while this one is computed, since outstanding
/// prefetches delay later loads.
template <class T>
class GradPrefetcher {
 public:
  GradPrefetcher() = default;
  /// \param elements number of elements of the prefetching products
  explicit GradPrefetcher(Index elements) {
    const Index blocks = larger(1, elements / (kLanes<T> * kAccumulators));
    rows_ = (kLinearChunk + blocks - 1) / blocks;
  }

  /// Adds rows [first, first + count) of a tensor, to be read.
  void read(const Matrix<const T>& m, Index first, Index count, Index width) {
    reads_[read_count_++] = RowPrefetcher<0>::template of<T>(stored(m), first, 1, count, width);
  }
  /// Adds rows of a tensor to be written, if given.
  void write(const Matrix<T>& m, Index first, Index count, Index width) {
    if (m.data == nullptr) return;
    writes_[write_count_++] = RowPrefetcher<1>::template of<T>(stored(m), first, 1, count, width);
  }

  /// Prefetches that many rows of each tensor.
  FOVEA_INLINE void prefetch(Index rows) {
    for (Index n = 0; n < read_count_; ++n) reads_[n].prefetch(rows);
    for (Index n = 0; n < write_count_; ++n) writes_[n].prefetch(rows);
  }
  /// Prefetches one register block's share.
  FOVEA_INLINE void prefetch() { prefetch(rows_); }

 private:
  RowPrefetcher<0> reads_[4];
  RowPrefetcher<1> writes_[2];
  Index rows_ = 0;  // rows of each tensor prefetched per block
  Index read_count_ = 0;
  Index write_count_ = 0;
};

/// Writes to[i, c] = phi'(x[i, c]), from the features if possible: the slope of elu is min(1, elu +
/// 1).
/// \param features [count, row], phi(x), not scaled
/// \param to [count, row]
template <class T>
FOVEA_NOINLINE void slopes_of(const FeatureMapArgs<T>& map, const Matrix<const T>& x,
                              const T* features, Index count, Index width, T* to, Index row) {
  const FeatureMapKind kind = map.kind;
  const bool is_elu =
      kind == FeatureMapKind::elu_plus_one || kind == FeatureMapKind::elu_minus_plus_one;
  if (!is_elu) {
    slope_rows(map, stored(x), count, width, to, row);
    return;
  }
  const Vec<T> sign = set1(kind == FeatureMapKind::elu_plus_one ? T(1) : T(-1));
  for (Index i = 0; i < count * row; i += kLanes<T>) {
    store(to + i, minimum(set1(T(1)), load(features + i)) * sign);
  }
}

/// Writes the slopes of one row of features of several maps concatenated, then zeros.
template <class T>
FOVEA_NOINLINE void joined_slopes(const FeatureMapArgs<T>* maps, Index joined,
                                  const Matrix<const T>& x, const T* features, Index width, T* to) {
  alignas(kVecBytes) T from[kFeaturePart] = {};
  alignas(kVecBytes) T part[kFeaturePart];
  for (Index m = 0; m < joined; ++m) {
    for (Index c = 0; c < width; c += kFeaturePart) {
      const Index n = smaller(kFeaturePart, width - c);
      const std::size_t bytes = static_cast<std::size_t>(n) * sizeof(T);
      __builtin_memcpy(from, features + m * width + c, bytes);
      slopes_of(maps[m], {x.data + c * x.column, x.row, x.column}, from, 1, n, part, kFeaturePart);
      __builtin_memcpy(to + m * width + c, part, bytes);
    }
  }
  for (Index c = joined * width; c < padded_row<T>(joined * width); ++c) to[c] = T{};
}

/// Writes the slopes of the features that feature_rows() has written.
template <class T>
FOVEA_NOINLINE void slopes_of_features(const LinearMaps<T>& maps, Index l, const Matrix<const T>& x,
                                       const T* features, Index count, Index width, T* to,
                                       Index row) {
  if (maps.joined == 1) return slopes_of(maps.maps[l], x, features, count, width, to, row);
  for (Index i = 0; i < count; ++i) {
    joined_slopes(maps.maps + l * maps.joined, maps.joined, {x.data + i * x.row, x.row, x.column},
                  features + i * row, maps.width, to + i * row);
  }
}

/// Writes to[c] = row(c, to[c]), or row(c, 0) if not accumulating.
template <class T, class Row>
FOVEA_INLINE void write_row(T* to, Index column, Index width, bool add, const Row& row) {
  constexpr Index w = kLanes<T>;
  Index c = 0;
  if (column == 1) {
    for (; c + w <= width; c += w) store(to + c, row(c, add ? load(to + c) : zero<T>()));
  }
  for (; c < width; c += w) {
    const Vec<T> before = add ? load_columns(to, column, c, width) : zero<T>();
    store_columns(to, column, c, width, row(c, before));
  }
}

/// The same for the input row of several maps' features, each of which adds to it.
/// \param row called with a feature's number instead of a column's; accumulates
template <class T, class Row>
FOVEA_INLINE void write_feature_row(const LinearMaps<T>& maps, T* to, Index column, Index width,
                                    bool add, const Row& row) {
  if (maps.joined == 1) return write_row(to, column, width, add, row);
  for (Index f = 0; f < width; f += kLanes<T>) {
    alignas(kVecBytes) T lanes[kLanes<T>];
    store(lanes, row(f, zero<T>()));
    for (Index i = 0; i < smaller(kLanes<T>, width - f); ++i) {
      const bool is_first = !add && f + i < maps.width;
      T& at = to[(f + i) % maps.width * column];
      at = is_first ? lanes[i] : at + lanes[i];
    }
  }
}

/// Which of the steps [0, steps) a row of a product sums over.
enum class ProductSteps {
  all,        // all of them, in reduction blocks of kReductionBlock
  up_to_row,  // row i: [0, i + offset], with steps <= kReductionBlock
  from_row    // row i: [i - offset, steps), with steps <= kReductionBlock
};

/// The product to[i, c] = sum_s a[i, s] b[s, c], written or added to `to`.
template <class T>
struct RowsProduct {
  const T* a;  // scalars, at strides a_row and a_step
  Index a_row;
  Index a_step;
  const T* b;  // [steps, columns]
  Index b_row;
  T* to;  // [rows, columns]
  Index to_row;
  Index steps;
  GradPrefetcher<T>* ahead = nullptr;
  Index offset = 0;
  bool add = false;
};

/// Computes V vectors of columns of a product, R rows at a time.
template <ProductSteps kSteps, int V, class T>
struct ProductColumns {
  const RowsProduct<T>& p;
  Index column;

  template <int R>
  FOVEA_INLINE void run(Index i) const {
    const T* const a = p.a + i * p.a_row;
    const T* const b = p.b + column;
    T* const to = p.to + i * p.to_row + column;
    if (p.ahead != nullptr) p.ahead->prefetch();
    if constexpr (kSteps == ProductSteps::all) {
      for (Index s = 0; s == 0 || s < p.steps; s += kReductionBlock) {
        RegisterBlock<R, V, T> sum;
        sum.clear();
        sum.multiply_add(a + s * p.a_step, p.a_row, p.a_step, b + s * p.b_row, p.b_row,
                         smaller(kReductionBlock, p.steps - s));
        if (p.add || s > 0) sum.add_from(to, p.to_row);
        sum.store_to(to, p.to_row);
      }
    } else {
      RegisterBlock<R, V, T> sum;
      sum.clear();
      if constexpr (kSteps == ProductSteps::up_to_row) {
        up_to_row(a, b, i, sum);
      } else {
        from_row(a, b, i, sum);
      }
      if (p.add) sum.add_from(to, p.to_row);
      sum.store_to(to, p.to_row);
    }
  }

 private:
  /// Adds one step to rows [begin, end) of a block.
  template <int R>
  FOVEA_INLINE void step(const T* a, const T* b, Index s, int begin, int end,
                         RegisterBlock<R, V, T>& sum) const {
    Vec<T> x[V];
    FOVEA_UNROLL
    for (int v = 0; v < V; ++v) x[v] = load(b + s * p.b_row + v * kLanes<T>);
    FOVEA_UNROLL
    for (int r = 0; r < R; ++r) {
      if (r < begin || r >= end) continue;
      const Vec<T> scalar = set1(a[r * p.a_row + s * p.a_step]);
      FOVEA_UNROLL
      for (int v = 0; v < V; ++v) sum.at[r][v] = fma(scalar, x[v], sum.at[r][v]);
    }
  }

  template <int R>
  FOVEA_INLINE void up_to_row(const T* a, const T* b, Index i, RegisterBlock<R, V, T>& sum) const {
    const Index common = smaller(p.steps, i + p.offset + 1);
    sum.multiply_add(a, p.a_row, p.a_step, b, p.b_row, common);
    FOVEA_UNROLL
    for (int t = 0; t < R - 1; ++t) {
      if (common + t < p.steps) step(a, b, common + t, t + 1, R, sum);
    }
  }

  template <int R>
  FOVEA_INLINE void from_row(const T* a, const T* b, Index i, RegisterBlock<R, V, T>& sum) const {
    const Index first = i - p.offset;
    FOVEA_UNROLL
    for (int t = 0; t < R - 1; ++t) {
      if (first + t >= 0 && first + t < p.steps) step(a, b, first + t, 0, t + 1, sum);
    }
    const Index common = clamped(first + R - 1, 0, p.steps);
    sum.multiply_add(a + common * p.a_step, p.a_row, p.a_step, b + common * p.b_row, p.b_row,
                     p.steps - common);
  }
};

/// Cuts the columns of a product into groups of vectors.
template <ProductSteps kSteps, class T>
struct ProductGroups {
  const RowsProduct<T>& p;
  Index rows;

  template <int V>
  FOVEA_INLINE void run(Index vector) const {
    constexpr int most = kBlockRows<V> < 8 ? kBlockRows<V> : 8;
    constexpr int block = kSteps == ProductSteps::all ? kBlockRows<V> : most;
    for_row_blocks<block>(0, rows, ProductColumns<kSteps, V, T>{p, vector * kLanes<T>});
  }
};

/// Computes a product.
/// \param columns a multiple of the lanes
template <ProductSteps kSteps, class T>
FOVEA_NOINLINE void multiply_rows(const RowsProduct<T>& p, Index rows, Index columns) {
  for_row_blocks<kBlockVectors>(0, columns / kLanes<T>, ProductGroups<kSteps, T>{p, rows});
}

/// Computes pairs[i, j] = a_i . b_j for the pairs j <= i + offset, and possibly for others.
/// \param b_t [width, kLinearChunk]
/// \param pairs [rows, kLinearChunk]
template <class T>
FOVEA_NOINLINE void pair_products(const T* a, Index a_row, const T* b_t, Index width, Index rows,
                                  Index tokens, Index offset, T* pairs) {
  const RowsProduct<T> p{a, a_row, 1, b_t, kLinearChunk, pairs, kLinearChunk, width};
  for (Index j = 0; j < tokens; j += kLanes<T>) {
    const Index first = larger(0, j - offset);
    if (first >= rows) return;
    for_row_blocks<kAccumulators>(first, rows, ProductColumns<ProductSteps::all, 1, T>{p, j});
  }
}
