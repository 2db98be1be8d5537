// SPDX-License-Identifier: MIT
/// \file
/// Access to stored rows: pieces as vectors, and whole tiles in the arithmetic type.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/simd/integers.inl.hpp"
#include "fovea/simd/storage.inl.hpp"
#endif

/// Copies element j of a tensor to element i of another.
template <Storage S, class T>
FOVEA_INLINE void copy_element(void* to, Index i, const void* from, Index j) {
  constexpr Index bytes = kStoredBytes<S, T>;
  __builtin_memcpy(static_cast<char*>(to) + i * bytes, static_cast<const char*>(from) + j * bytes,
                   bytes);
}

/// Gathers a vector from n strided elements, from \p offset on; 0 beyond them.
template <Storage S, class T>
FOVEA_NOINLINE void gather_lanes(const void* from, Index offset, Index column, Index n,
                                 void* lanes) {
  constexpr T nothing = 0;
  for (Index i = 0; i < n; ++i) copy_element<S, T>(lanes, i, from, offset + i * column);
  for (Index i = n; i < kLanes<T>; ++i) copy_element<S, T>(lanes, i, &nothing, 0);
}

/// Up to `lanes` 16-bit elements of one row from column c on, 0 beyond \p width.
/// \param row place of the row's first element in m
template <Storage S>
FOVEA_INLINE ShortVec load_short_columns(const void* m, Index row, Index column, Index c,
                                         Index width) {
  constexpr Index lanes = kLanes<float>;
  const Index n = smaller(width - c, lanes);
  if (column == 1) {
    const void* const from = short_element(m, row + c);
    return n == lanes ? load_short(from) : load_short_first(from, n);
  }
  alignas(kVecBytes) std::uint16_t shorts[lanes];
  gather_lanes<S, float>(m, row + c * column, column, n, shorts);
  return load_short(shorts);
}

/// Up to `lanes` elements of one row from column c on, 0 beyond \p width.
/// \param row place of the row's first element in m
template <Storage S, class T>
FOVEA_INLINE Vec<T> load_columns(const void* m, Index row, Index column, Index c, Index width) {
  const Index n = smaller(width - c, kLanes<T>);
  if (column == 1) {
    return n == kLanes<T> ? load_stored<S, T>(m, row + c) : load_stored_first<S, T>(m, row + c, n);
  }
  alignas(kVecBytes) T lanes[kLanes<T>];
  gather_lanes<S, T>(m, row + c * column, column, n, lanes);
  return load_stored<S, T>(lanes, 0);
}
template <class T>
FOVEA_INLINE Vec<T> load_columns(const T* row, Index column, Index c, Index width) {
  return load_columns<Storage::native, T>(row, 0, column, c, width);
}

/// Up to `lanes` elements of one row from column c on; nothing beyond \p width.
template <Storage S, class T>
FOVEA_INLINE void store_columns(void* m, Index row, Index column, Index c, Index width, Vec<T> a) {
  const Index n = smaller(width - c, kLanes<T>);
  if (column == 1 && n == kLanes<T>) {
    store_stored<S, T>(m, row + c, a);
    return;
  }
  alignas(kVecBytes) T lanes[kLanes<T>];
  store_stored<S, T>(lanes, 0, a);
  for (Index i = 0; i < n; ++i) copy_element<S, T>(m, row + (c + i) * column, lanes, i);
}
template <class T>
FOVEA_INLINE void store_columns(T* row, Index column, Index c, Index width, Vec<T> a) {
  store_columns<Storage::native>(row, 0, column, c, width, a);
}

/// Row \p first of a matrix and every step-th after it.
template <class T, Storage S>
FOVEA_INLINE StoredMatrix<S> every_row(const StoredMatrix<S>& m, Index first, Index step) {
  const Index offset = first * m.row * element_bytes<T>(m);
  return {static_cast<const char*>(m.data) + offset, step * m.row, m.column};
}
template <class T, Storage S>
FOVEA_INLINE OutputMatrix<S> every_row(const OutputMatrix<S>& m, Index first, Index step) {
  const Index offset = first * m.row * element_bytes<T>(m);
  return {static_cast<char*>(m.data) + offset, step * m.row, m.column, m.is_wide};
}

