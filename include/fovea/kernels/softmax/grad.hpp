// SPDX-License-Identifier: MIT
/// \file
/// Arguments of the backward kernels of softmax attention. Their bodies are grad.inl.hpp and
/// grad_*, compiled once per instruction-set level; table.hpp selects the level.
#pragma once

#include "fovea/core/key_run.hpp"
#include "fovea/kernels/softmax/score_map.hpp"
#include "fovea/simd/padding.hpp"

FOVEA_NAMESPACE_BEGIN

/// The number of queries and of keys of one tile of the backward pass. It and the order of
/// additions are the same at every level. Tiles of keys begin at multiples of it, counted from
/// key 0.
inline constexpr Index kGradTile = 64;

/// Whether every step-th row is suited for repeated reads: with unit columns, and not so far apart
/// that a tile of rows maps to few cache sets.
template <class T>
constexpr bool are_near(const Matrix<const T>& m, Index step, Index width) {
  const Index apart = (step * m.row < 0 ? -step * m.row : step * m.row);
  return m.column == 1 && (apart < 2 * width || apart * Index{sizeof(T)} < 1024);
}

/// One query head in the backward pass.
template <class T>
struct SoftmaxGradHead {
  Matrix<const T> q;      ///< [Nq, D]
  Matrix<const T> out;    ///< [Nq, Dv]
  Matrix<const T> d_out;  ///< [Nq, Dv]
  Matrix<const T> lse;    ///< [Nq, 1]
  /// [Nq]: subtracted in addition from half-logits of base 2 (lse_low_part); null: nothing.
  const T* lse_low = nullptr;
  Matrix<const T> d_lse;     ///< [Nq, 1]; null data: it is 0
  Index width = 0;           ///< D
  Index value_width = 0;     ///< Dv
  T scale = 0;               ///< factor of the logits
  const T* sink = nullptr;   ///< one logit without a value; null: no sink
  ScoreMap<T> map;           ///< options of logits and weights
  Index first_position = 0;  ///< position of query row 0
  Index key_end = 0;         ///< keys from this position on are invisible
};

/// A block of keys in the backward pass: first + step * n for n in [0, count).
struct GradKeys {
  Index first = 0;  ///< position of the first key
  Index step = 1;   ///< stride of key positions, at least 1
  Index count = 0;  ///< number of keys
};

/// One block of queries and one block of keys. Only a run's keys in the block are used.
/// \pre the step of a run that has keys in the block is a multiple of `keys.step`
template <class T>
struct SoftmaxGradArgs {
  SoftmaxGradHead<T> head;  ///< the query head
  QueryBlock block;         ///< the query rows, and their runs of keys
  /// The block's first row to process, a multiple of kGradTile.
  Index row_begin = 0;
  Index row_end = 0;  ///< one past the block's last row to process
  GradKeys keys;      ///< the block of keys
  Matrix<const T> k;  ///< [keys.count, D] the rows of `keys`, with unit columns
  Matrix<const T> v;  ///< [keys.count, Dv] the rows of `keys`, with unit columns
  /// [row_end - row_begin, padded_size(D)], written; null: not requested. d_q, d_k and d_v are sums
  /// without the factor `scale`, multiplied by 2 to head.map.exponent_bias. A call requests some of
  /// these three and d_bias; under a soft cap or a modifier, either these or d_bias.
  T* d_q = nullptr;
  T* d_k = nullptr;  ///< [keys.count, padded_size(D)], written or added to; null: not requested
  T* d_v = nullptr;  ///< [keys.count, padded_size(Dv)], written or added to; null: not requested
  bool add = false;  ///< whether to add to d_k and d_v
  /// [Nq, Nk], added to; strides are 0 where the bias was broadcast. Null data: not requested.
  Matrix<T> d_bias;
  T* scratch = nullptr;  ///< softmax_grad_scratch(...) elements, aligned to 64 bytes
};

/// Elements of scratch for \p keys keys in a block: O((keys + kGradTile) (D + Dv)).
constexpr Index softmax_grad_scratch(Index keys, Index width, Index value_width) {
  const Index d = padded_size(width);
  const Index dv = padded_size(value_width);
  const Index sums = keys * (d + dv);
  const Index rows = kGradTile * (3 * d + 3 * dv + 3);
  const Index tiles = 5 * kGradTile * kGradTile;
  return sums + rows + tiles;
}

/// Rows of a tensor to be copied: row i of `rows` is row first + step * i of the tensor.
template <class T>
struct PackedRowsArgs {
  Matrix<const T> from;  ///< the tensor's rows, of `width` columns
  Index first = 0;       ///< first row to copy
  Index step = 1;        ///< stride of copied rows
  Index count = 0;       ///< number of rows
  Index width = 0;       ///< number of columns
  T* rows = nullptr;     ///< [count, padded_size(width)], written, with zeros beyond width
};

/// Rows to be added to rows of a tensor, or to replace them: to = scale rows, or to = to + scale
/// rows.
template <class T>
struct ScaledRowsArgs {
  const T* rows = nullptr;  ///< [count, padded_size(width)]
  Matrix<T> to;             ///< row i goes to row first + step * i
  Index first = 0;          ///< first row to write
  Index step = 1;           ///< stride of written rows
  Index count = 0;          ///< number of rows
  Index width = 0;          ///< number of columns
  T scale = 1;              ///< factor of the rows
  bool add = false;         ///< whether to add instead of replacing
};

/// The number of partial sums of a sink's gradient: row n adds to sum n % kSinkSums.
inline constexpr Index kSinkSums = kGradTile;

/// Rows of the gradient of the sink of one query head, -sum_i exp(sink - lse_i) (<out_i, d_out_i> -
/// d_lse_i).
template <class T>
struct SinkGradArgs {
  SoftmaxGradHead<T> head;  ///< the query head, with a sink
  Index row_begin = 0;      ///< the first query row
  Index row_end = 0;        ///< one past the last
  T* sums = nullptr;        ///< [kSinkSums], added to; their sum in order is the gradient
  T* scratch = nullptr;     ///< softmax_grad_scratch(0, ...) elements
};

FOVEA_NAMESPACE_END
