// SPDX-License-Identifier: MIT
/// \file
/// The stream through the delta rule (delta_rule.hpp): features, chunks, and the rows that read
/// them.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/linear/delta_rows.inl.hpp"
#include "fovea/kernels/linear/delta_rule.hpp"
#include "fovea/kernels/linear/output.inl.hpp"
#include "fovea/simd/rows_to_lanes.inl.hpp"
#endif

/// The sum of a row padded with zeros to a multiple of 64 bytes, as one vector.
template <class T>
FOVEA_INLINE Vec<T> row_lanes(const T* x, Index padded) {
  constexpr int w = kLanes<T>;
  constexpr int vectors = kSumLanes<T> / w;
  Vec<T> sum[vectors];
  FOVEA_UNROLL
  for (int v = 0; v < vectors; ++v) sum[v] = zero<T>();
  for (Index c = 0; c < padded; c += kSumLanes<T>) {
    FOVEA_UNROLL
    for (int v = 0; v < vectors; ++v) sum[v] = sum[v] + load(x + c + v * w);
  }
  return halves_added(sum);
}

/// The sum of the lanes by the tree of lane_sums.
template <class T>
FOVEA_INLINE T lane_sum(Vec<T> x) {
  FOVEA_UNROLL
  for (int w = kLanes<T>; w > 1; w /= 2) x = interleave<false>(x, x) + interleave<true>(x, x);
  return x.raw[0];
}

/// Computes x / sum for a row, and 0 if the sum is 0. It divides if the inverse would be subnormal
/// or infinite.
template <class T>
FOVEA_INLINE void divide_row(T* x, Index padded, T sum, T inverse) {
  constexpr T most = sizeof(T) == 4 ? static_cast<T>(0x1p100) : static_cast<T>(0x1p1000);
  const T magnitude = sum < 0 ? -sum : sum;
  if (magnitude >= 1 / most && magnitude <= most) {
    for (Index c = 0; c < padded; c += kLanes<T>) store(x + c, load(x + c) * set1(inverse));
    return;
  }
  for (Index c = 0; c < padded; c += kLanes<T>) {
    store(x + c, sum == 0 ? zero<T>() : load(x + c) / set1(sum));
  }
}

/// Divides rows of features by their sums, and the rows of `slopes`, if given, by the same sums.
/// \param x, slopes [count, padded]
template <class T>
FOVEA_NOINLINE void divide_by_sums(T* x, Index count, Index padded, T* slopes) {
  constexpr int w = kLanes<T>;
  alignas(kVecBytes) T sums[w];
  alignas(kVecBytes) T inverses[w];
  for (Index first = 0; first < count; first += w) {
    const Index rows = smaller(w, count - first);
    if (rows == 1) {
      sums[0] = lane_sum(row_lanes(x + first * padded, padded));
      inverses[0] = 1 / sums[0];
    } else {
      Vec<T> lanes[w];
      FOVEA_UNROLL
      for (int r = 0; r < w; ++r) {
        lanes[r] = r < rows ? row_lanes(x + (first + r) * padded, padded) : set1(T{1});
      }
      const Vec<T> sum = lane_sums(lanes);
      store(sums, sum);
      store(inverses, set1(T{1}) / sum);
    }
    for (Index r = 0; r < rows; ++r) {
      const Index row = (first + r) * padded;
      divide_row(x + row, padded, sums[r], inverses[r]);
      if (slopes != nullptr) divide_row(slopes + row, padded, sums[r], inverses[r]);
    }
  }
}

/// Writes phi(m_i) / sum phi(m_i), with 0 from `width` on to the end of the padded row.
/// \param x [count, padded_row(width)]
template <Storage S, class T>
FOVEA_INLINE void normalised_rows(const FeatureMapArgs<T>& map, const StoredMatrix<S>& m,
                                  Index count, Index width, T* x) {
  const Index padded = padded_row<T>(width);
  map_rows(map, m, count, width, x, padded);
  divide_by_sums<T>(x, count, padded, nullptr);
}

