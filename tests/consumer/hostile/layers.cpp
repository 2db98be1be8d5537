// SPDX-License-Identifier: MIT
/// \file
/// A transformer's block: forward, backward and a step of Adam.
#include <fovea/attention/full.hpp>
#include <fovea/layers/adam.hpp>
#include <fovea/layers/encoder_block.hpp>
#include <fovea/layers/multi_head.hpp>

#include "problem.hpp"

namespace {
namespace layers_family {

using namespace problem;

using Attention = fovea::MultiHead<fovea::FullAttention>;
using Block = fovea::EncoderBlock<Attention>;

}  // namespace layers_family
}  // namespace

hostile::Result HOSTILE_UNIT(layers)(int level, int threads);
hostile::Result HOSTILE_UNIT(layers)(int level, int threads) {
  using namespace layers_family;
  Digest digest(level);
  fovea::ThreadPool pool(threads);
  fovea::Initialiser initialiser(1);
  const fovea::FullAttention op{{.causal = true}};
  Block block(Attention(op, {.width = 32, .heads = 2}, initialiser), 32, 64, initialiser);
  fovea::Adam<float> adam({.learning_rate = 1e-2});
  const Shape shape{2, 1, 60, 32};
  const Numbers<float> x(shape, 1), d_y(shape, 2);
  Numbers<float> y(shape), d_x(shape);
  Block::Saved saved;
  for (int step = 0; step < 2; ++step) {
    block.forward(View<const float>(x), y.to(), saved, pool);
    fovea::zero_gradients(block);
    block.backward(View<const float>(x), saved, d_y, d_x.to(), pool);
    adam.step(block, pool);
    digest.add(y, d_x);
  }
  return digest.result();
}
