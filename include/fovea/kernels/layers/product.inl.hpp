// SPDX-License-Identifier: MIT
/// \file
/// Matrix products of layers: register blocks over panels. A panel is some columns of b,
/// kReductionBlock steps of them at a time, packed with contiguous steps. Rows of a are read in
/// place, and columns of a are packed to rows of steps.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/layers/layers.hpp"
#include "fovea/simd/register_block.inl.hpp"
#include "fovea/simd/row_dots.inl.hpp"
#endif

/// Vectors of a panel. Of 32 registers 6 x 4 are accumulators, on AVX-512 1.12 times as fast as 8 x
/// 2: packed panel rows are twice as long. 14 x 2 and 8 x 3 are no faster than 8 x 2.
inline constexpr int kPanelVectors = kBlockVectors;
/// The rows of its register blocks.
inline constexpr int kPanelBlockRows = kVecRegisters == 32 ? 6 : kBlockRows<kPanelVectors>;
/// Columns of a panel.
template <class T>
inline constexpr int kPanelColumns = kPanelVectors* kLanes<T>;

/// The columns of `to` computed at a time: with kProductRows rows they stay in the second-level
/// cache while reduction blocks are added.
inline constexpr Index kProductColumns = 256;

/// Columns [begin, end) of a product.
struct ColumnRange {
  Index begin;
  Index end;
};

/// The register blocks of one reduction block and one panel.
template <class T>
struct PanelRows {
  const T* a;  // [rows, steps] at strides a_row and a_step
  Index a_row;
  Index a_step;
  const T* panel;  // [steps, kPanelColumns]
  Index steps;
  T* to;  // [rows, width]
  Index to_row;
  Index width;      // at most kPanelColumns
  const T* before;  // addend, at the rows of `to` or one row for all; null: none
  Index before_row;

  template <int R>
  FOVEA_INLINE void run(Index i) const {
    RegisterBlock<R, kPanelVectors, T> sum;
    sum.clear();
    sum.multiply_add(a + i * a_row, a_row, a_step, panel, kPanelColumns<T>, steps);
    const T* const added = before == nullptr ? nullptr : before + i * before_row;
    if (width == kPanelColumns<T>) {
      if (added != nullptr) sum.add_from(added, before_row);
      sum.store_to(to + i * to_row, to_row);
      return;
    }
    alignas(kVecBytes) T block[R * kPanelColumns<T>];
    sum.store_to(block, kPanelColumns<T>);
    store_part(block, R, added, to + i * to_row);
  }

 private:
  /// Writes the existing columns.
  FOVEA_NOINLINE void store_part(const T* block, Index rows, const T* added, T* at) const {
    for (Index r = 0; r < rows; ++r) {
      for (Index c = 0; c < width; ++c) {
        const T sum = block[r * kPanelColumns<T> + c];
        at[r * to_row + c] = added == nullptr ? sum : added[r * before_row + c] + sum;
      }
    }
  }
};

/// The submatrix from element (row, column) on.
template <class T, Storage S>
FOVEA_INLINE StoredMatrix<S> part_from(const StoredMatrix<S>& m, Index row, Index column) {
  const Index offset = (row * m.row + column * m.column) * kStoredBytes<S, T>;
  return {static_cast<const char*>(m.data) + offset, m.row, m.column};
}

/// panel[s, j] = b[s, j] for steps of some columns, 0 beyond `width`.
template <class T, Storage S>
FOVEA_INLINE void pack_panel(const StoredMatrix<S>& b, Index steps, Index width, T* panel) {
  if (b.column == 1) {
    pack_rows(b, steps, width, panel, kPanelColumns<T>);
    if (width > kLanes<T> * (kPanelVectors - 1)) return;
    for (Index s = 0; s < steps; ++s) {
      for (Index c = padded_size(width, kLanes<T>); c < kPanelColumns<T>; c += kLanes<T>) {
        store(panel + s * kPanelColumns<T> + c, zero<T>());
      }
    }
    return;
  }
  const StoredMatrix<S> columns{b.data, b.column, 1};
  rows_to_lanes(columns, width, steps, T(1), panel, kPanelColumns<T>);
}

