// SPDX-License-Identifier: MIT
#include "fovea/layers/logit_terms.hpp"

#include <functional>

#include "fovea/layers/depthwise_conv.hpp"
#include "fovea/layers/encoder_stack.hpp"
#include "fovea/layers/mean_pool.hpp"
#include "fovea/layers/multi_head.hpp"
#include "layers/by_hand.hpp"
#include "layers/decoding.hpp"

namespace fovea_test::layers_logit_terms {

using fovea::FullAttention;
using fovea::MultiHead;
using fovea::MultiHeadOptions;
using fovea::Tokens;

constexpr Index kHeads = 4;
constexpr Index kHeadWidth = 2;
constexpr Index kWidth = 6;
const std::vector<Index> kPacked = {0, 3, 3, 8};

/// The authors' code.
std::vector<double> authors_slopes(Index heads) {
  const auto power_of_two = [](Index n) {
    std::vector<double> slopes;
    const double start = std::pow(2, -std::pow(2, -(std::log2(static_cast<double>(n)) - 3)));
    for (Index i = 0; i < n; ++i) {
      slopes.push_back(start * std::pow(start, static_cast<double>(i)));
    }
    return slopes;
  };
  const auto closest =
      static_cast<Index>(std::pow(2, std::floor(std::log2(static_cast<double>(heads)))));
  if (closest == heads) return power_of_two(heads);
  std::vector<double> slopes = power_of_two(closest);
  const std::vector<double> more = authors_slopes(2 * closest);
  for (Index i = 0; i < heads - closest; ++i) {
    slopes.push_back(more[static_cast<std::size_t>(2 * i)]);
  }
  return slopes;
}

TEST(AlibiSlopes, MatchTheAuthors) {
  for (Index heads = 1; heads < 35; ++heads) {
    EXPECT_TRUE(close_to(fovea::alibi_slopes(heads), authors_slopes(heads), 1e-14)) << heads;
  }
  EXPECT_EQ(fovea::alibi_slopes(8).front(), 0.5);
  EXPECT_EQ(fovea::alibi_slopes(8).back(), 1.0 / 256);
}

/// A case: options of the layer, and what the tokens have.
struct Case {
  const char* name = "";
  Shape x = {2, 1, 8, kWidth};
  bool alibi = false;
  bool sinks = false;
  bool rotary = false;
  Shape bias = {};
  Shape mask = {};
  std::vector<Index> lengths = {};
  std::vector<Index> packed = {};
};

const std::vector<Case> kCases = {
    {.name = "alibi", .alibi = true},
    {.name = "sinks", .sinks = true, .lengths = {8, 5}},
    {.name = "bias", .bias = {2, kHeads, 8, 8}},
    {.name = "bias of all batches", .alibi = true, .bias = {1, kHeads, 8, 8}, .lengths = {8, 5}},
    {.name = "bias of keys", .sinks = true, .bias = {2, 1, 1, 8}},
    {.name = "mask", .mask = {2, 1, 8, 8}},
    {.name = "mask of keys", .bias = {1, 1, 8, 8}, .mask = {2, 1, 1, 8}},
    {.name = "packed", .x = {1, 1, 8, kWidth}, .rotary = true, .packed = kPacked},
    {.name = "packed, all",
     .x = {1, 1, 8, kWidth},
     .alibi = true,
     .sinks = true,
     .rotary = true,
     .bias = {1, kHeads, 8, 8},
     .mask = {1, 1, 8, 8},
     .packed = kPacked},
};

/// The tensors of a case.
template <class T>
struct Tensors {
  explicit Tensors(const Case& made)
      : of(&made), bias(made.bias), d_bias(made.bias), mask(made.mask) {
    bias.fill(gaussian(31, 1));
    d_bias.fill(constant(0));
    // Each row sees key 0 and others.
    for_each_index(made.mask, [&](Index b, Index h, Index i, Index j) {
      mask(b, h, i, j) = j == 0 || uniform(hash(9, b, h, i, j)) < 0.6;
    });
  }

  Tokens<T> tokens(const View<const T>& x, bool with_gradient = false) const {
    Tokens<T> all(x, of->lengths);
    all.cu_seqlens = of->packed;
    if (size_of(of->bias) > 0) all.bias = bias.view();
    if (size_of(of->bias) > 0 && with_gradient) all.d_bias = d_bias.view();
    if (size_of(of->mask) > 0) all.mask = mask.view();
    return all;
  }

