// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// Attention with a far field over ranks, with drawn options, sizes, data and places: the bits are
/// those of one process.
#include <gtest/gtest.h>

#include "distributed/operator_call.hpp"
#include "fovea/distributed/linear_backward.hpp"
#include "fovea/distributed/linear_forward.hpp"
#include "fovea/distributed/performer_backward.hpp"
#include "fovea/distributed/performer_forward.hpp"

namespace fovea_test::distributed_drawn_linear {

using fovea::EluMinusPlusOne;
using fovea::EluPlusOne;

template <class T, class Op>
void try_far(Op op, Bytes& bytes) {
  Extras extras;
  if constexpr (requires(fovea::InputsOf<Op, T> in) { in.near_logits; }) {
    extras = drawn_blend(bytes);
  }
  DrawnSequence sequence(bytes, 1, 5 * fovea::kLinearSegment + 100);
  draw_positions(op, sequence, bytes);
  OperatorCall<Op, T> call(sequence, extras, {.features = bytes(1, 40)});
  const RowLayout layout = drawn_row_layout(bytes, sequence.shape.queries);
  try_sharded(op, "", call, false, layout, bytes);
}

template <class T>
void try_any(Bytes& bytes) {
  switch (bytes(0, 7)) {
    case 0:
      return try_far<T>(drawn_linear<EluPlusOne>(bytes), bytes);
    case 1:
      return try_far<T>(drawn_linear<fovea::Tanh, EluPlusOne>(bytes), bytes);
    case 2:
      return try_far<T>(drawn_linear<EluPlusOne, EluMinusPlusOne>(bytes), bytes);
    case 3:
      return try_far<T>(fovea::DeltaRuleAttention<EluPlusOne>(), bytes);
    case 4:
      return try_far<T>(drawn_fmm<fovea::FmmOneKernel>(bytes, bytes.once_in(2)), bytes);
    case 5:
      return try_far<T>(drawn_fmm<fovea::FmmTwoKernels>(bytes, bytes.once_in(2)), bytes);
    case 6:
      return try_far<T>(drawn_fmm<fovea::FmmTwoKernelsFastWeight>(bytes, true), bytes);
    default:
      return try_far<T>(fovea::PerformerAttention{{.causal = bytes.once_in(2)}}, bytes);
  }
}

TEST(DistributedDrawnLinear, EqualsOneProcess) {
  each_drawn_over_ranks(120, 1, [](std::span<const std::uint8_t> data) {
    Bytes bytes(data);
    with_drawn_scalar(bytes, [&]<class T>(T) { try_any<T>(bytes); });
  });
}

}  // namespace fovea_test::distributed_drawn_linear
