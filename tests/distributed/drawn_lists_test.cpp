// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// Attention over lists of keys over ranks, which are given, chosen by a sketch or predicted, with
/// drawn options, sizes, data and places: the bits are those of one process.
#include <gtest/gtest.h>

#include "distributed/operator_call.hpp"
#include "fovea/distributed/fsat_backward.hpp"
#include "fovea/distributed/fsat_forward.hpp"
#include "fovea/distributed/indexed_backward.hpp"
#include "fovea/distributed/indexed_forward.hpp"
#include "fovea/distributed/smart_bird_backward.hpp"
#include "fovea/distributed/smart_bird_forward.hpp"

namespace fovea_test::distributed_drawn_lists {

template <class T, class Op>
void try_lists(Op op, DrawnSequence& sequence, const OtherSizes& sizes, Bytes& bytes) {
  draw_positions(op, sequence, bytes);
  OperatorCall<Op, T> call(sequence, drawn_fills(bytes, sequence.seed), {}, sizes);
  const RowLayout layout = drawn_row_layout(bytes, sequence.shape.queries);
  try_sharded(op, "", call, false, layout, bytes);
}

template <class T>
void try_any(Bytes& bytes) {
  const Index kind = bytes(0, 2);
  DrawnSequence sequence(bytes, 1, 5000);
  if (kind == 0) {
    const fovea::IndexedAttention op{{.scale = drawn_scale(bytes), .causal = bytes.once_in(2)}};
    const Index listed = bytes(1, 40);
    const Index step = bytes.once_in(2) ? 2 : bytes(1, 200);
    return try_lists<T>(op, sequence, {.listed = listed, .list_step = step}, bytes);
  }
  if (kind == 1) {
    const fovea::SmartBirdAttention op(drawn_smart_bird(bytes));
    return try_lists<T>(op, sequence,
                        {.listed = op.options.keys_per_row, .sketch_width = bytes(1, 8)}, bytes);
  }
  const fovea::FsatAttention op(drawn_fsat(bytes, sequence.shape.keys));
  return try_lists<T>(op, sequence,
                      {.dominants = bytes(1, 6), .most_dominant = op.options.max_length}, bytes);
}

TEST(DistributedDrawnLists, EqualOneProcess) {
  each_drawn_over_ranks(90, 1, [](std::span<const std::uint8_t> data) {
    Bytes bytes(data);
    with_any_drawn_scalar(bytes, [&]<class T>(T) { try_any<T>(bytes); });
  });
  EXPECT_GT(large_rows(), 100);
}

}  // namespace fovea_test::distributed_drawn_lists
