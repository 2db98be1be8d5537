// SPDX-License-Identifier: MIT
/// \file
/// Decoders of the Llama family (Touvron et al. 2023): RMS normalisation before each part, rotary
/// positions, grouped queries and SwiGLU, with any operator of attention.
#pragma once

#include <fovea/fovea.hpp>
#include <fovea/layers.hpp>
#include <optional>
#include <string>
#include <type_traits>

#include "llama_sizes.hpp"

namespace models {

/// A model whose attention is `Op` and whose matrices are of W: float, or a type of 16 bits.
template <class Op, class W = float>
class Llama : public fovea::LayerParts<Llama<Op, W>> {
 public:
  using Attention = fovea::MultiHead<Op, float, W>;
  using Block = fovea::EncoderBlock<Attention, float, fovea::RmsNorm<float>,
                                    fovea::GatedFeedForward<float, W>>;

  /// A model of these sizes whose weights are 0. \throws std::invalid_argument if they are
  /// inconsistent
  Llama(const LlamaSizes& sizes, const Op& op) : sizes_(sizes) {
    fovea::Initialiser zeros = fovea::Initialiser::zeros();
    const fovea::MultiHeadOptions heads{.width = sizes.width,
                                        .heads = sizes.heads,
                                        .key_heads = sizes.key_heads,
                                        .head_width = sizes.head_width,
                                        .rotary = sizes.rotary};
    embedding_ = {sizes.vocabulary, 0, sizes.width, zeros};
    for (Index i = 0; i < sizes.blocks; ++i) {
      stack_.blocks.emplace_back(
          Attention(op, heads, zeros),
          fovea::GatedFeedForward<float, W>(sizes.width, sizes.hidden, zeros),
          fovea::EncoderBlockOptions{.epsilon = sizes.epsilon});
    }
    norm_ = fovea::RmsNorm<float>(sizes.width, {.epsilon = sizes.epsilon});
    if (!sizes.is_tied) output_ = {sizes.vocabulary, 0, sizes.width, zeros};
  }

  /// Lists the parts, under the names that `source_of` knows.
  template <class Self, class F>
  static void each_part(Self& self, F&& f) {
    f(self.embedding_);
    f(self.stack_);
    f(self.norm_);
    if (!self.sizes_.is_tied) f("output", self.output_);
  }

  const LlamaSizes& sizes() const { return sizes_; }
  const fovea::EncoderStack<Block>& stack() const { return stack_; }
  const fovea::Embedding<float, W>& embedding() const { return embedding_; }

  /// Computes what follows the last block.
  /// \param x [1, 1, N, C] is normalised in place \param logits [1, 1, N, vocabulary] is written
  template <class E>
  void logits(const fovea::View<float>& x, const fovea::View<float>& logits, E&& executor) const {
    const fovea::View<float> normal = normal_.resize(x.shape());
    norm_.forward(x, normal, executor);
    (sizes_.is_tied ? embedding_ : output_).logits(normal, logits, executor);
  }

 private:
  LlamaSizes sizes_;
  fovea::Embedding<float, W> embedding_;
  fovea::EncoderStack<Block> stack_;
  fovea::RmsNorm<float> norm_;
  fovea::Embedding<float, W> output_;
  mutable fovea::Buffer<float> normal_;
};

/// The location of a parameter in a file: matrices are [outputs, inputs], except for the token
/// table.
inline std::vector<fovea::ParameterSource> source_of(const std::string& name) {
  constexpr std::pair<std::string_view, std::string_view> parts[] = {
      {"norm1.scale", "attn_norm"},
      {"attention.out.weight", "attn_output"},
      {"norm2.scale", "ffn_norm"},
      {"feed_forward.down.weight", "ffn_down"}};
  if (name == "embedding.table") return {{"token_embd.weight"}};
  if (name == "output.embedding.table") return {{"output.weight"}};
  if (name == "norm.scale") return {{"output_norm.weight"}};
  const std::size_t dot = name.find('.', 7);  // behind "blocks.N"
  const std::string part = name.substr(dot + 1);
  const std::string block = "blk." + name.substr(7, dot - 6);
  if (part == "attention.qkv.weight") {
    return {{block + "attn_q.weight", true},
            {block + "attn_k.weight", true},
            {block + "attn_v.weight", true}};
  }
  if (part == "feed_forward.gate_up.weight") {
    return {{block + "ffn_gate.weight", true}, {block + "ffn_up.weight", true}};
  }
  for (const auto& [ours, theirs] : parts) {
    if (part == ours) return {{block + std::string(theirs) + ".weight", part.ends_with("weight")}};
  }
  return {{block + part}};  // other parameters of an operator, under their own names
}

/// The model in a file. \param set the tensors of the file, and other parameters of the operator
/// \throws std::runtime_error "<file>: <what is wrong>"
template <class Op, class W = float>
Llama<Op, W> load_llama(const LlamaSizes& sizes, const Op& op, const fovea::TensorSet& set) {
  try {
    Llama<Op, W> model(sizes, op);
    fovea::load_parameters(model, set, {.sources = source_of});
    return model;
  } catch (const std::invalid_argument& error) {
    fovea::refuse_file(set.origin, std::string("its sizes are inconsistent: ") + error.what());
  }
}

/// A growing sequence of tokens, and the logits of the token after each of them.
/// \tparam S the type of the cache: float, or a type of 16 bits
template <class Op, class W = float, class S = float>
class LlamaDecoder {
 public:
  explicit LlamaDecoder(const Llama<Op, W>& model, Index reserve = 0)
      : model_(&model), decoder_(model.stack().template decoder<S>({.reserve = reserve})) {}

  Index length() const { return decoder_.length(); }
  void rollback(Index length) { decoder_.rollback(length); }

  /// Appends tokens.
  /// \param last number of last tokens whose logits are computed
  /// \return [1, 1, last, vocabulary], valid until the next call
  template <class E>
  fovea::View<const float> step(std::span<const Index> tokens, Index last, E&& executor) {
    const auto count = static_cast<Index>(tokens.size());
    const LlamaSizes& sizes = model_->sizes();
    const fovea::View<float> x = x_.resize(1, count, sizes.width);
    const fovea::View<float> y = y_.resize(1, count, sizes.width);
    [[maybe_unused]] const auto awake = fovea::stay_awake(executor);
    model_->embedding().forward_from(0, tokens, x, executor);
    decoder_.step(x, y, executor);
    const fovea::View<float> logits = logits_.resize(1, last, sizes.vocabulary);
    if (last > 0) {
      const fovea::Shape shape = {1, 1, last, sizes.width};
      const fovea::View<float> rows(&y(0, 0, count - last, 0), shape, y.strides());
      model_->logits(rows, logits, executor);
    }
    return logits;
  }

 private:
  const Llama<Op, W>* model_;
  fovea::EncoderStackDecoder<typename Llama<Op, W>::Block, S> decoder_;
  fovea::Buffer<float> x_;
  fovea::Buffer<float> y_;
  fovea::Buffer<float> logits_;
};

}  // namespace models
