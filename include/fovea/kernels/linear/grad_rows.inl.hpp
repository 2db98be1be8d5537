// SPDX-License-Identifier: MIT
/// \file
/// The query side of the backward pass of linear attention: the features of up to kLinearChunk
/// rows, their denominators, their gradients, and their contributions to the gradients of visible
/// tokens.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/linear/grad.hpp"
#include "fovea/kernels/linear/grad_products.inl.hpp"
#include "fovea/kernels/linear/stream.inl.hpp"
#endif

/// A row's record of its denominator, for its visible tokens (linear_grad_record).
template <class T>
struct GradRecord {
  T* at;

  /// 1 / den.
  FOVEA_INLINE T& inverse() const { return at[0]; }
  /// t / den = <G_i, far_i>.
  FOVEA_INLINE T& product() const { return at[kGradRecordProduct]; }
  /// The power of two that scaled the row's features. 0 for rows skipped by zero_row or without
  /// output, for which everything else is 0, too.
  FOVEA_INLINE T& scale() const { return at[2]; }
  /// sign(den) tau where the floor holds, otherwise 0. Only signed_floor has it.
  FOVEA_INLINE T& floor_slope() const { return at[3]; }
  /// -t / den^2, the gradient of den.
  FOVEA_INLINE T d_den() const { return -(at[1] * at[0]); }

  /// Stores the signs of z = a + b, in two bits each.
  void set_signs(const T* a, const T* b, Index width) const {
    for (Index c = 0; c < width; c += kPerWord) {
      Word word = 0;
      for (Index i = smaller(kPerWord, width - c); i-- > 0;) {
        const T z = b == nullptr ? a[c + i] : a[c + i] + b[c + i];
        word = static_cast<Word>(word << 2) | (z > 0 ? 1U : z < 0 ? 2U : 0U);
      }
      __builtin_memcpy(at + 4 + c / kPerWord, &word, sizeof(word));
    }
  }
  /// The sign of element c of z: -1, 0 or 1.
  T sign(Index c) const {
    Word word;
    __builtin_memcpy(&word, at + 4 + c / kPerWord, sizeof(word));
    const Word two_bits = (word >> (2 * (c % kPerWord))) & 3U;
    return two_bits == 1 ? T(1) : two_bits == 2 ? T(-1) : T(0);
  }

 private:
  using Word = std::make_unsigned_t<Int<T>>;
  static constexpr Index kPerWord = kGradSignsPerWord<T>;
};

/// The records of neighbouring rows.
template <class T>
struct GradRecords {
  T* first;
  Index elements;  // elements of one record

  FOVEA_INLINE GradRecord<T> at(Index i) const { return {first + i * elements}; }
};

/// Adds <G_i, far_i> of `rows` rows to the sum.
template <class T>
FOVEA_NOINLINE void add_row_products(const GradRecords<T>& records, Index rows,
                                     CompensatedSum<T>& sum) {
  for (Index i = 0; i < rows; ++i) sum.add(records.at(i).product());
}

/// Lane i of the result is a_i . b_i for rows [first, first + lanes), and 0 beyond the last one.
/// Elements are added in the same order as in denominators_of.
/// \param a, b [count, row]
template <class T>
FOVEA_INLINE Vec<T> products_of_rows(const T* a, const T* b, Index row, Index first, Index count) {
  constexpr int vectors = 64 / kVecBytes;
  Vec<T> sums[kLanes<T>];
  FOVEA_UNROLL
  for (int i = 0; i < kLanes<T>; ++i) {
    Vec<T> sum[vectors];
    FOVEA_UNROLL
    for (int v = 0; v < vectors; ++v) sum[v] = zero<T>();
    for (Index c = 0; c < row && first + i < count; c += vectors * kLanes<T>) {
      const Index at = (first + i) * row + c;
      FOVEA_UNROLL
      for (int v = 0; v < vectors; ++v) {
        sum[v] = fma(load(a + at + v * kLanes<T>), load(b + at + v * kLanes<T>), sum[v]);
      }
    }
    FOVEA_UNROLL
    for (int n = vectors / 2; n > 0; n /= 2) {
      FOVEA_UNROLL
      for (int v = 0; v < n; ++v) sum[v] = sum[v] + sum[v + n];
    }
    sums[i] = sum[0];
  }
  return lane_sums(sums);
}

