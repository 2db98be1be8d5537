// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// Softmax attention over patterns over ranks, with drawn options, sizes, data and places: the bits
/// are those of one process.
#include <gtest/gtest.h>

#include "distributed/operator_call.hpp"
#include "distributed/score_modifier.hpp"
#include "fovea/distributed/longformer.hpp"
#include "fovea/distributed/softmax_backward.hpp"
#include "fovea/distributed/softmax_forward.hpp"

namespace fovea_test::distributed_drawn_softmax {

/// For a sequence of that many rows.
fovea::LongformerAttention drawn_longformer(Bytes& bytes, Index rows) {
  fovea::LongformerAttention op(fovea_test::drawn_longformer(bytes));
  op.options.first_global = std::min(rows, op.options.first_global);
  std::erase_if(op.options.global, [=](Index at) { return at >= rows; });
  return op;
}

/// \param draw draw(rows) draws the operator for a sequence of that many rows
template <class T, class Draw>
void try_softmax(Bytes& bytes, const Draw& draw) {
  const Extras extras = drawn_extras(bytes);
  DrawnSequence sequence(bytes, 1, 1500);
  const Index rows = sequence.shape.queries;
  const Fills fills = drawn_fills(bytes, sequence.seed);
  auto drawn = draw(rows);
  draw_positions(drawn, sequence, bytes);
  const RowLayout layout = drawn_row_layout(bytes, rows);
  const auto run = [&]<class Op>(const Op& op, const std::string& made) {
    OperatorCall<Op, T> call(sequence, fills, extras);
    if constexpr (std::same_as<Op, fovea::LongformerAttention>) {
      if (bytes.once_in(2)) add_global_rows(call);
    }
    try_sharded(op, made, call, false, layout, bytes);
  };
  if constexpr (requires { drawn.made; }) {
    run(drawn.op, drawn.made);
  } else {
    run(drawn, "");
  }
}

template <class T>
void try_any(Bytes& bytes) {
  switch (bytes(0, 9)) {
    case 0:
      return try_softmax<T>(bytes, [&](Index) { return drawn_full(bytes); });
    case 8:
      return try_softmax<T>(bytes, [&](Index) {
        return fovea::ModifiedAttention(drawn_full(bytes), NearerIsMore{});
      });
    case 9:
      return try_softmax<T>(bytes, [](Index) { return fovea::FatAttention{}; });
    case 1:
      return try_softmax<T>(bytes, [&](Index) { return drawn_local(bytes); });
    case 2:
      return try_softmax<T>(bytes, [&](Index) { return drawn_strided(bytes); });
    case 3:
      return try_softmax<T>(bytes, [&](Index) { return drawn_fixed(bytes); });
    case 4:
      return try_softmax<T>(bytes, [&](Index) { return drawn_big_bird(bytes); });
    case 5:
    case 6:
      return try_softmax<T>(bytes, [&](Index) { return drawn_sparse(bytes); });
    default:
      return try_softmax<T>(bytes, [&](Index rows) { return drawn_longformer(bytes, rows); });
  }
}

TEST(DistributedDrawnSoftmax, EqualsOneProcess) {
  each_drawn_over_ranks(120, 1, [](std::span<const std::uint8_t> data) {
    Bytes bytes(data);
    with_any_drawn_scalar(bytes, [&]<class T>(T) { try_any<T>(bytes); });
  });
  EXPECT_GT(large_rows(), 100);
}

}  // namespace fovea_test::distributed_drawn_softmax
