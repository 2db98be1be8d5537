// SPDX-License-Identifier: MIT
/// \file
/// Training steps of a classifier of two FSAT blocks: one of the tokens 1 and 2 is somewhere in a
/// sequence, and the model learns which.
#include <cstdio>
#include <fovea/fovea.hpp>
#include <fovea/layers/fsat_layer.hpp>

using fovea::Index;
using Tensor = fovea::Tensor4<float>;  // [B, 1, L, C]
using Block = fovea::EncoderBlock<fovea::FsatLayer<float>, float>;

constexpr Index kBatch = 16, kLength = 48, kWidth = 32, kWords = 12;

Block block(fovea::Initialiser& initialiser) {
  fovea::FsatLayerOptions options;
  options.width = kWidth;
  options.heads = 2;
  options.attention.max_length = kLength;
  return {fovea::FsatLayer<float>(options, initialiser), kWidth, 2 * kWidth, initialiser};
}

struct Classifier {
  fovea::Initialiser initialiser{1};
  fovea::Embedding<float> embedding{kWords, kLength, kWidth, initialiser};
  Block first = block(initialiser), second = block(initialiser);
  fovea::Linear<float> head{kWidth, 2, initialiser};

  template <class F>
  void visit(F&& f) {
    embedding.visit(f), first.visit(f), second.visit(f), head.visit(f);
  }
};

int main() {
  Classifier model;
  fovea::Adam<float> adam({.learning_rate = 3e-3, .clip_norm = 1.0});
  fovea::ThreadPool pool;
  fovea::MeanPool<float> mean;
  Block::Saved saved1, saved2;
  fovea::MeanPool<float>::Saved mean_saved;
  fovea::Linear<float>::Saved head_saved;
  Tensor x(kBatch, 1, kLength, kWidth), y(x), z(x), d(x), e(x);
  Tensor pooled(kBatch, 1, 1, kWidth), d_pooled(pooled), logits(kBatch, 1, 1, 2), d_logits(logits);
  double begin = 0, end = 0;
  for (int step = 0; step < 120; ++step) {
    std::vector<Index> tokens, labels;
    for (Index b = 0; b < kBatch; ++b) {
      const auto draw = [&](Index i, Index n) {
        return static_cast<Index>(static_cast<double>(n) *
                                  fovea::uniform_draw<double>(7, step, 0, b, i));
      };
      for (Index i = 0; i < kLength; ++i) tokens.push_back(3 + draw(i, kWords - 3));
      labels.push_back(draw(kLength, 2));
      tokens[static_cast<std::size_t>(b * kLength + draw(kLength + 1, kLength))] =
          1 + labels.back();
    }
    model.first.attention.set_training(static_cast<std::uint64_t>(2 * step));
    model.second.attention.set_training(static_cast<std::uint64_t>(2 * step + 1));
    model.embedding.forward(tokens, x, pool);
    model.first.forward(x, y, saved1, pool);
    model.second.forward(y, z, saved2, pool);
    mean.forward(z, pooled, mean_saved, pool);
    model.head.forward(pooled, logits, head_saved, pool);
    const double loss = fovea::softmax_cross_entropy<float>(logits, labels, d_logits, pool);
    (step < 20 ? begin : end) += step < 20 || step >= 100 ? loss / 20 : 0;

    fovea::zero_gradients(model);
    model.head.backward(pooled, head_saved, d_logits, d_pooled, pool);
    mean.backward(z, mean_saved, d_pooled, d, pool);
    model.second.backward(y, saved2, d, e, pool);
    model.first.backward(x, saved1, e, d, pool);
    model.embedding.backward(tokens, d, pool);
    adam.step(model, pool);
  }
  std::printf("mean loss of the first and the last 20 steps: %.3f, %.3f\n", begin, end);
  std::printf("loss below half of the first: %s\n", end < begin / 2 ? "yes" : "no");
}
