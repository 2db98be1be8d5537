// SPDX-License-Identifier: MIT
/// \file
/// A model is trained, saved during training, and loaded into another one, which continues with the
/// same bits. Loading the file of another model throws an error that names the difference.
#include <cstdio>
#include <fovea/fovea.hpp>
#include <fovea/io.hpp>
#include <random>
#include <stdexcept>
#include <vector>

using fovea::Index;
using Tensor = fovea::Tensor4<float>;
using Attention = fovea::MultiHead<fovea::FullAttention>;

constexpr Index kRows = 32, kWidth = 16;

/// Two blocks that learn to output the channels of each token's predecessor.
struct Model : fovea::LayerParts<Model> {
  std::vector<fovea::EncoderBlock<Attention>> blocks;

  explicit Model(std::uint64_t seed) {
    fovea::Initialiser initialiser(seed);
    for (int i = 0; i < 2; ++i) {
      const fovea::FullAttention op{{.causal = true}};
      blocks.emplace_back(Attention(op, {.width = kWidth, .heads = 2}, initialiser), kWidth,
                          2 * kWidth, initialiser);
    }
  }

  // Parameters are called blocks.0.norm1.scale, blocks.0.attention.qkv.weight, ...
  template <class Self, class F>
  static void each_part(Self& self, F&& f) {
    f("blocks", self.blocks);
  }

  float step(const Tensor& x, const Tensor& target, fovea::Adam<float>& adam) {
    std::vector<fovea::EncoderBlock<Attention>::Saved> saved(2);
    Tensor hidden(1, 1, kRows, kWidth), y(1, 1, kRows, kWidth), d_y(1, 1, kRows, kWidth);
    Tensor d_hidden(1, 1, kRows, kWidth), d_x(1, 1, kRows, kWidth);
    blocks[0].forward(x, hidden, saved[0]);
    blocks[1].forward(hidden, y, saved[1]);
    d_y = y - target;
    const Eigen::Tensor<float, 0, Eigen::RowMajor> loss = d_y.square().mean();
    fovea::zero_gradients(*this);
    blocks[1].backward(hidden, saved[1], d_y, d_hidden);
    blocks[0].backward(x, saved[0], d_hidden, d_x);
    adam.step(*this);
    return loss();
  }
};

int main() {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  Tensor x(1, 1, kRows, kWidth), target(1, 1, kRows, kWidth);
  for (Index i = 0; i < x.size(); ++i) x.data()[i] = normal(random);
  for (Index i = 0; i < x.size(); ++i) target.data()[i] = i < kWidth ? 0 : x.data()[i - kWidth];

  Model model(1);
  fovea::Adam<float> adam({.learning_rate = 1e-2});
  float first = 0, last = 0;
  for (int step = 0; step < 40; ++step) {
    const float loss = model.step(x, target, adam);
    if (step == 0) first = loss;
  }
  fovea::write_safetensors("model.safetensors", fovea::checkpoint_of(model, adam, {.step = 40}));

  Model other(2);
  fovea::Adam<float> others({.learning_rate = 1e-2});
  const auto progress =
      fovea::load_checkpoint(other, others, fovea::read_safetensors("model.safetensors"));
  bool same = progress.step == 40;
  for (int step = 0; step < 10; ++step) {
    last = model.step(x, target, adam);
    same = same && last == other.step(x, target, others);
  }
  std::printf("loss below half of the first: %s, continues with the same bits: %s\n",
              last < first / 2 ? "yes" : "no", same ? "yes" : "no");

  try {
    fovea::Initialiser initialiser(1);
    fovea::Linear<float> head(kWidth, 2, initialiser);
    fovea::load_parameters(head, fovea::read_safetensors("model.safetensors"));
  } catch (const std::runtime_error& error) {
    std::printf("%.62s...\n", error.what());
  }
  return same ? 0 : 1;
}
