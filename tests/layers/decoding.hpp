// SPDX-License-Identifier: MIT
/// \file
/// The layers that can decode, and tokens for them.
#pragma once

#include <vector>

#include "fovea/attention/delta_rule.hpp"
#include "fovea/attention/fixed.hpp"
#include "fovea/attention/fmm.hpp"
#include "fovea/attention/full.hpp"
#include "fovea/attention/linear.hpp"
#include "fovea/attention/local.hpp"
#include "fovea/attention/performer.hpp"
#include "fovea/attention/smart_bird.hpp"
#include "fovea/attention/strided.hpp"
#include "fovea/layers/multi_head.hpp"
#include "layers/gradient_check.hpp"

namespace fovea_test {

inline constexpr Index kDecodedWidth = 12;

/// Calls f(name, op) for a causal operator of every kind.
template <class F>
void for_each_causal_operator(F&& f) {
  f("full", fovea::FullAttention{{.causal = true}});
  f("local", fovea::LocalAttention{{.left = 5, .right = 0}});
  f("strided", fovea::StridedAttention{{.stride = 4}});
  f("fixed", fovea::FixedAttention{{.stride = 8, .summary = 2}});
  f("linear", fovea::LinearAttention<fovea::EluPlusOne>{{.causal = true}});
  f("delta rule", fovea::DeltaRuleAttention<fovea::EluPlusOne>{});
  f("fmm", fovea::FmmAttention<fovea::EluPlusOne, fovea::DeltaRule<fovea::EluPlusOne>>{
               {.band = {.left = 3}}});
  f("performer", fovea::PerformerAttention{{.causal = true}});
  f("smart bird", fovea::SmartBirdAttention{{.keys_per_row = 6, .seed = 4, .causal = true}});
}

template <class Op, class T>
fovea::MultiHead<Op, T> make_multi_head(const Op& op, fovea::Initialiser& initialiser) {
  return {op,
          {.width = kDecodedWidth, .heads = 4, .key_heads = 2, .head_width = 5, .bias = true},
          initialiser};
}

/// Rows [first, first + count) of all sequences.
template <class T>
View<T> rows_from(const View<T>& x, Index first, Index count) {
  return {x.data() + first * x.strides()[2], {x.batch(), 1, count, x.width()}, x.strides()};
}

/// The outputs of a decoder that takes the tokens in pieces of these sizes, again and again.
template <class T, class Decoder, class E>
Tensor<T> decoded(Decoder& decoder, const Tensor<T>& x, const std::vector<Index>& pieces,
                  E&& executor) {
  Tensor<T> y(x.shape());
  Index next = 0;
  for (std::size_t piece = 0; next < x.shape()[2]; ++piece) {
    const Index count = std::min(pieces[piece % pieces.size()], x.shape()[2] - next);
    const Tensor<T> part({x.shape()[0], 1, count, x.shape()[3]});
    decoder.step(rows_from(x.view(), next, count), part.view(), executor);
    for (Index b = 0; b < x.shape()[0]; ++b) {
      for (Index n = 0; n < count; ++n) {
        for (Index c = 0; c < x.shape()[3]; ++c) y(b, 0, next + n, c) = part(b, 0, n, c);
      }
    }
    next += count;
    EXPECT_EQ(decoder.length(), next);
  }
  return y;
}

/// Any tokens.
template <class T>
Tensor<T> some_tokens(Index batch, Index rows) {
  Tensor<T> x({batch, 1, rows, kDecodedWidth});
  x.fill(gaussian(3, 1));
  return x;
}

/// y of all tokens at once.
template <class Layer, class T>
Tensor<T> at_once(const Layer& layer, const Tensor<T>& x) {
  Tensor<T> y(x.shape());
  layer.forward(View<const T>(x.view()), y.view());
  return y;
}

/// A decoder has the bits of the forward pass, with tokens in pieces of these sizes, in one thread
/// and in several, and again when it was cleared.
template <class Layer, class T>
void expect_decoded_bits(const Layer& layer, const Tensor<T>& x,
                         const std::vector<std::vector<Index>>& all_pieces) {
  const std::vector<T> expected = at_once(layer, x).values();
  fovea::ThreadPool pool(3);
  const AnyExecutor three = AnyExecutor::of(pool);
  for (const std::vector<Index>& pieces : all_pieces) {
    auto decoder = layer.decoder({.batch = x.shape()[0], .reserve = x.shape()[2]});
    EXPECT_TRUE(same_bits(decoded(decoder, x, pieces, fovea::Serial{}).values(), expected));
    decoder.clear();
    EXPECT_EQ(decoder.length(), 0);
    EXPECT_TRUE(same_bits(decoded(decoder, x, pieces, three).values(), expected));
  }
}

/// Tokens that are rolled back leave nothing in a decoder, and nothing reaches its fork.
template <class Layer>
void expect_forks_and_rollback(const Layer& layer, Index rollback_tokens = 0) {
  const Activations x = some_tokens<double>(1, 110);
  const Activations expected = at_once(layer, x);
  const auto expect_rows = [&](auto& decoder, Index first, Index last) {
    for (Index n = first; n < last; ++n) {
      const Activations y({1, 1, 1, kDecodedWidth});
      decoder.step(rows_from(x.view(), n, 1), y.view());
      for (Index c = 0; c < kDecodedWidth; ++c) EXPECT_EQ(y(0, 0, 0, c), expected(0, 0, n, c));
    }
  };
  auto decoder = layer.decoder({.rollback_tokens = rollback_tokens});
  expect_rows(decoder, 0, 70);
  auto other = decoder.fork();
  const Activations draft({1, 1, 1, kDecodedWidth});
  for (Index n = 100; n < 102; ++n) decoder.step(rows_from(x.view(), n, 1), draft.view());
  EXPECT_EQ(decoder.length(), 72);
  decoder.rollback(70);
  expect_rows(decoder, 70, 80);
  EXPECT_EQ(other.length(), 70);
  expect_rows(other, 70, 74);
  EXPECT_GT(decoder.memory_bytes(), 0);
}

}  // namespace fovea_test
