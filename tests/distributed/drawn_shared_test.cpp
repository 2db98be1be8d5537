// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// Attention by way of rows that all ranks have (landmarks, projected keys, packed rows), with
/// drawn options, sizes, data and places: the bits are those of one process.
#include <gtest/gtest.h>

#include "distributed/operator_calls.hpp"
#include "fovea/distributed/linformer_backward.hpp"
#include "fovea/distributed/luna.hpp"
#include "fovea/distributed/nystroem_backward.hpp"

namespace fovea_test::distributed_drawn_shared {

using fovea::LinformerAttention;
using fovea::LunaPack;
using fovea::NystroemAttention;
using fovea::NystroemScale;

/// A little more than four segments of keys.
constexpr Index kLongest = 4 * fovea::kKeySegment + 100;

/// Rows that all ranks have: the fewest, some, or around the sizes of tiles.
Index drawn_shared_rows(Bytes& bytes, Index least) {
  switch (bytes(0, 3)) {
    case 0:
      return bytes(least, 3);
    case 1:
      return bytes(1, 4) * 32 + bytes(-1, 1);
    case 2:
      return bytes(1, 200);
    default:
      return bytes(1, 20);
  }
}

/// Ranges that begin anywhere, or with chains, blocks of rows, or segments of keys.
RowLayout drawn_ranges(Bytes& bytes, Index rows) {
  static const std::vector<Index> multiples = {
      1, 1, 1, fovea::kReductionBlock, 128, fovea::kKeySegment};
  return drawn_row_layout(bytes, rows, drawn_of(bytes, multiples));
}

template <class T>
void try_nystroem(Bytes& bytes) {
  NystroemAttention op;
  op.options.landmarks = std::min<Index>(drawn_shared_rows(bytes, 1), 100);
  op.options.iterations = bytes(0, 6);
  if (bytes.once_in(2)) op.options.first_scale = NystroemScale::batch_max;
  op.options.scale = drawn_scale(bytes);
  const DrawnSequence sequence(bytes, op.options.landmarks, kLongest);
  NystroemCall<T> call(sequence, drawn_fills(bytes, sequence.seed), op.options.landmarks);
  const RowLayout layout = drawn_ranges(bytes, sequence.shape.queries);
  try_sharded(op, ", landmarks " + std::to_string(op.options.landmarks), call, false, layout,
              bytes);
}

template <class T>
void try_linformer(Bytes& bytes) {
  const LinformerAttention op({.scale = drawn_scale(bytes)});
  const DrawnSequence sequence(bytes, 1, 2000);
  const Index projected = drawn_shared_rows(bytes, 1);
  const Index e_heads = bytes.once_in(2) ? 1 : sequence.shape.key_heads;
  const Index f_heads = bytes.once_in(2) ? 1 : sequence.shape.key_heads;
  LinformerCall<T> call(sequence, drawn_fills(bytes, sequence.seed), projected, e_heads, f_heads);
  const RowLayout layout = drawn_ranges(bytes, sequence.shape.queries);
  try_sharded(op, ", projected keys " + std::to_string(projected), call, false, layout, bytes);
}

template <class T, class Op>
void try_luna(Bytes& bytes) {
  constexpr bool is_pack = std::is_same_v<Op, LunaPack>;
  const Op op({.scale = drawn_scale(bytes)});
  DrawnSequence sequence(bytes, 1, kLongest);
  const Index packed = drawn_shared_rows(bytes, 0);
  if (!is_pack) {
    for (Index& length : sequence.lengths) length = bytes(0, packed);
  }
  LunaCall<T> call(sequence, drawn_fills(bytes, sequence.seed), is_pack, packed);
  if (!bytes.once_in(4)) call.slopes.role = Role::none;
  if (!bytes.once_in(4)) call.sink.role = call.d_sink.role = Role::none;
  const RowLayout layout = drawn_ranges(bytes, sequence.shape.queries);
  try_sharded(op, ", packed rows " + std::to_string(packed), call, false, layout, bytes);
}

template <class T>
void try_any(Bytes& bytes) {
  switch (bytes(0, 3)) {
    case 0:
      return try_nystroem<T>(bytes);
    case 1:
      return try_linformer<T>(bytes);
    case 2:
      return try_luna<T, LunaPack>(bytes);
    default:
      return try_luna<T, fovea::LunaUnpack>(bytes);
  }
}

TEST(DistributedDrawnShared, EqualsOneProcess) {
  each_drawn_over_ranks(120, 1, [](std::span<const std::uint8_t> data) {
    Bytes bytes(data);
    with_drawn_scalar(bytes, [&]<class T>(T) { try_any<T>(bytes); });
  });
  EXPECT_GT(large_rows(), 100);
}

}  // namespace fovea_test::distributed_drawn_shared
