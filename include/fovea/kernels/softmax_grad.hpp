// SPDX-License-Identifier: MIT
/// \file
/// What the backward kernels of softmax attention read and write. Their bodies are
/// softmax_grad.inl.hpp, compiled once per instruction-set level; table.hpp chooses the level.
#pragma once

#include "fovea/core/key_run.hpp"
#include "fovea/kernels/score_map.hpp"

FOVEA_NAMESPACE_BEGIN

/// Queries, and keys, of one tile of the backward pass: the same at every level, so that its chains
/// of additions are. Tiles of keys begin at absolute multiples.
inline constexpr Index kGradTile = 64;

/// Columns of rows in scratch are padded with zeros to a multiple of it: 64 bytes of floats.
constexpr Index grad_padded(Index width) { return (width + 15) / 16 * 16; }

/// One head of the backward pass.
template <class T>
struct SoftmaxGradHead {
  Matrix<const T> q;      // [Nq, D]
  Matrix<const T> k;      // [Nk, D]
  Matrix<const T> v;      // [Nk, Dv]
  Matrix<const T> out;    // [Nq, Dv]
  Matrix<const T> d_out;  // [Nq, Dv]
  Matrix<const T> lse;    // [Nq, 1]
  Index width = 0;        // D
  Index value_width = 0;  // Dv
  T scale = 0;            // of the logits
  const T* sink = nullptr;
  ScoreMap<T> map;
  Index first_position = 0;  // of query row 0
  Index key_end = 0;         // keys at and beyond it are invisible
};

/// One block of queries against a block of keys.
template <class T>
struct SoftmaxGradArgs {
  SoftmaxGradHead<T> head;
  QueryBlock block;
  Index key_first = 0;  // the keys [key_first, key_last)
  Index key_last = 0;
  // Sums without the factor `scale`, and times 2 to head.map.weight_lift. Either all three, each or
  // none, or d_bias alone.
  T* d_q = nullptr;      // [block.count, grad_padded(D)], written
  T* d_k = nullptr;      // [key_last - key_first, grad_padded(D)], added to
  T* d_v = nullptr;      // [key_last - key_first, grad_padded(Dv)], added to
  Matrix<T> d_bias;      // [Nq, Nk], added to, strides 0 where it was broadcast; or no data
  T* scratch = nullptr;  // softmax_grad_scratch(...) elements, aligned to 64 bytes
};

/// Elements of scratch for \p keys keys in a block: O((keys + kGradTile) (D + Dv)).
constexpr Index softmax_grad_scratch(Index keys, Index width, Index value_width) {
  const Index d = grad_padded(width);
  const Index dv = grad_padded(value_width);
  const Index sums = keys * (d + dv);
  const Index rows = kGradTile * (4 * d + 4 * dv + 2);
  const Index tiles = 5 * kGradTile * kGradTile;
  return sums + rows + tiles;
}

/// Rows to be added to, or to become, rows of a tensor: to = scale rows (+ to).
template <class T>
struct ScaledRowsArgs {
  const T* rows = nullptr;  // [count, grad_padded(width)]
  Matrix<T> to;             // row i goes to row first + step i
  Index first = 0;
  Index step = 1;
  Index count = 0;
  Index width = 0;
  T scale = 1;
  bool add = false;
};

/// The gradient of the sink of one head: sum = -sum_i exp(sink - lse_i) <out_i, d_out_i>.
template <class T>
struct SinkGradArgs {
  SoftmaxGradHead<T> head;
  Index queries = 0;
  T* sum = nullptr;
  T* scratch = nullptr;  // softmax_grad_scratch(0, ...) elements
};

FOVEA_NAMESPACE_END