/// Adds one reduction block of all columns in [begin, end) to rows of a product.
/// \param a [rows, steps], the steps of the block \param b [steps, columns]
template <class T, Storage S>
FOVEA_NOINLINE void add_chain(const ProductArgs<T, S>& p, const Matrix<const T>& a,
                              const StoredMatrix<S>& b, Index first_row, Index rows, Index steps,
                              bool is_first, ColumnRange columns) {
  alignas(64) T panel[kReductionBlock * kPanelColumns<T>];
  for (Index j = columns.begin; j < columns.end; j += kPanelColumns<T>) {
    const Index width = smaller(kPanelColumns<T>, columns.end - j);
    pack_panel(part_from<T>(b, 0, j), steps, width, panel);
    T* const to = p.to + first_row * p.to_row + j;
    PanelRows<T> block{a.data, a.row, a.column, panel, steps, to, p.to_row, width, nullptr, 0};
    if (p.add || !is_first) {
      block.before = to;
      block.before_row = p.to_row;
    } else if (p.bias != nullptr) {
      block.before = p.bias + j;
    }
    for_row_blocks<kPanelBlockRows>(0, rows, block);
  }
}

/// The maximum number of "few" rows: their products are bound by reading b, so b is read
/// sequentially, and in place if possible, since packing would take longer.
inline constexpr Index kFewRows = 3;
/// The columns computed at a time for few rows: two rows of sums stay in the first-level cache.
inline constexpr Index kFewColumns = kReductionBlock * kPackedRows / 2;

/// How often the line of a vector of b is prefetched. Measured on Zen 4: three requests for 32
/// bytes read memory 1.2 times as fast as one (and the second-level cache at 0.7 of the speed); two
/// for 16 bytes are no faster.
template <class T, Storage S>
inline constexpr int kPrefetches = kLanes<T>* kStoredBytes<S, T> >= 32 ? 3 : 1;

/// Products of R rows with rows of b read in place, some steps at a time, so that memory is read
/// sequentially.
template <class T, Storage S>
struct UnpackedRows {
  const ProductArgs<T, S>& p;
  T* sums;  // [R, kFewColumns] of the reduction block

  /// Computes whole vectors of columns of rows [row, row + R).
  template <int R>
  FOVEA_INLINE void run(Index row) const {
    const Index end = p.columns / kLanes<T> * kLanes<T>;
    for (Index j = 0; j < end; j += kFewColumns) {
      const Index columns = smaller(kFewColumns, end - j);
      for (Index s = 0; s == 0 || s < p.steps; s += kReductionBlock) {
        add_chain<R>(row, j, columns, s);
        end_chain<R>(row, j, columns, s == 0);
      }
    }
  }

 private:
  template <int R>
  FOVEA_INLINE void add_chain(Index row, Index j, Index columns, Index s) const {
    constexpr int group = 8 / R;
    const Index last = smaller(p.steps, s + kReductionBlock);
    if (s == last) add_steps<R, 0>(row, j, columns, s, true);
    Index n = s;
    for (; n + group <= last; n += group) add_steps<R, group>(row, j, columns, n, n == s);
    for (; n < last; ++n) add_steps<R, 1>(row, j, columns, n, n == s);
  }

  template <int R, int Steps>
  FOVEA_NOINLINE void add_steps(Index row, Index j, Index columns, Index s, bool is_first) const {
    Vec<T> a[R][Steps + 1];
    FOVEA_UNROLL
    for (int r = 0; r < R; ++r) {
      FOVEA_UNROLL
      for (int n = 0; n < Steps; ++n) {
        a[r][n] = set1(p.a.data[(row + r) * p.a.row + (s + n) * p.a.column]);
      }
    }
    const void* const b = part_from<T>(p.b, s, j).data;
    // The hardware follows so many short rows too late.
    const auto next = reinterpret_cast<std::intptr_t>(b) + Steps * p.b.row * kStoredBytes<S, T>;
    for (Index c = 0; c < columns; c += kLanes<T>) {
      Vec<T> sum[R];
      FOVEA_UNROLL
      for (int r = 0; r < R; ++r) {
        sum[r] = is_first ? zero<T>() : load(sums + r * kFewColumns + c);
      }
      FOVEA_UNROLL
      for (int n = 0; n < Steps; ++n) {
        FOVEA_UNROLL
        for (int i = 0; i < kPrefetches<T, S>; ++i) {
          prefetch_line<0>(next + (n * p.b.row + c + i) * kStoredBytes<S, T>);
        }
        const Vec<T> x = load_stored<S, T>(b, n * p.b.row + c);
        FOVEA_UNROLL
        for (int r = 0; r < R; ++r) sum[r] = fma(a[r][n], x, sum[r]);
      }
      FOVEA_UNROLL
      for (int r = 0; r < R; ++r) store(sums + r * kFewColumns + c, sum[r]);
    }
  }

  template <int R>
  FOVEA_INLINE void end_chain(Index row, Index j, Index columns, bool is_first) const {
    for (Index r = 0; r < R; ++r) {
      T* const to = p.to + (row + r) * p.to_row + j;
      const T* before = p.bias == nullptr ? nullptr : p.bias + j;
      if (p.add || !is_first) before = to;
      for (Index c = 0; c < columns; c += kLanes<T>) {
        const Vec<T> sum = load(sums + r * kFewColumns + c);
        store(to + c, before == nullptr ? sum : load(before + c) + sum);
      }
    }
  }
};

