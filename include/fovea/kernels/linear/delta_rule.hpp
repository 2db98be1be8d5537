// SPDX-License-Identifier: MIT
/// \file
/// What the kernels of the delta rule read and write (FMMformer, Table 2; Schlag et al. 2021).
/// Their bodies are delta_rule.inl.hpp and delta_rule_grad.inl.hpp, compiled once per
/// instruction-set level; table.hpp chooses the level.
///
/// Of one head of keys the state is S [D, Dv]. Token t, with k' = phi(k) / sum phi(k) (0 stays 0):
/// e_t = v_t - S_{t-1}^T k'_t, S_t = S_{t-1} + beta_t k'_t e_t^T; a row at t reads S_t^T q'.
#pragma once

#include "fovea/kernels/linear/grad.hpp"

FOVEA_NAMESPACE_BEGIN

/// Tokens of one chunk, at absolute multiples: the errors within it come from a triangular solve,
/// before it the state stands for all.
inline constexpr Index kDeltaChunk = 32;

/// Adds tokens to a state, and lets rows read it on the way. `state` holds the tokens before: all
/// closed chunks as one sum, those of the last chunk one by one, so that any division of a sequence
/// into calls gives the same bits.
template <class T, Storage S = Storage::native>
struct DeltaStreamArgs {
  StoredMatrix<S> k;     // [tokens, D]
  StoredMatrix<S> v;     // [tokens, Dv]
  Matrix<const T> beta;  // [tokens, 1]
  Index width = 0;
  Index value_width = 0;
  FeatureMapArgs<T> map;
  Index length = 0;                        // tokens that the state holds already
  Index tokens = 0;                        // to be added
  const LinearRows<T, S>* rows = nullptr;  // [heads] query heads that share the state
  Index heads = 0;
  Index row_count = 0;       // of each head
  Index first_position = 0;  // of row 0; \pre positions >= length - 1, or negative
  T* state = nullptr;    // delta_state_elements(...), aligned to 64 bytes; of length 0: anything
  T* scratch = nullptr;  // delta_stream_scratch(...) elements, aligned to 64 bytes
};

/// Where the parts of a state stand in its memory, at every level alike. Chunk rows behind the last
/// token are anything that is initialised.
template <class T>
struct DeltaStateLayout {
  Index width_row;  // padded_row(D)
  Index value_row;  // padded_row(Dv)
  Index sum;        // [D, value_row] the closed chunks
  Index lost;       // [D, value_row] what rounding took from it
  Index keys;       // [kDeltaChunk, width_row] beta k' of the open chunk
  Index keys_t;     // [width_row, kDeltaChunk] the same, transposed
  Index errors;     // [kDeltaChunk, value_row] e of the open chunk
  Index elements;

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

/// Elements of a state: 2 D Dv and a chunk.
template <class T>
constexpr Index delta_state_elements(Index width, Index value_width) {
  return DeltaStateLayout<T>(width, value_width).elements;
}

/// Elements of scratch: O(kDeltaChunk (D + Dv)).
template <class T>
constexpr Index delta_stream_scratch(Index width, Index value_width) {
  const Index row = padded_row<T>(width) + padded_row<T>(value_width) + kDeltaChunk + 1;
  return kDeltaChunk * row;
}

/// The gradients of one key head and the query heads that share it: of DeltaStreamArgs from
/// length 0.
template <class T>
struct DeltaGradArgs {
  LinearGradTokens<T> tokens;  // all that the rows may see, from position 0
  Matrix<const T> beta;        // [tokens, 1]
  Matrix<T> d_beta;            // [tokens, 1], written; or no data
  Index width = 0;
  Index value_width = 0;
  FeatureMapArgs<T> map;
  const LinearGradRows<T>* rows = nullptr;  // [heads]
  Index heads = 0;
  Index row_count = 0;       // of each head
  Index first_position = 0;  // of row 0; any
  bool accumulate = false;   // add to d_q, d_k and d_v
  T* scratch = nullptr;      // delta_grad_scratch(...) elements, aligned to 64 bytes
};

/// Elements of scratch: about tokens (D Dv / kDeltaChunk + Dv + kDeltaChunk), for the states at the
/// borders of chunks, errors, and products of keys.
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
