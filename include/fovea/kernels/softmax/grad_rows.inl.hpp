// SPDX-License-Identifier: MIT
/// \file
/// The query rows of one tile of the backward pass, in the layouts that its products need: q and
/// d_out both in the lanes and as rows, lse, and delta_i = <out_i, d_out_i> - d_lse_i.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/softmax/grad.hpp"
#include "fovea/kernels/softmax/grad_tile.inl.hpp"
#include "fovea/simd/rows_to_lanes.inl.hpp"
#endif

/// Transposes rows of m into the lanes, group by group.
/// \param to [groups, padded_size(width), kGradGroup]
template <class T>
FOVEA_NOINLINE void rows_to_groups(const Matrix<const T>& m, Index first, Index step, Index rows,
                                   Index width, T factor, T* to) {
  constexpr Index group = kGradGroup<T>;
  for (Index i = 0; i < kGradTile; i += group) {
    const Index row = smaller(i, rows);
    rows_to_lanes(m.data + (first + step * row) * m.row, step * m.row, m.column,
                  smaller(group, rows - row), width, factor, to + i * padded_size(width), group);
  }
}

/// The prefetch distance in rows: enough to load several rows at once that the hardware prefetcher
/// misses.
inline constexpr Index kRowsAhead = 12;

/// Prefetches the row kRowsAhead after row i of [0, count), for reading (Write = 0) or writing (1).
template <int Write, class T>
FOVEA_INLINE void prefetch_ahead(const Matrix<T>& m, Index first, Index step, Index i, Index count,
                                 Index width) {
  constexpr Index line = 64 / static_cast<Index>(sizeof(T));
  const T* const row = m.data + (first + step * smaller(i + kRowsAhead, count - 1)) * m.row;
  for (Index c = 0; c < width; c += line) __builtin_prefetch(row + c * m.column, Write, 2);
}

/// Writes rows[i] = row first + step i of m, with zeros up to padded_size(width) columns.
template <class T>
FOVEA_NOINLINE void copy_rows(const Matrix<const T>& m, Index first, Index step, Index count,
                              Index width, T* rows) {
  const Index padded = padded_size(width);
  for (Index i = 0; i < count; ++i) {
    prefetch_ahead<0>(m, first, step, i, count, width);
    const T* from = m.data + (first + step * i) * m.row;
    for (Index c = 0; c < padded; c += kLanes<T>) {
      store(rows + i * padded + c, c < width ? load_columns(from, m.column, c, width) : zero<T>());
    }
  }
}

/// Whether some rows at unit columns are finite. There are four chains, since one would be
/// latency-bound.
/// \param width a multiple of the lanes, or the whole width of the rows
template <class T>
FOVEA_NOINLINE bool rows_finite(const Matrix<const T>& m, Index rows, Index width) {
  constexpr Index chains = 4;
  Vec<T> poison[chains];
  FOVEA_UNROLL
  for (Index n = 0; n < chains; ++n) poison[n] = zero<T>();
  for (Index i = 0; i < rows; i += chains) {
    for (Index c = 0; c < width; c += kLanes<T>) {
      FOVEA_UNROLL
      for (Index n = 0; n < chains; ++n) {
        const Vec<T> x = load_columns(m.data + smaller(i + n, rows - 1) * m.row, 1, c, width);
        poison[n] = poison[n] + (x - x);
      }
    }
  }
  const Vec<T> all = (poison[0] + poison[1]) + (poison[2] + poison[3]);
  return !any<T>(~(all == zero<T>()));
}

/// The rows first + step * i of m with unit columns, and with zeros up to padded_size(width)
/// columns: in place, or copied.
template <class T>
FOVEA_NOINLINE Matrix<const T> near_rows(const Matrix<const T>& m, Index first, Index step,
                                         Index count, Index width, T* rows) {
  const T* const data = m.data + first * m.row;
  // A vector that crosses a cache line takes two loads.
  constexpr Index line = 64 / static_cast<Index>(sizeof(T));
  const bool aligned = reinterpret_cast<std::size_t>(data) % 64 == 0 && step * m.row % line == 0;
  if (aligned && width == padded_size(width) && are_near(m, step, width)) {
    return {data, step * m.row, 1};
  }
  copy_rows(m, first, step, count, width, rows);
  return {rows, padded_size(width), 1};
}

