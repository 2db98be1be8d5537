// SPDX-License-Identifier: MIT
/// \file
/// Computes the rows of `out` from numerators and denominators: quotients are summed over the maps,
/// blended, and rounded once to the stored type.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/linear/rows.inl.hpp"
#endif

/// Blends and stores lanes of row i from column c on; \p far is the sum over all maps.
template <Storage X, class T, Storage S>
FOVEA_INLINE void write_far(const LinearRows<T, S>& rows, Index i, Index c, Index width,
                            Vec<T> far_field) {
  if (rows.far_weight != nullptr)
    far_field = far_field * load_columns(rows.far_weight, 1, c, width);
  if (rows.near_field.data != nullptr) {
    const T* near_field = rows.near_field.data + i * rows.near_field.row;
    const Vec<T> weight =
        rows.near_weight == nullptr ? set1(T{1}) : load_columns(rows.near_weight, 1, c, width);
    far_field = fma(weight, load_columns(near_field, rows.near_field.column, c, width), far_field);
  }
  store_columns<X>(rows.out.data, i * rows.out.row, rows.out.column, c, width, far_field);
}

/// The rows [first, first + count): `far` is blended and stored.
template <class T, Storage S>
struct BlendedRows {
  const LinearRows<T, S>& rows;
  Index first;
  Index count;
  Index width;         // Dv
  const T* far_field;  // [count, row]; null: 0
  Index row;

  template <Storage X>
  FOVEA_NOINLINE void run() const {
    for (Index i = 0; i < count; ++i) {
      for (Index c = 0; c < width; c += kLanes<T>) {
        const Vec<T> x = far_field == nullptr ? zero<T>() : load(far_field + i * row + c);
        write_far<X>(rows, first + i, c, width, x);
      }
    }
  }
};

/// Writes near_weight near + far_weight far to rows [first, first + count).
/// \param far [count, row]; null: 0, for rows without visible tokens
template <class T, Storage S>
FOVEA_INLINE void blend_far(const LinearRows<T, S>& rows, Index first, Index count, Index width,
                            const T* far_field, Index row) {
  with_storage(rows.out, BlendedRows<T, S>{rows, first, count, width, far_field, row});
}

/// The rows from `first` on, for one map of several.
template <class T, Storage S>
struct FarRows {
  const LinearRows<T, S>& rows;
  Index first;
  Index width;  // Dv
  const StateReader<T>& reader;
  bool zero_row;  // whether it is the policy
  bool is_first;  // whether this is the first map
  bool is_last;
  T* sums;  // [count, value_row] over the maps so far

  template <Storage X>
  FOVEA_NOINLINE void run() const {
    for (Index r = 0; r < reader.count; ++r) {
      const T* numerators = reader.numerators + r * reader.value_row;
      T* sums_r = sums + r * reader.value_row;
      for (Index c = 0; c < width; c += kLanes<T>) {
        const Vec<T> x = add_term(r, load(numerators + c), sums_r + c);
        if (is_last) {
          write_far<X>(rows, first + r, c, width, x);
        } else {
          store(sums_r + c, x);
        }
      }
    }
  }

  /// sum + numerator / denominator. The product with an inverse is added to a sum only by fma().
  FOVEA_INLINE Vec<T> add_term(Index r, Vec<T> numerator, const T* sum) const {
    const Vec<T> before = is_first ? zero<T>() : load(sum);
    const T inverse = reader.inverses[r];
    if (inverse != 0) {
      return is_first ? numerator * set1(inverse) : fma(numerator, set1(inverse), before);
    }
    const T denominator = reader.denominators[r];
    if (zero_row && denominator == 0) return before;
    const Vec<T> term = numerator / set1(denominator);
    return is_first ? term : before + term;
  }
};
