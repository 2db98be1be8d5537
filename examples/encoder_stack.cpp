// SPDX-License-Identifier: MIT
/// \file
/// A stack of encoder blocks, run over a whole sequence and token by token.
#include <cstdio>
#include <fovea/fovea.hpp>
#include <utility>
#include <vector>

int main() {
  using Attention = fovea::MultiHead<fovea::FullAttention>;
  using Block = fovea::EncoderBlock<Attention>;
  constexpr fovea::Index width = 32, hidden = 64, n = 20;

  fovea::Initialiser initialiser(7);  // the seed of all weights
  const fovea::FullAttention op{{.causal = true}};
  const fovea::MultiHeadOptions options{
      .width = width, .heads = 4, .key_heads = 2, .rotary = fovea::RotaryOptions{}};
  std::vector<Block> blocks;
  for (int i = 0; i < 3; ++i) {
    blocks.emplace_back(Attention(op, options, initialiser), width, hidden, initialiser);
  }
  const fovea::EncoderStack<Block> stack(std::move(blocks));

  fovea::Tensor4<float> x(1, 1, n, width), y(1, 1, n, width), row(1, 1, 1, width);
  x.setRandom();
  stack.forward(x, y);  // [B, 1, N, width]

  auto decoder = stack.decoder({.batch = 1});
  bool same = true;
  for (fovea::Index i = 0; i < n; ++i) {
    const fovea::View<const float> token(&x(0, 0, i, 0), {1, 1, 1, width});
    decoder.step(token, row);
    for (fovea::Index c = 0; c < width; ++c) same = same && row(0, 0, 0, c) == y(0, 0, i, c);
  }
  std::printf("3 blocks, token by token, same bits as one call: %s\n", same ? "yes" : "no");
  return same ? 0 : 1;
}
