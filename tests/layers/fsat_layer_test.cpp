// SPDX-License-Identifier: MIT
// fovea_test(NEEDS fftw)
#include "fovea/layers/fsat_layer.hpp"

#include "layers/by_hand.hpp"

namespace fovea_test::layers_fsat_layer {

using fovea::EdgeSource;
using fovea::FsatLayerOptions;
using fovea::HiddenMapKind;
using fovea::Tokens;
using Layer = fovea::FsatLayer<double>;

constexpr Index kBatch = 2;
constexpr Index kRows = 9;
constexpr Index kWidth = 6;
constexpr Shape kShape = {kBatch, 1, kRows, kWidth};
const std::vector<Index> kLengths = {9, 6};

FsatLayerOptions options(HiddenMapKind map, EdgeSource edges, bool truncate) {
  FsatLayerOptions made;
  made.width = kWidth;
  made.heads = 2;
  made.bias = true;
  made.map = map;
  made.dominant = 2;
  made.attention = {.max_length = 11, .edges = edges, .seed = 77, .truncate_gradient = truncate};
  return made;
}

Layer layer(const FsatLayerOptions& chosen, std::uint64_t seed = 17) {
  fovea::Initialiser initialiser(3);
  Layer made(chosen, initialiser);
  draw_parameters(made, seed, 0.4);
  return made;
}

fsat_layer::Options oracle_options(const FsatLayerOptions& chosen, Index sequence) {
  return {.heads = chosen.heads,
          .head_width = kWidth / chosen.heads,
          .slots_per_key = chosen.dominant,
          .most = static_cast<double>(chosen.attention.max_length),
          .density = chosen.attention.confidence == fovea::Confidence::density,
          .predicted = chosen.attention.edges != EdgeSource::random,
          .random = chosen.attention.edges != EdgeSource::predicted,
          .seed = chosen.attention.seed,
          .sequence = sequence};
}

/// The tokens of sequence b.
DoubleMatrix sequence(const Activations& x, Index b) {
  DoubleMatrix rows(kLengths[as_size(b)], kWidth);
  for (Index n = 0; n < rows.rows(); ++n) {
    for (Index c = 0; c < kWidth; ++c) rows(n, c) = x(b, 0, n, c);
  }
  return rows;
}

struct Kind {
  HiddenMapKind map;
  EdgeSource edges;
};
const std::vector<Kind> kKinds = {{HiddenMapKind::fully_connected, EdgeSource::predicted},
                                  {HiddenMapKind::fully_connected, EdgeSource::both},
                                  {HiddenMapKind::convolution, EdgeSource::both},
                                  {HiddenMapKind::convolution, EdgeSource::random}};

Tokens<double> with_lengths(const View<const double>& x) { return Tokens<double>(x, kLengths); }

/// How far the dominant indices are from the nearest integer, where an edge would change.
double distance_to_integers(Layer& made, const FsatLayerOptions& chosen, const Activations& x) {
  double least = 1;
  const Weights weights = weights_of(made);
  for (Index b = 0; b < kBatch; ++b) {
    const DoubleMatrix ibar = fsat_layer::dominant(fsat_layer::hidden(sequence(x, b), weights),
                                                   weights, oracle_options(chosen, b));
    for (Index i = 0; i < ibar.size(); ++i) {
      least = std::min(least, std::abs(ibar.data()[i] - std::round(ibar.data()[i])));
    }
  }
  return least;
}

TEST(FsatLayer, MatchesItsDefinition) {
  for (const Kind& kind : kKinds) {
    const FsatLayerOptions chosen = options(kind.map, kind.edges, true);
    Layer made = layer(chosen);
    const Activations x = drawn(kShape, 11);
    const Activations y(kShape);
    made.forward(with_lengths(x.view()), y.view());
    const Weights weights = weights_of(made);
    for (Index b = 0; b < kBatch; ++b) {
      const DoubleMatrix expected =
          fsat_layer::layer(sequence(x, b), weights, oracle_options(chosen, b));
      for (Index n = 0; n < kRows; ++n) {
        for (Index c = 0; c < kWidth; ++c) {
          // Behind its end W_O is applied to 0.
          const double at = n < expected.rows() ? expected(n, c) : weights.at("out.bias")(0, c);
          EXPECT_NEAR(y(b, 0, n, c), at, 1e-12) << b << " " << n << " " << c;
        }
      }
    }
  }
}

TEST(FsatLayer, GradientsOfFixedEdges) {
  for (const Kind& kind : kKinds) {
    const FsatLayerOptions chosen = options(kind.map, kind.edges, false);
    Layer made = layer(chosen);
    const Activations x = drawn(kShape, 11);
    // A step of 1e-6 moves an index by less than 1e-4.
    ASSERT_GT(distance_to_integers(made, chosen, x), 2e-4);
    expect_layer_gradients(made, kShape, kShape, with_lengths, {.step = 1e-6, .tolerance = 1e-6});
  }
}

/// The function whose gradient is the truncated gradient, near a point: the loss with the
/// confidences of that point, and sum t Ibar with t[j, m] = sum over the edges of the slot of
/// min(0, g) dconf/dIbar, g the derivative of the loss by a confidence.
class Truncated {
 public:
  Truncated(Layer& made, const FsatLayerOptions& chosen, const Activations& x,
            const Activations& d_y)
      : layer_(made), chosen_(chosen), x_(x), d_y_(d_y) {
    const Weights weights = weights_of(made);
    for (Index b = 0; b < kBatch; ++b) {
      const fsat_layer::Options o = oracle_options(chosen, b);
      const DoubleMatrix rows = sequence(x, b);
      const DoubleMatrix c = fsat_layer::hidden(rows, weights);
      const DoubleMatrix ibar = fsat_layer::dominant(c, weights, o);
      graphs_.push_back(fsat_layer::graph(ibar, o));
      slopes_.push_back(DoubleMatrix::Zero(ibar.rows(), ibar.cols()));
      for (Index h = 0; h < o.heads; ++h) {
        for (std::size_t e = 0; e < graphs_.back()[as_size(h)].size(); ++e) {
          const fsat_layer::Edge edge = graphs_.back()[as_size(h)][e];
          const auto loss_at = [&](double confidence) {
            auto graph = graphs_.back();
            graph[as_size(h)][e].confidence = confidence;
            return loss(b, fsat_layer::output(rows, c, graph, weights, o));
          };
          const double g =
              (loss_at(edge.confidence + 1e-4) - loss_at(edge.confidence - 1e-4)) / 2e-4;
          (g < 0 ? negative_ : positive_)++;
          const Index column = h * o.slots_per_key + edge.slot;
          slopes_.back()(edge.key, column) +=
              std::min(0.0, g) * edge.confidence *
              (static_cast<double>(edge.query) - ibar(edge.key, column)) / o.most;
        }
      }
    }
  }

