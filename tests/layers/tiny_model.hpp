// SPDX-License-Identifier: MIT
/// \file
/// A model of one block that learns a few sequences by heart, around any attention layer.
#pragma once

#include "fovea/layers/adam.hpp"
#include "fovea/layers/cross_entropy.hpp"
#include "fovea/layers/embedding.hpp"
#include "fovea/layers/encoder_block.hpp"
#include "fovea/layers/mean_pool.hpp"
#include "layers/gradient_check.hpp"

namespace fovea_test {

template <class AttentionLayer>
class TinyModel : public fovea::LayerParts<TinyModel<AttentionLayer>> {
 public:
  static constexpr Index kBatch = 8;
  static constexpr Index kRows = 10;
  static constexpr Index kWidth = 8;
  static constexpr Index kVocabulary = 5;

  fovea::EncoderBlock<AttentionLayer, double> block;

  TinyModel(AttentionLayer layer, fovea::Initialiser& initialiser)
      : block(std::move(layer), kWidth, 16, initialiser),
        embedding_(kVocabulary, kRows, kWidth, initialiser),
        classifier_(kWidth, 2, initialiser) {
    Draw draw(5);
    for (Index i = 0; i < kBatch * kRows; ++i) tokens_.push_back(draw(0, kVocabulary - 1));
    for (Index b = 0; b < kBatch; ++b) labels_.push_back(b % 2);
  }

  template <class Self, class F>
  static void each_part(Self& self, F&& f) {
    f(self.embedding_);
    f(self.block);
    f("classifier", self.classifier_);
  }

  /// Loss before the step.
  template <class E>
  double step(fovea::Adam<double>& adam, E&& executor) {
    const View<double> x = x_.resize(kBatch, kRows, kWidth);
    const View<double> y = y_.resize(kBatch, kRows, kWidth);
    const View<double> mean = mean_.resize(kBatch, 1, kWidth);
    const View<double> logits = logits_.resize(kBatch, 1, 2);
    const View<double> d_logits = d_logits_.resize(kBatch, 1, 2);
    fovea::MeanPool<double> pool;
    typename fovea::MeanPool<double>::Saved pool_saved;
    typename fovea::Linear<double>::Saved linear_saved;
    embedding_.forward(tokens_, x, executor);
    block.forward(x, y, saved_, executor);
    pool.forward(y, mean, executor);
    classifier_.forward(mean, logits, executor);
    const double loss = fovea::softmax_cross_entropy<double>(logits, labels_, d_logits, executor);
    fovea::zero_gradients(*this);
    const View<double> d_mean = d_mean_.resize(kBatch, 1, kWidth);
    const View<double> d_y = d_y_.resize(kBatch, kRows, kWidth);
    const View<double> d_x = d_x_.resize(kBatch, kRows, kWidth);
    classifier_.backward(mean, linear_saved, d_logits, d_mean, executor);
    pool.backward(y, pool_saved, d_mean, d_y, executor);
    block.backward(x, saved_, d_y, d_x, executor);
    embedding_.backward(tokens_, d_x, executor);
    adam.step(*this, executor);
    return loss;
  }

 private:
  fovea::Embedding<double> embedding_;
  fovea::Linear<double> classifier_;
  std::vector<Index> tokens_;
  std::vector<Index> labels_;
  typename fovea::EncoderBlock<AttentionLayer, double>::Saved saved_;
  fovea::Buffer<double> x_, y_, mean_, logits_, d_logits_, d_mean_, d_y_, d_x_;
};

/// The losses of that many steps. \param prepare (layer, step) before each step
template <class AttentionLayer, class E, class Prepare>
std::vector<double> losses(const AttentionLayer& layer, int steps, E&& executor,
                           Prepare&& prepare) {
  fovea::Initialiser initialiser(9);
  TinyModel<AttentionLayer> model(layer, initialiser);
  fovea::Adam<double> adam({.learning_rate = 1e-2, .clip_norm = 1.0});
  std::vector<double> all;
  for (int step = 0; step < steps; ++step) {
    prepare(model.block.attention, step);
    all.push_back(model.step(adam, executor));
  }
  return all;
}

/// The loss falls from that of a coin to a tenth, and the same bits come from three threads.
template <class AttentionLayer, class Prepare>
void expect_learning(const AttentionLayer& layer, int steps, Prepare&& prepare) {
  const std::vector<double> serial = losses(layer, steps, fovea::Serial{}, prepare);
  EXPECT_GT(serial.front(), 0.4);
  EXPECT_LT(serial.back(), 0.1 * serial.front());
  fovea::ThreadPool pool(3);
  const AnyExecutor three = AnyExecutor::of(pool);
  EXPECT_TRUE(same_bits(losses(layer, steps, three, prepare), serial));
}

}  // namespace fovea_test
