// SPDX-License-Identifier: MIT
/// \file
/// What the kernels of linear attention read and write (FMMformer, eqs. 8-10). Their bodies are
/// linear_stream.inl.hpp and linear_read.inl.hpp, compiled once per instruction-set level;
/// table.hpp chooses the level.
///
/// Of one head of keys and one feature map, the state is sum_j phi(k_j) v_j^T [D, Dv] and its
/// normaliser sum_j phi(k_j) [D].
#pragma once

#include "fovea/kernels/linear/feature_map.hpp"
#include "fovea/simd/matrix.hpp"

FOVEA_NAMESPACE_BEGIN

/// Tokens of one chunk, at absolute multiples: within it pairs are computed one by one, before it
/// the state stands for all.
inline constexpr Index kLinearChunk = 32;

/// Tokens of one segment of a running state, at absolute multiples: the chunks' products are summed
/// from 0 within it, and its sum is added once to a base of twice the digits. It bounds the chains
/// of roundings.
inline constexpr Index kStateSegment = 512;

/// The same of linear_sum, where nobody reads in between.
inline constexpr Index kLinearSegment = 1024;

/// What becomes of a row whose denominator vanishes or changes sign.
enum class DenominatorPolicy : std::uint8_t { propagate, zero_row, signed_floor };

/// Sizes of the state of `maps` feature maps.
struct LinearShape {
  Index maps = 1;
  Index width = 0;        // D
  Index value_width = 0;  // Dv
};

/// Rows that read a state: those of one query head. Row r is the query at position first + r; it
/// sees the tokens up to that position, the last token if that is earlier, none if it is negative.
template <class T, Storage S = Storage::native>
struct LinearRows {
  StoredMatrix<S> q;    // [rows, D]
  OutputMatrix<S> out;  // [rows, Dv]
  /// [rows, Dv]: added to `out`, times near_weight; or no data
  Matrix<const T> near;
  const T* near_weight = nullptr;  // [Dv], or null: 1
  const T* far_weight = nullptr;   // [Dv], or null: 1
};

/// The maps and what is done about denominators.
template <class T>
struct LinearMaps {
  const FeatureMapArgs<T>* maps = nullptr;  // [count]
  Index count = 0;
  DenominatorPolicy policy = DenominatorPolicy::propagate;
  T floor = 0;  // tau of signed_floor
};

/// Causal: adds tokens to a state, and lets rows read it on the way. `state` holds the tokens
/// before: all closed chunks as sums, those of the last chunk one by one, so that any division of
/// a sequence into calls gives the same bits.
template <class T, Storage S = Storage::native>
struct LinearStreamArgs {
  StoredMatrix<S> k;  // [tokens, D]
  StoredMatrix<S> v;  // [tokens, Dv]
  Index width = 0;
  Index value_width = 0;
  LinearMaps<T> maps;
  Index length = 0;                        // tokens that the state holds already
  Index tokens = 0;                        // to be added
  const LinearRows<T, S>* rows = nullptr;  // [heads] query heads that share the state
  Index heads = 0;
  Index row_count = 0;       // of each head
  Index first_position = 0;  // of row 0; \pre positions >= length - 1, or negative
  T* state = nullptr;    // linear_state_elements(...), aligned to 64 bytes; of length 0: anything
  T* scratch = nullptr;  // linear_stream_scratch(...) elements, aligned to 64 bytes
};

/// Not causal, first step: the sums of one segment of tokens (from 0).
template <class T, Storage S = Storage::native>
struct LinearSumArgs {
  StoredMatrix<S> k;  // [tokens, D], of one segment: at most kLinearSegment tokens
  StoredMatrix<S> v;
  Index width = 0;
  Index value_width = 0;
  LinearMaps<T> maps;
  Index tokens = 0;
  T* sums = nullptr;     // [linear_sum_elements]: written
  T* scratch = nullptr;  // linear_sum_scratch(...) elements
};

/// Second step: the sums of all segments, in their order, rounded once.
template <class T>
struct LinearFoldArgs {
  const T* sums = nullptr;  // [segments, linear_sum_elements]
  Index segments = 0;
  Index elements = 0;  // linear_sum_elements
  T* total = nullptr;  // [elements]; may be sums
};

/// Third step: rows that all see the same tokens, at least one.
template <class T, Storage S = Storage::native>
struct LinearReadArgs {
  LinearRows<T, S> rows;
  Index row_count = 0;
  Index width = 0;
  Index value_width = 0;
  LinearMaps<T> maps;
  const T* total = nullptr;  // of LinearFoldArgs
  T* scratch = nullptr;      // linear_read_scratch(...) elements
};

/// A row of n elements, padded to a cache line: the same at every level.
template <class T>
constexpr Index padded_row(Index n) {
  constexpr Index line = 64 / static_cast<Index>(sizeof(T));
  return (n + line - 1) / line * line;
}

/// Elements of the sums of one map: the state [D, padded Dv], then the normaliser [padded D].
template <class T>
constexpr Index linear_map_elements(Index width, Index value_width) {
  return width * padded_row<T>(value_width) + padded_row<T>(width);
}

/// Elements of LinearSumArgs::sums.
template <class T>
constexpr Index linear_sum_elements(const LinearShape& shape) {
  return shape.maps * linear_map_elements<T>(shape.width, shape.value_width);
}

/// Elements of LinearStreamArgs::state: of each map its sums four times (running_state.inl.hpp),
/// and of the open chunk the values, features, features in lanes, and running normalisers.
template <class T>
constexpr Index linear_state_elements(const LinearShape& shape) {
  const Index chunk = 3 * kLinearChunk * padded_row<T>(shape.width);
  return 4 * linear_sum_elements<T>(shape) + shape.maps * chunk +
         kLinearChunk * padded_row<T>(shape.value_width);
}

/// Elements of the scratch of rows of one head: features, numerators, sums of
/// outputs, weights, denominators.
template <class T>
constexpr Index linear_stream_scratch(const LinearShape& shape) {
  const Index values = 2 * padded_row<T>(shape.value_width);
  return kLinearChunk * (padded_row<T>(shape.width) + values + kLinearChunk + 2);
}

/// The same of linear_read.
template <class T>
constexpr Index linear_read_scratch(const LinearShape& shape) {
  return linear_stream_scratch<T>(shape);
}

/// Tokens that linear_sum takes at once: their products are two chains of roundings.
inline constexpr Index kLinearSumChunk = 64;

template <class T>
constexpr Index linear_sum_scratch(const LinearShape& shape) {
  return kLinearSumChunk * (padded_row<T>(shape.width) + padded_row<T>(shape.value_width));
}

FOVEA_NAMESPACE_END
