// SPDX-License-Identifier: MIT
/// \file
/// Arguments of the kernels that divide the causal backward pass of one key head (grad.hpp) among
/// threads. Their bodies are grad_shared.inl.hpp, compiled once per instruction-set level;
/// table.hpp selects the level.
///
/// Each of the two causal steps processes the chunks of one map in batches: upwards with the state
/// of the tokens, then downwards with that of the rows. First each chunk's products are computed,
/// in any chunk order; then a scan over the chunks turns them into the states before each, in any
/// element order; then the chunks read these, in any order. Each number results from the same
/// operations in the same order as in the undivided step, so it has the same bits.
#pragma once

#include <algorithm>

#include "fovea/kernels/linear/grad.hpp"

FOVEA_NAMESPACE_BEGIN

/// The number of parts of a batch of chunks. (Measured on two cores, 8 took 1.02 to 1.09 times as
/// long: threads synchronise three times per batch.)
inline constexpr Index kGradParts = 16;

/// A batch of chunks of one key head and map, in scan order. Each has products of one or several
/// query heads; the first of these are overwritten by the state.
template <class T>
struct GradStates {
  T* data = nullptr;     ///< [elements()], aligned to 64 bytes
  Index matrix = 0;      ///< elements of the matrix, in whole cache lines
  Index vector = 0;      ///< elements of the vector, in whole cache lines
  Index heads = 1;       ///< products of a chunk
  bool is_down = false;  ///< whether the scan goes downwards
  Index first = 0;       ///< the first chunk of the batch

  /// The chunks of a batch, if each has products of that many heads: with D = Dv = 64 in float they
  /// take 4.3 MB for up to 16 heads.
  static constexpr Index chunks(Index heads) { return kGradParts * part_chunks(heads); }
  /// The chunks of a part, computed by one call.
  static constexpr Index part_chunks(Index heads) {
    return heads < kSegmentChunks ? kSegmentChunks / heads : 1;
  }
  /// The carried state: the matrix and its rounding error, and four vectors.
  constexpr Index carried_elements() const { return 2 * matrix + 4 * vector; }
  /// Elements of `data`.
  constexpr Index elements() const {
    return carried_elements() + chunks(heads) * heads * (matrix + vector);
  }

  /// Chunk n of the batch.
  constexpr Index chunk(Index n) const { return is_down ? first - n : first + n; }
  /// The products of chunk n of the batch and a head: a matrix, then a vector.
  constexpr T* product(Index n, Index h) const {
    return data + carried_elements() + (n * heads + h) * (matrix + vector);
  }
  /// The state before chunk n, after the scan.
  constexpr const T* state(Index n) const { return product(n, 0); }
};

/// The states of the tokens, S^T and z.
/// \param data may be null
template <class T>
constexpr GradStates<T> grad_token_states(T* data, Index width, Index value_width) {
  const Index d = padded_row<T>(width);
  return {data, value_width * d, d, 1, false, 0};
}
/// The states of the rows of some query heads, R and r.
template <class T>
constexpr GradStates<T> grad_row_states(T* data, Index width, Index value_width, Index heads) {
  return {data, width * padded_row<T>(value_width), padded_row<T>(width), heads, true, 0};
}

/// Elements of GradStates::data for both steps.
template <class T>
constexpr Index linear_grad_shared_elements(Index width, Index value_width, Index heads) {
  return (std::max)(grad_token_states<T>(nullptr, width, value_width).elements(),
                    grad_row_states<T>(nullptr, width, value_width, heads).elements());
}

/// One part of a batch of chunks: first its products, later the reads of their states.
template <class T>
struct LinearGradPartArgs {
  LinearGradCausalArgs<T> of;  ///< the step; its heads are all that share the keys
  GradStates<T> states;        ///< products are written, or states read
  Index map = 0;               ///< which map
  Index part = 0;              ///< the part's number in the batch
  /// Whether to clear the gradients that no state reaches: once per step.
  bool clears = false;
};

/// The scan over a batch of chunks, for some elements of the matrix.
template <class T>
struct LinearGradChainArgs {
  LinearGradCausalArgs<T> of;  ///< the step
  GradStates<T> states;        ///< products are turned into states
  bool is_first = false;       ///< whether no state is carried yet
  Index begin = 0;             ///< the first element, a multiple of a cache line
  Index end = 0;               ///< one past the last element, a multiple of a cache line
  bool with_vector = false;    ///< whether to scan the vector, too
};

FOVEA_NAMESPACE_END
