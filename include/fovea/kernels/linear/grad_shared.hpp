// SPDX-License-Identifier: MIT
/// \file
/// What the kernels read and write that divide the causal backward pass of one key head (grad.hpp)
/// among threads. Their bodies are grad_shared.inl.hpp, compiled once for each instruction-set
/// level; table.hpp chooses the level.
///
/// Each of the two causal steps goes over the chunks of one map some at a time: upwards with the
/// state of the tokens, and then downwards with that of the rows. First each chunk's products are
/// computed, chunk by chunk in any order; then a chain over the chunks makes them the states before
/// each, element by element in any order; then the chunks read these, again in any order. Each
/// number is made by the operations of the undivided step, in their order, so it has the same bits.
#pragma once

#include <algorithm>

#include "fovea/kernels/linear/grad.hpp"

FOVEA_NAMESPACE_BEGIN

/// The number of parts of the chunks that are at hand. (In measurements on two cores, 8 of them
/// took 1.02 to 1.09 times as long: threads meet three times for all parts.)
inline constexpr Index kGradParts = 16;

/// The chunks of one key head and map whose products are at hand, in the order of the chain. Each
/// has products of one or several query heads, and the first of these give way to the state.
template <class T>
struct GradStates {
  T* data = nullptr;     ///< [elements()], aligned to 64 bytes
  Index matrix = 0;      ///< elements of the matrix, in whole cache lines
  Index vector = 0;      ///< elements of the vector, in whole cache lines
  Index heads = 1;       ///< products of a chunk
  bool is_down = false;  ///< whether the chain goes downwards
  Index first = 0;       ///< number of the first chunk of the chain that is at hand

  /// The chunks that are at hand when each has products of that many heads: with D = Dv = 64 in
  /// float they take 4.3 MB, unless heads are more than 16.
  static constexpr Index chunks(Index heads) { return kGradParts * part_chunks(heads); }
  /// The chunks of a part, which one call computes.
  static constexpr Index part_chunks(Index heads) {
    return heads < kSegmentChunks ? kSegmentChunks / heads : 1;
  }
  /// What is carried on: the matrix and what it lost, and four vectors.
  constexpr Index carried_elements() const { return 2 * matrix + 4 * vector; }
  /// Elements of `data`.
  constexpr Index elements() const {
    return carried_elements() + chunks(heads) * heads * (matrix + vector);
  }

  /// Chunk n of those at hand.
  constexpr Index chunk(Index n) const { return is_down ? first - n : first + n; }
  /// The products of chunk n of those at hand and a head: a matrix, and then a vector.
  constexpr T* product(Index n, Index h) const {
    return data + carried_elements() + (n * heads + h) * (matrix + vector);
  }
  /// The state before chunk n, once the chain has been there.
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

/// One part of the chunks that are at hand: first its products, later what reads their states.
template <class T>
struct LinearGradPartArgs {
  LinearGradCausalArgs<T> of;  ///< the step; its heads are all that share the keys
  GradStates<T> states;        ///< products are written, or states read
  Index map = 0;               ///< which map
  Index part = 0;              ///< number of the part among those at hand
  /// Whether to clear the gradients of what no state reaches: once for each step.
  bool clears = false;
};

/// The chain over the chunks that are at hand, for some elements of the matrix.
template <class T>
struct LinearGradChainArgs {
  LinearGradCausalArgs<T> of;  ///< the step
  GradStates<T> states;        ///< products are made states
  bool is_first = false;       ///< whether nothing is carried on yet
  Index begin = 0;             ///< the first element, a multiple of a cache line
  Index end = 0;               ///< one past the last element, a multiple of a cache line
  bool with_vector = false;    ///< whether to go over the vector, too
};

FOVEA_NAMESPACE_END