/// The rows [first, first + count) of one query head and one map.
template <class T>
class GradRowTile {
 public:
  GradRowTile(const GradWidths<T>& widths, const LinearMaps<T>& maps, GradScratch<T>& scratch)
      : widths_(widths),
        maps_(maps),
        features_(scratch.take(kLinearChunk * widths.d)),
        d_out_(scratch.take(kLinearChunk * widths.dv)),
        d_z_(scratch.take(kLinearChunk * widths.d)) {}

  Index count() const { return count_; }
  T* features() const { return features_; }  // [count, d], phi(q_i) times powers of two
  const T* d_out() const { return d_out_; }  // [count, dv]

  /// Prefetches rows [first, end) for read_queries().
  static void prefetch(const LinearGradRows<T>& rows, Index first, Index end,
                       const GradWidths<T>& widths, GradPrefetcher<T>& ahead) {
    const Index count = clamped(end - first, 0, kLinearChunk);
    ahead.read(rows.q, first, count, widths.width);
    ahead.read(rows.d_out, first, count, widths.value_width);
    ahead.write(rows.d_q, first, count, widths.width);
  }

  /// Loads the features of rows.
  /// \param map the map's number in the call
  void read_queries(const LinearGradRows<T>& rows, Index first, Index count, Index map) {
    rows_ = &rows;
    first_ = first;
    count_ = count;
    map_ = map;
    feature_rows(maps_, map, stored(query_rows()), count, widths_.width, features_, widths_.d);
  }

  /// Sets d_out() to G_i.
  void read_d_out() const {
    for (Index i = 0; i < count_; ++i) put_d_out(i, d_out_row(i), T(1));
  }

  /// Computes the gradients of the queries of the loaded rows, and scales their features.
  /// \param reader reads each row's visible normaliser
  /// \param u [count, d], S_i G_i
  /// \param slopes [count, d] scratch
  /// \param records of the loaded rows, written
  void process_rows(StateReader<T>& reader, const T* u, T* slopes, bool accumulate,
                    const GradRecords<T>& records) {
    alignas(kVecBytes) T numbers[4][kLinearChunk];
    reader.width = widths_.width;
    reader.row = widths_.d;
    reader.count = count_;
    reader.features = features_;
    reader.denominators = numbers[0];
    reader.inverses = numbers[1];
    reader.scales = numbers[2];
    for (Index i = 0; i < count_; ++i) reader.scales[i] = 1;
    if (rows_->d_q.data != nullptr) {
      slopes_of_features(maps_, map_, query_rows(), features_, count_, widths_.width, slopes,
                         widths_.d);
    }
    find_denominators(reader, maps_.policy, maps_.floor);
    for (Index i = 0; i < count_; i += kLanes<T>) {
      store(numbers[3] + i, products_of_rows(features_, u, widths_.d, i, count_));
    }
    for (Index i = 0; i < count_; ++i) keep(reader, i, numbers[3][i], records.at(i));
    if (has_floor()) keep_floors(reader, records);
    if (rows_->d_q.data == nullptr) return;
    for (Index i = 0; i < count_; ++i) {
      write_d_q(reader, i, u + i * widths_.d, slopes + i * widths_.d, accumulate, records.at(i));
    }
  }

  /// For rows of an earlier process_rows(): scales features as it did, and sets d_out() to G_i /
  /// den_i, and d_z.
  void read_divided(const GradRecords<T>& records) {
    for (Index i = 0; i < count_; ++i) {
      const GradRecord<T> kept = records.at(i);
      if (kept.scale() != 1 && !is_left_out(kept)) scale_row(i, kept.scale());
      put_divided(i, d_out_row(i), kept);
      set_d_z(i, kept);
    }
  }

