// SPDX-License-Identifier: MIT
/// \file
/// Arguments of the delta-rule kernels (FMMformer, Table 2; Schlag et al. 2021). Their bodies are
/// delta_rule.inl.hpp and delta_grad.inl.hpp, compiled once per instruction-set level; table.hpp
/// selects the level.
///
/// For one key head the state is S [D, Dv]. With k' = phi(k) / sum phi(k), where 0 stays 0, token t
/// computes e_t = v_t - S_{t-1}^T k'_t and S_t = S_{t-1} + beta_t k'_t e_t^T; a row at position t
/// reads S_t^T q'.
#pragma once

#include "fovea/kernels/linear/grad.hpp"

FOVEA_NAMESPACE_BEGIN

/// The number of tokens of a chunk. Chunks begin at multiples of it, counted from the first token.
/// The errors e within a chunk come from a triangular solve; the state represents all earlier
/// tokens.
inline constexpr Index kDeltaChunk = 32;

/// A stream of the delta rule.
template <class T, Storage S = Storage::native>
struct DeltaStreamArgs : StreamArgs<T, S> {
  Matrix<const T> beta;   ///< [tokens, 1]
  FeatureMapArgs<T> map;  ///< the map phi, never negative
};

/// The offsets of a state's parts, in elements; the same at every level. A chunk's rows after the
/// last token are arbitrary but initialised.
template <class T>
struct DeltaStateLayout {
  Index width_row;  ///< padded_row(D)
  Index value_row;  ///< padded_row(Dv)
  Index sum;        ///< [D, value_row] the closed chunks
  Index lost;       ///< [D, value_row] the rounding error of `sum`
  Index keys;       ///< [kDeltaChunk, width_row] beta k' of the open chunk
  Index keys_t;     ///< [width_row, kDeltaChunk] the same, transposed
  Index errors;     ///< [kDeltaChunk, value_row] e of the open chunk
  Index elements;   ///< total number of elements

  /// The layout for keys of D = width and values of Dv = value_width columns.
  constexpr DeltaStateLayout(Index width, Index value_width)
      : width_row(padded_row<T>(width)),
        value_row(padded_row<T>(value_width)),
        sum(0),
        lost(width * value_row),
        keys(2 * lost),
        keys_t(keys + kDeltaChunk * width_row),
        errors(keys_t + kDeltaChunk * width_row),
        elements(errors + kDeltaChunk * value_row) {}
};

/// Elements of a state: 2 D Dv, and a chunk.
template <class T>
constexpr Index delta_state_elements(Index width, Index value_width) {
  return DeltaStateLayout<T>(width, value_width).elements;
}

/// Elements of scratch for DeltaStreamArgs: O(kDeltaChunk (D + Dv)).
template <class T>
constexpr Index delta_stream_scratch(Index width, Index value_width) {
  const Index row = padded_row<T>(width) + padded_row<T>(value_width) + kDeltaChunk + 1;
  return kDeltaChunk * row;
}

/// The two steps of a backward pass of the delta rule: tokens upwards, and then downwards.
enum class DeltaGradSteps : std::uint8_t {
  both,  ///< both, in order
  up,    ///< the first, which stores the second's inputs in `scratch`
  down   ///< the second
};

/// Where the last token chunk is, which all later rows read token by token.
enum class DeltaLastChunk : std::uint8_t {
  here,    ///< in this row block, with all later rows, or in a later one: no chunk stays open
  opens,   ///< in this row block, and rows of later row blocks read it, too
  earlier  ///< it consists of this call's tokens, those of an earlier row block
};

/// The gradients of one key head and of the query heads that share it, for DeltaStreamArgs with
/// length 0; or for the tokens and rows of a row block, one step at a time.
template <class T>
struct DeltaGradArgs {
  LinearGradTokens<T> tokens;                   ///< all visible to the rows, from position 0
  Matrix<const T> beta;                         ///< [tokens, 1]
  Matrix<T> d_beta;                             ///< [tokens, 1], written; null data: not requested
  Index width = 0;                              ///< D
  Index value_width = 0;                        ///< Dv
  FeatureMapArgs<T> map;                        ///< the map phi, never negative
  const LinearGradRows<T>* rows = nullptr;      ///< [heads] query heads that share the keys
  Index heads = 0;                              ///< number of these query heads
  Index row_count = 0;                          ///< rows of each query head
  Index first_position = 0;                     ///< position of row 0; any
  bool accumulate = false;                      ///< whether to add to d_q, d_k and d_v
  DeltaGradSteps steps = DeltaGradSteps::both;  ///< which steps
  DeltaLastChunk last_chunk = DeltaLastChunk::here;  ///< of a row block: the last chunk's location
  /// Of a row block, delta_grad_carried(...) elements, aligned to 64 bytes: upwards S before its
  /// tokens, updated to S after them if they are whole chunks, or before the last one if it is
  /// open; downwards the DeltaGradCarry of later rows, updated with its own. Null: no other
  /// row blocks.
  T* carried = nullptr;
  T* scratch = nullptr;  ///< delta_grad_scratch(...) elements, aligned to 64 bytes
};

/// The downward contents of DeltaGradArgs::carried, for rows after a row block. Zeros without rows.
template <class T>
struct DeltaGradCarry {
  /// \param carried DeltaGradArgs::carried   \param heads query heads that share the keys
  DeltaGradCarry(T* carried, Index heads, Index width, Index value_width)
      : d_state(carried),
        sums(d_state + width * padded_row<T>(value_width)),
        g(sums + padded_row<T>(2 * heads)),
        d_keys(g + kDeltaChunk * padded_row<T>(value_width)) {}

  T* d_state;  ///< [D, padded Dv] dS
  T* sums;     ///< [heads, 2] LinearGradRows::d_out_times_out, and its rounding error
  T* g;        ///< [kDeltaChunk, padded Dv] the sums for dV and
  T* d_keys;   ///< [kDeltaChunk, padded D] d(beta k') of an open chunk
};

/// Elements of DeltaGradArgs::carried. Zeros without tokens and rows.
/// \param has_open whether some row block's last chunk is open
template <class T>
constexpr Index delta_grad_carried(Index heads, Index width, Index value_width, bool has_open) {
  const Index up = 2 * value_width * padded_row<T>(width);
  const Index rows = width * padded_row<T>(value_width) + padded_row<T>(2 * heads);
  const Index open = kDeltaChunk * (padded_row<T>(width) + padded_row<T>(value_width));
  const Index down = rows + (has_open ? open : 0);
  return up < down ? down : up;
}

/// Elements of scratch for DeltaGradArgs: about tokens (D Dv / kDeltaChunk + Dv + kDeltaChunk), for
/// the states at the borders of chunks, the errors, and the products of keys.
template <class T>
constexpr Index delta_grad_scratch(Index tokens, Index heads, Index width, Index value_width) {
  const Index d = padded_row<T>(width);
  const Index dv = padded_row<T>(value_width);
  const Index chunks = (tokens + kDeltaChunk - 1) / kDeltaChunk;
  const Index saved = value_width * d + kDeltaChunk * (dv + kDeltaChunk);
  const Index states = value_width * d + width * dv;
  const Index rows = kDeltaChunk * (11 * d + 4 * dv + 3 * kDeltaChunk + 1);
  return chunks * saved + states + rows + heads;
}

FOVEA_NAMESPACE_END
