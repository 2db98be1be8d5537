// SPDX-License-Identifier: MIT
/// \file
/// A Transformer over tokens with any layer of attention, and its training. One source of
/// learner_*.cpp builds it for a few systems.
#pragma once

#include <cstdio>
#include <fovea/io/checkpoint.hpp>
#include <fovea/io/safetensors.hpp>
#include <fovea/layers/adam.hpp>
#include <fovea/layers/cross_entropy.hpp>
#include <fovea/layers/embedding.hpp>
#include <fovea/layers/encoder_stack.hpp>
#include <fovea/layers/mean_pool.hpp>
#include <fovea/layers/multi_head.hpp>
#include <fovea/layers/schedule.hpp>
#include <sstream>

#include "bench/learning/learner.hpp"

namespace learning {

using fovea::Buffer;
using fovea::View;

/// Additional inputs and losses of an attention layer: none by default.
template <class Layer>
struct Companion : fovea::LayerParts<Companion<Layer>> {
  Companion() = default;
  Companion(const Settings&, const Task&, fovea::Initialiser&) {}

  template <class Blocks>
  void before_step(Blocks&, std::uint64_t) {}
  template <class Blocks>
  void before_evaluation(Blocks&) {}
  template <class Blocks, class Saved>
  void learn(Blocks&, const Saved&, const Batch&) {}
};

/// Tokens and positions, blocks, a normalisation, and a classifier of rows, or of their mean.
template <class Layer>
struct Model : fovea::LayerParts<Model<Layer>> {
  using Stack = fovea::EncoderStack<fovea::EncoderBlock<Layer>>;

  fovea::Embedding<float> embedding;
  Stack stack;
  fovea::LayerNorm<float> norm;
  fovea::Linear<float> classifier;
  Companion<Layer> companion;
  bool asks_rows;

  /// \param make_layer of an initialiser \param hidden channels of the feed-forward networks
  template <class MakeLayer>
  Model(const Settings& settings, const Task& task, const MakeLayer& make_layer, Index hidden)
      : norm(settings.width), asks_rows(task.asks_rows()) {
    fovea::Initialiser initialiser(settings.seed);
    embedding = {task.vocabulary(), task.length(), settings.width, initialiser};
    for (Index i = 0; i < settings.layers; ++i) {
      stack.blocks.emplace_back(make_layer(initialiser), settings.width, hidden, initialiser);
    }
    classifier = {settings.width, task.classes(), initialiser, {.name = "classifier"}};
    companion = Companion<Layer>(settings, task, initialiser);
  }

  template <class Self, class F>
  static void each_part(Self& self, F&& f) {
    f(self.embedding);
    f(self.stack);
    f(self.norm);
    f(self.classifier);
    f(self.companion);
  }

  /// State saved by a pass, and buffers.
  struct Saved {
    typename Stack::Saved stack;
    fovea::LayerNorm<float>::Saved norm;
    fovea::Linear<float>::Saved classifier;
    fovea::MeanPool<float>::Saved pool;
    Buffer<float> x, y, normal, pooled, logits, d_logits, d_pooled, d_normal, d_y;
  };

  /// \return [B, 1, L or 1, classes]
  View<float> forward(const Batch& batch, Saved& saved) const {
    const Index length = std::ssize(batch.tokens) / batch.sequences;
    const View<float> x = saved.x.resize(batch.sequences, length, norm.width());
    const View<float> y = saved.y.resize(x.shape());
    const View<float> normal = saved.normal.resize(x.shape());
    embedding.forward(batch.tokens, x);
    stack.forward({x, batch.lengths}, y, saved.stack);
    norm.forward(y, normal, saved.norm);
    View<float> read = normal;
    if (!asks_rows) {
      read = saved.pooled.resize(batch.sequences, 1, norm.width());
      pool_.forward({normal, batch.lengths}, read, saved.pool);
    }
    const View<float> logits = saved.logits.resize(batch.sequences, read.rows(), classifier.out());
    classifier.forward(read, logits, saved.classifier);
    return logits;
  }

  /// Adds to the gradients, given saved.d_logits.
  void backward(const Batch& batch, Saved& saved) {
    const View<const float> x(saved.x.view());
    const View<float> d_normal = saved.d_normal.resize(x.shape());
    const View<float> d_y = saved.d_y.resize(x.shape());
    const View<float> d_logits = saved.d_logits.view();
    if (asks_rows) {
      classifier.backward(saved.normal.view(), saved.classifier, d_logits, d_normal);
    } else {
      const View<float> d_pooled = saved.d_pooled.resize(saved.pooled.view().shape());
      classifier.backward(saved.pooled.view(), saved.classifier, d_logits, d_pooled);
      pool_.backward({saved.normal.view(), batch.lengths}, saved.pool, d_pooled, d_normal);
    }
    norm.backward(saved.y.view(), saved.norm, d_normal, d_y);
    stack.backward({x, batch.lengths}, saved.stack, d_y, d_normal);
    embedding.backward(batch.tokens, d_normal);
  }

