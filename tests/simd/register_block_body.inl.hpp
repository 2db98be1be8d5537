// SPDX-License-Identifier: MIT
/// \file
/// The cuts of simd/register_block.inl.hpp: what register_block_test.cpp compiles once per level.

/// Writes down the blocks that a loop over rows is cut into.
struct NotedBlocks {
  fovea_test::RowBlock* blocks;
  int& count;

  template <int R>
  FOVEA_INLINE void run(Index first) const {
    blocks[count++] = {first, R};
  }
};

/// The blocks of [begin, end), of at most R rows each; returns how many there are.
template <int R>
inline int cut(Index begin, Index end, fovea_test::RowBlock* blocks) {
  int count = 0;
  for_row_blocks<R>(begin, end, NotedBlocks{blocks, count});
  return count;
}

inline fovea_test::Cuts operations() {
  return {&cut<1>, &cut<3>, &cut<4>, &cut<6>, &cut<8>, &cut<12>};
}