  /// For rows of the last process_rows(): sets d_out() to G_i / den_i, and d_z.
  void divide(const GradRecords<T>& records) {
    for (Index i = 0; i < count_; ++i) {
      const GradRecord<T> kept = records.at(i);
      const T* const d_out = d_out_ + i * widths_.dv;
      put_divided(i, DOutRow{d_out, 1, nullptr, widths_.dv}, kept);
      set_d_z(i, kept);
    }
  }

  /// sum + d_z_i, the gradient of z_i, for one vector of columns.
  FOVEA_INLINE Vec<T> add_d_z(Index i, Index c, Vec<T> sum) const {
    return fma(load(d_z_rows_[i] + c), set1(d_z_factors_[i]), sum);
  }

 private:
  Matrix<const T> query_rows() const {
    return {rows_->q.data + first_ * rows_->q.row, rows_->q.row, rows_->q.column};
  }
  bool has_floor() const { return maps_.policy == DenominatorPolicy::signed_floor; }
  static bool is_left_out(const GradRecord<T>& kept) { return kept.scale() == 0; }

  /// A row of d_out multiplied by far_weight.
  struct DOutRow {
    const T* d_out;
    Index column;
    const T* weight;
    Index width;

    FOVEA_INLINE Vec<T> at(Index c) const {
      const Vec<T> x = load_columns(d_out, column, c, width);
      return weight == nullptr ? x : x * load_columns(weight, 1, c, width);
    }
    FOVEA_INLINE bool is_plain() const { return column == 1 && weight == nullptr; }
  };
  FOVEA_INLINE DOutRow d_out_row(Index i) const {
    const Matrix<const T>& d_out = rows_->d_out;
    return {d_out.data + (first_ + i) * d_out.row, d_out.column, rows_->far_weight,
            widths_.value_width};
  }

  /// Writes row i of d_out(), padded with 0.
  FOVEA_INLINE void put_d_out(Index i, const DOutRow& row, T factor) const {
    constexpr Index w = kLanes<T>;
    const Index padded = widths_.dv;
    T* const to = d_out_ + i * padded;
    Index c = 0;
    if (row.is_plain()) {
      for (; c + w <= row.width; c += w) store(to + c, load(row.d_out + c) * set1(factor));
    }
    for (; c < row.width; c += w) store(to + c, row.at(c) * set1(factor));
    for (; c < padded; c += w) store(to + c, zero<T>());
  }
  FOVEA_INLINE void put_divided(Index i, const DOutRow& row, const GradRecord<T>& kept) const {
    if (is_left_out(kept)) {  // 0, regardless of G_i
      clear_elements(d_out_ + i * widths_.dv, widths_.dv);
    } else {
      put_d_out(i, row, kept.inverse());
    }
  }

  FOVEA_INLINE void set_d_z(Index i, const GradRecord<T>& kept) {
    d_z_rows_[i] = features_ + i * widths_.d;
    d_z_factors_[i] = kept.d_den();
    if (has_floor() && kept.floor_slope() != 0) set_floored_d_z(i, kept);
  }
  void set_floored_d_z(Index i, const GradRecord<T>& kept) {
    const T* const features = d_z_rows_[i];
    T* const d_z = d_z_ + i * widths_.d;
    for (Index c = 0; c < widths_.d; ++c) {
      const T magnitude = features[c] < 0 ? -features[c] : features[c];
      d_z[c] = c < widths_.width ? kept.sign(c) * magnitude : T(0);
    }
    d_z_rows_[i] = d_z;
    d_z_factors_[i] = kept.d_den() * kept.floor_slope();
  }

  void keep(const StateReader<T>& reader, Index i, T product, const GradRecord<T>& kept) const {
    const T den = reader.denominators[i];
    // Without values there is no output, so nothing depends on the denominator.
    const bool left_out =
        widths_.value_width == 0 || (maps_.policy == DenominatorPolicy::zero_row && den == 0);
    kept.inverse() = left_out ? T(0) : T(1) / den;
    kept.product() = left_out ? T(0) : product * kept.inverse();
    kept.scale() = left_out ? T(0) : reader.scales[i];
  }

