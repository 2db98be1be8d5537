// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// Attention that ranks compute by heads, with drawn options, sizes, data and places: the bits are
/// those of one process.
#include <gtest/gtest.h>

#include "distributed/operator_calls.hpp"
#include "fovea/distributed/reformer.hpp"
#include "fovea/distributed/sinkhorn.hpp"

namespace fovea_test::distributed_drawn_by_heads {

using fovea::FirstChunk;
using fovea::ReformerAttention;
using fovea::ReformerOptions;
using fovea::SinkhornAttention;

/// Rows of a chunk or block: one, a few, or as many as layers take.
Index drawn_block(Bytes& bytes) {
  static const std::vector<Index> usual = {1, 8, 32, 64, 128};
  return bytes.once_in(2) ? drawn_of(bytes, usual) : bytes(1, 40);
}

/// Ranges that begin anywhere, or with chunks or blocks.
RowLayout drawn_ranges(Bytes& bytes, Index rows, Index block) {
  return drawn_row_layout(bytes, rows, bytes.once_in(3) ? block : 1);
}

template <class T>
void try_reformer(Bytes& bytes) {
  ReformerOptions options;
  options.chunk = drawn_block(bytes);
  options.rounds = bytes(1, 5);
  options.buckets = 2 * (bytes.once_in(2) ? bytes(1, 4) : bytes(1, 40));
  options.causal = bytes.once_in(2);
  options.before_first = std::array{FirstChunk::wrap, FirstChunk::none,
                                    FirstChunk::previous_round}[as_size(bytes(0, 2))];
  options.across_buckets = !bytes.once_in(3);
  options.correct_duplicates = bytes.once_in(3);
  options.scale = drawn_scale(bytes);
  options.seed = static_cast<std::uint64_t>(bytes(0, 255));
  DrawnSequence sequence(bytes, options.chunk, 1500);
  sequence.shape.key_heads = sequence.shape.query_heads;
  for (Index& length : sequence.lengths) length = bytes(0, sequence.shape.keys);
  ReformerCall<T> call(sequence, drawn_fills(bytes, sequence.seed), options);
  if (!bytes.once_in(3)) call.projection.role = Role::none;
  const RowLayout layout = drawn_ranges(bytes, sequence.shape.queries, options.chunk);
  try_sharded(ReformerAttention(options),
              ", chunk " + std::to_string(options.chunk) + ", rounds " +
                  std::to_string(options.rounds) + ", buckets " + std::to_string(options.buckets),
              call, true, layout, bytes);
}

template <class T>
void try_sinkhorn(Bytes& bytes) {
  fovea::SinkhornOptions options;
  options.block = drawn_block(bytes);
  options.iterations = bytes(0, 8);
  options.scale = drawn_scale(bytes);
  const DrawnSequence sequence(bytes, options.block, 1500);
  SinkhornCall<T> call(sequence, drawn_fills(bytes, sequence.seed), options.block);
  const RowLayout layout = drawn_ranges(bytes, sequence.shape.queries, options.block);
  try_sharded(SinkhornAttention(options), ", block " + std::to_string(options.block), call, true,
              layout, bytes);
}

TEST(DistributedDrawnByHeads, EqualsOneProcess) {
  each_drawn_over_ranks(90, 1, [](std::span<const std::uint8_t> data) {
    Bytes bytes(data);
    const bool is_reformer = bytes.once_in(2);
    with_drawn_scalar(
        bytes, [&]<class T>(T) { is_reformer ? try_reformer<T>(bytes) : try_sinkhorn<T>(bytes); });
  });
}

}  // namespace fovea_test::distributed_drawn_by_heads
