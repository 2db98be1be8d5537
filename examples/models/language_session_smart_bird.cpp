// SPDX-License-Identifier: MIT
/// \file
/// Language models whose keys are chosen by Smart Bird.
#include "language_session.hpp"
#include "sketch_of_weights.hpp"

namespace models {

std::unique_ptr<LanguageSession> smart_bird_session(const Gguf& file, Index keys, Index reserve) {
  using Op = fovea::SmartBirdAttention;
  const LlamaSizes sizes = llama_sizes(file);
  fovea::TensorSet set = file.tensors;
  add_sketches(sizes, fovea::MultiHeadOptions{}.sketch_width, set);
  const Op op({.keys_per_row = keys, .causal = true});
  return std::make_unique<SessionOf<Op, float>>(load_llama<Op, float>(sizes, op, set), reserve);
}

}  // namespace models