/// to[i, c] = rows[i, c]. \param to [rows, width rounded up to lanes], its rows to_row apart
template <Storage S, class T>
FOVEA_NOINLINE void pack_rows(const void* rows, Index row, Index column, Index count, Index width,
                              T* to, Index to_row) {
  constexpr Index w = kLanes<T>;
  for (Index i = 0; i < count; ++i) {
    T* to_i = to + i * to_row;
    Index c = 0;
    if (column == 1) {
      FOVEA_UNROLL_BY(4)
      for (; c + w <= width; c += w) store(to_i + c, load_stored<S, T>(rows, i * row + c));
    }
    for (; c < width; c += w) {
      store(to_i + c, load_columns<S, T>(rows, i * row, column, c, width));
    }
  }
}
template <Storage S, class T>
FOVEA_INLINE void pack_rows(const StoredMatrix<S>& rows, Index count, Index width, T* to,
                            Index to_row) {
  pack_rows<S>(rows.data, rows.row, rows.column, count, width, to, to_row);
}

/// Prefetches the cache line at an address, which may be beyond the tensor, to a level of the
/// cache.
template <int Write, int Level = 2>
FOVEA_INLINE void prefetch_line(std::intptr_t at) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): a pointer must not point beyond the tensor
  __builtin_prefetch(reinterpret_cast<const void*>(at), Write, 4 - Level);
}

/// Prefetches rows gradually during other work: many prefetches at once would delay later loads.
template <int Write>
class RowPrefetcher {
 public:
  RowPrefetcher() = default;

  /// Rows first, first + step, ... of a matrix.
  template <class T, class Rows>
  static FOVEA_INLINE RowPrefetcher of(const Rows& m, Index first, Index step, Index count,
                                       Index width) {
    const Index bytes = element_bytes<T>(m);
    RowPrefetcher rows;
    rows.at_ = reinterpret_cast<std::intptr_t>(m.data) + first * m.row * bytes;
    rows.step_ = step * m.row * bytes;
    rows.count_ = m.column == 1 ? count : 0;
    rows.bytes_ = width * bytes;
    return rows;
  }

  FOVEA_INLINE void prefetch(Index rows) {
    for (; rows > 0 && count_ > 0; --rows, --count_) {
      for (Index b = 0; b < bytes_; b += 64) prefetch_line<Write>(at_ + b);
      at_ += step_;
    }
  }

  /// The same by cache lines, for wide rows, and to the first-level cache if so requested.
  FOVEA_INLINE void prefetch_lines(Index lines) {
    for (; lines > 0 && count_ > 0; --lines) {
      if (is_first_level_) {
        prefetch_line<Write, 1>(at_ + done_);
      } else {
        prefetch_line<Write>(at_ + done_);
      }
      done_ += 64;
      if (done_ < bytes_) continue;
      done_ = 0;
      at_ += step_;
      --count_;
    }
  }

  void to_first_level() { is_first_level_ = true; }

  /// Prefetches a line of every page. Called for several tensors, it overlaps their address
  /// translations; on TLB misses, `prefetch` would wait for each in turn.
  FOVEA_INLINE void prefetch_pages() const {
    constexpr Index page = 4096;
    if (count_ <= 0 || step_ <= 0) return;
    const Index rows = larger(1, page / step_);
    for (Index i = 0; i < count_; i += rows) prefetch_line<Write>(at_ + i * step_);
    prefetch_line<Write>(at_ + (count_ - 1) * step_ + bytes_ - 1);
  }

 private:
  std::intptr_t at_ = 0;  // may be beyond the tensor: nothing there is read
  Index step_ = 0;
  Index count_ = 0;
  Index bytes_ = 0;
  Index done_ = 0;  // bytes of the next row that were prefetched
  bool is_first_level_ = false;
};