  /// For signed_floor: stores where it applies, and the signs there.
  void keep_floors(const StateReader<T>& reader, const GradRecords<T>& records) const {
    alignas(kVecBytes) T den[kLanes<T>];
    alignas(kVecBytes) T size[kLanes<T>];
    for (Index first = 0; first < count_; first += kLanes<T>) {
      store(den, denominators_of<false>(reader, first));
      store(size, denominators_of<true>(reader, first));
      for (Index i = 0; i < smaller(kLanes<T>, count_ - first); ++i) {
        const GradRecord<T> kept = records.at(first + i);
        const bool holds = (den[i] < 0 ? -den[i] : den[i]) < maps_.floor * size[i];
        kept.floor_slope() = !holds ? T(0) : den[i] < 0 ? -maps_.floor : maps_.floor;
        if (holds) kept.set_signs(reader.normaliser, run_row(reader, first + i), widths_.width);
      }
    }
  }

  static const T* run_row(const StateReader<T>& reader, Index i) {
    return reader.run == nullptr ? nullptr : reader.run + reader.key(i) * reader.row;
  }

  void write_d_q(const StateReader<T>& reader, Index i, const T* u, const T* slopes,
                 bool accumulate, const GradRecord<T>& kept) const {
    const Matrix<T> d_q = rows_->d_q;
    T* const to = d_q.data + (first_ + i) * d_q.row;
    if (is_left_out(kept)) {
      const Index width = row_width(maps_, widths_.width);
      if (!accumulate) write_row(to, d_q.column, width, false, NoRow{});
      return;
    }
    const T floor_slope = has_floor() ? kept.floor_slope() : T(0);
    const T d_den = floor_slope == 0 ? kept.d_den() : kept.d_den() * floor_slope;
    const QueryRow row = {u,
                          reader.normaliser,
                          run_row(reader, i),
                          floor_slope == 0 ? nullptr : features_ + i * widths_.d,
                          slopes,
                          kept.inverse(),
                          d_den,
                          kept.scale()};
    write_feature_row(maps_, to, d_q.column, widths_.width, accumulate, row);
  }

  struct NoRow {
    FOVEA_INLINE Vec<T> operator()(Index, Vec<T> before) const { return before; }
  };

  /// The row d_phi(q) o phi'(q).
  struct QueryRow {
    const T* u;
    const T* normaliser;
    const T* run;       // added to the normaliser; or null
    const T* features;  // only for rows with a floor; else null
    const T* slopes;
    T inverse;
    T d_den;
    T scale;

    FOVEA_INLINE Vec<T> operator()(Index c, Vec<T> before) const {
      Vec<T> z = load(normaliser + c);
      if (run != nullptr) z = z + load(run + c);
      if (features != nullptr) z = magnitude_with_sign(z, load(features + c));
      const Vec<T> d_feature = fma(load(u + c), set1(inverse), set1(d_den) * z);
      return fma(d_feature, load(slopes + c) * set1(scale), before);
    }
  };

  /// |x| with the sign of y, and 0 where y is 0.
  static FOVEA_INLINE Vec<T> magnitude_with_sign(Vec<T> x, Vec<T> y) {
    const IntVec<T> sign = bits(y) & set1_int<T>(MathConstants<T>::kSignMask);
    return select(y == zero<T>(), zero<T>(), from_bits<T>(bits(absolute(x)) | sign));
  }

  void scale_row(Index i, T scale) const {
    for (Index c = 0; c < widths_.width; ++c) features_[i * widths_.d + c] *= scale;
  }

  const GradWidths<T>& widths_;
  const LinearMaps<T>& maps_;
  const LinearGradRows<T>* rows_ = nullptr;
  Index first_ = 0;
  Index count_ = 0;
  Index map_ = 0;
  T* const features_;
  T* const d_out_;
  T* const d_z_;  // [kLinearChunk, d], only for rows with a floor
  const T* d_z_rows_[kLinearChunk];
  T d_z_factors_[kLinearChunk];
};