  const Case* of;
  Tensor<T> bias;
  Tensor<T> d_bias;
  Tensor<bool> mask;
};

template <class T>
MultiHead<FullAttention, T> make(const Case& of) {
  fovea::Initialiser initialiser(3);
  MultiHeadOptions options = {
      .width = kWidth, .heads = kHeads, .key_heads = 2, .head_width = kHeadWidth, .bias = true};
  options.alibi = of.alibi;
  options.sinks = of.sinks;
  if (of.rotary) options.rotary = fovea::RotaryOptions{};
  MultiHead<FullAttention, T> layer(FullAttention{}, options, initialiser);
  draw_parameters(layer, 17, 0.4);
  return layer;
}

/// Turns the halves of heads by the positions in their sequences.
void turn(const Activations& heads, const std::vector<Index>& ends) {
  static_assert(kHeadWidth == 2, "one pair, whose frequency is 1");
  for_each_index({heads.shape()[0], heads.shape()[1], heads.shape()[2], 1},
                 [&](Index b, Index h, Index n, Index) {
                   Index first = 0;
                   for (const Index end : ends) first = end <= n ? end : first;
                   const double angle = static_cast<double>(n - first);
                   const double x = heads(b, h, n, 0), y = heads(b, h, n, 1);
                   heads(b, h, n, 0) = x * std::cos(angle) - y * std::sin(angle);
                   heads(b, h, n, 1) = x * std::sin(angle) + y * std::cos(angle);
                 });
}

template <class T>
void expect_by_hand(const Case& of, double bound) {
  auto layer = make<T>(of);
  const Tensors<T> tensors(of);
  Tensor<T> x(of.x), y(of.x);
  x.fill(gaussian(21, 1));
  layer.forward(tensors.tokens(x.view()), y.view());
  const Weights weights = weights_of(layer);
  const Activations bias = in_double(tensors.bias);
  const auto [q, k, v] = heads_of(in_double(x), weights, "qkv", kHeads, 2, kHeadWidth);
  if (of.rotary) turn(q, of.packed);
  if (of.rotary) turn(k, of.packed);
  fovea::SoftmaxInputs<double> inputs{q.view(), k.view(), v.view(), of.lengths, of.packed};
  if (size_of(of.bias) > 0) inputs.bias = bias.view();
  if (size_of(of.mask) > 0) inputs.mask = tensors.mask.view();
  const std::vector<double> slopes = fovea::alibi_slopes(kHeads);
  if (of.alibi) inputs.alibi_slopes = slopes;
  if (of.sinks) inputs.sink = {weights.at("sinks").data(), kHeads};
  const Activations out({of.x[0], kHeads, of.x[2], kHeadWidth});
  FullAttention{}.forward(inputs, out.view());
  const Activations expected = projected(side_by_side(out), weights, "out", 0, 1, kWidth);
  const std::vector<T> got = y.values();
  EXPECT_TRUE(close_to({got.begin(), got.end()}, expected.values(), bound));
}

TEST(LogitTerms, MatchDirectCallsOfTheOperator) {
  for (const Case& of : kCases) {
    SCOPED_TRACE(of.name);
    expect_by_hand<double>(of, 1e-13);
    expect_by_hand<float>(of, 1e-5);
  }
}

TEST(LogitTerms, Gradients) {
  for (const Case& of : kCases) {
    SCOPED_TRACE(of.name);
    auto layer = make<double>(of);
    const Tensors<double> tensors(of);
    expect_layer_gradients(layer, of.x, of.x,
                           [&](const View<const double>& x) { return tensors.tokens(x); });
  }
}

using Block = fovea::EncoderBlock<MultiHead<FullAttention, double>, double>;

fovea::EncoderStack<Block> stack(const Case& of) {
  fovea::Initialiser initialiser(3);
  fovea::EncoderStack<Block> made({Block(make<double>(of), kWidth, 5, initialiser),
                                   Block(make<double>(of), kWidth, 5, initialiser)});
  draw_parameters(made, 40, 0.3);
  return made;
}

/// All blocks add to the gradient of the bias that they share.
TEST(LogitTerms, GradientOfTheBias) {
  for (const Case& of : kCases) {
    if (size_of(of.bias) == 0) continue;
    SCOPED_TRACE(of.name);
    auto layer = stack(of);
    const Tensors<double> tensors(of);
    const Activations x = drawn(of.x, 11), d_y = drawn(of.x, 12), y(of.x), d_x(of.x);
    fovea::EncoderStack<Block>::Saved saved;
    const auto forward = [&] {
      layer.forward(tensors.tokens(x.view()), y.view(), saved);
      return y.values();
    };
    forward();
    tensors.d_bias.fill(constant(0.25));
    layer.backward(tensors.tokens(x.view(), true), saved, d_y.view(), d_x.view());
    const Activations added(of.bias);
    added.fill(
        [&](Index b, Index h, Index i, Index j) { return tensors.d_bias(b, h, i, j) - 0.25; });
    expect_differences(tensors.bias, added, d_y, forward, 1e-6);
  }
}

/// Packed sequences are those sequences alone, for operators of every family.
TEST(LogitTerms, PackedSequencesAreIndependent) {
  for_each_causal_operator([](const char* name, const auto& op) {
    if (std::string(name) == "smart bird") return;  // its draws know the number of the sequence
    SCOPED_TRACE(name);
    fovea::Initialiser initialiser(1);
    fovea::MultiHead<std::remove_cvref_t<decltype(op)>, double> layer(
        op, {.width = kWidth, .heads = 2, .head_width = 4, .rotary = fovea::RotaryOptions{}},
        initialiser);
    const Activations x = drawn({1, 1, 40, kWidth}, 3), y(x.shape());
    const std::vector<Index> ends = {0, 11, 12, 40};
    Tokens<double> tokens(x.view());
    tokens.cu_seqlens = ends;
    layer.forward(tokens, y.view());
    for (std::size_t s = 0; s + 1 < ends.size(); ++s) {
      const Index count = ends[s + 1] - ends[s];
      const Activations alone({1, 1, count, kWidth});
      layer.forward(View<const double>(rows_from(x.view(), ends[s], count)), alone.view());
      for_each_index(alone.shape(), [&](Index, Index, Index n, Index c) {
        EXPECT_NEAR(alone(0, 0, n, c), y(0, 0, ends[s] + n, c), 1e-13);
      });
    }
  });
}

TEST(LogitTerms, DecodersHaveSlopesAndSinks) {
  fovea::Initialiser initialiser(1);
  MultiHeadOptions options = {.width = kDecodedWidth, .heads = 3};
  options.alibi = options.sinks = true;
  MultiHead<FullAttention, double> layer(FullAttention{{.causal = true}}, options, initialiser);
  draw_parameters(layer, 5);
  const Activations x = drawn({2, 1, 90, kDecodedWidth}, 3);
  expect_decoded_bits(layer, x, {{1}, {70, 1, 1, 33}});
}

TEST(LogitTerms, SinksAreAParameterThatIsInitiallyZero) {
  fovea::Initialiser initialiser(1);
  MultiHeadOptions options = {.width = 4, .heads = 2};
  options.sinks = true;
  const fovea::EncoderStack<Block> made({Block(
      MultiHead<FullAttention, double>(FullAttention{}, options, initialiser), 4, 5, initialiser)});
  int found = 0;
  made.visit([&](const std::string& name, const fovea::Parameter<double>& p) {
    if (name != "blocks.0.attention.sinks") return;
    ++found;
    EXPECT_EQ(p.value.rows(), 1);
    EXPECT_EQ(p.value.cols(), 2);
    EXPECT_EQ(p.value.squaredNorm(), 0);
  });
  EXPECT_EQ(found, 1);
}

template <class Op>
std::string refused(const Op& op, const std::function<void(Tokens<double>&)>& change,
                    const MultiHeadOptions& options = {.width = 4, .heads = 2}) {
  return refusal([&] {
    fovea::Initialiser initialiser(1);
    const MultiHead<Op, double> layer(op, options, initialiser);
    const Activations x = filled({1, 1, 3, 4}, 1), y(x.shape());
    Tokens<double> tokens(x.view());
    change(tokens);
    layer.forward(tokens, y.view());
  });
}

TEST(LogitTerms, UnsupportedTermsAreRefused) {
  const fovea::LinearAttention<fovea::EluPlusOne> linear;
  const Activations bias = filled({1, 1, 3, 3}, 0);
  const Tensor<bool> mask({1, 1, 3, 3});
  const fovea::IndexTensor indices({1, 2, 3, 1});
  EXPECT_EQ(refused(linear, [&](auto& tokens) { tokens.bias = bias.view(); }),
            "LinearAttention: bias must not be given: the operator does not read it");
  EXPECT_EQ(refused(linear, [&](auto& tokens) { tokens.mask = mask.view(); }),
            "LinearAttention: mask must not be given: the operator does not read it");
  EXPECT_EQ(refused(fovea::FullAttention{}, [&](auto& tokens) { tokens.indices = indices.view(); }),
            "FullAttention: indices must not be given: the operator does not read it");
  EXPECT_EQ(refused(fovea::FullAttention{}, [&](auto& tokens) { tokens.dominant = bias.view(); }),
            "FullAttention: dominant must not be given: the operator does not read it");
  MultiHeadOptions options = {.width = 4, .heads = 2};
  options.alibi = true;
  EXPECT_EQ(refused(
                linear, [](auto&) {}, options),
            "MultiHead: alibi is true; expected false: LinearAttention does not read it");
  options.alibi = false;
  options.sinks = true;
  EXPECT_EQ(refused(
                linear, [](auto&) {}, options),
            "MultiHead: sinks is true; expected false: LinearAttention does not read it");
}

TEST(LogitTerms, BadShapesAndSequences) {
  const FullAttention op;
  const Activations bias = filled({1, 3, 3, 3}, 0);
  const std::vector<Index> ends = {0, 2, 3}, later = {1, 3}, beyond = {0, 4}, lengths = {3};
  EXPECT_EQ(refused(op, [&](auto& tokens) { tokens.bias = bias.view(); }),
            "FullAttention: bias has 3 heads; expected 1 or 2, the heads of q");
  EXPECT_EQ(refused(op, [&](auto& tokens) { tokens.cu_seqlens = later; }),
            "MultiHead: cu_seqlens[0] is 1; expected 0, where the first sequence begins");
  EXPECT_EQ(refused(op, [&](auto& tokens) { tokens.cu_seqlens = beyond; }),
            "MultiHead: cu_seqlens[1] is 4; expected 3, the rows of x");
  EXPECT_EQ(refused(op,
                    [&](auto& tokens) {
                      tokens.cu_seqlens = ends;
                      tokens.key_lengths = lengths;
                    }),
            "MultiHead: key_lengths must not be given: cu_seqlens determines the lengths");
  const Activations two = filled({2, 1, 3, 4}, 1), mean({2, 1, 1, 4}), y(two.shape());
  Tokens<double> tokens(two.view());
  tokens.cu_seqlens = ends;
  EXPECT_EQ(refused(op, [&](auto& given) { given = tokens; }),
            "MultiHead: y has batch 1; expected 2, the batch of x");
  fovea::Initialiser initialiser(1);
  const MultiHead<FullAttention, double> layer(op, {.width = 4}, initialiser);
  EXPECT_EQ(refusal([&] { layer.forward(tokens, y.view()); }),
            "MultiHead: x has batch 2; expected 1, since cu_seqlens is given");
  EXPECT_EQ(refusal([&] { fovea::MeanPool<double>().forward(tokens, mean.view()); }),
            "MeanPool: cu_seqlens must not be given: the layer does not support packed sequences");
  const fovea::DepthwiseConv<double> convolution(4, initialiser);
  EXPECT_EQ(
      refusal([&] { convolution.forward(tokens, y.view()); }),
      "DepthwiseConv: cu_seqlens must not be given: the layer does not support packed sequences");
}

/// Nothing is added to a gradient before.
TEST(LogitTerms, BackwardRefusesFirst) {
  fovea::Initialiser initialiser(1);
  MultiHead<FullAttention, double> layer(FullAttention{}, {.width = 4}, initialiser);
  const Activations x = filled({1, 1, 3, 4}, 1), y(x.shape()), d_x(x.shape());
  const Activations bias = filled({1, 1, 3, 3}, 0), narrow = filled({1, 1, 3, 2}, 0);
  MultiHead<FullAttention, double>::Saved saved;
  layer.forward(x.view(), y.view(), saved);
  const auto with = [&](const View<const double>& given, const View<double>& d_bias) {
    Tokens<double> tokens(x.view());
    tokens.bias = given;
    tokens.d_bias = d_bias;
    const std::string text = refusal([&] { layer.backward(tokens, saved, x.view(), d_x.view()); });
    layer.visit([](fovea::Parameter<double>& p) { EXPECT_EQ(p.gradient.squaredNorm(), 0); });
    return text;
  };
  EXPECT_EQ(with({}, bias.view()), "MultiHead: d_bias must not be given: there is no bias");
  EXPECT_EQ(with(bias.view(), narrow.view()),
            "MultiHead: d_bias has shape 1x1x3x2; expected 1x1x3x3, the shape of bias");
  EXPECT_EQ(with(bias.view(), bias.view()),
            "MultiHead: d_bias overlaps bias; outputs must not alias inputs or each other");
  EXPECT_EQ(with(narrow.view(), {}),
            "FullAttention: bias has width 2; expected 1 or 3, the rows of k");
}

}  // namespace fovea_test::layers_logit_terms
