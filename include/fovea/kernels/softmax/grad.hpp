// SPDX-License-Identifier: MIT
/// \file
/// What the backward kernels of softmax attention read and write. Their bodies are
/// softmax_grad.inl.hpp, compiled once per instruction-set level; table.hpp chooses the level.
#pragma once

#include "fovea/core/key_run.hpp"
#include "fovea/kernels/softmax/score_map.hpp"

FOVEA_NAMESPACE_BEGIN

/// Queries, and keys, of one tile of the backward pass: the same at every level, so that its chains
/// of additions are. Tiles of keys begin at absolute multiples.
inline constexpr Index kGradTile = 64;

/// Columns of rows in scratch are padded with zeros to a multiple of it: 64 bytes of floats.
constexpr Index grad_padded(Index width) { return (width + 15) / 16 * 16; }

/// Whether every step-th row lies as the kernels read it many times: with unit columns, and not so
/// far from the next that a tile of them shares few sets of the cache.
template <class T>
constexpr bool are_near(const Matrix<const T>& m, Index step, Index width) {
  const Index apart = (step * m.row < 0 ? -step * m.row : step * m.row);
  return m.column == 1 && (apart < 2 * width || apart * Index{sizeof(T)} < 1024);
}

/// One head of the backward pass.
template <class T>
struct SoftmaxGradHead {
  Matrix<const T> q;      // [Nq, D]
  Matrix<const T> out;    // [Nq, Dv]
  Matrix<const T> d_out;  // [Nq, Dv]
  Matrix<const T> lse;    // [Nq, 1]
  /// [Nq] what more is to be subtracted from half-logits of base 2 (lse_low_part), or null:
  /// nothing.
  const T* lse_low = nullptr;
  Index width = 0;        // D
  Index value_width = 0;  // Dv
  T scale = 0;            // of the logits
  const T* sink = nullptr;
  ScoreMap<T> map;
  Index first_position = 0;  // of query row 0
  Index key_end = 0;         // keys at and beyond it are invisible
};

/// The keys first + step * n, n in [0, count): a block of them in the backward pass.
struct GradKeys {
  Index first = 0;
  Index step = 1;
  Index count = 0;
};

/// One block of queries against a block of keys. Of a run those keys count that are in the block.
/// \pre the step of a run that has keys in the block is a multiple of `keys.step`
template <class T>
struct SoftmaxGradArgs {
  SoftmaxGradHead<T> head;
  QueryBlock block;
  Index row_begin = 0;  // of the block its rows [row_begin, row_end), a multiple of kGradTile first
  Index row_end = 0;
  GradKeys keys;
  Matrix<const T> k;  // [keys.count, D], unit columns: the rows of `keys`
  Matrix<const T> v;  // [keys.count, Dv], unit columns
  // Sums without the factor `scale`, and times 2 to head.map.weight_lift. Either all three, each or
  // none, or d_bias alone.
  T* d_q = nullptr;      // [row_end - row_begin, grad_padded(D)], written
  T* d_k = nullptr;      // [keys.count, grad_padded(D)], written or added to
  T* d_v = nullptr;      // [keys.count, grad_padded(Dv)], written or added to
  bool add = false;      // to d_k and d_v
  Matrix<T> d_bias;      // [Nq, Nk], added to, strides 0 where it was broadcast; or no data
  T* scratch = nullptr;  // softmax_grad_scratch(...) elements, aligned to 64 bytes
};

/// Elements of scratch for \p keys keys in a block: O((keys + kGradTile) (D + Dv)).
constexpr Index softmax_grad_scratch(Index keys, Index width, Index value_width) {
  const Index d = grad_padded(width);
  const Index dv = grad_padded(value_width);
  const Index sums = keys * (d + dv);
  const Index rows = kGradTile * (3 * d + 3 * dv + 3);
  const Index tiles = 5 * kGradTile * kGradTile;
  return sums + rows + tiles;
}

/// Rows of a tensor to be copied: rows[i] = row first + step i.
template <class T>
struct PackedRowsArgs {
  Matrix<const T> from;
  Index first = 0;
  Index step = 1;
  Index count = 0;
  Index width = 0;
  T* rows = nullptr;  // [count, grad_padded(width)], zeros beyond width
};

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
