// SPDX-License-Identifier: MIT
// The learner of Smart Bird attention, whose sketches are trained, with any policy of sampling.
#include <fovea/attention/full.hpp>
#include <fovea/attention/smart_bird.hpp>

#include "bench/learning/model.hpp"

namespace learning {

/// Trains the sketch of each layer as Wu et al. (2021, section 3.1) do: a Transformer of one head
/// and d channels, whose weights are softmax(<sq_i, sk_j> / sqrt(d)), predicts the label of the
/// sequence, and its loss is the sketch's. It reads the layer's input, without a gradient, and uses
/// the mean of rows instead of the paper's attention pooling. Each step has different draws.
template <>
struct Companion<fovea::MultiHead<fovea::SmartBirdAttention>>
    : fovea::LayerParts<Companion<fovea::MultiHead<fovea::SmartBirdAttention>>> {
  /// The classifier that trains one layer's sketch.
  struct Guess : fovea::LayerParts<Guess> {
    fovea::Linear<float> values, classifier;

    template <class Self, class F>
    static void each_part(Self& self, F&& f) {
      f(self.values);
      f(self.classifier);
    }
  };

  Companion() = default;
  Companion(const Settings& settings, const Task& task, fovea::Initialiser& initialiser)
      : seed_(settings.seed) {
    const Index width = fovea::MultiHeadOptions{}.sketch_width;
    for (Index i = 0; i < settings.layers; ++i) {
      Guess& guess = guesses_.emplace_back();
      guess.values = {settings.width, width, initialiser, {.bias = false, .name = "values"}};
      guess.classifier = {width, task.classes(), initialiser, {.name = "classifier"}};
    }
  }

  template <class Self, class F>
  static void each_part(Self& self, F&& f) {
    f("guesses", self.guesses_);
  }

  template <class Blocks>
  void before_step(Blocks& blocks, std::uint64_t step) {
    for (auto& block : blocks) block.attention.op().options.seed = (seed_ << 32) + step;
  }
  template <class Blocks>
  void before_evaluation(Blocks& blocks) {
    before_step(blocks, 0);
  }

  template <class Blocks, class Saved>
  void learn(Blocks& blocks, const Saved& saved, const Batch& batch) {
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      const auto& kept = saved.blocks[i];
      const View<const float> x = kept.first.view();
      const View<const float> d_sketch =
          learn(guesses_[i], x, kept.attention.heads.learned.sketch.view(), batch);
      blocks[i].attention.visit([&](const std::string& name, auto& parameter) {
        if (!name.ends_with("sketch.weight")) return;
        for (Index b = 0; b < x.batch(); ++b) {
          parameter.gradient_sum().noalias() +=
              fovea::detail::rows_of(x, b).transpose() * fovea::detail::rows_of(d_sketch, b);
        }
      });
    }
  }

 private:
  /// The gradient of the sketch, as far as there are tokens; those of the guess's parts are added.
  View<float> learn(Guess& guess, const View<const float>& x, const View<const float>& sketch,
                    const Batch& batch) {
    const Index width = sketch.width() / 2;
    const auto half = [&](const auto& both, Index which) {
      return fovea::as_heads(both, which * width, 1, width);
    };
    fovea::Linear<float>::Saved nothing;
    const View<float> values = values_.resize(x.batch(), x.rows(), width);
    const View<float> out = out_.resize(values.shape());
    const View<float> pooled = pooled_.resize(x.batch(), 1, width);
    const View<float> logits = logits_.resize(x.batch(), 1, guess.classifier.out());
    const View<float> lse = lse_.resize({x.batch(), 1, x.rows(), 1});
    guess.values.forward(x, values, nothing);
    fovea::InputsOf<fovea::FullAttention, float> inputs;
    inputs.q = half(sketch, 0);
    inputs.k = half(sketch, 1);
    inputs.v = values;
    inputs.key_lengths = batch.lengths;
    const fovea::FullAttention attention;
    attention.forward(inputs, out, {.lse = lse});
    pool_.forward({out, batch.lengths}, pooled);
    guess.classifier.forward(pooled, logits, nothing);

    const View<float> d_logits = d_logits_.resize(logits.shape());
    const View<float> d_pooled = d_pooled_.resize(pooled.shape());
    const View<float> d_out = d_out_.resize(out.shape());
    const View<float> d_values = d_values_.resize(values.shape());
    const View<float> d_sketch = d_sketch_.resize(sketch.shape());
    fovea::softmax_cross_entropy<float>(logits, batch.targets, d_logits);
    guess.classifier.backward(pooled, nothing, d_logits, d_pooled);
    fovea::MeanPool<float>::Saved pool;
    pool_.backward({out, batch.lengths}, pool, d_pooled, d_out);
    fovea::GradsOf<fovea::FullAttention, float> grads;
    grads.q = half(d_sketch, 0);
    grads.k = half(d_sketch, 1);
    grads.v = d_values;
    attention.backward(inputs, out, {.lse = lse}, d_out, grads);
    guess.values.backward(x, nothing, d_values, {});
    return d_sketch;
  }

  std::uint64_t seed_ = 0;
  std::vector<Guess> guesses_;
  fovea::MeanPool<float> pool_;
  Buffer<float> values_, out_, lse_, pooled_, logits_;
  Buffer<float> d_logits_, d_pooled_, d_out_, d_values_, d_sketch_;
};

std::unique_ptr<Learner> make_sketch_learner(const Settings& settings, const Task& task) {
  // The policies of the paper's Figure 4.
  using fovea::SamplingPolicy;
  constexpr std::pair<std::string_view, SamplingPolicy> policies[] = {
      {"smart_bird", SamplingPolicy::squared_inverse_log},
      {"smart_bird_inverse_log", SamplingPolicy::inverse_log},
      {"smart_bird_raw", SamplingPolicy::raw},
      {"smart_bird_top_k", SamplingPolicy::top_k},
      {"smart_bird_random", SamplingPolicy::random}};
  const auto* const policy =
      std::find_if(std::begin(policies), std::end(policies),
                   [&](const auto& known) { return known.first == name_of(settings.system); });
  if (policy == std::end(policies)) return nullptr;
  const Index keys = numbers_of(settings.system, {20})[0];
  if (task.asks_rows()) {
    throw std::invalid_argument(
        "--systems '" + settings.system + "' does not go with --task " + settings.task +
        ": the sketch learns from the label of a sequence, which this task has not");
  }
  return learner_of(fovea::SmartBirdAttention{{.keys_per_row = keys, .policy = policy->second}},
                    settings, task);
}

}  // namespace learning