 private:
  fovea::MeanPool<float> pool_;
};

/// A Model that learns. Batches to learn from have even seeds, those that are held out an odd one.
template <class Layer>
class LearnerOf final : public Learner {
 public:
  template <class MakeLayer>
  LearnerOf(const Settings& settings, const Task& task, const MakeLayer& make_layer, Index hidden)
      : settings_(settings),
        model_(settings, task, make_layer, hidden),
        adam_({.weight_decay = 0.01, .clip_norm = 1.0}) {}

  Index parameters() const override { return fovea::parameter_count(model_); }
  Index step() const override { return step_; }

  double learn(const Task& task) override {
    const Batch batch = task.draw(settings_.batch, 2 * settings_.seed, step_);
    model_.companion.before_step(model_.stack.blocks, static_cast<std::uint64_t>(step_) + 1);
    const View<float> logits = model_.forward(batch, saved_);
    const View<float> d_logits = saved_.d_logits.resize(logits.shape());
    const double loss = fovea::softmax_cross_entropy<float>(logits, batch.targets, d_logits);
    fovea::zero_gradients(model_);
    model_.backward(batch, saved_);
    model_.companion.learn(model_.stack.blocks, saved_.stack, batch);
    const fovea::RateSchedule schedule{.peak = settings_.learning_rate,
                                       .warmup_steps = std::min<Index>(100, settings_.steps / 10),
                                       .total_steps = settings_.steps,
                                       .last = settings_.learning_rate / 10};
    adam_.options.learning_rate = schedule.rate(step_);
    adam_.step(model_);
    ++step_;
    return loss;
  }

  Score evaluate(const Task& task) override {
    constexpr std::uint64_t held_out_seed = 1;
    model_.companion.before_evaluation(model_.stack.blocks);
    double loss = 0;
    Index right = 0, asked = 0;
    for (Index first = 0; first < settings_.held_out; first += settings_.batch) {
      const Index count = std::min(settings_.batch, settings_.held_out - first);
      const Batch batch = task.draw(count, held_out_seed, first);
      const View<float> logits = model_.forward(batch, saved_);
      const Index here = std::ssize(batch.targets) -
                         std::count(batch.targets.begin(), batch.targets.end(), kUnasked);
      loss += static_cast<double>(here) *
              fovea::softmax_cross_entropy<float>(logits, batch.targets, View<float>{});
      asked += here;
      right += right_answers(logits, batch.targets);
    }
    const auto all = static_cast<double>(asked);
    return {loss / all, static_cast<double>(right) / all};
  }

  void save(const std::string& path, const std::vector<Point>& points) override {
    fovea::TensorSet set =
        fovea::checkpoint_of(model_, adam_, {.step = step_, .seed = settings_.seed});
    std::string lines;
    for (const Point& point : points) {
      char line[160];
      std::snprintf(line, sizeof line, "%td %.17g %.17g %.17g\n", point.step, point.learnt_loss,
                    point.held_out.loss, point.held_out.accuracy);
      lines += line;
    }
    set.metadata.insert({{"settings", settings_.text()}, {"points", lines}});
    fovea::write_safetensors(path, set);
  }

  void load(const std::string& path, std::vector<Point>& points) override {
    const fovea::TensorSet set = fovea::read_safetensors(path);
    if (set.string_at("settings") != settings_.text()) {
      fovea::refuse_file(path, "its settings are '" + set.string_at("settings") + "'; expected '" +
                                   settings_.text() + "'");
    }
    step_ = fovea::load_checkpoint(model_, adam_, set).step;
    std::istringstream lines(set.string_at("points"));
    points.clear();
    for (Point p; lines >> p.step >> p.learnt_loss >> p.held_out.loss >> p.held_out.accuracy;) {
      points.push_back(p);
    }
  }

 private:
  static Index right_answers(const View<const float>& logits, const std::vector<Index>& targets) {
    Index right = 0;
    for (Index b = 0; b < logits.batch(); ++b) {
      for (Index i = 0; i < logits.rows(); ++i) {
        const float* const row = &logits(b, 0, i, 0);
        const Index best = std::max_element(row, row + logits.width()) - row;
        right += best == targets[static_cast<std::size_t>(b * logits.rows() + i)] ? 1 : 0;
      }
    }
    return right;
  }

  Settings settings_;
  Model<Layer> model_;
  fovea::Adam<float> adam_;
  Index step_ = 0;
  typename Model<Layer>::Saved saved_;
};

/// A learner with MultiHead of this operator in each block.
template <class Op>
std::unique_ptr<Learner> learner_of(const Op& op, const Settings& settings, const Task& task) {
  using Layer = fovea::MultiHead<Op>;
  return std::make_unique<LearnerOf<Layer>>(
      settings, task,
      [&](fovea::Initialiser& initialiser) {
        return Layer(op, {.width = settings.width, .heads = settings.heads}, initialiser);
      },
      4 * settings.width);
}

}  // namespace learning
