// SPDX-License-Identifier: MIT
#include "fovea/layers/layer_parts.hpp"

#include <set>
#include <vector>

#include "fovea/attention/full.hpp"
#include "fovea/layers/embedding.hpp"
#include "fovea/layers/encoder_block.hpp"
#include "fovea/layers/multi_head.hpp"
#include "layers/gradient_check.hpp"

namespace fovea_test::layers_layer_parts {

using fovea::EncoderBlock;
using fovea::Linear;
using fovea::MultiHead;
using fovea::Parameter;
using Names = std::vector<std::string>;

template <class Op>
using Block = EncoderBlock<MultiHead<Op, double>, double>;

template <class Op>
Block<Op> make_block(const Op& op, fovea::Initialiser& initialiser) {
  return Block<Op>(MultiHead<Op, double>(op, {.width = 4, .heads = 2, .bias = true}, initialiser),
                   4, 6, initialiser);
}

template <class Layer>
Names names_of(Layer& layer) {
  Names names;
  layer.visit([&](const std::string& name, auto&) { names.push_back(name); });
  return names;
}

/// A model of everything that a list of parts may name.
struct Model : fovea::LayerParts<Model> {
  template <class Self, class F>
  static void each_part(Self& self, F&& f) {
    f(self.embedding);
    f("blocks", self.blocks);
    f("out.temperature", self.temperature);
    f(self.shift);
    f("head", self.head);
  }

  fovea::Initialiser initialiser{1};
  fovea::Embedding<double> embedding{3, 5, 4, initialiser};
  std::vector<Block<fovea::FullAttention>> blocks = {
      make_block(fovea::FullAttention{}, initialiser),
      make_block(fovea::FullAttention{}, initialiser)};
  Parameter<double> temperature{"t", 1, 1};
  Parameter<double> shift{"shift", 1, 4};
  Linear<double> head{4, 2, initialiser, {.bias = false, .name = "map"}};
};

TEST(LayerParts, NamesContainThePathToAParameter) {
  Model model;
  Names expected = {"embedding.table", "embedding.position"};
  for (const std::string block : {"blocks.0.", "blocks.1."}) {
    for (const char* name :
         {"norm1.scale", "norm1.shift", "attention.qkv.weight", "attention.qkv.bias",
          "attention.out.weight", "attention.out.bias", "norm2.scale", "norm2.shift",
          "feed_forward.in.weight", "feed_forward.in.bias", "feed_forward.out.weight",
          "feed_forward.out.bias"}) {
      expected.push_back(block + name);
    }
  }
  for (const char* name : {"out.temperature", "shift", "head.map.weight"}) expected.push_back(name);
  EXPECT_EQ(names_of(model), expected);
}

TEST(LayerParts, AConstModelHasTheSameParameters) {
  Model model;
  std::vector<const Parameter<double>*> parameters;
  model.visit([&](Parameter<double>& p) { parameters.push_back(&p); });
  const Model& constant = model;
  std::size_t next = 0;
  constant.visit([&](const Parameter<double>& p) { EXPECT_EQ(&p, parameters.at(next++)); });
  EXPECT_EQ(next, parameters.size());
  EXPECT_EQ(names_of(constant), names_of(model));
  EXPECT_EQ(fovea::parameter_count(constant), fovea::parameter_count(model));
}

TEST(LayerParts, ParametersOfEveryOperatorsLayerHaveUniqueNames) {
  const auto expect_distinct = [](const auto& op, std::size_t count) {
    fovea::Initialiser initialiser(1);
    const auto block = make_block(op, initialiser);
    const Names names = names_of(block);
    EXPECT_EQ(names.size(), count);
    EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
  };
  expect_distinct(fovea::FullAttention{}, 12);
  expect_distinct(fovea::LinearAttention<fovea::EluPlusOne>{}, 12);
  expect_distinct(fovea::DeltaRuleAttention<fovea::EluPlusOne>{}, 14);
  expect_distinct(fovea::FmmAttention<fovea::EluPlusOne>{}, 14);
  expect_distinct(fovea::SmartBirdAttention{}, 13);
}

/// A type with its own `visit`, without names, may be a part, too.
struct OldModel {
  Linear<double> first, second;
  template <class F>
  void visit(F&& f) {
    first.visit(f);
    second.visit(f);
  }
};

struct OuterModel : fovea::LayerParts<OuterModel> {
  OldModel inner;
  template <class Self, class F>
  static void each_part(Self& self, F&& f) {
    f("inner", self.inner);
  }
};

TEST(LayerParts, CustomVisitFunctionsAreSupported) {
  fovea::Initialiser initialiser(1);
  OuterModel model;
  model.inner.first = Linear<double>(2, 3, initialiser, {.name = "first"});
  model.inner.second = Linear<double>(3, 2, initialiser, {.bias = false, .name = "second"});
  EXPECT_EQ(names_of(model),
            (Names{"inner.first.weight", "inner.first.bias", "inner.second.weight"}));
  EXPECT_EQ(fovea::parameter_count(model), 2 * 3 + 3 + 3 * 2);
}

}  // namespace fovea_test::layers_layer_parts
