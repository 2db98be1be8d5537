// SPDX-License-Identifier: MIT
#include "fovea/layers/embedding.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <span>

#include "layers/gradient_check.hpp"

namespace fovea_test::layers_embedding {

using Layer = fovea::Embedding<double>;

Layer layer(Index vocabulary, Index most, Index width) {
  fovea::Initialiser initialiser(3);
  return Layer(vocabulary, most, width, initialiser);
}

const std::vector<Index> kTokens = {4, 0, 4, 1, 3, 4};  // two sequences of three

TEST(Embedding, IsTokenPlusPosition) {
  const Layer embedding = layer(5, 4, 70);
  const Activations y({2, 1, 3, 70}, {.gap = 1});
  embedding.forward(kTokens, y.view());
  for_each_index(y.shape(), [&](Index b, Index, Index n, Index c) {
    EXPECT_EQ(y(b, 0, n, c), embedding.table.value(kTokens[as_size(3 * b + n)], c) +
                                 embedding.position.value(n, c));
  });
}

TEST(Embedding, StartsAtAnyPosition) {
  const Layer embedding = layer(5, 6, 70);
  const Activations y({2, 1, 3, 70});
  embedding.forward_from(3, kTokens, y.view());
  for_each_index(y.shape(), [&](Index b, Index, Index n, Index c) {
    EXPECT_EQ(y(b, 0, n, c), embedding.table.value(kTokens[as_size(3 * b + n)], c) +
                                 embedding.position.value(3 + n, c));
  });
  const auto message = [&](Index first) {
    return refusal([&] { embedding.forward_from(first, kTokens, y.view()); });
  };
  EXPECT_EQ(message(4),
            "Embedding: y has 3 rows; expected at most 2 from position 4, max_length is 6");
  EXPECT_EQ(message(7), "Embedding: first_position is 7; expected 0 to 6, max_length");
  EXPECT_EQ(message(-1), "Embedding: first_position is -1; expected 0 to 6, max_length");
}

TEST(Embedding, LogitsAreProductsWithTheTable) {
  Layer embedding = layer(9, 4, 7);
  const Activations x = drawn({2, 1, 3, 7}, 1);
  const Activations logits({2, 1, 3, 9});
  embedding.logits(x.view(), logits.view());
  for_each_index(logits.shape(), [&](Index b, Index, Index n, Index w) {
    double expected = 0;
    for (Index c = 0; c < 7; ++c) expected += x(b, 0, n, c) * embedding.table.value(w, c);
    EXPECT_NEAR(logits(b, 0, n, w), expected, 1e-14);
  });
  const Activations narrow({2, 1, 3, 8});
  EXPECT_EQ(refusal([&] { embedding.logits(x.view(), narrow.view()); }),
            "Embedding: logits has width 8; expected 9, the width of the layer");
}

TEST(Embedding, GradientsOfLogitsAreSums) {
  Layer embedding = layer(9, 4, 7);
  const Activations x = drawn({2, 1, 3, 7}, 1);
  const Activations d_logits = drawn({2, 1, 3, 9}, 2);
  const Activations d_x = filled(x.shape(), 0.5);
  embedding.table.gradient_sum().setConstant(1);
  fovea::ThreadPool pool(3);
  const AnyExecutor three = AnyExecutor::of(pool);
  embedding.logits_backward(x.view(), d_logits.view(), d_x.view(), three, fovea::OutputMode::add);
  for_each_index(x.shape(), [&](Index b, Index, Index n, Index c) {
    double expected = 0.5;
    for (Index w = 0; w < 9; ++w) expected += d_logits(b, 0, n, w) * embedding.table.value(w, c);
    EXPECT_NEAR(d_x(b, 0, n, c), expected, 1e-13);
  });
  for (Index w = 0; w < 9; ++w) {
    for (Index c = 0; c < 7; ++c) {
      double expected = 1;
      for (Index i = 0; i < 6; ++i)
        expected += d_logits(i / 3, 0, i % 3, w) * x(i / 3, 0, i % 3, c);
      EXPECT_NEAR(embedding.table.gradient(w, c), expected, 1e-13);
    }
  }
}

TEST(Embedding, GradientsAreSumsOverTheTokens) {
  Layer embedding = layer(5, 4, 70);
  const Activations d_y = drawn({2, 1, 3, 70}, 1);
  embedding.table.gradient_sum().setConstant(1);
  fovea::ThreadPool pool(3);
  const AnyExecutor three = AnyExecutor::of(pool);
  embedding.backward(kTokens, d_y.view(), three);
  for (Index token = 0; token < 5; ++token) {
    for (Index c = 0; c < 70; ++c) {
      double of_token = 1;
      double of_position = 0;
      for (Index i = 0; i < 6; ++i) {
        if (kTokens[as_size(i)] == token) of_token += d_y(i / 3, 0, i % 3, c);
        if (i % 3 == token) of_position += d_y(i / 3, 0, i % 3, c);
      }
      EXPECT_DOUBLE_EQ(embedding.table.gradient(token, c), of_token);
      if (token < 4) {
        EXPECT_DOUBLE_EQ(embedding.position.gradient(token, c), of_position);
      }
    }
  }
}

/// Models with rotary positions have no table of positions.
TEST(Embedding, WithoutPositions) {
  Layer embedding = layer(5, 0, 7);
  EXPECT_FALSE(embedding.has_positions());
  std::vector<std::string> names;
  embedding.visit([&](fovea::Parameter<double>& p) { names.push_back(p.name); });
  EXPECT_EQ(names, std::vector<std::string>{"embedding.table"});
  EXPECT_EQ(embedding.table.value, layer(5, 4, 7).table.value);
  const Activations y({2, 1, 3, 7}), later(y.shape());
  embedding.forward(kTokens, y.view());
  embedding.forward_from(1000, kTokens, later.view());
  for_each_index(y.shape(), [&](Index b, Index, Index n, Index c) {
    EXPECT_EQ(y(b, 0, n, c), embedding.table.value(kTokens[as_size(3 * b + n)], c));
  });
  EXPECT_TRUE(same_bits(later.values(), y.values()));
  EXPECT_EQ(refusal([&] { embedding.forward_from(-1, kTokens, y.view()); }),
            "Embedding: first_position is -1; expected at least 0");
  const Activations d_y = drawn(y.shape(), 1);
  embedding.backward(kTokens, d_y.view());
  Layer with_positions = layer(5, 4, 7);
  with_positions.backward(kTokens, d_y.view());
  EXPECT_EQ(embedding.table.gradient, with_positions.table.gradient);
  EXPECT_EQ(refusal([] { layer(5, -1, 7); }), "Embedding: max_length is -1; expected at least 0");
}

TEST(Embedding, Refusals) {
  Layer embedding = layer(5, 4, 7);
  const Activations y({2, 1, 3, 7});
  const auto forward = [&](const std::vector<Index>& tokens, const Shape& shape) {
    const Activations to(shape);
    return refusal([&] { embedding.forward(tokens, to.view()); });
  };
  EXPECT_EQ(forward({0, 1}, {2, 1, 3, 7}),
            "Embedding: the number of tokens is 2; expected 6, the batch times the rows of y");
  EXPECT_EQ(forward({0, 1, 2, 3, 4}, {1, 1, 5, 7}),
            "Embedding: y has 5 rows; expected at most 4, max_length");
}

TEST(Embedding, SupportsTokensOf32And64Bits) {
  const std::vector<std::int32_t> narrow(kTokens.begin(), kTokens.end());
  const std::vector<long long> wide(kTokens.begin(), kTokens.end());
  const Activations d_y = drawn({2, 1, 3, 70}, 1);
  const auto results = [&](const auto& tokens) {
    Layer embedding = layer(5, 6, 70);
    const Activations y(d_y.shape()), later(d_y.shape());
    embedding.forward(tokens, y.view());
    embedding.forward_from(2, tokens, later.view());
    embedding.backward(tokens, d_y.view());
    std::vector<double> all = y.values();
    std::ranges::copy(later.values(), std::back_inserter(all));
    for (const auto* sum : {&embedding.table.gradient, &embedding.position.gradient}) {
      std::ranges::copy(std::span(sum->data(), as_size(sum->size())), std::back_inserter(all));
    }
    return all;
  };
  EXPECT_TRUE(same_bits(results(narrow), results(kTokens)));
  EXPECT_TRUE(same_bits(results(wide), results(kTokens)));
}

/// Of any width, tokens outside of the vocabulary are refused before anything is written.
TEST(Embedding, WritesNothingForTokensOutsideOfTheVocabulary) {
  Layer embedding = layer(5, 4, 7);
  const Activations y({2, 1, 3, 7}), d_y = drawn(y.shape(), 1);
  const auto expect_refusal = [&](const auto& tokens, const std::string& message) {
    EXPECT_EQ(refusal([&] { embedding.forward(tokens, y.view()); }), message);
    EXPECT_EQ(refusal([&] { embedding.forward_from(1, tokens, y.view()); }), message);
    EXPECT_EQ(refusal([&] { embedding.backward(tokens, d_y.view()); }), message);
    for (const double at : y.values()) EXPECT_TRUE(std::isnan(at));
    EXPECT_EQ(embedding.table.gradient.squaredNorm(), 0);
    EXPECT_EQ(embedding.position.gradient.squaredNorm(), 0);
  };
  const auto expect_refusals = [&](auto bits) {
    using Token = decltype(bits);
    expect_refusal(std::vector<Token>{0, 1, 2, 3, 4, 5},
                   "Embedding: token 5 is 5; expected 0 to 4, the vocabulary");
    expect_refusal(std::array<Token, 6>{0, 1, 2, 3, 4, -1},
                   "Embedding: token 5 is -1; expected 0 to 4, the vocabulary");
    const Token least = (std::numeric_limits<Token>::min)();
    expect_refusal(
        std::vector<Token>{0, 1, 2, 3, 4, least},
        "Embedding: token 5 is " + std::to_string(least) + "; expected 0 to 4, the vocabulary");
  };
  expect_refusals(std::int32_t{});
  expect_refusals(std::int64_t{});
}

TEST(Embedding, RefusalsOfTheGradientsOfLogits) {
  Layer embedding = layer(9, 4, 7);
  const Activations x = drawn({2, 1, 3, 7}, 1), d_logits = drawn({2, 1, 3, 9}, 2);
  const auto with = [&](const View<const double>& from, const View<const double>& of,
                        const View<double>& to) {
    const std::string text = refusal([&] { embedding.logits_backward(from, of, to); });
    EXPECT_EQ(embedding.table.gradient.squaredNorm(), 0);
    return text;
  };
  const auto to = [&](const Shape& shape) {
    const Activations d_x(shape);
    const std::string text = with(x.view(), d_logits.view(), d_x.view());
    for (const double at : d_x.values()) EXPECT_TRUE(std::isnan(at));
    return text;
  };
  EXPECT_EQ(to({2, 1, 3, 6}), "Embedding: d_x has width 6; expected 7, the width of the layer");
  EXPECT_EQ(to({2, 1, 2, 7}), "Embedding: d_x has 2 rows; expected 3, the rows of x");
  EXPECT_EQ(with(x.view(), d_logits.view(), x.view()),
            "Embedding: d_x overlaps x; outputs must not alias inputs or each other");
  const View<double> wide(d_logits.view().data(), x.shape());
  EXPECT_EQ(with(x.view(), d_logits.view(), wide),
            "Embedding: d_x overlaps d_logits; outputs must not alias inputs or each other");
  EXPECT_EQ(with(d_logits.view(), d_logits.view(), {}),
            "Embedding: x has width 9; expected 7, the width of the layer");
  EXPECT_EQ(with(x.view(), x.view(), {}),
            "Embedding: d_logits has width 7; expected 9, the width of the layer");
}

}  // namespace fovea_test::layers_embedding
