// SPDX-License-Identifier: MIT
/// \file
/// Attention with a far field over ranks, with drawn options, sizes, data and places: the bits are
/// those of one process.
#include <gtest/gtest.h>

#include "distributed/drawn_call.hpp"
#include "fovea/distributed/linear_backward.hpp"
#include "fovea/distributed/linear_forward.hpp"
#include "fovea/distributed/performer_backward.hpp"
#include "fovea/distributed/performer_forward.hpp"

namespace fovea_test::distributed_drawn_linear {

using fovea::EluMinusPlusOne;
using fovea::EluPlusOne;

template <class T, class Op>
void try_far(const Op& op, Bytes& bytes, bool has_delta = false) {
  Case<T> beside;
  beside.is_square = true;
  if (std::is_same_v<Op, fovea::PerformerAttention>) beside.extras.features = kBeyond;
  if constexpr (requires { Op::kHasNear; }) {
    if (Op::kHasNear) beside.extras = drawn_blend(bytes);
    beside.extras.beta = Op::kHasBeta;
  }
  const AttentionShape shape = drawn_square(bytes);
  const auto seed = static_cast<std::uint64_t>(bytes(1, 255));
  Problem<T> problem = make_problem(beside, shape, seed, gaussian_fills(seed));
  DrawnWishes wishes;
  wishes.backward = bytes.once_in(2);
  wishes.beta = bytes.once_in(2);
  // What is not there over ranks: gradients of logits that differ between columns, or beside a
  // delta rule, whose backward pass takes no lengths.
  const auto has_columns = [](const std::string& of) { return of.find('d') != std::string::npos; };
  wishes.logits = bytes.once_in(2) && !has_delta && !has_columns(beside.extras.near_logits) &&
                  !has_columns(beside.extras.far_logits);
  if (bytes.once_in(3) && !(has_delta && wishes.backward)) {
    for (Index b = 0; b < shape.batch; ++b) problem.key_lengths.push_back(bytes(0, shape.keys));
  }
  try_over_ranks(op, std::move(problem), wishes, bytes);
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
      return try_far<T>(fovea::DeltaRuleAttention<EluPlusOne>(), bytes, true);
    case 4:
      return try_far<T>(drawn_fmm<fovea::FmmOneKernel>(bytes, bytes.once_in(2)), bytes);
    case 5:
      return try_far<T>(drawn_fmm<fovea::FmmTwoKernels>(bytes, bytes.once_in(2)), bytes);
    case 6:
      return try_far<T>(drawn_fmm<fovea::FmmTwoKernelsFastWeight>(bytes, true), bytes, true);
    default:
      return try_far<T>(fovea::PerformerAttention{{.causal = bytes.once_in(2)}}, bytes);
  }
}

TEST(DistributedDrawnLinear, HasTheBitsOfOneProcess) {
  each_drawn_over_ranks(120, 1, [](std::span<const std::uint8_t> data) {
    Bytes bytes(data);
    bytes.once_in(2) ? try_any<double>(bytes) : try_any<float>(bytes);
  });
}

}  // namespace fovea_test::distributed_drawn_linear
