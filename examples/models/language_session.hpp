// SPDX-License-Identifier: MIT
/// \file
/// A language model with a sequence of tokens, for any operator and type of weights.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "chosen_attention.hpp"
#include "gguf.hpp"
#include "llama.hpp"

namespace models {

/// Queries, keys and values of a layer as inputs of attention, after rotary positions.
struct LayerHeads {
  std::array<std::vector<float>, 3> values;       ///< q, k, v
  std::array<std::vector<Index>, 3> shapes = {};  ///< [H, N, D], then [Hk, N, D] twice
};

/// A model and the tokens so far.
class LanguageSession {
 public:
  virtual ~LanguageSession() = default;
  virtual const LlamaSizes& sizes() const = 0;
  /// The number of tokens so far.
  virtual Index length() const = 0;
  /// Drops the tokens from position `length` on.
  virtual void rollback(Index length) = 0;
  /// Appends tokens. \param last number of last tokens whose logits are computed
  /// \return [1, 1, last, vocabulary], valid until the next call
  virtual fovea::View<const float> step(std::span<const Index> tokens, Index last,
                                        const fovea::ThreadPool& pool) = 0;
  /// The inputs of a layer's operator for these tokens alone.
  virtual LayerHeads heads_of(std::span<const Index> tokens, Index layer,
                              const fovea::ThreadPool& pool) const = 0;
};

/// The type of the matrices of a model.
enum class WeightType { f32, f16, bf16 };

/// The types of the numbers of a session.
struct SessionTypes {
  WeightType weights = WeightType::f32;
  bool short_cache = false;  ///< keys and values as those 16 bits that weights have, or f16
};

/// The model of a file, with the chosen attention.
/// \param file is not needed afterwards \param reserve tokens to allocate memory for
/// \throws std::runtime_error, std::invalid_argument
std::unique_ptr<LanguageSession> pattern_session(const Gguf& file, const ChosenAttention& attention,
                                                 const SessionTypes& types, Index reserve);
/// The same with keys that Smart Bird chooses by a sketch, which is computed from the weights.
std::unique_ptr<LanguageSession> smart_bird_session(const Gguf& file, Index keys, Index reserve);

/// A session of a model with the operator Op, weights of W and a cache of S.
template <class Op, class W, class S = float>
class SessionOf final : public LanguageSession {
 public:
  SessionOf(Llama<Op, W> model, Index reserve)
      : model_(std::move(model)), decoder_(model_, reserve) {}

  const LlamaSizes& sizes() const override { return model_.sizes(); }
  Index length() const override { return decoder_.length(); }
  void rollback(Index length) override { decoder_.rollback(length); }

  fovea::View<const float> step(std::span<const Index> tokens, Index last,
                                const fovea::ThreadPool& pool) override {
    return decoder_.step(tokens, last, pool);
  }

  LayerHeads heads_of(std::span<const Index> tokens, Index layer,
                      const fovea::ThreadPool& pool) const override {
    const auto count = static_cast<Index>(tokens.size());
    const LlamaSizes& sizes = model_.sizes();
    fovea::Buffer<float> buffers[2];
    fovea::View<float> x = buffers[0].resize(1, count, sizes.width);
    fovea::View<float> y = buffers[1].resize(1, count, sizes.width);
    model_.embedding().forward(tokens, x, pool);
    typename Llama<Op, W>::Block::Saved saved;
    for (Index i = 0; i <= layer; ++i) {
      const auto& block = model_.stack().blocks[static_cast<std::size_t>(i)];
      block.forward(fovea::View<const float>(x), y, saved, pool);
      std::swap(x, y);
    }
    return heads_of(saved.attention.projected.view());
  }

 private:
  LayerHeads heads_of(const fovea::View<float>& projected) const {
    const LlamaSizes& sizes = model_.sizes();
    LayerHeads all;
    Index column = 0;
    for (std::size_t part = 0; part < 3; ++part) {
      const Index heads = part == 0 ? sizes.heads : sizes.key_heads;
      all.shapes[part] = {heads, projected.rows(), sizes.head_width};
      for (Index h = 0; h < heads; ++h, column += sizes.head_width) {
        for (Index n = 0; n < projected.rows(); ++n) {
          const float* const row = &projected(0, 0, n, column);
          all.values[part].insert(all.values[part].end(), row, row + sizes.head_width);
        }
      }
    }
    return all;
  }

  Llama<Op, W> model_;
  LlamaDecoder<Op, W, S> decoder_;
};

}  // namespace models
