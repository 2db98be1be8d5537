// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// Rows over ranks that are not at the positions of their keys: every family has the bits of one
/// process, forward and backward.
#include <gtest/gtest.h>

#include "distributed/operators.hpp"
#include "distributed/rank_call.hpp"
#include "fovea/core/thread_pool.hpp"
#include "fovea/distributed.hpp"
#include "support/scalars.hpp"

namespace fovea_test::distributed_key_length {

using fovea::CausalAlignment;

constexpr Index kRows = 180;

template <class T, class Op>
void expect_bits(const Op& op, const SquareSequence& s) {
  const fovea::ThreadPool pool(2);
  Extras extras;
  if constexpr (requires(fovea::InputsOf<Op, T> in) { in.bias; }) {
    extras = {.bias = "hqk", .mask = "k", .alibi = true, .sink = true};
  }
  OperatorCall<Op, T> call(s, extras);
  if (kTakesDLse<Op, T>) call.d_lse.role = Role::read;
  expect_one_process(op, call, AnyExecutor::of(pool));
}

template <class F>
void for_each_aligned_operator(CausalAlignment alignment, const F& test) {
  using namespace fovea;
  const auto f = traced(test);
  const FullAttention causal{{.causal = true,
                              .alignment = alignment,
                              .soft_cap = 2.5,
                              .dropout = {.probability = 0.3, .seed = 99}}};
  f("causal", causal);
  f("modified", ModifiedAttention(causal, NearerIsMore{}));
  f("window", LocalAttention{{.left = 20, .right = 3, .alignment = alignment}});
  f("strided",
    StridedAttention{{.stride = 16, .heads = HeadAssignment::merged, .alignment = alignment}});
  f("Longformer",
    LongformerAttention{{.left = 9, .right = 9, .first_global = 3, .alignment = alignment}});
  f("linear", LinearAttention<EluPlusOne>{{.causal = true, .alignment = alignment}});
  f("FMM",
    FmmAttention<EluPlusOne, DeltaRule<EluPlusOne>>{{.band = {.left = 9}, .alignment = alignment}});
  f("delta", DeltaRuleAttention<EluPlusOne>{{.alignment = alignment}});
  f("Performer", PerformerAttention{{.causal = true, .alignment = alignment}});
  f("lists", IndexedAttention{{.causal = true, .alignment = alignment}});
  f("Smart Bird",
    SmartBirdAttention{{.keys_per_row = kChosenKeys, .causal = true, .alignment = alignment}});
}

TEST(DistributedKeyLength, EqualsOneProcess) {
  const SquareSequence s = square(2, 4, 2, kRows, {kRows, 97});
  for_each_aligned_operator(CausalAlignment::key_length,
                            [&](const auto& op) { expect_bits<float>(op, s); });
}

TEST(DistributedKeyLength, EqualsOneProcessAtGivenPositions) {
  SquareSequence s = square(2, 4, 2, kRows, {kRows, 150});
  s.first_positions = {0, 11};
  for_each_aligned_operator(CausalAlignment::bottom_right,
                            [&](const auto& op) { expect_bits<OtherScalar>(op, s); });
}

TEST(DistributedKeyLength, DifferentPositionsOnRanksAreRefused) {
  OperatorCall<fovea::FullAttention, float> call(square(2, 4, 2, kRows, {kRows, 97}));
  const RankCall wrong(fovea::FullAttention{}, call);
  auto a = wrong.arguments();
  const auto other = wrong.is_last ? CausalAlignment::key_length : CausalAlignment::bottom_right;
  const std::string text =
      wrong.refused(fovea::FullAttention{{.causal = true, .alignment = other}}, a);
  if (wrong.last == 0) {
    EXPECT_EQ(text, "accepted");
  } else {
    EXPECT_NE(text.find("rows on other ranks than their keys"), std::string::npos) << text;
  }
  const std::vector<Index> positions = {0, 0, 0};
  a.inputs.first_positions = positions;
  EXPECT_EQ(wrong.refused(a),
            "rank 0: FullAttention: the number of first_positions is 3; expected 2, the batch of "
            "q, or 0");
}

}  // namespace fovea_test::distributed_key_length
