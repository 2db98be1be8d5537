// SPDX-License-Identifier: MIT
/// \file
/// A decoder-only transformer over bytes with the attention of any causal operator, and its
/// training. One source of byte_model_*.cpp builds it for a few operators.
#pragma once

#include <cmath>
#include <fovea/io/checkpoint.hpp>
#include <fovea/io/safetensors.hpp>
#include <fovea/layers/cross_entropy.hpp>
#include <fovea/layers/embedding.hpp>
#include <fovea/layers/encoder_stack.hpp>
#include <fovea/layers/multi_head.hpp>
#include <fovea/layers/schedule.hpp>

#include "byte_learner.hpp"

namespace models {

using fovea::View;

inline constexpr Index kBytes = 256;

/// Bytes and positions, blocks, a normalisation, and logits that are tied to the bytes' table.
template <class Op>
struct ByteModel : fovea::LayerParts<ByteModel<Op>> {
  using Attention = fovea::MultiHead<Op>;
  using Stack = fovea::EncoderStack<fovea::EncoderBlock<Attention>>;

  fovea::Embedding<float> embedding;
  Stack stack;
  fovea::LayerNorm<float> norm;

  ByteModel(const Op& op, const ByteSettings& settings) : norm(settings.width) {
    fovea::Initialiser initialiser(settings.seed);
    embedding = {kBytes, settings.length, settings.width, initialiser};
    for (Index i = 0; i < settings.layers; ++i) {
      stack.blocks.emplace_back(
          Attention(op, {.width = settings.width, .heads = settings.heads}, initialiser),
          settings.width, 4 * settings.width, initialiser);
    }
  }

  template <class Self, class F>
  static void each_part(Self& self, F&& f) {
    f(self.embedding);
    f(self.stack);
    f(self.norm);
  }

  /// State saved by a pass, and buffers.
  struct Saved {
    typename Stack::Saved stack;
    fovea::LayerNorm<float>::Saved norm;
    fovea::Buffer<float> x, y, normal, logits, d_logits, d_normal, d_y;
  };

  /// \param tokens [B L] \return [B, 1, L, 256]
  View<float> forward(std::span<const Index> tokens, Index batch, Saved& saved,
                      const fovea::ThreadPool& pool) const {
    const Index length = static_cast<Index>(tokens.size()) / batch;
    const View<float> x = saved.x.resize(batch, length, norm.width());
    const View<float> y = saved.y.resize(x.shape());
    const View<float> normal = saved.normal.resize(x.shape());
    const View<float> logits = saved.logits.resize(batch, length, kBytes);
    embedding.forward(tokens, x, pool);
    stack.forward(View<const float>(x), y, saved.stack, pool);
    norm.forward(y, normal, saved.norm, pool);
    embedding.logits(normal, logits, pool);
    return logits;
  }

  /// Adds to the gradients, given saved.d_logits.
  void backward(std::span<const Index> tokens, Saved& saved, const fovea::ThreadPool& pool) {
    const View<const float> x(saved.x.view());
    const View<float> d_normal = saved.d_normal.resize(x.shape());
    const View<float> d_y = saved.d_y.resize(x.shape());
    embedding.logits_backward(saved.normal.view(), saved.d_logits.view(), d_normal, pool);
    norm.backward(saved.y.view(), saved.norm, d_normal, d_y, pool);
    stack.backward(x, saved.stack, d_y, d_normal, pool);
    embedding.backward(tokens, d_normal, pool);
  }
};

/// A ByteModel that is trained.
template <class Op>
class ByteLearnerOf final : public ByteLearner {
 public:
  /// \param checkpoint to continue from, or null
  ByteLearnerOf(const Op& op, const ByteSettings& settings, const fovea::TensorSet* checkpoint)
      : settings_(settings), model_(op, settings), adam_({.weight_decay = 0.01, .clip_norm = 1.0}) {
    if (checkpoint != nullptr) step_ = fovea::load_checkpoint(model_, adam_, *checkpoint).step;
  }

  Index parameters() const override { return fovea::parameter_count(model_); }
  Index step() const override { return step_; }

  double learn(const ByteText& text, const fovea::ThreadPool& pool) override {
    tokens_.clear();
    targets_.clear();
    for (Index b = 0; b < settings_.batch; ++b) {
      const auto place = fovea::uniform_draw<double>(settings_.seed, 1 << 20, 0, step_, b);
      text.append(true, place, settings_.length, tokens_, targets_);
    }
    const View<float> logits = model_.forward(tokens_, settings_.batch, saved_, pool);
    const View<float> d_logits = saved_.d_logits.resize(logits.shape());
    const double loss = fovea::softmax_cross_entropy<float>(logits, targets_, d_logits, pool);
    fovea::zero_gradients(model_);
    model_.backward(tokens_, saved_, pool);
    const fovea::RateSchedule schedule{.peak = settings_.learning_rate,
                                       .warmup_steps = std::min<Index>(100, settings_.steps / 10),
                                       .total_steps = settings_.steps,
                                       .last = settings_.learning_rate / 10};
    adam_.options.learning_rate = schedule.rate(step_);
    adam_.step(model_, pool);
    ++step_;
    return loss / std::log(2.0);
  }

