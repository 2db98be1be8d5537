// SPDX-License-Identifier: MIT
/// \file
/// Arguments of the linear-attention kernels (FMMformer, eqs. 8-10). Their bodies are
/// stream.inl.hpp and read.inl.hpp, compiled once per instruction-set level; table.hpp selects the
/// level.
///
/// For one key head and one feature map the state is sum_j phi(k_j) v_j^T [D, Dv], and its
/// normaliser is sum_j phi(k_j) [D].
#pragma once

#include "fovea/kernels/linear/feature_map.hpp"
#include "fovea/kernels/linear/sums.hpp"
#include "fovea/simd/matrix.hpp"

FOVEA_NAMESPACE_BEGIN

/// The policy for rows whose denominator vanishes or changes sign.
enum class DenominatorPolicy : std::uint8_t {
  propagate,    ///< divide by the denominator in any case
  zero_row,     ///< if the denominator is exactly 0, the map adds 0 to the row
  signed_floor  ///< its magnitude is at least tau times the sum of its terms' magnitudes
};

/// Rows of one query head that read a state. Row r is the query at position first_position + r. It
/// sees the tokens up to that position, all tokens if the position is beyond the last one, and none
/// if the position is negative.
template <class T, Storage S = Storage::native>
struct LinearRows {
  StoredMatrix<S> q;    ///< [rows, D]
  OutputMatrix<S> out;  ///< [rows, Dv], written
  /// [rows, Dv] in the arithmetic type: multiplied by near_weight and added to `out`. Null data:
  /// none.
  Matrix<const T> near_field;
  const T* near_weight = nullptr;  ///< [Dv]; null: 1
  const T* far_weight = nullptr;   ///< [Dv]; null: 1
};

/// The feature maps, and the policy for their denominators. Several maps of one numerator and
/// denominator are joined: their features are concatenated without gaps, so to kernels they are one
/// map of feature_width(...) features. (Zeros in gaps would meet infinite values.)
template <class T>
struct LinearMaps {
  const FeatureMapArgs<T>* maps = nullptr;                  ///< [count joined]
  Index count = 0;                                          ///< number of denominators
  DenominatorPolicy policy = DenominatorPolicy::propagate;  ///< the same for all maps
  T floor = 0;                                              ///< tau of signed_floor; else unused
  Index joined = 1;                                         ///< number of maps of a denominator
  Index width = 0;  ///< if several are joined, the width of q and k; else unused
};

/// The features of a row of that width: D for kernels, if maps are joined.
constexpr Index feature_width(Index joined, Index width) { return joined * width; }

/// Causal: adds tokens to a state that rows read in between. `state` holds the earlier tokens:
/// closed chunks as sums, and the last chunk's tokens individually. So any division of a sequence
/// into calls gives the same bits. These members are shared by sums and the delta rule.
template <class T, Storage S = Storage::native>
struct StreamArgs {
  StoredMatrix<S> k;                       ///< [tokens, D]
  StoredMatrix<S> v;                       ///< [tokens, Dv]
  Index width = 0;                         ///< D
  Index value_width = 0;                   ///< Dv
  Index length = 0;                        ///< number of tokens already in the state
  Index tokens = 0;                        ///< number of tokens to add
  const LinearRows<T, S>* rows = nullptr;  ///< [heads] query heads that share the state
  Index heads = 0;                         ///< number of these query heads
  Index row_count = 0;                     ///< rows of each query head
  /// Position of row 0. Every position is at least length - 1, or negative.
  Index first_position = 0;
  /// linear_state_elements(...) or delta_state_elements(...), aligned to 64 bytes. Ignored if
  /// `length` is 0.
  T* state = nullptr;
  /// linear_stream_scratch(...) or delta_stream_scratch(...) elements, aligned to 64 bytes.
  T* scratch = nullptr;
};

/// A stream of sums.
template <class T, Storage S = Storage::native>
struct LinearStreamArgs : StreamArgs<T, S> {
  LinearMaps<T> maps;  ///< feature maps and denominators
  /// The sums of closed chunks, if computed by LinearChunkArgs and LinearStartArgs. Then `length`
  /// is a multiple of kStateSegment, and the contents of `state` are ignored.
  SharedSums<T> sums;
};

/// Not causal, first step: the sums of one segment of tokens, starting from 0.
template <class T, Storage S = Storage::native>
struct LinearSumArgs {
  StoredMatrix<S> k;      ///< [tokens, D]
  StoredMatrix<S> v;      ///< [tokens, Dv]
  Index width = 0;        ///< D
  Index value_width = 0;  ///< Dv
  LinearMaps<T> maps;     ///< the feature maps
  Index tokens = 0;       ///< number of tokens, at most kLinearSegment
  T* sums = nullptr;      ///< [linear_sum_elements(...)], written
  T* scratch = nullptr;   ///< linear_sum_scratch(...) elements
};

/// Not causal, second step: adds the sums of all segments in order, and rounds once.
template <class T>
struct LinearFoldArgs {
  const T* sums = nullptr;  ///< [segments, elements]
  Index segments = 0;       ///< number of segments
  Index elements = 0;       ///< linear_sum_elements(...) of one segment
  T* total = nullptr;       ///< [elements], written; it may be `sums`
};

/// Not causal, third step: rows that all see the same tokens, at least one.
template <class T, Storage S = Storage::native>
struct LinearReadArgs {
  LinearRows<T, S> rows;     ///< the rows of one query head
  Index row_count = 0;       ///< number of rows
  Index width = 0;           ///< D
  Index value_width = 0;     ///< Dv
  LinearMaps<T> maps;        ///< feature maps and denominators
  const T* total = nullptr;  ///< written by LinearFoldArgs
  T* scratch = nullptr;      ///< linear_read_scratch(...) elements
};

/// Elements of LinearStreamArgs::state: for each map its sums four times (running_state.inl.hpp),
/// and for the open chunk the values, the features, the features in lanes, and running normalisers.
template <class T>
constexpr Index linear_state_elements(const LinearShape& shape) {
  const Index chunk = 3 * kLinearChunk * padded_row<T>(shape.width);
  return 4 * linear_sum_elements<T>(shape) + shape.maps * chunk +
         kLinearChunk * padded_row<T>(shape.value_width);
}

/// Elements of scratch for the rows of one head: features, numerators, sums of outputs, weights and
/// denominators.
template <class T>
constexpr Index linear_stream_scratch(const LinearShape& shape) {
  const Index values = 2 * padded_row<T>(shape.value_width);
  return kLinearChunk * (padded_row<T>(shape.width) + values + kLinearChunk + 2);
}

/// Elements of scratch for linear_read.
template <class T>
constexpr Index linear_read_scratch(const LinearShape& shape) {
  return linear_stream_scratch<T>(shape);
}

/// The number of tokens that linear_sum processes at once. Their products are two chains of
/// roundings.
inline constexpr Index kLinearSumChunk = 64;

/// Elements of scratch for linear_sum.
template <class T>
constexpr Index linear_sum_scratch(const LinearShape& shape) {
  return kLinearSumChunk * (padded_row<T>(shape.width) + padded_row<T>(shape.value_width));
}

FOVEA_NAMESPACE_END
