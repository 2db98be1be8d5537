// SPDX-License-Identifier: MIT
/// \file
/// The causal backward pass of one key head divided among threads (grad_shared.hpp): the products
/// of chunks, the scan that turns them into states, and the chunks that read these.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/linear/grad.inl.hpp"
#include "fovea/kernels/linear/grad_shared.hpp"
#endif

/// The chunks of a scan: which are read, and which have products.
template <class T>
struct GradChainChunks {
  GradChainChunks(const LinearGradCausalArgs<T>& args, const GradStates<T>& states) {
    const GradPositions<T> positions(args);
    const Index most = states.chunks(states.heads);
    if (positions.unseen_token() == 0) return;
    if (states.is_down) {
      count = clamped(states.first + 1, 0, most);
      summed = clamped(states.first + 1 - positions.bottom_chunk(), 0, most);
    } else {
      count = clamped(positions.last_chunk() + 1 - states.first, 0, most);
      summed = clamped(positions.last_chunk() - states.first, 0, most);
    }
  }

  Index count = 0;   // chunks of the batch, whose states are needed
  Index summed = 0;  // the number of leading ones with products
};

/// Computes the products of a part.
template <class T>
void linear_grad_part_sums(const LinearGradPartArgs<T>& args) noexcept {
  const GradStates<T>& states = args.states;
  const GradChainChunks<T> chunks(args.of, states);
  const Index first = args.part * states.part_chunks(states.heads);
  const Index end = smaller(first + states.part_chunks(states.heads), chunks.summed);
  if (first >= end) return;
  if (states.is_down) {
    GradBackwards<T> step(args.of, args.map, {args.of.scratch});
    for (Index n = first; n < end; ++n) {
      for (Index h = 0; h < states.heads; ++h) {
        T* const matrix = states.product(n, h);
        step.sum(states.chunk(n), h, matrix, matrix + states.matrix);
      }
    }
  } else {
    GradForwards<T> step(args.of, args.map, {args.of.scratch});
    for (Index n = first; n < end; ++n) {
      T* const matrix = states.product(n, 0);
      step.sum(states.chunk(n), matrix, matrix + states.matrix);
    }
  }
}

/// Lets the chunks of a part read their states.
template <class T>
void linear_grad_part_reads(const LinearGradPartArgs<T>& args) noexcept {
  const GradStates<T>& states = args.states;
  if (args.clears && states.is_down) clear_unseen_tokens(args.of);
  if (args.clears && !states.is_down) clear_unseeing_rows(args.of);
  const GradChainChunks<T> chunks(args.of, states);
  const Index first = args.part * states.part_chunks(states.heads);
  const Index end = smaller(first + states.part_chunks(states.heads), chunks.count);
  if (first >= end) return;
  if (states.is_down) {
    const Index unseen = GradPositions<T>(args.of).unseen_token();
    GradBackwards<T> step(args.of, args.map, {args.of.scratch});
    for (Index n = first; n < end; ++n) {
      const T* const matrix = states.state(n);
      if (states.chunk(n) * kLinearChunk >= unseen) continue;
      step.read(states.chunk(n), matrix, matrix + states.matrix, nullptr);
    }
  } else {
    GradForwards<T> step(args.of, args.map, {args.of.scratch});
    for (Index n = first; n < end; ++n) {
      const T* const matrix = states.state(n);
      step.read(states.chunk(n), matrix, matrix + states.matrix);
    }
  }
}

/// Scans the matrices as GradSums::add_products does, from element `begin` to `end`.
template <class T>
FOVEA_NOINLINE void chain_matrices(const GradStates<T>& states, const GradChainChunks<T>& chunks,
                                   Index begin, Index end) {
  T* const carried = states.data;
  T* const lost = carried + states.matrix;
  for (Index n = 0; n < chunks.count; ++n) {
    for (Index e = begin; e < end; e += kLanes<T>) {
      const Vec<T> state = load(carried + e);
      if (n < chunks.summed) {
        Vec<T> sum = state;
        Vec<T> too_large = load(lost + e);
        for (Index h = 0; h < states.heads; ++h) {
          const Vec<T> x = load(states.product(n, h) + e) - too_large;
          const Vec<T> before = sum;
          sum = before + x;
          too_large = (sum - before) - x;
        }
        store(carried + e, sum);
        store(lost + e, too_large);
      }
      store(states.product(n, 0) + e, state);
    }
  }
}

/// Adds x to the vector of a scan as GradSums does.
template <class T>
FOVEA_INLINE void add_to_chain(const RunningState<T>& s, Index c, Vec<T> x, bool is_down) {
  if (is_down) {
    const Vec<T> local = load(s.local + c) + x;
    store(s.local + c, local);
    store(s.read + c, load(s.high + c) + local);
    return;
  }
  Vec<T> high = load(s.high + c);
  Vec<T> low = load(s.low + c);
  add_to_double_word(high, low, x);
  store(s.high + c, high);
  store(s.low + c, low);
  store(s.read + c, high);
}

/// Scans the vectors: normalisers upwards, and their gradients downwards.
template <class T>
FOVEA_NOINLINE void chain_vectors(const GradStates<T>& states, const GradChainChunks<T>& chunks) {
  RunningState<T> s;
  s.width = 0;
  s.value_row = 0;
  s.row = states.vector;
  s.elements = states.vector;
  s.high = states.data + 2 * states.matrix;
  s.low = s.high + states.vector;
  s.local = s.low + states.vector;
  s.read = s.local + states.vector;
  for (Index n = 0; n < chunks.count; ++n) {
    for (Index c = 0; c < states.vector; c += kLanes<T>) {
      const Vec<T> state = load(s.read + c);
      for (Index h = 0; n < chunks.summed && h < states.heads; ++h) {
        const Vec<T> x = load(states.product(n, h) + states.matrix + c);
        add_to_chain(s, c, x, states.is_down);
      }
      store(states.product(n, 0) + states.matrix + c, state);
    }
    if (states.is_down && states.chunk(n) * kLinearChunk % kLinearSegment == 0) fold_segment(s);
  }
}

/// Scans a batch of chunks.
template <class T>
void linear_grad_chain(const LinearGradChainArgs<T>& args) noexcept {
  const GradStates<T>& states = args.states;
  const GradChainChunks<T> chunks(args.of, states);
  if (args.is_first) {
    clear_elements(states.data + args.begin, args.end - args.begin);
    clear_elements(states.data + states.matrix + args.begin, args.end - args.begin);
    if (args.with_vector) clear_elements(states.data + 2 * states.matrix, 4 * states.vector);
  }
  chain_matrices(states, chunks, args.begin, args.end);
  if (args.with_vector) chain_vectors(states, chunks);
}
