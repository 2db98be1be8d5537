// SPDX-License-Identifier: MIT
/// \file
/// One head of softmax attention as one writes it with Eigen's matrices: the baselines of the
/// comparisons, and the arithmetic of DenseAttention. Plain pointers only, because its translation
/// unit is compiled with different flags.
#pragma once

#include <cstddef>

namespace bench {

/// The rows of one tensor of a head, which are contiguous.
template <class T>
struct HeadRows {
  T* data;
  std::ptrdiff_t row;  // elements between rows
};

/// Sizes of a head: queries, keys and the widths of keys and values.
struct HeadSizes {
  std::ptrdiff_t queries;
  std::ptrdiff_t keys;
  std::ptrdiff_t d;
  std::ptrdiff_t dv;
};

/// For blocks of `block_rows` query rows: S = Q K^T / sqrt(D), softmax by rows, O = P V.
/// With block_rows = N it is the naive form, whose S is the whole N x N matrix; a block of the
/// causal form computes no key beyond its last row.
/// \param causal row i sees keys [0, i]; as many queries as keys
/// \param scores scratch: [block_rows, N] scores, then [block_rows] sums
template <class T>
void eigen_attention(const HeadSizes& sizes, HeadRows<const T> q, HeadRows<const T> k,
                     HeadRows<const T> v, HeadRows<T> out, bool causal, std::ptrdiff_t block_rows,
                     T* scores);

/// weights = softmax(q k^T / sqrt(d)) by rows, and out = weights v.
/// \param weights [queries, keys], aligned to 64 bytes
void dense_head_forward(const HeadSizes& sizes, HeadRows<const float> q, HeadRows<const float> k,
                        HeadRows<const float> v, HeadRows<float> out, float* weights);

/// The gradients of q, k and v.
/// \param weights those of the forward pass
/// \param d_weights [queries, keys], aligned to 64 bytes: written
void dense_head_backward(const HeadSizes& sizes, HeadRows<const float> q, HeadRows<const float> k,
                         HeadRows<const float> v, HeadRows<const float> out,
                         HeadRows<const float> d_out, const float* weights, float* d_weights,
                         HeadRows<float> d_q, HeadRows<float> d_k, HeadRows<float> d_v);

}  // namespace bench
