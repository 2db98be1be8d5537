// SPDX-License-Identifier: MIT
/// \file
/// Softmax attention as one writes it with Eigen's matrices: the baseline of the comparisons. Plain
/// pointers only, because its translation unit is compiled with different flags.
#pragma once

#include <cstddef>

namespace bench {

/// One head; rows are contiguous.
template <class T>
struct EigenHead {
  const T* q;            // [n, d]
  const T* k;            // [n, d]
  const T* v;            // [n, dv]
  T* out;                // [n, dv]
  std::ptrdiff_t n;      // queries and keys
  std::ptrdiff_t d;      // D
  std::ptrdiff_t dv;     // Dv
  std::ptrdiff_t q_row;  // elements between rows
  std::ptrdiff_t k_row;
  std::ptrdiff_t v_row;
  std::ptrdiff_t out_row;
  bool causal;  // row i sees keys [0, i]
};

/// For blocks of `block_rows` query rows: S = Q K^T / sqrt(D), softmax by rows, O = P V.
/// With block_rows = n it is the naive form, whose S is the whole n x n matrix; a block of the
/// causal form computes no key beyond its last row.
/// \param scores scratch: [block_rows, n] scores, then [block_rows] sums
template <class T>
void eigen_attention(const EigenHead<T>& head, std::ptrdiff_t block_rows, T* scores);

extern template void eigen_attention(const EigenHead<float>&, std::ptrdiff_t, float*);
extern template void eigen_attention(const EigenHead<double>&, std::ptrdiff_t, double*);

}  // namespace bench
