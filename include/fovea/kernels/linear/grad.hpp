// SPDX-License-Identifier: MIT
/// \file
/// Arguments of the backward kernels of linear attention. Their bodies are grad.inl.hpp and grad_*,
/// compiled once per instruction-set level; table.hpp selects the level.
///
/// For one feature map let G_i = far_weight o d_out_i, S_i and z_i the state that row i reads,
/// den_i = phi(q_i) . z_i and t_i = phi(q_i) . S_i G_i. Then
///
///     d_phi(q_i) = S_i G_i / den_i - t_i / den_i^2 z_i
///     d_phi(k_j) = R_j v_j + r_j
///     d_v_j      = R_j^T phi(k_j)
///
/// with the sums over the rows i that see token j
///
///     R_j = sum phi(q_i) G_i^T / den_i
///     r_j = -sum t_i / den_i^2 phi(q_i)
///
/// The caller clears the gradients of tokens beyond the length, and those of rows if there are no
/// tokens.
#pragma once

#include "fovea/core/config.hpp"
#include "fovea/kernels/linear/linear.hpp"

FOVEA_NAMESPACE_BEGIN

/// A sum whose error does not grow with the number of its terms (Neumaier 1974).
template <class T>
struct CompensatedSum {
  T sum = 0;   ///< the sum, rounded after each term
  T lost = 0;  ///< the accumulated rounding error

  /// Adds a term.
  FOVEA_INLINE void add(T x) {
    const T s = sum + x;
    const T from_x = s - sum;
    lost += (sum - (s - from_x)) + (x - from_x);
    sum = s;
  }
  /// The sum. If it is infinite, `lost` is NaN and ignored.
  FOVEA_INLINE T value() const { return lost == lost ? sum + lost : sum; }
};

/// Rows of one query head. Row r is the query at position first_position + r, as in LinearRows.
template <class T>
struct LinearGradRows {
  Matrix<const T> q;              ///< [rows, D]
  Matrix<const T> d_out;          ///< [rows, Dv]
  const T* far_weight = nullptr;  ///< [Dv]; null: 1
  Matrix<T> d_q;                  ///< [rows, D], written; null data: not requested
  T* d_out_times_out = nullptr;   ///< one number, sum_i <G_i, far_i>, written; null: not requested
};

/// Tokens of one key head.
template <class T>
struct LinearGradTokens {
  Matrix<const T> k;  ///< [tokens, D]
  Matrix<const T> v;  ///< [tokens, Dv]
  Matrix<T> d_k;      ///< [tokens, D], written; null data: not requested
  Matrix<T> d_v;      ///< [tokens, Dv], written; null data: not requested
  Index count = 0;    ///< number of tokens
};

/// Causal: two steps with the same arguments. linear_grad_causal_rows writes d_q, d_out_times_out
/// and `saved`; its heads may be split among calls. linear_grad_causal_keys reads `saved`, and
/// writes d_k and d_v; its heads are all heads that share the keys.
template <class T>
struct LinearGradCausalArgs {
  LinearGradTokens<T> tokens;               ///< all visible to the rows, from position 0
  Index width = 0;                          ///< D
  Index value_width = 0;                    ///< Dv
  LinearMaps<T> maps;                       ///< feature maps and denominators
  const LinearGradRows<T>* rows = nullptr;  ///< [heads]
  Index heads = 0;                          ///< number of query heads
  Index row_count = 0;                      ///< rows of each query head
  Index first_position = 0;                 ///< position of row 0; any
  bool accumulate = false;                  ///< whether to add to d_q, d_k and d_v
  T* saved = nullptr;                       ///< [heads, linear_grad_saved(...)]
  Index saved_rows = 0;                     ///< rows of a head and map in `saved`; 0: row_count
  T* scratch = nullptr;  ///< linear_grad_scratch(...) elements, aligned to 64 bytes
};

