// SPDX-License-Identifier: MIT
/// \file
/// What the backward kernels of linear attention read and write. Their bodies are
/// linear_grad*.inl.hpp, compiled once per instruction-set level; table.hpp chooses the level.
///
/// Of one feature map, with G_i = far_weight o d_out_i, S_i and z_i the state that row i reads,
/// den_i = phi(q_i) . z_i and t_i = phi(q_i) . S_i G_i:
///
///     d_phi(q_i) = S_i G_i / den_i - t_i / den_i^2 z_i
///     d_phi(k_j) = R_j v_j + r_j      R_j = sum phi(q_i) G_i^T / den_i   over the rows i that see
///     j d_v_j      = R_j^T phi(k_j)     r_j = -sum t_i / den_i^2 phi(q_i)
///
/// Gradients of tokens that no call reaches (beyond the length) are the caller's to clear; so are
/// those of rows if there is no token at all.
#pragma once

#include "fovea/kernels/linear/linear.hpp"

FOVEA_NAMESPACE_BEGIN

/// Rows of one query head. Row r is the query at position first + r, as in LinearRows.
template <class T>
struct LinearGradRows {
  Matrix<const T> q;              // [rows, D]
  Matrix<const T> d_out;          // [rows, Dv]
  const T* far_weight = nullptr;  // [Dv], or null: 1
  Matrix<T> d_q;                  // [rows, D], or no data
  T* d_out_times_out = nullptr;   // sum_i <G_i, far_i>: written; or null
};

/// Tokens of one head of keys.
template <class T>
struct LinearGradTokens {
  Matrix<const T> k;  // [tokens, D]
  Matrix<const T> v;  // [tokens, Dv]
  Matrix<T> d_k;      // [tokens, D], or no data
  Matrix<T> d_v;      // [tokens, Dv], or no data
  Index count = 0;
};

/// Causal. Two steps with the same arguments: linear_grad_causal_rows writes d_q, d_out_times_out
/// and `saved`; its heads can be divided among calls. linear_grad_causal_keys reads `saved` and
/// writes d_k and d_v; its heads are all that share the keys.
template <class T>
struct LinearGradCausalArgs {
  LinearGradTokens<T> tokens;  // all that the rows may see, from position 0
  Index width = 0;
  Index value_width = 0;
  LinearMaps<T> maps;
  const LinearGradRows<T>* rows = nullptr;  // [heads]
  Index heads = 0;
  Index row_count = 0;       // of each head
  Index first_position = 0;  // of row 0; any
  bool accumulate = false;   // add to d_q, d_k and d_v
  T* saved = nullptr;        // [heads, linear_grad_saved(...)]
  T* scratch = nullptr;      // linear_grad_scratch(...) elements, aligned to 64 bytes
};

/// Not causal, after linear_sum and linear_fold of the tokens: the rows of one segment, d_q and
/// their part of R and r. linear_fold adds the parts of all segments and heads that share the keys.
template <class T>
struct LinearGradRowsArgs {
  LinearGradRows<T> rows;  // d_out_times_out: of these rows
  Index row_count = 0;     // at most kLinearSegment
  Index width = 0;
  Index value_width = 0;
  LinearMaps<T> maps;
  bool accumulate = false;   // add to d_q
  const T* total = nullptr;  // S and z: of LinearFoldArgs
  T* sums = nullptr;         // [linear_sum_elements]: R and r, written; or null
  T* scratch = nullptr;      // linear_grad_scratch(...) elements, aligned to 64 bytes
};

/// Last step: any part of the tokens.
template <class T>
struct LinearGradKeysArgs {
  LinearGradTokens<T> tokens;
  Index width = 0;
  Index value_width = 0;
  LinearMaps<T> maps;
  bool accumulate = false;   // add to d_k and d_v
  const T* total = nullptr;  // R and r of all rows: of LinearFoldArgs
  T* scratch = nullptr;      // linear_grad_scratch(...) elements, aligned to 64 bytes
};

/// Signs that a row keeps in one element.
template <class T>
inline constexpr Index kGradSignsPerWord = 4 * static_cast<Index>(sizeof(T));

/// Elements that a row keeps of one map between the two causal steps: 1 / den, t / den, the scale
/// of its features and, for signed_floor, the slope of the floor and the signs of z.
template <class T>
constexpr Index linear_grad_record(Index width, DenominatorPolicy policy) {
  constexpr Index word = kGradSignsPerWord<T>;
  return policy == DenominatorPolicy::signed_floor ? 4 + (width + word - 1) / word : 3;
}

/// Elements that the rows of one head keep.
template <class T>
constexpr Index linear_grad_saved(Index rows, Index width, const LinearMaps<T>& maps) {
  return maps.count * rows * linear_grad_record<T>(width, maps.policy);
}

/// Elements of scratch of every entry: O(D Dv + kLinearChunk (D + Dv)), whatever the maps.
template <class T>
constexpr Index linear_grad_scratch(Index width, Index value_width) {
  const Index d = padded_row<T>(width);
  const Index dv = padded_row<T>(value_width);
  const Index state = 2 * d * dv + 5 * d;
  const Index rows = kLinearChunk * (6 * d + 3 * dv);
  const Index record = linear_grad_record<T>(width, DenominatorPolicy::signed_floor);
  const Index tiles = kLinearChunk * (2 * kLinearChunk + record);
  return state + rows + tiles;
}

FOVEA_NAMESPACE_END
