// SPDX-License-Identifier: MIT
/// \file
/// The bounds of block_bounds.inl.hpp for one row, compiled once per level by bounds_test.cpp.

#include "fovea/kernels/sketch/unfused.inl.hpp"

#include "fovea/kernels/sketch/scores.inl.hpp"

#include "fovea/kernels/sketch/block_bounds.inl.hpp"

/// \param q [width, 4], four times the same query   \param memory [5, blocks], written: the numbers
/// of a BlockRow
template <class T>
inline void bound_blocks(const T* q, const T* moments, Index width, Index blocks, T* factors,
                         T* memory) {
  moment_factors<kSketchRows>(q, width, factors);
  const BlockRow<T> row = {memory, memory + blocks, memory + 2 * blocks, memory + 3 * blocks,
                           memory + 4 * blocks};
  const BlockRow<T> rows[kSketchRows] = {row, row, row, row};
  block_logits<kSketchRows, 0>(factors, moments, blocks, width, blocks, rows, 0);
  bound_sums(row, blocks, largest_of_vectors(row.mean, blocks));
}

template <class T>
inline BoundMath<T> operations() {
  return {&bound_blocks<T>};
}
