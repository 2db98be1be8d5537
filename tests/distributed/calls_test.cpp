// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// Calls over ranks of the operators whose own tests count messages and look for refusals: invalid
/// lengths, an arena, and a thread that throws. (For other data see the drawn tests.)
#include <gtest/gtest.h>

#include "distributed/operator_calls.hpp"
#include "distributed/rank_call.hpp"
#include "fovea/core/arena.hpp"
#include "fovea/core/thread_pool.hpp"
#include "fovea/distributed/linformer_backward.hpp"
#include "fovea/distributed/luna.hpp"
#include "fovea/distributed/nystroem_backward.hpp"
#include "fovea/distributed/reformer.hpp"
#include "fovea/distributed/sinkhorn.hpp"
#include "fovea/distributed/synthesizer_backward.hpp"
#include "fovea/distributed/synthesizer_forward.hpp"

namespace fovea_test::distributed_calls {

using fovea::kReductionBlock;

/// Calls f(op, call, layouts) for each operator, with layouts that it supports. A sequence is
/// divided into `parts` landmarks, projected keys, packed rows, blocks or chunks.
template <class F>
void for_each_call(const AttentionShape& shape, Index parts, const F& f) {
  const SquareSequence s{shape};
  const Fills fills = gaussian_fills(1);
  const int ranks = all_ranks().size();
  const std::vector<RowLayout> all = layouts_of(shape.queries, ranks);
  const Index block = std::max<Index>(1, shape.queries / parts);
  f(fovea::LinformerAttention(), LinformerCall<float>(s, fills, parts, 1, shape.key_heads), all);
  const auto luna = [&](const auto& op, bool is_pack) {
    LunaCall<float> call(s, fills, is_pack, parts);
    call.slopes.role = Role::none;
    f(op, std::move(call), all);
  };
  luna(fovea::LunaPack(), true);
  luna(fovea::LunaUnpack(), false);
  f(fovea::NystroemAttention({.landmarks = parts}), NystroemCall<float>(s, fills, parts), all);
  f(fovea::SinkhornAttention({.block = block}), SinkhornCall<float>(s, fills, block), all);
  const fovea::ReformerOptions options{.chunk = block, .rounds = 2, .buckets = 8};
  AttentionShape alike = shape;
  alike.key_heads = shape.query_heads;
  f(fovea::ReformerAttention(options), ReformerCall<float>(SquareSequence{alike}, fills, options),
    all);
  f(fovea::RandomSynthesizerAttention(), RandomCall<float>(s, fills, 1), all);
  f(fovea::FactorisedSynthesizerAttention(), FactorisedCall<float>(s, fills, 1), all);
  const DenseSizes dense{.columns = shape.keys};
  f(fovea::DenseSynthesizerAttention(), DenseCall<float>(s, fills, 1, dense),
    std::vector<RowLayout>{RowLayout::zigzag(shape.queries, ranks, kReductionBlock)});
}

/// Whether a rank computes all rows of some heads, and writes nothing before all ranks have.
template <class Op>
bool is_by_heads(const Op& /*op*/) {
  return std::same_as<Op, fovea::ReformerAttention> || std::same_as<Op, fovea::SinkhornAttention>;
}

TEST(DistributedCalls, RefuseDifferentOptions) {
  for_each_call({1, 2, 2, 24, 24, 5, 7}, 3, [](const auto& op, auto&& call, const auto&) {
    expect_options_compared(op, call);
  });
}

TEST(DistributedCalls, RefuseLengthsBeyondTheSequenceAndPacking) {
  const std::vector<Index> lengths = {1000}, ends = {0, 24};
  for_each_call({1, 2, 2, 24, 24, 5, 7}, 3, [&](const auto& op, auto&& call, const auto& layouts) {
    const RankCall own(op, call, layouts[0]);
    own.expect_refused([&](auto& a) { a.inputs.key_lengths = lengths; },
                       "key_lengths[0] is 1000; expected ...");
    if constexpr (requires { own.arguments().inputs.cu_seqlens_q; }) {
      own.expect_refused([&](auto& a) { a.inputs.cu_seqlens_q = ends; },
                         "cu_seqlens must not be given: the sequence is distributed over ranks");
    }
  });
}

/// An arena that is too small on one rank is refused on all.
TEST(DistributedCalls, AllocateInAnArena) {
  fovea::ThreadPool pool(2);
  fovea::Arena arena(Index{1} << 27);
  fovea::Arena small(64);
  for_each_call(
      {2, 4, 2, 240, 240, 5, 7}, 12, [&](const auto& op, auto&& call, const auto& layouts) {
        compute_in_one_process(op, call);
        const RankCall on_ranks(op, call, layouts[0]);
        // However many ranks there are, the first one has rows and the last one heads.
        const int rank = is_by_heads(op) ? all_ranks().size() - 1 : 0;
        const std::string begin = "rank " + std::to_string(rank) + ": Arena: size_bytes is 64;";
        const AnyExecutor executor =
            AnyExecutor::of(pool, all_ranks().rank() == rank ? &small : &arena);
        const std::string forward = refusal([&] { on_ranks.forward(executor); });
        const std::string backward = refusal([&] { on_ranks.backward(executor); });
        EXPECT_TRUE(forward.starts_with(begin)) << op.name() << forward;
        EXPECT_TRUE(backward.starts_with(begin)) << op.name() << backward;
        call.expect_untouched();
      });
}

/// A rank whose threads break still sends what others wait for, and all ranks throw its exception.
TEST(DistributedCalls, ThrowTheExceptionOfATask) {
  const int last = all_ranks().size() - 1;
  const Breaking breaking{all_ranks().rank() == last};
  const std::string expected = "rank " + std::to_string(last) + ": the thread broke";
  const AttentionShape shape = {1, 8, 8, 576, 576, 5, 7};
  for_each_call(shape, 12, [&](const auto& op, auto&& call, const auto& layouts) {
    compute_in_one_process(op, call);
    // The last rank has the first rows, so that it computes the only segment of keys.
    const RankCall on_ranks(op, call, layouts.back());
    EXPECT_EQ(said_together([&] { on_ranks.forward(breaking); }), expected) << op.name();
    if (is_by_heads(op)) call.expect_untouched();
    on_ranks.forward();
    for (const bool keeps : {true, false}) {
      for (const auto& x : call.tensors) x->is_wanted = x->role != Role::kept || keeps;
      EXPECT_EQ(said_together([&] { on_ranks.backward(breaking); }), expected) << op.name();
    }
  });
}

}  // namespace fovea_test::distributed_calls
