// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// Refusals of layers over ranks, and exceptions that all ranks throw together.
#include <gtest/gtest.h>

#include <stdexcept>

#include "distributed/layer_call.hpp"
#include "fovea/attention/full.hpp"
#include "fovea/distributed/indexed_forward.hpp"
#include "fovea/distributed/luna.hpp"
#include "fovea/distributed/sequence_parallel.hpp"
#include "fovea/distributed/softmax_backward.hpp"
#include "fovea/distributed/softmax_forward.hpp"
#include "fovea/layers/cross_multi_head.hpp"
#include "fovea/layers/luna_layer.hpp"
#include "support/ranks.hpp"
#include "support/refusal.hpp"

namespace fovea_test::distributed_sequence_parallel_refusals {

using fovea::Initialiser;
using fovea::kReductionBlock;
using fovea::distributed::sequence_parallel;

class DistributedLayerBadInput : public testing::Test {
 protected:
  using Linear = fovea::Linear<float>;

  const int last = all_ranks().size() - 1;
  const bool is_last = all_ranks().rank() == last;
  const std::string of_last = "rank " + std::to_string(last) + ": ";
  const Sharding rows = chain_rows(500);
  Initialiser initialiser{1};
  const Tensor<float> x{{1, 1, rows.own_count(), 6}};
  LayerCall<Linear, float> own{Linear(6, 6, initialiser), x, x};
  Linear::Saved saved;
};

/// All ranks throw one rank's exception, and no gradient has changed.
TEST_F(DistributedLayerBadInput, IsReportedOnAllRanks) {
  const Tensor<float> wide({1, 1, rows.own_count(), 7});
  const auto call = [&](bool is_wrong, const Sharding& over_rows) {
    return refused_over(over_rows, [&](auto& over) {
      own.backward({is_wrong ? wide.view() : x.view()}, saved, over);
      own.backward({x.view()}, saved, over);
    });
  };
  const std::string text = call(is_last, rows);
  EXPECT_TRUE(text.starts_with(of_last + "Linear: x has width 7")) << text;
  for (const float d : own.gradients()) EXPECT_EQ(d, 0);

  if (last == 0) return;
  std::vector<std::vector<Range>> of_ranks(as_size(last + 1));
  of_ranks[0] = {{0, 100}};
  of_ranks[1] = {{100, 100 + 2}};
  const Sharding odd(all_ranks(), RowLayout(of_ranks));
  const Tensor<float> part({1, 1, odd.own_count(), 6});
  LayerCall<fovea::Linear<float>, float> of_part(own.model, part, part);
  EXPECT_EQ(
      refused_over(odd, [&](auto& over) { of_part.backward({part.view()}, saved, over); }),
      "rank 1: sequence_parallel: the first row of a range is 100; expected a multiple of 64, the "
      "reduction block of gradients of weights");
}

TEST_F(DistributedLayerBadInput, IncludesDifferentLayers) {
  if (last == 0) GTEST_SKIP() << "nobody to differ from";
  const Index width = all_ranks().rank() == 0 ? 6 : 7;
  const Tensor<float> tokens({1, 1, rows.own_count(), width});
  LayerCall<Linear, float> other(Linear(width, width, initialiser), tokens, tokens);
  EXPECT_EQ(
      refused_over(rows, [&](auto& over) { other.backward({tokens.view()}, saved, over); }),
      "rank 1 calls a sum over tokens of 7x7, 4 bytes per number, batch 1, where rank 0 calls a "
      "sum over tokens of 6x6, 4 bytes per number, batch 1");
}

/// Options of a layer besides its parameters: differences are found in its sums, or at the end.
TEST_F(DistributedLayerBadInput, IncludesDifferentOptions) {
  if (last == 0) GTEST_SKIP() << "nobody to differ from";
  const auto refused = [&](auto odd, auto others, bool goes_back = true) {
    using Layer = decltype(odd);
    LayerCall<Layer, float> differing(is_last ? odd : others, x, x);
    Tokens<float> tokens;
    tokens.x = x.view();
    tokens.training = {.seed = 5, .step = 2};
    return refused_over(rows, [&](auto& over) {
      typename Layer::Saved kept;
      goes_back ? differing.run(tokens, over) : differing.forward(tokens, kept, over);
    });
  };
  const std::string at_the_end = "sequence_parallel: ranks differ in their row layouts or options";
  using Norm = fovea::LayerNorm<float>;
  EXPECT_EQ(refused(Norm(6, {.epsilon = 0.1}), Norm(6), false), at_the_end);
  EXPECT_EQ(refused(Norm(6, {.epsilon = 0.1}), Norm(6)),
            "a sum over tokens of 1x12, 4 bytes per number, batch 1: ranks differ in their row "
            "layouts or options");
  using Function = fovea::ActivationFunction<float>;
  using Kind = fovea::ActivationKind;
  EXPECT_EQ(refused(Function(Kind::relu), Function(Kind::gelu)), at_the_end);
  using Drop = fovea::DropoutLayer<float>;
  EXPECT_EQ(refused(Drop(0.5), Drop(0.25)), at_the_end);
  using Gated = fovea::GatedFeedForward<float>;
  const auto gated = [&](fovea::GateKind kind) { return Gated(6, 8, initialiser, {.gate = kind}); };
  EXPECT_EQ(refused(gated(fovea::GateKind::silu), gated(fovea::GateKind::gelu), false), at_the_end);
  using Heads = fovea::MultiHead<fovea::FullAttention, float>;
  const auto heads = [&](double base) {
    return Heads(fovea::FullAttention{},
                 {.width = 6, .heads = 1, .rotary = fovea::RotaryOptions{.base = base}},
                 initialiser);
  };
  EXPECT_EQ(refused(heads(100), heads(10000), false),
            "FullAttention.forward of 500 rows, 4 bytes per number, q 1x1x6, k 1x1x6, v 1x1x6 "
            "(batch, heads, width): ranks differ in their row layouts or options");
}

/// All ranks throw an exception of the program between two layers, or after the last one.
TEST_F(DistributedLayerBadInput, ExceptionsOfTheProgramAreThrownByAll) {
  for (const int layers_behind : {0, 1}) {
    try {
      sequence_parallel(rows, fovea::Serial{}, [&](auto& over) {
        own.backward({x.view()}, saved, over);
        if (is_last) throw std::runtime_error("no more");
        for (int n = 0; n < layers_behind; ++n) own.backward({x.view()}, saved, over);
      });
      ADD_FAILURE() << "nothing was thrown";
    } catch (const std::runtime_error& error) {
      EXPECT_EQ(error.what(), of_last + "no more");
    }
  }
}

/// A program may catch what all have thrown. What one rank throws after that, all throw again.
TEST_F(DistributedLayerBadInput, MayBeCaughtByTheProgram) {
  const fovea::IndexedAttention lists;
  fovea::IndexedInputs<float> none;
  const auto caught_text = [&](auto& over) {
    return refusal([&] { over.forward(lists, none, View<float>(), fovea::IndexedSaved<float>()); });
  };
  const std::string text = refused_over(rows, [&](auto& over) {
    EXPECT_NE(caught_text(over), "accepted");
    if (is_last) throw std::invalid_argument("Op: no more");
  });
  EXPECT_EQ(text, of_last + "Op: no more");
}

/// A rank that passes a wrong number of rows reads and writes nothing beyond them.
TEST_F(DistributedLayerBadInput, IncludesADifferentNumberOfRows) {
  const Sharding chains = chain_rows(7 * kReductionBlock);
  const Index held = chains.layout().count(last);
  for (const Index brought : {held - 1, held + 1}) {
    const Index count = is_last ? brought : chains.own_count();
    const Tensor<float> tokens({1, 1, count, 6});
    const auto expect_refused = [&](const char* what, const auto& layer) {
      LayerCall<std::remove_cvref_t<decltype(layer)>, float> call(layer, tokens, tokens);
      Tokens<float> with;
      with.training = {.seed = 5, .step = 2};
      EXPECT_EQ(refused_over(chains, [&](auto& over) { call.run(with, over); }),
                of_last + "sequence_parallel: the activations have " + std::to_string(brought) +
                    " rows; expected " + std::to_string(held) + ", the rows of rank " +
                    std::to_string(last))
          << what;
      for (const float d : call.gradients()) EXPECT_EQ(d, 0) << what;
    };
    expect_refused("Linear", fovea::Linear<float>(6, 6, initialiser));
    expect_refused("LayerNorm", fovea::LayerNorm<float>(6));
    expect_refused("DropoutLayer", fovea::DropoutLayer<float>(0.4));
    using Attention = fovea::MultiHead<fovea::FullAttention, float>;
    expect_refused(
        "MultiHead",
        Attention(fovea::FullAttention{},
                  {.width = 6, .heads = 1, .rotary = fovea::RotaryOptions{}}, initialiser));
  }
}

/// So is what a layer gives out to others.
TEST_F(DistributedLayerBadInput, IncludesWrongRowsOfOneRank) {
  const Index held = fovea::distributed::blocks_of(rows.layout(), 10).count(all_ranks().rank());
  const Tensor<float> more({1, 1, held + (is_last ? 1 : 0), 6});
  const std::string text = refused_over(rows, [&](auto& over) {
    over.with_rows_of_others(
        "Layer", View<const float>(more.view()), 10, [](const auto& mine) { return mine; },
        [](const auto& /*all*/) { ADD_FAILURE() << "rows were given"; });
  });
  EXPECT_TRUE(text.starts_with(of_last + "Layer: x has ")) << text;
}

/// Lengths count tokens of all ranks, and all have as many packed rows.
TEST(DistributedLunaLayerBadInput, IncludesPackedRows) {
  Initialiser initialiser(3);
  const fovea::LunaLayer<float> layer({.width = 8, .heads = 2}, initialiser);
  const Sharding rows = chain_rows(500);
  const auto said = [&](Index count, const std::vector<Index>& lengths) {
    const Tensor<float> x({1, 1, rows.own_count(), 8}), packed({1, 1, count, 8});
    const Tensor<float> y(x.shape()), y_packed(packed.shape());
    return refused_over(rows, [&](auto& over) {
      layer.forward({x.view(), packed.view(), lengths}, {y.view(), y_packed.view()}, over);
    });
  };
  EXPECT_EQ(said(3, {500}), "accepted");
  EXPECT_EQ(said(3, {501}),
            "rank 0: LunaLayer: key_lengths[0] is 501; expected 0 to 500, the rows of x");
  if (all_ranks().size() == 1) return;
  const std::string text = said(all_ranks().rank() == 1 ? 4 : 3, {});
  EXPECT_NE(text.find("4 packed rows, where rank 0 calls LunaPack"), std::string::npos) << text;
}

/// Attention to another sequence, which is spread as the tokens are.
TEST(DistributedMemoryBadInput, IncludesADifferentDistribution) {
  const Sharding rows = chain_rows(500);
  const Index own = rows.layout().count(0);
  const Tensor<float> x({1, 1, rows.own_count(), 12});
  const Tensor<float> y(x.shape());
  Initialiser initialiser(3);
  const fovea::CrossMultiHead<fovea::FullAttention, float> layer(
      fovea::FullAttention{}, {.width = 12, .memory_width = 10, .heads = 4, .key_heads = 2},
      initialiser);
  const auto said = [&](Index more, const std::vector<Index>& lengths) {
    const Tensor<float> memory({1, 1, rows.own_count() + more, 10});
    return refused_over(rows, [&](auto& over) {
      layer.forward({.x = x.view(), .memory = memory.view(), .key_lengths = lengths}, y.view(),
                    over);
    });
  };
  EXPECT_EQ(said(0, {500}), "accepted");
  EXPECT_EQ(said(0, {501}),
            "rank 0: CrossMultiHead: key_lengths[0] is 501; expected 0 to 500, the rows of memory");
  EXPECT_EQ(said(1, {}), "rank 0: sequence_parallel: the activations have " +
                             std::to_string(own + 1) + " rows; expected " + std::to_string(own) +
                             ", the rows of rank 0");
}

}  // namespace fovea_test::distributed_sequence_parallel_refusals
