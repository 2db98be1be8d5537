// SPDX-License-Identifier: MIT
/// \file
/// Refusals of layers: exact messages, with nothing written.
#include "fovea/attention/dense_synthesizer.hpp"
#include "fovea/attention/full.hpp"
#include "fovea/layers/dropout.hpp"
#include "fovea/layers/encoder_block.hpp"
#include "fovea/layers/gated_feed_forward.hpp"
#include "fovea/layers/multi_head.hpp"
#include "fovea/layers/reformer_layer.hpp"
#include "fovea/layers/rms_norm.hpp"
#include "fovea/layers/synthesizer_layer.hpp"
#include "layers/gradient_check.hpp"

namespace fovea_test::layers_messages {

using fovea::Tokens;

using Attention = fovea::MultiHead<fovea::FullAttention, double>;
using Synthesizer = fovea::SynthesizerLayer<fovea::DenseSynthesizerAttention, double>;

/// A layer of 4 channels.
template <class Layer>
Layer make(fovea::Initialiser& initialiser) {
  if constexpr (std::is_same_v<Layer, fovea::Linear<double>>) {
    return Layer(4, 4, initialiser);
  } else if constexpr (std::is_same_v<Layer, fovea::LayerNorm<double>> ||
                       std::is_same_v<Layer, fovea::RmsNorm<double>>) {
    return Layer(4);
  } else if constexpr (std::is_same_v<Layer, fovea::DepthwiseConv<double>>) {
    return Layer(4, initialiser);
  } else if constexpr (std::is_same_v<Layer, Attention>) {
    return Layer(fovea::FullAttention{}, {.width = 4}, initialiser);
  } else if constexpr (std::is_same_v<Layer, fovea::EncoderBlock<Attention, double>>) {
    return Layer(Attention(fovea::FullAttention{}, {.width = 4}, initialiser), 4, 6, initialiser);
  } else if constexpr (std::is_same_v<Layer, fovea::ReformerLayer<double>>) {
    return Layer({.width = 4, .attention = {.chunk = 1, .rounds = 1, .buckets = 2}}, initialiser);
  } else if constexpr (std::is_same_v<Layer, Synthesizer>) {
    return Layer({.width = 4, .length = 5}, initialiser);
  } else {
    return Layer(4, 4, initialiser);
  }
}

template <class Layer>
class Messages : public testing::Test {
 public:
  static std::string forward(const View<const double>& x, const View<double>& y) {
    fovea::Initialiser initialiser(1);
    const Layer layer = make<Layer>(initialiser);
    const std::string text = refusal([&] { layer.forward(x, y); });
    return text.substr(text.find(':') + 2);
  }
  static std::string backward(const View<const double>& x, const View<const double>& d_y,
                              const View<double>& d_x) {
    fovea::Initialiser initialiser(1);
    Layer layer = make<Layer>(initialiser);
    typename Layer::Saved saved;
    const Activations y(Shape{x.batch(), 1, x.rows(), 4});
    layer.forward(x, y.view(), saved);
    const std::string text = refusal([&] { layer.backward(x, saved, d_y, d_x); });
    layer.visit([](fovea::Parameter<double>& p) { EXPECT_EQ(p.gradient.squaredNorm(), 0); });
    return text.substr(text.find(':') + 2);
  }
};

using Layers =
    testing::Types<fovea::Linear<double>, fovea::LayerNorm<double>, fovea::RmsNorm<double>,
                   fovea::DepthwiseConv<double>, fovea::HiddenMap<double>,
                   fovea::FeedForward<double>, fovea::GatedFeedForward<double>, Attention,
                   fovea::EncoderBlock<Attention, double>, fovea::ReformerLayer<double>,
                   Synthesizer>;
TYPED_TEST_SUITE(Messages, Layers);

TYPED_TEST(Messages, Forward) {
  const Activations x = filled({2, 1, 3, 4}, 1);
  const Activations y({2, 1, 3, 4});
  const auto with = [&](const Shape& x_shape, const Shape& y_shape) {
    const Activations from = filled(x_shape, 1);
    const Activations to(y_shape);
    const std::string text = this->forward(from.view(), to.view());
    for (const double at : to.values()) EXPECT_TRUE(std::isnan(at));
    return text;
  };
  EXPECT_EQ(with({2, 1, 3, 5}, {2, 1, 3, 4}), "x has width 5; expected 4, the width of the layer");
  EXPECT_EQ(with({2, 2, 3, 4}, {2, 1, 3, 4}),
            "x has 2 heads; expected 1, since layers take activations [B, 1, L, width]");
  EXPECT_EQ(with({2, 1, 3, 4}, {2, 1, 3, 5}), "y has width 5; expected 4, the width of the layer");
  EXPECT_EQ(with({2, 1, 3, 4}, {1, 1, 3, 4}), "y has batch 1; expected 2, the batch of x");
  EXPECT_EQ(with({2, 1, 3, 4}, {2, 1, 2, 4}), "y has 2 rows; expected 3, the rows of x");
  EXPECT_EQ(this->forward({}, y.view()),
            "x is required: it was not given, or was passed without memory");
  EXPECT_EQ(this->forward(x.view(), {}),
            "y is required: it was not given, or was passed without memory");
  EXPECT_EQ(this->forward(x.view(), x.view()),
            "y overlaps x; outputs must not alias inputs or each other");
  const Activations columns = x.in({.order = {0, 1, 3, 2}});
  EXPECT_EQ(this->forward(columns.view(), y.view()),
            "stride of width of x is 3; expected 1: the channels of a token are contiguous");
  const Activations reversed = x.in({.reversed = {false, false, true, false}});
  EXPECT_EQ(this->forward(reversed.view(), y.view()),
            "stride of rows of x is -4; expected at least 0");
  const View<double> one_row(y.view().data(), {2, 1, 3, 4}, {0, 0, 0, 1});
  EXPECT_EQ(
      this->forward(x.view(), one_row),
      "y has strides [0, 0, 0, 1] for 2x1x3x4; the elements of an output need different addresses");
}

/// A single row has no next one, so that its stride may be any.
TYPED_TEST(Messages, AnyStrideOfOneRow) {
  fovea::Initialiser initialiser(1);
  const TypeParam layer = make<TypeParam>(initialiser);
  const Activations x = drawn({2, 1, 1, 4}, 1);
  const Activations expected(x.shape()), y(x.shape());
  layer.forward(x.view(), expected.view());
  const auto with_stride = [](const View<double>& of) {
    return View<double>(of.data(), of.shape(), {4, 4, -4, 1});
  };
  layer.forward(with_stride(x.view()), with_stride(y.view()));
  EXPECT_TRUE(same_bits(y.values(), expected.values()));
}

TYPED_TEST(Messages, Backward) {
  const Activations x = filled({2, 1, 3, 4}, 1);
  const Activations d_x({2, 1, 3, 4});
  const auto with = [&](const Shape& d_y_shape, const Shape& d_x_shape) {
    const Activations d_y = filled(d_y_shape, 1);
    const Activations to(d_x_shape);
    return this->backward(x.view(), d_y.view(), to.view());
  };
  EXPECT_EQ(with({2, 1, 3, 5}, {2, 1, 3, 4}),
            "d_y has width 5; expected 4, the width of the layer");
  EXPECT_EQ(with({2, 1, 4, 4}, {2, 1, 3, 4}), "d_y has 4 rows; expected 3, the rows of x");
  EXPECT_EQ(with({2, 1, 3, 4}, {2, 1, 3, 3}),
            "d_x has width 3; expected 4, the width of the layer");
  EXPECT_EQ(with({2, 1, 3, 4}, {1, 1, 3, 4}), "d_x has batch 1; expected 2, the batch of x");
  const Activations d_y = filled({2, 1, 3, 4}, 1);
  EXPECT_EQ(this->backward(x.view(), {}, d_x.view()),
            "d_y is required: it was not given, or was passed without memory");
  EXPECT_EQ(this->backward(x.view(), d_y.view(), x.view()),
            "d_x overlaps x; outputs must not alias inputs or each other");
}

TEST(LayerMessages, Lengths) {
  fovea::Initialiser initialiser(1);
  const fovea::DepthwiseConv<double> layer(4, initialiser);
  const Activations x = filled({2, 1, 3, 4}, 1);
  const Activations y({2, 1, 3, 4});
  const auto with = [&](const std::vector<Index>& lengths) {
    return refusal([&] { layer.forward(Tokens<double>(x.view(), lengths), y.view()); });
  };
  EXPECT_EQ(with({1}),
            "DepthwiseConv: the number of key_lengths is 1; expected 2, the batch of x, or 0");
  EXPECT_EQ(with({3, 4}), "DepthwiseConv: key_lengths[1] is 4; expected 0 to 3, the rows of x");
  EXPECT_EQ(with({-1, 3}), "DepthwiseConv: key_lengths[0] is -1; expected 0 to 3, the rows of x");
}

TYPED_TEST(Messages, SavedTensorsOfOtherTokens) {
  using Layer = TypeParam;
  // These two save nothing.
  if constexpr (!std::is_same_v<Layer, fovea::Linear<double>> &&
                !std::is_same_v<Layer, fovea::DepthwiseConv<double>>) {
    fovea::Initialiser initialiser(1);
    Layer layer = make<Layer>(initialiser);
    const Activations x = filled({2, 1, 3, 4}, 1);
    const Activations y({2, 1, 3, 4});
    typename Layer::Saved saved;
    layer.forward(x.view(), y.view(), saved);
    const Activations other = filled({2, 1, 5, 4}, 1);
    const std::string text =
        refusal([&] { layer.backward(other.view(), saved, other.view(), {}); });
    EXPECT_EQ(text.substr(text.find(':') + 2),
              "saved has 2 sequences of 3 rows; expected 2 of 5, from the forward pass of this x");
  }
}

TEST(LayerMessages, Heads) {
  fovea::Initialiser initialiser(1);
  const auto with = [&](const fovea::MultiHeadOptions& options) {
    return refusal([&] { Attention(fovea::FullAttention{}, options, initialiser); });
  };
  EXPECT_EQ(with({.width = 4, .heads = 0}), "MultiHead: heads is 0; expected at least 1");
  EXPECT_EQ(with({.width = 4, .heads = -1}), "MultiHead: heads is -1; expected at least 1");
}

TEST(LayerMessages, Dropout) {
  const fovea::DropoutLayer<double> layer(0.5);
  const Activations x = filled({2, 1, 3, 4}, 1);
  const Activations narrow({2, 1, 3, 3});
  EXPECT_EQ(refusal([&] { layer.forward(x.view(), narrow.view()); }),
            "DropoutLayer: y has width 3; expected 4, the width of the layer");
  for (const double at : narrow.values()) EXPECT_TRUE(std::isnan(at));
}

}  // namespace fovea_test::layers_messages
