// SPDX-License-Identifier: MIT
/// \file
/// What the kernels of linear attention read and write (FMMformer, eqs. 8-10). Their bodies are
/// stream.inl.hpp and read.inl.hpp, compiled once for each instruction-set level; table.hpp chooses
/// the level.
///
/// For one key head and one feature map the state is sum_j phi(k_j) v_j^T [D, Dv], and its
/// normaliser is sum_j phi(k_j) [D].
#pragma once

#include "fovea/kernels/linear/feature_map.hpp"
#include "fovea/kernels/linear/sums.hpp"
#include "fovea/simd/matrix.hpp"

FOVEA_NAMESPACE_BEGIN

/// What happens to a row whose denominator vanishes or changes sign.
enum class DenominatorPolicy : std::uint8_t {
  propagate,    ///< a row is divided by the denominator, whatever that is
  zero_row,     ///< where the denominator is exactly 0, the map adds 0 to the row
  signed_floor  ///< its magnitude is at least tau times the sum of its terms' magnitudes
};

/// Rows of one query head that read a state. Row r is the query at position first_position + r. It
/// sees the tokens up to that position, all tokens if the position is beyond the last one, and none
/// if the position is negative.
template <class T, Storage S = Storage::native>
struct LinearRows {
  StoredMatrix<S> q;    ///< [rows, D]
  OutputMatrix<S> out;  ///< [rows, Dv], written
  /// [rows, Dv] in the type of the arithmetic: multiplied by near_weight and added to `out`. Null
  /// data: nothing is added.
  Matrix<const T> near;
  const T* near_weight = nullptr;  ///< [Dv]; null: 1
  const T* far_weight = nullptr;   ///< [Dv]; null: 1
};

/// The feature maps, and what is done about their denominators. Several maps of one numerator and
/// denominator are joined: a row of features is theirs side by side, without gaps, so to kernels
/// they are one map of feature_width(...) features. (Zeros in gaps would meet infinite values.)
template <class T>
struct LinearMaps {
  const FeatureMapArgs<T>* maps = nullptr;                  ///< [count joined]
  Index count = 0;                                          ///< number of denominators
  DenominatorPolicy policy = DenominatorPolicy::propagate;  ///< the same for all maps
  T floor = 0;                                              ///< tau of signed_floor; else unused
  Index joined = 1;                                         ///< number of maps of a denominator
  Index width = 0;  ///< if several are joined the width of q and k; else unused
};

/// The features of a row of that width. It is what kernels take for D, if maps are joined.
constexpr Index feature_width(Index joined, Index width) { return joined * width; }

/// Causal: adds tokens to a state, and lets rows read it on the way. `state` holds the tokens
/// before these: all closed chunks as sums, and the tokens of the last chunk one by one. So any
/// division of a sequence into calls gives the same bits. These are the members that sums and the
/// delta rule have in common.
template <class T, Storage S = Storage::native>
struct StreamArgs {
  StoredMatrix<S> k;                       ///< [tokens, D]
  StoredMatrix<S> v;                       ///< [tokens, Dv]
  Index width = 0;                         ///< D
  Index value_width = 0;                   ///< Dv
  Index length = 0;                        ///< number of tokens that the state holds already
  Index tokens = 0;                        ///< number of tokens to add
  const LinearRows<T, S>* rows = nullptr;  ///< [heads] query heads that share the state
  Index heads = 0;                         ///< number of these query heads
  Index row_count = 0;                     ///< rows of each query head
  /// Position of row 0. Every position is at least length - 1, or negative.
  Index first_position = 0;
  /// linear_state_elements(...) or delta_state_elements(...), aligned to 64 bytes. If `length` is
  /// 0, its content does not matter.
  T* state = nullptr;
  /// linear_stream_scratch(...) or delta_stream_scratch(...) elements, aligned to 64 bytes.
  T* scratch = nullptr;
};

/// A stream of sums.
template <class T, Storage S = Storage::native>
struct LinearStreamArgs : StreamArgs<T, S> {
  LinearMaps<T> maps;  ///< feature maps and denominators
  /// The sums of closed chunks, if LinearChunkArgs and LinearStartArgs have made them. Then
  /// `length` is a multiple of kStateSegment, and the content of `state` does not matter.
  SharedSums<T> sums;
};

/// Not causal, first step: the sums of one segment of tokens, which begin at 0.
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

/// Not causal, second step: adds the sums of all segments in their order, and rounds once.
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
  const T* total = nullptr;  ///< what LinearFoldArgs wrote
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

/// Number of tokens that linear_sum takes at once. Their products are two chains of roundings.
inline constexpr Index kLinearSumChunk = 64;

/// Elements of scratch for linear_sum.
template <class T>
constexpr Index linear_sum_scratch(const LinearShape& shape) {
  return kLinearSumChunk * (padded_row<T>(shape.width) + padded_row<T>(shape.value_width));
}

FOVEA_NAMESPACE_END
