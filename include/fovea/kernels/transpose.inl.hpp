// SPDX-License-Identifier: MIT
/// \file
/// Rows of queries to lanes and back, by register transposes of lanes x lanes elements.

/// The perfect shuffle of two registers: a0 b0 a1 b1 ..., its low or its high half.
template <bool High, class T>
FOVEA_INLINE Vec<T> interleave(Vec<T> a, Vec<T> b) {
  constexpr int w = kLanes<T>;
  constexpr int h = High ? w / 2 : 0;
  if constexpr (w == 2) {
    return {__builtin_shufflevector(a.raw, b.raw, h, w + h)};
  } else if constexpr (w == 4) {
    return {__builtin_shufflevector(a.raw, b.raw, h, w + h, h + 1, w + h + 1)};
  } else if constexpr (w == 8) {
    return {__builtin_shufflevector(a.raw, b.raw, h, w + h, h + 1, w + h + 1, h + 2, w + h + 2,
                                    h + 3, w + h + 3)};
  } else {
    return {__builtin_shufflevector(a.raw, b.raw, h, w + h, h + 1, w + h + 1, h + 2, w + h + 2,
                                    h + 3, w + h + 3, h + 4, w + h + 4, h + 5, w + h + 5, h + 6,
                                    w + h + 6, h + 7, w + h + 7)};
  }
}

/// One step of a transposition: the perfect shuffle of the first half of the rows with the second.
template <class T>
FOVEA_INLINE void shuffle_halves(Vec<T> (&rows)[kLanes<T>]) {
  constexpr int w = kLanes<T>;
  Vec<T> shuffled[w];
  FOVEA_UNROLL
  for (int i = 0; i < w / 2; ++i) {
    shuffled[2 * i] = interleave<false>(rows[i], rows[i + w / 2]);
    shuffled[2 * i + 1] = interleave<true>(rows[i], rows[i + w / 2]);
  }
  FOVEA_UNROLL
  for (int i = 0; i < w; ++i) rows[i] = shuffled[i];
}

/// Transposes lanes x lanes elements in log2(lanes) steps.
template <class T>
FOVEA_INLINE void transpose(Vec<T> (&rows)[kLanes<T>]) {
  shuffle_halves(rows);
  if constexpr (kLanes<T> >= 4) shuffle_halves(rows);
  if constexpr (kLanes<T> >= 8) shuffle_halves(rows);
  if constexpr (kLanes<T> >= 16) shuffle_halves(rows);
}

/// Lanes from n elements that lie apart; 0 beyond them.
template <class T>
FOVEA_NOINLINE void gather_lanes(const T* from, Index column, Index n, T* lanes) {
  for (Index i = 0; i < kLanes<T>; ++i) lanes[i] = i < n ? from[i * column] : T{0};
}

/// Up to `lanes` elements of one row from column c on, 0 beyond \p width.
template <class T>
FOVEA_INLINE Vec<T> load_columns(const T* row, Index column, Index c, Index width) {
  const Index n = smaller(width - c, kLanes<T>);
  if (column == 1) return n == kLanes<T> ? load(row + c) : load_first(row + c, n);
  alignas(kVecBytes) T lanes[kLanes<T>];
  gather_lanes(row + c * column, column, n, lanes);
  return load(lanes);
}

/// Up to `lanes` elements of one row from column c on; nothing beyond \p width.
template <class T>
FOVEA_INLINE void store_columns(T* row, Index column, Index c, Index width, Vec<T> a) {
  const Index n = smaller(width - c, kLanes<T>);
  if (column == 1 && n == kLanes<T>) {
    store(row + c, a);
    return;
  }
  alignas(kVecBytes) T lanes[kLanes<T>];
  store(lanes, a);
  for (Index i = 0; i < n; ++i) row[(c + i) * column] = lanes[i];
}

/// qt[c, i] = rows[i, c] * factor for i < count, else 0.
/// \param rows [count, width], count <= queries   \param qt [width rounded up to lanes, queries]
/// \param queries a multiple of the lanes
template <class T>
FOVEA_NOINLINE void rows_to_lanes(const T* rows, Index row, Index column, Index count, Index width,
                                  T factor, T* qt, Index queries) {
  constexpr int w = kLanes<T>;
  for (Index first = 0; first < queries; first += w) {
    for (Index c = 0; c < width; c += w) {
      Vec<T> tile[w];
      FOVEA_UNROLL
      for (int i = 0; i < w; ++i) {
        const Index r = first + i;
        __builtin_prefetch(rows + smaller(r + w, count - 1) * row + c * column);
        tile[i] = r < count ? load_columns(rows + r * row, column, c, width) : zero<T>();
      }
      transpose(tile);
      FOVEA_UNROLL
      for (int i = 0; i < w; ++i) store(qt + (c + i) * queries + first, tile[i] * set1(factor));
    }
  }
}

/// rows[i, c] = ot[c, i] for i < count.
/// \param ot [width rounded up to lanes, queries]
template <class T>
FOVEA_NOINLINE void lanes_to_rows(const T* ot, Index queries, T* rows, Index row, Index column,
                                  Index count, Index width) {
  constexpr int w = kLanes<T>;
  alignas(kVecBytes) T lanes[w * w];
  for (Index first = 0; first < count; first += w) {
    const Index last = smaller(w, count - first);
    for (Index c = 0; c < width; c += w) {
      Vec<T> tile[w];
      FOVEA_UNROLL
      for (int i = 0; i < w; ++i) {
        __builtin_prefetch(rows + smaller(first + i + w, count - 1) * row + c * column, 1);
        tile[i] = load(ot + (c + i) * queries + first);
      }
      transpose(tile);
      T* to = rows + first * row;
      if (column == 1 && width - c >= w && last == w) {
        FOVEA_UNROLL
        for (int i = 0; i < w; ++i) store(to + i * row + c, tile[i]);
        continue;
      }
      FOVEA_UNROLL
      for (int i = 0; i < w; ++i) store(lanes + i * w, tile[i]);
      for (Index i = 0; i < last; ++i) {
        store_columns(to + i * row, column, c, width, load(lanes + i * w));
      }
    }
  }
}