  double validate(const ByteText& text, const fovea::ThreadPool& pool) override {
    constexpr Index sequences = 16;
    double sum = 0;
    for (Index i = 0; i < sequences; ++i) {
      tokens_.clear();
      targets_.clear();
      text.append(false, static_cast<double>(i) / sequences, settings_.length, tokens_, targets_);
      const View<float> logits = model_.forward(tokens_, 1, saved_, pool);
      sum += fovea::softmax_cross_entropy<float>(logits, targets_, View<float>{}, pool);
    }
    return sum / sequences / std::log(2.0);
  }

  std::vector<float> logits(std::span<const unsigned char> bytes) const override {
    typename ByteModel<Op>::Saved saved;
    const std::vector<Index> tokens(bytes.begin(), bytes.end());
    const View<float> all = model_.forward(tokens, 1, saved, fovea::ThreadPool(1));
    return {all.data(), all.data() + all.size()};
  }

  std::string generate(const std::string& prompt, Index count, const Sampling& sampling,
                       const fovea::ThreadPool& pool) const override {
    std::string text = prompt.empty() ? "\n" : prompt;
    std::string made;
    auto decoder = model_.stack.decoder({.reserve = settings_.length});
    fovea::Buffer<float> x_buffer, y_buffer, logits_buffer;
    while (static_cast<Index>(made.size()) < count) {
      const auto size = static_cast<Index>(text.size());
      Index unread = size - (made.empty() ? 0 : size - 1);  // all of the prompt, then the last byte
      if (decoder.length() + unread > settings_.length) {
        decoder.clear();
        unread = std::min(size, std::max<Index>(1, settings_.length / 2));
      }
      std::vector<Index> tokens;
      for (const char c : text.substr(static_cast<std::size_t>(size - unread))) {
        tokens.push_back(static_cast<unsigned char>(c));
      }
      const View<float> x = x_buffer.resize(1, unread, settings_.width);
      const View<float> y = y_buffer.resize(x.shape());
      const View<float> logits = logits_buffer.resize(1, unread, kBytes);
      model_.embedding.forward_from(decoder.length(), tokens, x, pool);
      decoder.step(View<const float>(x), y, pool);
      model_.norm.forward(y, x, pool);
      model_.embedding.logits(x, logits, pool);
      const std::span<const float> last(&logits(0, 0, unread - 1, 0), kBytes);
      made += static_cast<char>(draw_token(last, sampling, std::ssize(made)));
      text += made.back();
    }
    return made;
  }

  void save(const std::string& path) override {
    fovea::TensorSet set =
        fovea::checkpoint_of(model_, adam_, {.step = step_, .seed = settings_.seed});
    char rate[40];
    std::snprintf(rate, sizeof rate, "%.17g", settings_.learning_rate);
    set.metadata.insert({{"operator", settings_.op},
                         {"length", std::to_string(settings_.length)},
                         {"width", std::to_string(settings_.width)},
                         {"layers", std::to_string(settings_.layers)},
                         {"heads", std::to_string(settings_.heads)},
                         {"steps", std::to_string(settings_.steps)},
                         {"batch", std::to_string(settings_.batch)},
                         {"learning_rate", rate}});
    fovea::write_safetensors(path, set);
  }

 private:
  ByteSettings settings_;
  ByteModel<Op> model_;
  fovea::Adam<float> adam_;
  Index step_ = 0;
  std::vector<Index> tokens_, targets_;
  typename ByteModel<Op>::Saved saved_;
};

/// A learner of this operator, for the sources that build some.
template <class Op>
std::unique_ptr<ByteLearner> learner_of(const Op& op, const ByteSettings& settings,
                                        const fovea::TensorSet* checkpoint) {
  return std::make_unique<ByteLearnerOf<Op>>(op, settings, checkpoint);
}

/// A power of two near the square root of the length, for blocks and strides.
inline Index root_of(Index length) {
  Index root = 4;
  while (2 * root * root <= length) root *= 2;
  return root;
}

// What each source builds; null for an operator of another one.
std::unique_ptr<ByteLearner> make_softmax_learner(const ByteSettings& settings,
                                                  const fovea::TensorSet* checkpoint);
std::unique_ptr<ByteLearner> make_sparse_learner(const ByteSettings& settings,
                                                 const fovea::TensorSet* checkpoint);
std::unique_ptr<ByteLearner> make_linear_learner(const ByteSettings& settings,
                                                 const fovea::TensorSet* checkpoint);

}  // namespace models
