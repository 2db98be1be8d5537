// SPDX-License-Identifier: MIT
/// \file
/// Language models whose attention has a pattern.
#include "language_session.hpp"

namespace models {

namespace {

template <class W>
std::unique_ptr<LanguageSession> session(const Gguf& file, const ChosenAttention& attention,
                                         Index reserve) {
  return std::make_unique<SessionOf<ChosenAttention, W>>(
      load_llama<ChosenAttention, W>(llama_sizes(file), attention, file.tensors), reserve);
}

}  // namespace

std::unique_ptr<LanguageSession> pattern_session(const Gguf& file, const ChosenAttention& attention,
                                                 WeightType weights, Index reserve) {
  switch (weights) {
    case WeightType::f16:
      return session<Eigen::half>(file, attention, reserve);
    case WeightType::bf16:
      return session<Eigen::bfloat16>(file, attention, reserve);
    case WeightType::f32:
      break;
  }
  return session<float>(file, attention, reserve);
}

}  // namespace models
