// SPDX-License-Identifier: MIT
/// \file
/// Non-causal linear attention, in three steps: sums over segments of tokens, their total, and the
/// rows that read it.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/linear/stream.inl.hpp"
#endif

/// The sums of one map, to which blocks of tokens are added.
template <class T>
struct BlockSums {
  T* sums;  // [width, value_row], then the normaliser [row]
  Index width;
  Index row;
  Index value_row;
  const T* features;  // [tokens, row]
  const T* values;    // [tokens, value_row]
  Index tokens;
  bool is_first;  // whether this is the first block
  TokenPrefetcher after;
};

template <int V, class T>
struct BlockProducts {
  BlockSums<T>& s;
  Index c;

  template <int R>
  FOVEA_INLINE void run(Index d) const {
    RegisterBlock<R, V, T> block;
    multiply_tokens(block, s.features + d, s.row, s.values + c, s.value_row, s.tokens);
    T* sums = s.sums + d * s.value_row + c;
    if (!s.is_first) block.add_from(sums, s.value_row);
    block.store_to(sums, s.value_row);
    s.after.prefetch(R / 2);
  }
};

template <class T>
struct BlockColumns {
  BlockSums<T>& s;

  template <int V>
  FOVEA_INLINE void run(Index vector) const {
    for_row_blocks<kBlockRows<V>, true>(0, s.width, BlockProducts<V, T>{s, vector * kLanes<T>});
  }
};

template <class T>
FOVEA_NOINLINE void add_block(BlockSums<T>& s) {
  for_state_vectors<T>(s.value_row, BlockColumns<T>{s});
  T* normaliser = s.sums + s.width * s.value_row;
  for (Index d = 0; d < s.row; d += kLanes<T>) {
    Vec<T> sum = zero<T>();
    for (Index first = 0; first < s.tokens; first += kRunChain) {
      Vec<T> part = zero<T>();
      for (Index i = first; i < smaller(first + kRunChain, s.tokens); ++i) {
        part = part + load(s.features + i * s.row + d);
      }
      sum = sum + part;
    }
    if (!s.is_first) sum = load(normaliser + d) + sum;
    store(normaliser + d, sum);
  }
}

/// Computes the sums of one segment of tokens.
template <class T, Storage S>
void linear_sum(const LinearSumArgs<T, S>& args) noexcept {
  BlockSums<T> s;
  s.width = args.width;
  s.row = padded_row<T>(args.width);
  s.value_row = padded_row<T>(args.value_width);
  T* features = args.scratch;
  T* values = features + kLinearSumChunk * s.row;
  s.features = features;
  s.values = values;
  const Index elements = linear_map_elements<T>(args.width, args.value_width);
  if (args.tokens == 0) clear_elements(args.sums, args.maps.count * elements);
  for (Index first = 0; first < args.tokens; first += kLinearSumChunk) {
    s.tokens = smaller(kLinearSumChunk, args.tokens - first);
    s.is_first = first == 0;
    const Index next = smaller(kLinearSumChunk, args.tokens - first - s.tokens);
    s.after = {RowPrefetcher<0>::of<T>(args.k, first + s.tokens, 1, next,
                                       row_width(args.maps, args.width)),
               RowPrefetcher<0>::of<T>(args.v, first + s.tokens, 1, next, args.value_width)};
    pack_padded_rows(every_row<T>(args.v, first, 1), s.tokens, args.value_width, values);
    for (Index l = 0; l < args.maps.count; ++l) {
      feature_rows(args.maps, l, every_row<T>(args.k, first, 1), s.tokens, args.width, features,
                   s.row);
      s.sums = args.sums + l * elements;
      add_block(s);
    }
  }
}

/// Adds the sums of all segments in order, in two words, then rounds.
template <class T>
void linear_fold(const LinearFoldArgs<T>& args) noexcept {
  for (Index i = 0; i < args.elements; i += kLanes<T>) {
    Vec<T> high = zero<T>();
    Vec<T> low = zero<T>();
    for (Index s = 0; s < args.segments; ++s) {
      add_to_double_word(high, low, load(args.sums + s * args.elements + i));
    }
    store(args.total + i, high);
  }
}

/// Computes rows that all see the same tokens.
template <class T, Storage S>
void linear_read(const LinearReadArgs<T, S>& args) noexcept {
  const RowScratch<T> scratch(args.scratch, args.width, args.value_width);
  const Index elements = linear_map_elements<T>(args.width, args.value_width);
  StateReader<T> reader;
  reader.width = args.width;
  reader.row = padded_row<T>(args.width);
  reader.value_row = padded_row<T>(args.value_width);
  scratch.give_to(reader);
  for (Index row = 0; row < args.row_count; row += kLinearChunk) {
    reader.count = smaller(kLinearChunk, args.row_count - row);
    for (Index l = 0; l < args.maps.count; ++l) {
      reader.state = args.total + l * elements;
      reader.normaliser = reader.state + args.width * reader.value_row;
      read_rows(reader, args.rows, row, smaller(kLinearChunk, args.row_count - row - reader.count),
                args.value_width, args.maps, l, scratch.sums);
    }
  }
}
