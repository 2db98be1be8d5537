// SPDX-License-Identifier: MIT
/// \file
/// The result of key_blocks.inl.hpp for a few rows that skip no block, compiled once per level by
/// key_blocks_test.cpp.

#include "fovea/kernels/sketch/unfused.inl.hpp"

#include "fovea/kernels/sketch/scores.inl.hpp"

#include "fovea/kernels/sketch/block_bounds.inl.hpp"

#include "fovea/kernels/sketch/key_blocks.inl.hpp"

/// Bounds the blocks of kSketchRows rows, and for one row after the other closes all gaps and keeps
/// all keys.
/// \param q [width, kSketchRows]   \param memory sketch_block_scratch(...) elements
/// \param scores [kSketchRows, sketch_room(args.key_end)]
/// \param rows [kSketchRows], with memory for all keys, written
template <class T>
inline void keep_all_keys(const SketchSelectArgs<T>& args, const T* q, T* memory, T* scores,
                          KeptKeys<T>* rows) {
  const Index room = sketch_room(args.key_end);
  KeyBlocks<T> blocks(args, memory);
  blocks.cover(args.key_end);
  blocks.bound(q, args.key_end, scores, room);
  for (Index r = 0; r < kSketchRows; ++r) {
    KeptKeys<T>& row = rows[r];
    row.is_bounded = blocks.take_row(q, r, scores + r * room, args.key_end);
    row.least_bounded = blocks.least();
    row.most_bounded = blocks.most();
    blocks.close_gaps(T{-1});
    row.least = blocks.least();
    row.most = blocks.most();
    row.top = blocks.top();
    blocks.keep_above((std::numeric_limits<T>::lowest)());
    row.count = blocks.kept();
    for (Index n = 0; n < row.count; ++n) {
      row.logits[n] = blocks.kept_logits()[n];
      row.keys[n] = blocks.kept_keys()[n];
    }
  }
}

template <class T>
inline KeyBlocksOfLevel<T> operations() {
  return {&keep_all_keys<T>};
}