/// Causal, in row blocks: the tokens and rows of one row block, and one map. The two causal steps
/// traverse the row blocks, upwards and then downwards, each with its own state. Row blocks that
/// are segments of kLinearSegment tokens give the bits of the undivided steps, if rows from the
/// last chunk on are row blocks that read it as is: its tokens are not added to the state before
/// it.
template <class T>
struct LinearGradBlockArgs {
  LinearGradCausalArgs<T>
      of;         ///< the row block; its positions count from its first token, and are >= 0
  Index map = 0;  ///< the map; gradients of the others were written before
  /// linear_grad_carried(...) elements, aligned to 64 bytes: S and z of the tokens before the
  /// row block, or R and r of the rows after it. The row block is added.
  T* carried = nullptr;
  bool is_first = false;    ///< whether no state is carried yet
  bool stays_open = false;  ///< upwards: the tokens, of one chunk, are not added
};

/// Rescales the state of a step to other references of the features.
template <class T>
struct LinearGradScaleArgs {
  T* carried = nullptr;        ///< as in LinearGradBlockArgs
  Index width = 0;             ///< R
  Index value_width = 0;       ///< Dv
  bool is_down = false;        ///< whether it is the downward step's state
  const T* factors = nullptr;  ///< [R padded]
};

/// Elements of LinearGradBlockArgs::carried.
template <class T>
constexpr Index linear_grad_carried(Index width, Index value_width) {
  const Index d = padded_row<T>(width);
  return 2 * d * padded_row<T>(value_width) + 4 * d;
}

/// Not causal, after linear_sum and linear_fold of the tokens: the rows of one segment. It writes
/// d_q and the rows' part of R and r. linear_fold adds the parts of all segments, and of all heads
/// that share the keys.
template <class T>
struct LinearGradRowsArgs {
  LinearGradRows<T> rows;    ///< the rows; d_out_times_out is for these rows
  Index row_count = 0;       ///< number of rows, at most kLinearSegment
  Index width = 0;           ///< D
  Index value_width = 0;     ///< Dv
  LinearMaps<T> maps;        ///< feature maps and denominators
  bool accumulate = false;   ///< whether to add to d_q
  const T* total = nullptr;  ///< S and z, written by LinearFoldArgs
  T* sums = nullptr;         ///< [linear_sum_elements(...)]: R and r, written; null: not requested
  T* scratch = nullptr;      ///< linear_grad_scratch(...) elements, aligned to 64 bytes
};

/// Not causal, last step: the gradients of any part of the tokens.
template <class T>
struct LinearGradKeysArgs {
  LinearGradTokens<T> tokens;  ///< the tokens
  Index width = 0;             ///< D
  Index value_width = 0;       ///< Dv
  LinearMaps<T> maps;          ///< feature maps and denominators
  bool accumulate = false;     ///< whether to add to d_k and d_v
  const T* total = nullptr;    ///< R and r of all rows, written by LinearFoldArgs
  T* scratch = nullptr;        ///< linear_grad_scratch(...) elements, aligned to 64 bytes
};

/// The number of signs stored per element.
template <class T>
inline constexpr Index kGradSignsPerWord = 4 * static_cast<Index>(sizeof(T));

/// Elements stored per row and map between the two causal steps: 1 / den, t / den, the scale of its
/// features and, for signed_floor, the slope of the floor and the signs of z.
template <class T>
constexpr Index linear_grad_record(Index width, DenominatorPolicy policy) {
  constexpr Index word = kGradSignsPerWord<T>;
  return policy == DenominatorPolicy::signed_floor ? 4 + (width + word - 1) / word : 3;
}

/// The index of t / den = <G_i, far_i> in a record.
inline constexpr Index kGradRecordProduct = 1;

/// Elements stored per query head between the two causal steps.
template <class T>
constexpr Index linear_grad_saved(Index rows, Index width, const LinearMaps<T>& maps) {
  return maps.count * rows * linear_grad_record<T>(width, maps.policy);
}

/// Elements of scratch of every kernel here: O(D Dv + kLinearChunk (D + Dv)), for any number of
/// maps.
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