/// Whether kernels can read rows in place: whole vectors of the arithmetic type.
template <class T, Storage S>
FOVEA_INLINE bool are_whole(const StoredMatrix<S>& m, Index width) {
  return m.column == 1 && S == Storage::native && width % kLanes<T> == 0;
}
template <class T, Storage S>
FOVEA_INLINE bool are_whole(const OutputMatrix<S>& m, Index width) {
  return m.column == 1 && (S == Storage::native || m.is_wide) && width % kLanes<T> == 0;
}

/// One call of delta_stream.
template <class T, Storage S>
class DeltaStream {
 public:
  explicit DeltaStream(const DeltaStreamArgs<T, S>& args)
      : a_(args),
        at_(args.width, args.value_width),
        columns_(in_whole_vectors<T>(args.value_width)),
        x_(args.scratch),
        rows_(x_ + kDeltaChunk * at_.width_row),
        weights_(rows_ + kDeltaChunk * at_.value_row),
        beta_(weights_ + kDeltaChunk * kDeltaChunk) {}

  FOVEA_INLINE void run() {
    if (a_.length == 0) {
      for (Index i = 0; i < at_.elements; i += kLanes<T>) store(a_.state + i, zero<T>());
    }
    const Index end = a_.length + a_.tokens;
    Index token = a_.length;
    Index row = clamped(end == 0 ? a_.row_count : -a_.first_position, 0, a_.row_count);
    for (Index h = 0; h < a_.heads; ++h) {
      blend_far<T>(a_.rows[h], 0, row, a_.value_width, nullptr, 0);
    }
    for (;;) {
      const Index seeing = token == end ? a_.row_count : token - a_.first_position;
      for (const Index last = smaller(seeing, a_.row_count); row < last;) row = read(row, token);
      if (token == end) return;
      if (token > 0 && token % kDeltaChunk == 0) close();
      const Index next = smaller(end, token - token % kDeltaChunk + kDeltaChunk);
      add(token, next);
      token = next;
    }
  }

 private:
  /// Adds the open chunk to the state.
  FOVEA_INLINE void close() {
    T* const state = a_.state;
    add_chunk<T>({state + at_.keys, at_.width_row, state + at_.errors, state + at_.sum,
                  state + at_.sum, state + at_.lost, at_.value_row},
                 a_.width, columns_);
  }

  /// Adds tokens [token, next) to the open chunk.
  FOVEA_NOINLINE void add(Index token, Index next) {
    const Index first = token % kDeltaChunk;
    const Index count = next - token;
    const Index from = token - a_.length;
    prefetch_pages(a_, next, kDeltaChunk);
    normalised_rows(a_.map, every_row<T>(a_.k, from, 1), count, a_.width, x_);
    add_keys(from, first, count);
    delta_weights(x_, at_.width_row, a_.width, a_.state + at_.keys_t, count, first, weights_);
    DeltaRows<T> rows = rows_at(DeltaRowKind::token, first);
    rows.out = a_.state + at_.errors + first * at_.value_row;
    const StoredMatrix<S> v = every_row<T>(a_.v, from, 1);
    const Index behind = smaller(kDeltaChunk, a_.tokens - from - count);
    DeltaPrefetcher ahead;
    ahead.x = RowPrefetcher<0>::template of<T>(a_.k, from + count, 1, behind, a_.width);
    ahead.values = RowPrefetcher<0>::template of<T>(v, count, 1, behind, a_.value_width);
    rows.ahead = &ahead;
    if (are_whole<T>(v, a_.value_width)) {
      rows.values = static_cast<const T*>(v.data);
      rows.values_row = v.row;
    } else {
      pack_rows(v, count, a_.value_width, rows_, at_.value_row);
    }
    delta_rows(rows, count, columns_);
  }

