// SPDX-License-Identifier: MIT
// fovea_test(NEEDS fftw)
/// \file
/// All layers that take views, in every layout of each of their tensors: the bits are those of
/// dense tensors, or the layout is refused before anything is written. Tensors are between guard
/// pages.
#include <functional>
#include <memory>

#include "fovea/attention.hpp"
#include "fovea/layers.hpp"
#include "fovea/layers/fat_layer.hpp"
#include "fovea/layers/fourier_mixer_layer.hpp"
#include "fovea/layers/fsat_layer.hpp"
#include "layers/gradient_check.hpp"

namespace fovea_test::layers_strides {

constexpr Index kBatch = 2, kRows = 8, kWidth = 6, kClasses = 5;
constexpr Shape kX = {kBatch, 1, kRows, kWidth};
const std::vector<Index> kLengths = {8, 5};
const std::vector<Index> kTokens = {4, 0, 4, 1, 3, 4, 2, 2, 1, 1, 0, 3, 4, 2, 0, 1};

using Views = std::vector<View<double>>;

/// The calls that have a tensor.
enum Pass : unsigned { forward = 1, backward = 2, both = 3 };

/// The allowed strides of a tensor. Elements of outputs must also be distinct.
enum class Strides {
  rows,            // dense rows that do not descend
  ascending_rows,  // and neither do sequences
  none_negative,
  any
};

struct Place {
  const char* name;
  Shape shape;
  Pass pass;
  bool is_written = false;
  Strides strides = Strides::rows;
};

/// A layer, whose tensors are known by their numbers.
struct Case {
  std::string name;
  std::vector<Place> places;
  std::function<void(const Views&)> forward;
  std::function<void(const Views&)> backward = [](const Views&) {};
  /// A call's results besides tensors: gradients of parameters, 0 before `backward`, or a loss.
  std::function<std::vector<double>()> others = [] { return std::vector<double>(); };
};

/// x and y, then their gradients.
std::vector<Place> usual(const Shape& y = kX) {
  return {
      {"x", kX, both}, {"y", y, forward, true}, {"d_y", y, backward}, {"d_x", kX, backward, true}};
}

/// A layer of x alone, or of the result of `input`.
template <class Layer, class Input>
Case case_of(const std::string& name, Layer made, std::vector<Place> places, Input input) {
  const auto layer = std::make_shared<Layer>(std::move(made));
  const auto saved = std::make_shared<typename Layer::Saved>();
  draw_parameters(*layer, 7, 0.4);
  return {name, std::move(places), [=](const Views& v) { layer->forward(input(v), v[1], *saved); },
          [=](const Views& v) {
            fovea::zero_gradients(*layer);
            layer->backward(input(v), *saved, v[2], v[3]);
          },
          [=] { return gradients_of(*layer); }};
}
template <class Layer>
Case case_of(const std::string& name, Layer made, const Shape& y = kX) {
  return case_of(name, std::move(made), usual(y), [](const Views& v) { return v[0]; });
}

fovea::Tokens<double> with_lengths(const Views& v) { return {v[0], kLengths}; }
fovea::Tokens<double> in_training(const Views& v) {
  fovea::Tokens<double> tokens(v[0]);
  tokens.training = fovea::TrainingStep{.seed = 3, .step = 5};
  return tokens;
}

void add_single_layers(std::vector<Case>& all) {
  fovea::Initialiser draw(1);
  all.push_back(case_of("Linear", fovea::Linear<double>(kWidth, 5, draw), {kBatch, 1, kRows, 5}));
  all.push_back(case_of("LayerNorm", fovea::LayerNorm<double>(kWidth)));
  all.push_back(case_of("RmsNorm", fovea::RmsNorm<double>(kWidth)));
  all.push_back(case_of("Gelu", fovea::Gelu<double>()));
  using Function = fovea::ActivationFunction<double>;
  all.push_back(case_of("ActivationFunction", Function(fovea::ActivationKind::tanh)));
  all.push_back(case_of("ActivationFunction", Function(fovea::ActivationKind::identity)));
  all.push_back(case_of("FeedForward", fovea::FeedForward<double>(kWidth, 9, draw)));
  all.push_back(case_of("GatedFeedForward", fovea::GatedFeedForward<double>(kWidth, 9, draw)));
  using Map = fovea::HiddenMap<double>;
  for (const auto kind : {fovea::HiddenMapKind::fully_connected, fovea::HiddenMapKind::convolution,
                          fovea::HiddenMapKind::two_fully_connected}) {
    all.push_back(case_of("HiddenMap", Map(kWidth, kWidth, draw, {.kind = kind})));
  }
  all.push_back(
      case_of("DepthwiseConv", fovea::DepthwiseConv<double>(kWidth, draw), usual(), with_lengths));
  all.push_back(case_of("DropoutLayer", fovea::DropoutLayer<double>(0.5), usual(), in_training));
  all.push_back(
      case_of("MeanPool", fovea::MeanPool<double>(), usual({kBatch, 1, 1, kWidth}), with_lengths));
  std::vector<Place> mixed = usual();
  mixed[1].strides = mixed[3].strides = Strides::ascending_rows;
  all.push_back(case_of("FourierMixerLayer", fovea::FourierMixerLayer<double>(kWidth), mixed,
                        [](const Views& v) { return v[0]; }));
}

template <class Op>
fovea::MultiHead<Op, double> multi_head(const Op& op, bool rotary = false) {
  fovea::Initialiser draw(2);
  fovea::MultiHeadOptions options{.width = kWidth, .heads = 4, .key_heads = 2, .head_width = 2};
  options.features = 5;
  options.length = 9;
  options.projected = 3;
  if (rotary) options.rotary = fovea::RotaryOptions{};
  return {op, options, draw};
}

void add_attention(std::vector<Case>& all) {
  using fovea::FullAttention;
  fovea::Initialiser draw(3);
  const auto add = [&](const auto& op) {
    all.push_back(case_of("MultiHead", multi_head(op), usual(), with_lengths));
  };
  add(FullAttention{});
  add(fovea::LocalAttention{{.left = 2, .right = 1}});
  add(fovea::LinearAttention<fovea::EluPlusOne>{});
  add(fovea::FmmAttention<fovea::EluPlusOne>{{.band = {.left = 3}}});
  add(fovea::PerformerAttention{});
  add(fovea::SmartBirdAttention{{.keys_per_row = 3}});
  add(fovea::LinformerAttention{});
  using Delta = fovea::DeltaRuleAttention<fovea::EluPlusOne>;
  all.push_back(case_of("MultiHead", multi_head(Delta{})));
  all.push_back(case_of("MultiHead", multi_head(fovea::SinkhornAttention{{.block = 2}})));
  all.push_back(case_of("MultiHead", multi_head(fovea::NystroemAttention{{.landmarks = 2}})));
  std::vector<Place> with_dominant = usual();
  with_dominant.push_back({"dominant", {kBatch, 4, kRows, 3}, both, false, Strides::any});
  all.push_back(case_of("MultiHead", multi_head(fovea::FsatAttention{{.max_length = 8, .seed = 5}}),
                        with_dominant, [](const Views& v) {
                          fovea::Tokens<double> tokens(v[0], kLengths);
                          tokens.dominant = v[4];
                          return tokens;
                        }));
  std::vector<Place> biased = usual();
  const Shape logits = {1, 4, kRows, kRows};
  biased.push_back({"bias", logits, both, false, Strides::any});
  biased.push_back({"d_bias", logits, backward, true, Strides::any});
  const auto with_bias = [](const Views& v) {
    fovea::Tokens<double> tokens(v[0], kLengths);
    tokens.bias = v[4];
    tokens.d_bias = v[5];
    return tokens;
  };
  using Layer = fovea::MultiHead<FullAttention, double>;
  using Block = fovea::EncoderBlock<Layer, double>;
  const Layer full = multi_head(FullAttention{}, true);
  all.push_back(case_of("MultiHead", full, biased, with_bias));
  all.push_back(case_of("EncoderBlock", Block(full, kWidth, 7, draw), biased, with_bias));
  all.push_back(case_of("EncoderBlock, post-norm",
                        Block(full, kWidth, 7, draw, {.norm_first = false}), biased, with_bias));
  const Block block(full, kWidth, 7, draw);
  all.push_back(
      case_of("EncoderStack", fovea::EncoderStack<Block>({block, block}), biased, with_bias));
  all.push_back(case_of("EncoderStack", fovea::EncoderStack<Block>()));
}

void add_layers_of_one_operator(std::vector<Case>& all) {
  fovea::Initialiser draw(4);
  fovea::ReformerLayerOptions reformer{.width = kWidth, .heads = 2};
  reformer.attention = {.chunk = 4, .rounds = 2, .buckets = 4};
  all.push_back(case_of("ReformerLayer", fovea::ReformerLayer<double>(reformer, draw), usual(),
                        with_lengths));
  const auto synthesizer = [&]<class Op>(const Op&) {
    fovea::SynthesizerLayer<Op, double> layer({.width = kWidth, .heads = 2, .length = 9}, draw);
    all.push_back(case_of("SynthesizerLayer", layer, usual(), with_lengths));
  };
  synthesizer(fovea::RandomSynthesizerAttention{});
  synthesizer(fovea::FactorisedSynthesizerAttention{});
  synthesizer(fovea::DenseSynthesizerAttention{});
  fovea::FsatLayerOptions fsat;
  fsat.width = kWidth;
  fsat.heads = 2;
  fsat.attention = {.max_length = 8};
  all.push_back(case_of("FsatLayer", fovea::FsatLayer<double>(fsat, draw), usual(), with_lengths));
  fovea::FatLayerOptions fat;
  fat.width = kWidth;
  all.push_back(case_of("FatLayer", fovea::FatLayer<double>(fat, draw), usual(), with_lengths));
}

void add_layers_of_two_sequences(std::vector<Case>& all) {
  fovea::Initialiser draw(5);
  const Shape other = {kBatch, 1, 3, kWidth};
  using Cross = fovea::CrossMultiHead<fovea::FullAttention, double>;
  const auto cross = std::make_shared<Cross>(
      fovea::FullAttention{}, fovea::CrossMultiHeadOptions{.width = kWidth, .heads = 2}, draw);
  std::vector<Place> places = usual();
  places.push_back({"memory", other, both});
  places.push_back({"d_memory", other, backward, true});
  const Shape logits = {1, 2, kRows, 3};
  places.push_back({"bias", logits, both, false, Strides::any});
  places.push_back({"d_bias", logits, backward, true, Strides::any});
  const auto saved = std::make_shared<typename Cross::Saved>();
  const auto tokens = [](const Views& v) {
    return fovea::CrossTokens<double>{.x = v[0], .memory = v[4], .bias = v[6], .d_bias = v[7]};
  };
  all.push_back({"CrossMultiHead", places,
                 [=](const Views& v) { cross->forward(tokens(v), v[1], *saved); },
                 [=](const Views& v) {
                   fovea::zero_gradients(*cross);
                   cross->backward(tokens(v), *saved, v[2], v[3], v[5]);
                 },
                 [=] { return gradients_of(*cross); }});
  const auto decoder =
      std::make_shared<std::optional<fovea::CrossMultiHeadDecoder<fovea::FullAttention, double>>>();
  all.push_back({"CrossMultiHead",
                 {{"x", kX, backward}, {"y", kX, backward, true}, {"memory", other, forward}},
                 [=](const Views& v) { decoder->emplace(cross->decoder(v[2])); },
                 [=](const Views& v) { (*decoder)->step(v[0], v[1]); }});
  const auto luna =
      std::make_shared<fovea::LunaLayer<double>>(fovea::LunaLayerOptions{.width = kWidth}, draw);
  const auto kept = std::make_shared<typename fovea::LunaLayer<double>::Saved>();
  all.push_back({"LunaLayer",
                 {{"x", kX, both},
                  {"packed", other, both},
                  {"y", kX, forward, true},
                  {"y_packed", other, forward, true},
                  {"d_y", kX, backward},
                  {"d_y_packed", other, backward},
                  {"d_x", kX, backward, true},
                  {"d_packed", other, backward, true}},
                 [=](const Views& v) {
                   luna->forward({v[0], v[1], kLengths}, {v[2], v[3]}, *kept);
                 },
                 [=](const Views& v) {
                   fovea::zero_gradients(*luna);
                   luna->backward({v[0], v[1], kLengths}, *kept, {v[4], v[5]}, {v[6], v[7]});
                 },
                 [=] { return gradients_of(*luna); }});
}

void add_decoders(std::vector<Case>& all) {
  fovea::Initialiser draw(6);
  const auto add = [&](const std::string& name, auto layer) {
    const auto owner = std::make_shared<decltype(layer)>(std::move(layer));
    all.push_back({name, {{"x", kX, forward}, {"y", kX, forward, true}}, [=](const Views& v) {
                     owner->decoder({.batch = kBatch}).step(v[0], v[1]);
                   }});
  };
  const auto causal = multi_head(fovea::FullAttention{{.causal = true}}, true);
  using Block = fovea::EncoderBlock<std::remove_const_t<decltype(causal)>, double>;
  add("MultiHead", causal);
  add("EncoderBlock", Block(causal, kWidth, 7, draw));
  add("EncoderStack", fovea::EncoderStack<Block>({Block(causal, kWidth, 7, draw)}));
}

void add_ends_of_models(std::vector<Case>& all) {
  fovea::Initialiser draw(7);
  const auto embedding = std::make_shared<fovea::Embedding<double>>(kClasses, kRows, kWidth, draw);
  const auto of_embedding = [=] { return gradients_of(*embedding); };
  all.push_back({"Embedding",
                 {{"y", kX, forward, true}, {"d_y", kX, backward}},
                 [=](const Views& v) { embedding->forward(kTokens, v[0]); },
                 [=](const Views& v) {
                   fovea::zero_gradients(*embedding);
                   embedding->backward(kTokens, v[1]);
                 },
                 of_embedding});
  const Shape classes = {kBatch, 1, kRows, kClasses};
  all.push_back({"Embedding",
                 {{"x", kX, both},
                  {"logits", classes, forward, true},
                  {"d_logits", classes, backward},
                  {"d_x", kX, backward, true}},
                 [=](const Views& v) { embedding->logits(v[0], v[1]); },
                 [=](const Views& v) {
                   fovea::zero_gradients(*embedding);
                   embedding->logits_backward(v[0], v[2], v[3]);
                 },
                 of_embedding});
  const auto loss = std::make_shared<double>();
  all.push_back(
      {"softmax_cross_entropy",
       {{"logits", classes, forward}, {"d_logits", classes, forward, true}},
       [=](const Views& v) { *loss = fovea::softmax_cross_entropy<double>(v[0], kTokens, v[1]); },
       [](const Views&) {},
       [=] { return std::vector<double>{*loss}; }});
  all.push_back({"predict_dominant",
                 {{"hidden", kX, forward}, {"dominant", classes, forward, true}},
                 [](const Views& v) {
                   const fovea::RowMatrix<double> w =
                       fovea::RowMatrix<double>::Constant(kWidth, kClasses, 0.3);
                   fovea::predict_dominant<double>(v[0], w, w.topRows(1), 9, v[1]);
                 }});
}

void add_transforms(std::vector<Case>& all) {
  const auto read = [](const char* name, Pass pass) {
    return Place{name, kX, pass, false, Strides::any};
  };
  const auto written = [](const char* name, Pass pass) {
    return Place{name, kX, pass, true, Strides::none_negative};
  };
  all.push_back({"FourierMixer",
                 {read("x", forward), written("out", forward), read("d_out", backward),
                  written("the gradient of x", backward)},
                 [](const Views& v) { fovea::FourierMixer().forward(v[0], v[1]); },
                 [](const Views& v) { fovea::FourierMixer().backward(v[2], v[3]); }});
  all.push_back(
      {"HiddenStateCross",
       {read("f1", both), read("f2", both), written("out", forward), read("d_out", backward),
        written("the gradient of f1", backward), written("the gradient of f2", backward)},
       [](const Views& v) {
         fovea::HiddenStateCross().forward({v[0], v[1], kLengths}, v[2]);
       },
       [](const Views& v) {
         fovea::HiddenStateCross().backward({v[0], v[1], kLengths}, v[3], {v[4], v[5]});
       }});
}

std::vector<Case> all_cases() {
  std::vector<Case> all;
  add_single_layers(all);
  add_attention(all);
  add_layers_of_one_operator(all);
  add_layers_of_two_sequences(all);
  add_decoders(all);
  add_ends_of_models(all);
  add_transforms(all);
  return all;
}

/// Every order of the axes; gaps; axes that descend; axes of one element.
std::vector<Layout> layouts() {
  std::vector<Layout> all;
  for (const auto& order : all_axis_orders()) all.push_back({.order = order});
  all.push_back({.gap = 3, .guard = Guard::before});
  all.push_back({.offset = 2, .innermost = 2, .gap = 1});
  all.push_back({.order = {2, 1, 0, 3}, .gap = 5});
  for (std::size_t axis = 0; axis < 4; ++axis) {
    Layout descends{.gap = 1}, broadcast{.gap = 1};
    descends.reversed[axis] = broadcast.broadcast[axis] = true;
    all.push_back(descends);
    all.push_back(broadcast);
  }
  for (Layout& layout : all) {
    if (layout.guard == Guard::none && layout.gap == 0) layout.guard = Guard::behind;
  }
  return all;
}

/// The same tensor. Strides of axes with one element are arbitrary.
View<double> with_idle_strides(const View<double>& x) {
  Shape strides = x.strides();
  for (std::size_t d = 0; d < 4; ++d) {
    if (x.shape()[d] == 1) strides[d] = -(Index{1} << 40);
  }
  return {x.data(), x.shape(), strides};
}

bool is_accepted(const Place& place, const View<double>& x) {
  if (place.is_written && !fovea::has_distinct_elements(x)) return false;
  const auto has = [&](std::size_t d) { return x.shape()[d] > 1; };
  switch (place.strides) {
    case Strides::any:
      return true;
    case Strides::none_negative:
      for (std::size_t d = 0; d < 4; ++d) {
        if (place.is_written && has(d) && x.strides()[d] < 0) return false;
      }
      return true;
    case Strides::ascending_rows:
      if (has(0) && x.strides()[0] < 0) return false;
      [[fallthrough]];
    case Strides::rows:
      return (!has(3) || x.strides()[3] == 1) && (!has(2) || x.strides()[2] >= 0);
  }
  return false;
}

constexpr double kBefore = 0.25;  // in tensors that are written

/// The tensors of a case, of which one has a layout.
std::vector<Activations> tensors_of(const Case& of, std::size_t placed = 0,
                                    const Layout& layout = {}) {
  std::vector<Activations> all;
  for (std::size_t t = 0; t < of.places.size(); ++t) {
    const Place& place = of.places[t];
    all.emplace_back(place.shape, t == placed ? layout : Layout{});
    const auto drawn = gaussian(30 + t);
    const bool is_positive = place.name == std::string("dominant");
    all.back().fill([&](Index b, Index h, Index n, Index d) {
      if (place.is_written) return kBefore;
      return is_positive ? std::abs(drawn(b, h, n, d)) : drawn(b, h, n, d);
    });
  }
  return all;
}

Views views_of(const std::vector<Activations>& tensors) {
  Views all;
  for (const Activations& x : tensors) all.push_back(with_idle_strides(x.view()));
  return all;
}

void append(std::vector<double>& all, const View<double>& x) {
  for_each_index(x.shape(),
                 [&](Index b, Index h, Index n, Index d) { all.push_back(x(b, h, n, d)); });
}

/// The results of both passes, or the message of a refusal, which has changed nothing.
struct Outcome {
  std::string refusal;
  std::vector<double> results;
};

Outcome outcome_of(const Case& of, const Views& views) {
  Outcome result;
  for (const Pass pass : {forward, backward}) {
    const auto written = [&] {
      std::vector<double> all;
      for (std::size_t t = 0; t < views.size(); ++t) {
        if (of.places[t].is_written && of.places[t].pass == pass) append(all, views[t]);
      }
      return all;
    };
    const auto before = written();
    const std::string text =
        refusal([&] { pass == forward ? of.forward(views) : of.backward(views); });
    if (text != "accepted") {
      EXPECT_TRUE(same_bits(written(), before)) << text;
      if (pass == backward) {
        for (const double gradient : of.others()) EXPECT_EQ(gradient, 0) << text;
      }
      result.refusal = text;
      return result;
    }
    const auto after = written();
    result.results.insert(result.results.end(), after.begin(), after.end());
  }
  const auto others = of.others();
  result.results.insert(result.results.end(), others.begin(), others.end());
  return result;
}

TEST(Strides, AreSupportedOrRefused) {
  for (const Case& of : all_cases()) {
    for (std::size_t t = 0; t < of.places.size(); ++t) {
      const Place& place = of.places[t];
      for (const Layout& layout : layouts()) {
        const std::vector<Activations> tensors = tensors_of(of, t, layout);
        const Views views = views_of(tensors);
        SCOPED_TRACE(of.name + ": " + place.name + " with strides " +
                     fovea::to_string(tensors[t].view().strides()));
        const Outcome got = outcome_of(of, views);
        EXPECT_EQ(tensors[t].changed_gaps(), 0);
        if (!is_accepted(place, views[t])) {
          EXPECT_NE(got.refusal.find(place.name), std::string::npos) << got.refusal;
          continue;
        }
        EXPECT_EQ(got.refusal, "");
        std::vector<Activations> dense = tensors_of(of);
        dense[t] = tensors_of(of, t, layout)[t].in({});
        const Outcome expected = outcome_of(of, views_of(dense));
        EXPECT_TRUE(same_bits(got.results, expected.results));
      }
    }
  }
}

/// An output that overlaps another tensor of the call by one row is refused, unless the call does
/// not read that tensor; then results are right.
TEST(Strides, OverlapsAreRefused) {
  for (const Case& of : all_cases()) {
    const Outcome expected = outcome_of(of, views_of(tensors_of(of)));
    EXPECT_EQ(expected.refusal, "");
    for (std::size_t w = 0; w < of.places.size(); ++w) {
      for (std::size_t t = 0; t < of.places.size(); ++t) {
        const Place &written = of.places[w], &other = of.places[t];
        if (!written.is_written || t == w || (written.pass & other.pass) == 0) continue;
        SCOPED_TRACE(of.name + ": " + written.name + " in " + other.name);
        const std::vector<Activations> tensors = tensors_of(of);
        Views views = views_of(tensors);
        const Index row = other.shape[3];
        std::vector<double> memory(as_size(size_of(other.shape) + row + size_of(written.shape)));
        const auto place_in = [&](Index first, std::size_t from) {
          const View<double> to(memory.data() + first, of.places[from].shape);
          for_each_index(to.shape(), [&](Index b, Index h, Index n, Index d) {
            to(b, h, n, d) = tensors[from](b, h, n, d);
          });
          return to;
        };
        views[w] = place_in(row, w);
        views[t] = place_in(0, t);
        const Outcome got = outcome_of(of, views);
        EXPECT_NE(got.refusal.find(" overlaps "), std::string::npos) << got.refusal;
        EXPECT_NE(got.refusal.find(written.name), std::string::npos) << got.refusal;
      }
    }
  }
}

/// Saved state of a wider layer's forward pass is refused by a backward pass.
TEST(Saved, OfAnotherLayerIsRefused) {
  fovea::Initialiser draw(8);
  const Activations x = drawn(kX, 1), y(kX), d_x(kX);
  const auto message = [&](auto layer, const auto& other) {
    typename decltype(layer)::Saved saved;
    other.forward(x.view(), y.view(), saved);
    return refusal([&] { layer.backward(x.view(), saved, y.view(), d_x.view()); });
  };
  using Feed = fovea::FeedForward<double>;
  EXPECT_EQ(message(Feed(kWidth, 9, draw), Feed(kWidth, 8, draw)),
            "FeedForward: saved has 8 channels; expected 9, from the forward pass of this layer");
  using Gated = fovea::GatedFeedForward<double>;
  EXPECT_NE(message(Gated(kWidth, 9, draw), Gated(kWidth, 8, draw)).find("8 channels"),
            std::string::npos);
  using Attention = fovea::MultiHead<fovea::FullAttention, double>;
  const fovea::FullAttention op;
  EXPECT_NE(message(Attention(op, {.width = kWidth, .heads = 3}, draw),
                    Attention(op, {.width = kWidth, .heads = 1}, draw))
                .find("expected"),
            std::string::npos);
  EXPECT_NE(message(Attention(op, {.width = kWidth, .heads = 3}, draw),
                    Attention(op, {.width = kWidth, .heads = 3, .key_heads = 1}, draw))
                .find("10 channels"),
            std::string::npos);
}

/// Layers whose operators read no logits ignore nothing.
TEST(Terms, OfOtherOperatorsAreRefused) {
  fovea::Initialiser draw(9);
  const Activations x = drawn(kX, 1), y(kX), bias({1, 1, kRows, kRows});
  const fovea::ReformerLayer<double> reformer(
      {.width = kWidth, .attention = {.chunk = 4, .buckets = 4}}, draw);
  const fovea::FourierMixerLayer<double> mixer(kWidth);
  const Index keys[kRows] = {};
  const auto expect_refused = [&](const char* name, auto member, const auto& view) {
    fovea::Tokens<double> tokens(x.view());
    tokens.*member = view;
    EXPECT_EQ(
        refusal([&] { reformer.forward(tokens, y.view()); }),
        std::string("ReformerLayer: ") + name + " must not be given: the layer does not read it");
    EXPECT_EQ(refusal([&] { mixer.forward(tokens, y.view()); }),
              std::string("FourierMixerLayer: ") + name +
                  " must not be given: every token is mixed with every other one");
  };
  using Tokens = fovea::Tokens<double>;
  expect_refused("bias", &Tokens::bias, bias.view());
  expect_refused("d_bias", &Tokens::d_bias, bias.view());
  expect_refused("dominant", &Tokens::dominant, bias.view());
  expect_refused("indices", &Tokens::indices, View<const Index>(keys, {1, 1, kRows, 1}));
}

}  // namespace fovea_test::layers_strides