  double operator()() const {
    const Weights weights = weights_of(layer_);
    double sum = 0;
    for (Index b = 0; b < kBatch; ++b) {
      const fsat_layer::Options o = oracle_options(chosen_, b);
      const DoubleMatrix rows = sequence(x_, b);
      const DoubleMatrix c = fsat_layer::hidden(rows, weights);
      sum += loss(b, fsat_layer::output(rows, c, graphs_[as_size(b)], weights, o));
      sum += slopes_[as_size(b)].cwiseProduct(fsat_layer::dominant(c, weights, o)).sum();
    }
    return sum;
  }

  /// Edges whose confidence has a gradient of that sign.
  int negative() const { return negative_; }
  int positive() const { return positive_; }

 private:
  double loss(Index b, const DoubleMatrix& y) const {
    double sum = 0;
    for (Index n = 0; n < kRows; ++n) {
      for (Index c = 0; c < kWidth; ++c) {
        const double at = n < y.rows() ? y(n, c) : weights_of(layer_).at("out.bias")(0, c);
        sum += d_y_(b, 0, n, c) * at;
      }
    }
    return sum;
  }

  Layer& layer_;
  const FsatLayerOptions& chosen_;
  const Activations& x_;
  const Activations& d_y_;
  std::vector<std::vector<fsat_layer::Edges>> graphs_;
  std::vector<DoubleMatrix> slopes_;
  int negative_ = 0;
  int positive_ = 0;
};

/// The default suite checks one parameter in five.
constexpr Index kEachParameter = FOVEA_FULL_SUITE ? 1 : 5;

TEST(FsatLayer, GradientsTruncated) {
  for (const Kind& kind : {kKinds[0], kKinds[2]}) {
    const FsatLayerOptions chosen = options(kind.map, kind.edges, true);
    Layer made = layer(chosen);
    const Activations x = drawn(kShape, 11);
    const Activations d_x(kShape);
    const Activations y(kShape);
    const Activations d_y = drawn(kShape, 12);
    const Truncated loss(made, chosen, x, d_y);
    EXPECT_GT(loss.negative(), 10);
    EXPECT_GT(loss.positive(), 10);
    Layer::Saved saved;
    fovea::zero_gradients(made);
    made.forward(with_lengths(x.view()), y.view(), saved);
    made.backward(with_lengths(x.view()), saved, d_y.view(), d_x.view());
    const auto expect = [&](double& at, double gradient, const std::string& name) {
      const double before = at;
      at = before + 1e-5;
      const double above = loss();
      at = before - 1e-5;
      const double difference = (above - loss()) / 2e-5;
      at = before;
      ASSERT_NEAR(gradient, difference, 1e-7 * (1 + std::abs(difference))) << name;
    };
    for_each_index(kShape, [&](Index b, Index h, Index n, Index d) {
      expect(x(b, h, n, d), d_x(b, h, n, d), "x");
    });
    made.visit([&](fovea::Parameter<double>& p) {
      for (Index i = 0; i < p.value.size(); i += kEachParameter) {
        expect(p.value.data()[i], p.gradient.data()[i], p.name);
      }
    });
  }
}

TEST(FsatLayer, ThreadsDoNotChangeBits) {
  for (const Kind& kind : kKinds) {
    FsatLayerOptions chosen = options(kind.map, kind.edges, true);
    chosen.attention.max_length = 300;
    Layer made = layer(chosen);
    expect_same_bits_for_threads(made, {2, 1, 300, kWidth}, {2, 1, 300, kWidth}, alone);
  }
}

TEST(FsatLayer, DataBeyondALengthHaveNoEffect) {
  Layer made = layer(options(HiddenMapKind::convolution, EdgeSource::predicted, true));
  const Activations x = drawn(kShape, 11);
  const Activations y(kShape), again(kShape);
  made.forward(with_lengths(x.view()), y.view());
  for (Index c = 0; c < kWidth; ++c) x(1, 0, 7, c) = 1e3;
  made.forward(with_lengths(x.view()), again.view());
  EXPECT_TRUE(same_bits(again.values(), y.values()));
}

TEST(FsatLayer, InitialIndicesAreSpreadOverTheSequence) {
  fovea::Initialiser initialiser(3);
  Layer made(options(HiddenMapKind::fully_connected, EdgeSource::predicted, true), initialiser);
  const Weights weights = weights_of(made);
  for (Index c = 0; c < 4; ++c) {
    EXPECT_NEAR(logistic(weights.at("dominant.bias")(0, c)), (static_cast<double>(c) + 0.5) / 4,
                1e-15);
  }
}

TEST(FsatLayer, TrainingAndInference) {
  FsatLayerOptions chosen = options(HiddenMapKind::fully_connected, EdgeSource::predicted, true);
  Layer made = layer(chosen);
  const Activations x = drawn(kShape, 11);
  const auto output = [&] {
    const Activations y(kShape);
    made.forward(x.view(), y.view());
    return y.values();
  };
  const auto inference = output();
  made.set_training(1);
  const auto first = output();
  made.set_training(2);
  EXPECT_FALSE(same_bits(output(), first));
  EXPECT_FALSE(same_bits(inference, first));
  made.set_inference();
  EXPECT_TRUE(same_bits(output(), inference));
}

/// The draws given as tensors are the same edges, forward and backward.
TEST(FsatLayer, TakesGivenRandomEdges) {
  const FsatLayerOptions chosen = options(HiddenMapKind::fully_connected, EdgeSource::both, true);
  Layer made = layer(chosen);
  made.set_training(5);
  const Index heads = made.sizes().heads;
  std::vector<Index> given(as_size(kBatch * heads * kRows * chosen.dominant));
  const View<Index> random(given.data(), {kBatch, heads, kRows, chosen.dominant});
  const auto draws = [&](std::uint64_t seed) {
    for_each_index(random.shape(), [&](Index b, Index h, Index j, Index m) {
      const double u = fovea::uniform_draw<double>(seed, b, h, j, m);
      random(b, h, j, m) = static_cast<Index>(u * static_cast<double>(kRows));
    });
  };
  const Activations x = drawn(kShape, 11);
  const auto run = [&](bool gives) {
    fovea::Tokens<double> tokens(x.view());
    if (gives) tokens.random = random;
    const Activations y(kShape), d_x(kShape);
    Layer::Saved saved;
    fovea::zero_gradients(made);
    made.forward(tokens, y.view(), saved);
    made.backward(tokens, saved, x.view(), d_x.view());
    std::vector<double> all = y.values();
    const std::vector<double> d = d_x.values();
    all.insert(all.end(), d.begin(), d.end());
    return all;
  };
  const auto drawn_by_layer = run(false);
  draws(5);
  EXPECT_TRUE(same_bits(run(true), drawn_by_layer));
  draws(6);
  EXPECT_FALSE(same_bits(run(true), drawn_by_layer));
  random(1, 0, 3, 1) = kRows;
  EXPECT_NE(refusal([&] { run(true); }).find("FsatAttention: random[1, 0, 3, 1] is"),
            std::string::npos);
}

TEST(FsatLayer, Refusals) {
  const auto making = [](auto&& change) {
    return refusal([&] {
      FsatLayerOptions chosen =
          options(HiddenMapKind::fully_connected, EdgeSource::predicted, true);
      change(chosen);
      fovea::Initialiser initialiser(1);
      Layer(chosen, initialiser);
    });
  };
  EXPECT_EQ(making([](FsatLayerOptions& o) { o.attention.max_length = 0; }),
            "FsatLayer: max_length is 0; expected at least 1");
  EXPECT_EQ(making([](FsatLayerOptions& o) { o.dominant = 0; }),
            "FsatLayer: dominant is 0; expected at least 1");
  EXPECT_EQ(making([](FsatLayerOptions& o) { o.heads = 4; }),
            "FsatLayer: heads is 4; expected a divisor of the width 6, or a head_width");
  Layer made = layer(options(HiddenMapKind::fully_connected, EdgeSource::predicted, true));
  const Activations x = drawn({1, 1, 12, kWidth}, 1);
  const Activations y(x.shape());
  EXPECT_EQ(
      refusal([&] { made.forward(x.view(), y.view()); }),
      "FsatAttention: max_length is 11; expected at least 12, the tokens of the longest sequence");
  Layer::Saved saved;
  EXPECT_EQ(refusal([&] { made.backward(x.view(), saved, x.view(), y.view()); }),
            "FsatLayer: saved has 0 sequences of 0 rows; expected 1 of 12, from the forward pass "
            "of this x");
}

TEST(FsatLayer, OneAndTwoTokens) {
  for (const Index rows : {1, 2}) {
    Layer made = layer(options(HiddenMapKind::convolution, EdgeSource::both, true));
    for (const double x :
         everything(made, {1, 1, rows, kWidth}, {1, 1, rows, kWidth}, alone, fovea::Serial{})) {
      EXPECT_TRUE(std::isfinite(x));
    }
  }
}

/// The cross mixes all rows, and the layer predicts its own indices.
TEST(FsatLayer, RefusesPackedSequencesAndIndices) {
  const Layer made = layer(options(HiddenMapKind::fully_connected, EdgeSource::predicted, true));
  const Index width = made.sizes().width;
  const Activations x = filled({1, 1, 6, width}, 1), y(x.shape());
  const Activations dominant = filled({1, made.sizes().heads, 6, 1}, 1);
  const std::vector<Index> ends = {0, 2, 6};
  fovea::Tokens<double> packed(x.view()), given(x.view());
  packed.cu_seqlens = ends;
  given.dominant = dominant.view();
  EXPECT_EQ(refusal([&] { made.forward(packed, y.view()); }),
            "FsatLayer: cu_seqlens must not be given: the layer does not support packed sequences");
  EXPECT_EQ(refusal([&] { made.forward(given, y.view()); }),
            "FsatLayer: dominant must not be given: the layer predicts it");
}

}  // namespace fovea_test::layers_fsat_layer
