// SPDX-License-Identifier: MIT
// fovea_test(OPTIMISED)
/// \file
/// Decoders of the three forms of the Synthesizer: the rows of the forward pass, and what they
/// refuse.
#include "attention/synthesizer_problem.hpp"
#include "support/refusal.hpp"
#include "support/scalars.hpp"

namespace fovea_test::attention_synthesizer_decoder {

/// Of a kind of CallProblem.
template <class P>
class SynthesizerDecoder : public testing::Test {};
using Forms = OfEachScalar<RandomProblem, FactorisedProblem, DenseProblem>;
TYPED_TEST_SUITE(SynthesizerDecoder, Forms);

/// Rows of the tensors that have some for each token.
template <class I>
void keep_rows(I& in, Index first, Index count) {
  if constexpr (requires { in.x; }) in.x = fovea::detail::part_of(in.x, 2, first, count);
}

/// Some tokens, to be appended.
template <class P>
auto tokens_of(const P& p, Index first, Index count) {
  using Tokens = typename P::Op::template Tokens<typename P::Scalar>;
  const auto v = fovea::detail::part_of(p.view("v"), 2, first, count);
  if constexpr (requires { Tokens{}.b2; }) {
    return Tokens{p.view("w2"), p.view("b2"), v};
  } else if constexpr (requires { Tokens{}.r2; }) {
    return Tokens{p.view("r2"), v};
  } else {
    return Tokens{v};
  }
}

template <class P>
auto decoder_of(const P& p) {
  const Extents& e = p.extents;
  using Op = typename P::Op;
  const Index width = std::is_same_v<Op, DenseSynthesizerAttention>        ? e.at('M')
                      : std::is_same_v<Op, FactorisedSynthesizerAttention> ? e.at('d')
                                                                           : 0;
  return p.op.template decoder<typename P::Scalar>(
      {e.at('b'), e.at('H'), e.at('h'), width, e.at('v')});
}

constexpr AttentionShape kSix = {1, 2, 2, 6, 6, 3, 5};

/// Tokens in chunks, with rollback and fork, have the rows of the forward pass.
TYPED_TEST(SynthesizerDecoder, MatchesForward) {
  using T = typename TypeParam::Scalar;
  for (const bool is_shared : {true, false}) {
    for (const Index chunk : {1, 3, 40}) {
      const TypeParam problem(typename TypeParam::Op({.causal = true}), {2, 4, 2, 80, 80, 3, 5},
                              {{'M', 9}, {'x', 4}, {'w', is_shared ? 1 : 2}});
      const auto expected = problem.run();
      const Tensor<T> out(problem.d_out.shape());
      const Tensor<T> lse({2, 4, 80, 1});
      auto decoder = decoder_of(problem);
      const auto step = [&](auto& with, Index first, Index count) {
        auto in = problem.inputs();
        in.v = fovea::detail::part_of(in.v, 2, first, count);
        keep_rows(in, first, count);
        with.step(in, fovea::detail::part_of(out.view(), 2, first, count),
                  {fovea::detail::part_of(lse.view(), 2, first, count)});
      };
      for (Index first = 0; first < 80; first += chunk) {
        step(decoder, first, std::min(chunk, 80 - first));
        if (first == 40 && chunk < 40) {
          auto fork = decoder.fork();
          fork.rollback(20);
          EXPECT_EQ(fork.length(), 20);
          fork.append(tokens_of(problem, 20, 5));
          step(fork, 25, 7);
        }
      }
      EXPECT_EQ(decoder.length(), 80);
      EXPECT_TRUE(same_bits(out.values(), expected["out"]));
      EXPECT_TRUE(same_bits(lse.values(), expected["lse"]));
      // The last rows again, of tokens that are there.
      auto in = problem.inputs();
      in.v = {};
      keep_rows(in, 70, 10);
      const auto last = fovea::detail::part_of(out.view(), 2, 70, 10);
      decoder.step(in, last);
      EXPECT_TRUE(same_bits(out.values(), expected["out"]));
    }
  }
}

TYPED_TEST(SynthesizerDecoder, Refusals) {
  using T = typename TypeParam::Scalar;
  const TypeParam problem(typename TypeParam::Op({.causal = true}), kSix);
  auto decoder = decoder_of(problem);
  const std::string name = std::string(TypeParam::Op::name()) + ": ";
  auto in = problem.inputs();
  const Tensor<T> out({1, 2, 6, 5});
  in.v = {};
  EXPECT_EQ(refusal([&] { decoder.step(in, out.view()); }),
            name + "out has 6 rows; expected at most 0, the tokens in the decoder");
  const std::vector<Index> lengths = {3};
  in = problem.inputs();
  in.key_lengths = lengths;
  EXPECT_EQ(refusal([&] { decoder.step(in, out.view()); }),
            name + "key_lengths must not be given: a decoder tracks its own length");
  in = problem.inputs();
  const View<T> in_v(const_cast<T*>(in.v.data()), out.shape());
  EXPECT_EQ(refusal([&] { decoder.step(in, in_v); }),
            name + "out overlaps v; outputs must not alias inputs or each other");
  const View<T> lse(out.view().data(), {1, 2, 6, 1});
  EXPECT_NE(refusal([&] { decoder.step(in, out.view(), {lse}); }), "accepted");
  if constexpr (requires { in.x; }) {
    in = problem.inputs();
    in.x = fovea::detail::part_of(in.x, 2, 0, 5);
    EXPECT_EQ(refusal([&] { decoder.step(in, out.view()); }),
              name + "x has 5 rows; expected 6, the rows of out");
  }
  EXPECT_EQ(decoder.length(), 0);
  decoder.step(problem.inputs(), out.view());
  EXPECT_EQ(decoder.length(), 6);
  // There are no weights of more positions.
  EXPECT_NE(refusal([&] {
              auto more = problem.inputs();
              more.v = fovea::detail::part_of(more.v, 2, 0, 1);
              keep_rows(more, 0, 1);
              decoder.step(more, fovea::detail::part_of(out.view(), 2, 0, 1));
            }),
            "accepted");
  EXPECT_EQ(decoder.length(), 6);
}

/// The memory of weights and tokens is no place for outputs: no input may change while it is read.
TYPED_TEST(SynthesizerDecoder, DoesNotOverwriteItsInputs) {
  using T = typename TypeParam::Scalar;
  const TypeParam problem(typename TypeParam::Op({.causal = true}), {1, 2, 2, 6, 6, 6, 5});
  auto decoder = decoder_of(problem);
  problem.tensors.for_each([&](const std::string& name, const Tensor<T>& x) {
    const View<T> out(x.view().data(), {1, 2, 6, 5});
    const std::string message = refusal([&] { decoder.step(problem.inputs(), out); });
    // Behind a smaller tensor there may be another one.
    const bool is_inside = x.view().size() >= out.size();
    const std::string overlapped = is_inside ? name + ";" : "";
    EXPECT_EQ(message.find(TypeParam::Op::name() + (": out overlaps " + overlapped)), 0u)
        << name << ": " << message;
  });
  EXPECT_EQ(decoder.length(), 0);
}

/// Without a hidden layer the second biases alone are what a row weighs its keys by.
TEST(DenseSynthesizerDecoder, MayHaveNoHiddenLayer) {
  const DenseProblem<float> problem(DenseSynthesizerAttention({.causal = true}), kSix, {{'M', 0}});
  auto decoder = decoder_of(problem);
  const Tensor<float> out(problem.d_out.shape());
  decoder.step(problem.inputs(), out.view());
  EXPECT_TRUE(same_bits(out.values(), problem.run()["out"]));
}

/// The scratch memory of the hidden layer is kept and counted.
TEST(DenseSynthesizerDecoder, CountsItsScratch) {
  const DenseProblem<float> problem(DenseSynthesizerAttention({.causal = true}),
                                    {1, 1, 1, 1, 1, 1000, 5});
  auto decoder = decoder_of(problem);
  const Tensor<float> out(problem.d_out.shape());
  decoder.step(problem.inputs(), out.view());
  EXPECT_GE(decoder.memory_bytes(), Index{1000 * 4 * sizeof(float)});
}

/// Weights are those of all sequences or of each, of all heads, and of all positions.
TEST(FactorisedSynthesizerDecoder, RefusesOtherWeights) {
  const FactorisedProblem<float> problem(FactorisedSynthesizerAttention({.causal = true}),
                                         {3, 4, 2, 6, 6, 3, 5});
  auto decoder = decoder_of(problem);
  const Tensor<float> out({3, 4, 6, 5});
  const std::vector<float> zeros(1000);
  const auto with = [&](const Shape& r1, const Shape& r2) {
    auto in = problem.inputs();
    if (r1[3] > 0) in.r1 = {zeros.data(), r1};
    if (r2[3] > 0) in.r2 = {zeros.data(), r2};
    const std::string message = refusal([&] { decoder.step(in, out.view()); });
    EXPECT_EQ(decoder.length(), 0);
    return message.substr(message.find(':') + 2);
  };
  EXPECT_EQ(with({2, 4, 6, 3}, {}), "r1 has batch 2; expected 1 or 3, the batch of v");
  EXPECT_EQ(with({1, 2, 6, 3}, {}), "r1 has 2 heads; expected 4, the query_heads of the decoder");
  EXPECT_EQ(with({1, 4, 6, 2}, {}), "r1 has width 2; expected 3, the width of the decoder");
  EXPECT_EQ(with({}, {2, 2, 6, 3}), "r2 has batch 2; expected 1 or 3, the batch of v");
  EXPECT_EQ(with({}, {1, 4, 6, 3}), "r2 has 4 heads; expected 2, the key_heads of the decoder");
}

}  // namespace fovea_test::attention_synthesizer_decoder