/// The rows of a tile, in the caller's scratch.
template <class T>
class GradRows {
 public:
  /// \param scratch kGradTile (2 padded_size(D) + 3 padded_size(Dv) + 3) elements
  GradRows(const SoftmaxGradHead<T>& head, T* scratch)
      : head_(head),
        queries_(scratch),
        query_rows_(queries_ + kGradTile * padded_size(head.width)),
        d_out_(query_rows_ + kGradTile * padded_size(head.width)),
        d_out_rows_(d_out_ + kGradTile * padded_size(head.value_width)),
        out_(d_out_rows_ + kGradTile * padded_size(head.value_width)),
        lse_(out_ + kGradTile * padded_size(head.value_width)),
        delta_(lse_ + kGradTile),
        lse_low_(delta_ + kGradTile) {}

  /// Loads lse, its low parts and delta for the rows first + step * [0, count) of the tensors.
  void load_sums(Index first, Index step, Index count) {
    constexpr T infinity = std::numeric_limits<T>::infinity();
    d_out_matrix_ = near_rows(head_.d_out, first, step, count, head_.value_width, d_out_rows_);
    rows_to_groups(d_out_matrix_, 0, 1, count, head_.value_width, T{1}, d_out_);
    rows_to_groups(head_.out, first, step, count, head_.value_width, T{1}, out_);
    for (Index i = 0; i < kGradTile; i += kGradGroup<T>) {
      const Index at = i * padded_size(head_.value_width);
      row_products(d_out_ + at, out_ + at, head_.value_width, kGradGroup<T>, delta_ + i);
    }
    for (Index i = 0; i < kGradTile; ++i) {
      const T lse = i < count ? head_.lse.data[(first + step * i) * head_.lse.row] : infinity;
      // Since exp(s - infinity) = 0, so are the weights of padding, and of rows without keys.
      lse_[i] = lse == -infinity ? infinity : lse * logit_factor(T{1});
    }
    if (head_.d_lse.data != nullptr) {
      for (Index i = 0; i < count; ++i) {
        delta_[i] -= head_.d_lse.data[(first + step * i) * head_.d_lse.row];
      }
    }
    has_lse_low_ = false;
    if (head_.lse_low == nullptr) return;
    for (Index i = 0; i < kGradTile; ++i) {
      lse_low_[i] = i < count ? head_.lse_low[first + step * i] : T{0};
      has_lse_low_ = has_lse_low_ || lse_low_[i] != 0;
    }
  }

  /// The same, and loads q and d_out.
  void load_all(Index first, Index step, Index count) {
    load_sums(first, step, count);
    query_matrix_ = near_rows(head_.q, first, step, count, head_.width, query_rows_);
    rows_to_groups(query_matrix_, 0, 1, count, head_.width, logit_factor(head_.scale), queries_);
    count_ = count;
    looked_ = false;
  }

  /// Whether q, d_out, lse and delta are finite. Computed once, on first use.
  bool finite() {
    if (!looked_) {
      const Index d = padded_size(head_.width);
      const Index dv = padded_size(head_.value_width);
      finite_ = rows_finite(query_matrix_, count_, d) && rows_finite(d_out_matrix_, count_, dv) &&
                rows_finite(Matrix<const T>{delta_, kGradTile, 1}, 1, kGradTile);
      looked_ = true;
    }
    return finite_;
  }

  /// The queries of group g in the lanes, [padded_size(D), kGradGroup], scaled to half-logits of
  /// base 2.
  const T* queries(Index g) const {
    return queries_ + g * kGradGroup<T> * padded_size(head_.width);
  }
  /// The d_out of group g in the lanes, [padded_size(Dv), kGradGroup].
  const T* d_out(Index g) const {
    return d_out_ + g * kGradGroup<T> * padded_size(head_.value_width);
  }
  /// The queries as rows, [count, padded_size(D)], with unit columns.
  const Matrix<const T>& query_rows() const { return query_matrix_; }
  /// The d_out as rows, [count, padded_size(Dv)], with unit columns.
  const Matrix<const T>& d_out_rows() const { return d_out_matrix_; }
  const T* lse(Index g) const { return lse_ + g * kGradGroup<T>; }
  /// The low parts of lse of group g; null if all are 0.
  const T* lse_low(Index g) const { return has_lse_low_ ? lse_low_ + g * kGradGroup<T> : nullptr; }
  const T* delta(Index g) const { return delta_ + g * kGradGroup<T>; }

 private:
  const SoftmaxGradHead<T>& head_;
  T* const queries_;
  T* const query_rows_;
  T* const d_out_;
  T* const d_out_rows_;
  T* const out_;
  T* const lse_;      // [kGradTile], in half-logits of base 2
  T* const delta_;    // [kGradTile]
  T* const lse_low_;  // [kGradTile], in half-logits of base 2
  bool has_lse_low_ = false;
  Matrix<const T> query_matrix_;
  Matrix<const T> d_out_matrix_;
  Index count_ = 0;
  bool looked_ = false;
  bool finite_ = false;
};