  /// Writes B and its transpose for tokens of the chunk, and negates x.
  /// \param from the first of these tokens in this call
  /// \param first the first of these tokens in the chunk
  FOVEA_INLINE void add_keys(Index from, Index first, Index count) {
    T* const keys = a_.state + at_.keys + first * at_.width_row;
    T* const keys_t = a_.state + at_.keys_t;
    const Matrix<const T>& beta = a_.beta;
    pack_rows(StoredMatrix<>{beta.data + from * beta.row, 0, beta.row}, 1, count, beta_,
              kDeltaChunk);
    for (Index i = 0; i < count; ++i) {
      const Vec<T> factor = set1(beta_[i]);
      const Index end = (i + 1) * at_.width_row;
      for (Index c = i * at_.width_row; c < end; c += kLanes<T>) {
        const Vec<T> k = load(x_ + c);
        store(keys + c, k * factor);
        store(x_ + c, zero<T>() - k);
      }
    }
    if (first == 0 || count >= 8) {
      rows_to_lanes(a_.state + at_.keys, at_.width_row, 1, first + count, a_.width, T{1}, keys_t,
                    kDeltaChunk);
      return;
    }
    for (Index i = 0; i < count; ++i) {
      for (Index c = 0; c < a_.width; ++c) {
        keys_t[c * kDeltaChunk + first + i] = keys[i * at_.width_row + c];
      }
    }
  }

  /// Computes some rows of every head from \p row on, those after the tokens before `token`.
  /// Returns the row after them.
  FOVEA_NOINLINE Index read(Index row, Index token) {
    const Index position = a_.first_position + row;
    const bool causal = position < token;
    const Index left = causal ? token - position : a_.row_count - row;
    const Index count = smaller(smaller(left, a_.row_count - row), kDeltaChunk);
    const Index begin = (token - 1) / kDeltaChunk * kDeltaChunk;
    for (Index h = 0; h < a_.heads; ++h) {
      const LinearRows<T, S>& head = a_.rows[h];
      normalised_rows(a_.map, every_row<T>(head.q, row, 1), count, a_.width, x_);
      DeltaRows<T> rows = causal ? rows_at(DeltaRowKind::causal, position + 1 - begin)
                                 : rows_at(DeltaRowKind::last, token - begin);
      const OutputMatrix<S> out = every_row<T>(head.out, row, 1);
      const Index behind = smaller(kDeltaChunk, a_.row_count - row - count);
      DeltaPrefetcher ahead;
      ahead.x = RowPrefetcher<0>::template of<T>(head.q, row + count, 1, behind, a_.width);
      ahead.out = RowPrefetcher<1>::template of<T>(out, count, 1, behind, a_.value_width);
      rows.ahead = &ahead;
      const bool as_it_is = head.near_field.data == nullptr && head.far_weight == nullptr &&
                            are_whole<T>(out, a_.value_width);
      if (as_it_is) {
        rows.out = static_cast<T*>(out.data);
        rows.out_row = out.row;
      }
      delta_weights(x_, at_.width_row, a_.width, a_.state + at_.keys_t, count, rows.seen, weights_);
      delta_rows(rows, count, columns_);
      if (!as_it_is) blend_far(head, row, count, a_.value_width, rows_, at_.value_row);
    }
    return row + count;
  }

  /// The arguments that compute rows_ from the rows of x_; values are read from rows_, too.
  FOVEA_INLINE DeltaRows<T> rows_at(DeltaRowKind kind, Index seen) const {
    const T* const state = a_.state;
    return {x_,
            at_.width_row,
            a_.width,
            weights_,
            state + at_.sum,
            state + at_.errors,
            at_.value_row,
            rows_,
            at_.value_row,
            rows_,
            at_.value_row,
            kind,
            seen,
            nullptr};
  }

  const DeltaStreamArgs<T, S>& a_;
  const DeltaStateLayout<T> at_;
  const Index columns_;  // Dv rounded up to vectors
  T* const x_;           // [kDeltaChunk, width_row] q', or -k'
  T* const rows_;        // [kDeltaChunk, value_row] values, or far
  T* const weights_;     // [kDeltaChunk, kDeltaChunk]
  T* const beta_;        // [kDeltaChunk]
};

/// See DeltaStreamArgs.
template <class T, Storage S>
void delta_stream(const DeltaStreamArgs<T, S>& args) noexcept {
  DeltaStream<T, S>(args).run();
}