/// The prefetch distance of columns of b whose steps are contiguous, in columns.
inline constexpr Index kColumnsAhead = 64;

/// Products of few rows with columns of b whose steps are contiguous: each column is read once, in
/// place.
template <class T, Storage S>
FOVEA_NOINLINE void multiply_columns(const ProductArgs<T, S>& p) {
  constexpr Index batch = kDotRows<1, S, T>;
  const StoredMatrix<S> columns{p.b.data, p.b.column, 1};
  for (Index j = 0; j < p.columns; j += batch) {
    const Index count = smaller(batch, p.columns - j);
    auto ahead = RowPrefetcher<0>::of<T>(columns, j + kColumnsAhead, 1,
                                         clamped(p.columns - j - kColumnsAhead, 0, batch), p.steps);
    for (Index r = 0; r < p.rows; ++r) {
      T* const to = p.to + r * p.to_row + j;
      const T* const before = p.add ? to : (p.bias == nullptr ? nullptr : p.bias + j);
      alignas(kVecBytes) T sums[batch] = {};
      for (Index i = 0; before != nullptr && i < count; ++i) sums[i] = before[i];
      DotBlock<1, S, T> total;
      total.clear();
      total.add_from(sums, batch);
      const DotOperands<1, T> row(p.a.data + r * p.a.row, 0, 1);
      find_dots<1>(part_from<T>(columns, j, 0), count, p.steps, row, ahead, before != nullptr,
                   total);
      ahead = {};
      total.store_to(sums, batch);
      for (Index i = 0; i < count; ++i) to[i] = sums[i];
    }
  }
}

/// Computes a product.
template <class T, Storage S>
void multiply(const ProductArgs<T, S>& p) {
  alignas(64) T packed[kReductionBlock * kPackedRows];
  const Index block = p.a.column == 1 ? kProductRows : kPackedRows;
  Index begin = 0;
  if (p.rows <= kFewRows) {
    if (p.b.column == 1) {
      for_row_blocks<2>(0, p.rows, UnpackedRows<T, S>{p, packed});
      begin = p.columns / kLanes<T> * kLanes<T>;
    } else if (p.a.column == 1) {
      return multiply_columns(p);
    }
  }
  for (; begin < p.columns; begin += kProductColumns) {
    const ColumnRange columns{begin, smaller(p.columns, begin + kProductColumns)};
    for (Index i = 0; i < p.rows; i += block) {
      const Index rows = smaller(block, p.rows - i);
      for (Index s = 0; s == 0 || s < p.steps; s += kReductionBlock) {
        const Index steps = smaller(kReductionBlock, p.steps - s);
        Matrix<const T> a{p.a.data + i * p.a.row + s * p.a.column, p.a.row, p.a.column};
        if (a.column != 1) {
          pack_rows<Storage::native>(a.data, a.column, a.row, steps, rows, packed, kPackedRows);
          a = {packed, 1, kPackedRows};
        }
        add_chain(p, a, part_from<T>(p.b, s, 0), i, rows, steps, s == 0, columns);
      }
    }
  }
}

/// The sums of V vectors of columns over all rows.
template <class T>
struct RowSumColumns {
  const RowSumArgs<T>& p;

  template <int V>
  FOVEA_INLINE void run(Index vector) const {
    const T* row = p.rows + vector * kLanes<T>;
    T* const to = p.to + vector * kLanes<T>;
    Vec<T> sum[V];
    FOVEA_UNROLL
    for (int v = 0; v < V; ++v) sum[v] = load(to + v * kLanes<T>);
    for (Index i = 0; i < p.count; ++i, row += p.row) {
      FOVEA_UNROLL
      for (int v = 0; v < V; ++v) sum[v] = sum[v] + load(row + v * kLanes<T>);
    }
    FOVEA_UNROLL
    for (int v = 0; v < V; ++v) store(to + v * kLanes<T>, sum[v]);
  }
};

/// Sums rows.
template <class T>
void add_rows(const RowSumArgs<T>& p) {
  const Index vectors = p.width / kLanes<T>;
  for_row_blocks<4>(0, vectors, RowSumColumns<T>{p});
  for (Index c = vectors * kLanes<T>; c < p.width; ++c) {
    T sum = p.to[c];
    for (Index i = 0; i < p.count; ++i) sum += p.rows[i * p.row + c];
    p.to[c] = sum;
  }
}
