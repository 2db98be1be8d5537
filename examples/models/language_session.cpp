// SPDX-License-Identifier: MIT
/// \file
/// Language models whose attention has a pattern.
#include "language_session.hpp"

namespace models {

namespace {

template <class W>
std::unique_ptr<LanguageSession> session(const Gguf& file, const ChosenAttention& attention,
                                         bool short_cache, Index reserve) {
  using Short = std::conditional_t<std::same_as<W, float>, Eigen::half, W>;
  auto model = load_llama<ChosenAttention, W>(llama_sizes(file), attention, file.tensors);
  if (short_cache) {
    return std::make_unique<SessionOf<ChosenAttention, W, Short>>(std::move(model), reserve);
  }
  return std::make_unique<SessionOf<ChosenAttention, W>>(std::move(model), reserve);
}

}  // namespace

std::unique_ptr<LanguageSession> pattern_session(const Gguf& file, const ChosenAttention& attention,
                                                 const SessionTypes& types, Index reserve) {
  switch (types.weights) {
    case WeightType::f16:
      return session<Eigen::half>(file, attention, types.short_cache, reserve);
    case WeightType::bf16:
      return session<Eigen::bfloat16>(file, attention, types.short_cache, reserve);
    case WeightType::f32:
      break;
  }
  return session<float>(file, attention, types.short_cache, reserve);
}

}  // namespace models
