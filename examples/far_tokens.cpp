// SPDX-License-Identifier: MIT
/// \file
/// FSAT learns its edges (Zhuang et al. 2022, section 4.2.3): a small model with FsatLayer is
/// trained end to end on messages for distant rows, and so are three ablations of the paper's Table
/// 3: without truncating the gradient of confidences, with random edges alone, and with predicted
/// edges alone. Each is trained from three seeds. Prints a log, and writes far_tokens.json and
/// far_tokens.svg.
#include <cstdio>
#include <fovea/core/thread_pool.hpp>
#include <fovea/layers.hpp>
#include <fovea/layers/fsat_layer.hpp>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "command_line.hpp"
#include "line_chart.hpp"
#include "planted_messages.hpp"

namespace {

using fovea::Buffer;
using fovea::EdgeSource;
using fovea::Index;
using fovea::View;
using Block = fovea::EncoderBlock<fovea::FsatLayer<float>>;

constexpr Index kWidth = 32;
constexpr Index kHeads = 2;
constexpr Index kDominant = 4;
// So few that a row cannot separate many messages in one sum: it needs its own keys.
constexpr Index kHidden = 8;
constexpr Index kBatch = 16;
constexpr Index kTestBatch = 128;
constexpr Index kSeeds = 3;
constexpr std::uint64_t kTestSeed = 1;  // training steps have even ones
constexpr double kRate = 4e-3;
constexpr int kEvaluations = 16;

/// The edges of one of the four models.
struct Variant {
  const char* name;
  const char* colour;
  EdgeSource training;
  EdgeSource inference;
  bool truncates;
};
constexpr Variant kVariants[] = {
    {"FSAT", "#0072B2", EdgeSource::both, EdgeSource::predicted, true},
    {"no truncation", "#009E73", EdgeSource::both, EdgeSource::predicted, false},
    {"only random edges", "#D55E00", EdgeSource::random, EdgeSource::random, true},
    {"only predicted edges", "#000000", EdgeSource::predicted, EdgeSource::predicted, true},
};

/// The quality of a model on held-out sequences.
struct Score {
  Index step = 0;
  double accuracy = 0;
  /// Predicted edges of a row, on average: rows with a question, other addresses, and all other
  /// rows.
  double asked = 0, not_asked = 0, others = 0;
};

/// Tokens to the values that rows answer: embedding, one block, normalisation, classifier.
class Reader {
 public:
  Reader(const planted::Messages& task, const Variant& variant, Index seed)
      : task_(task), variant_(variant), initialiser_(static_cast<std::uint64_t>(seed)) {
    fovea::FsatLayerOptions options;
    options.width = kWidth;
    options.heads = kHeads;
    options.dominant = kDominant;
    options.activation = fovea::ActivationKind::gelu_tanh;
    options.attention.max_length = task.length;
    options.attention.confidence = fovea::Confidence::relative;
    options.attention.truncate_gradient = variant.truncates;
    embedding_ = {task.vocabulary(), task.length, kWidth, initialiser_};
    block_ = {
        fovea::FsatLayer<float>(options, initialiser_),
        fovea::FeedForward<float>(kWidth, kHidden, initialiser_, {.gelu = fovea::GeluForm::tanh})};
    norm_ = fovea::LayerNorm<float>(kWidth);
    classifier_ = {kWidth, task.values, initialiser_};
  }

  template <class F>
  void visit(F&& f) {
    embedding_.visit(f);
    block_.visit(f);
    norm_.visit(f);
    classifier_.visit(f);
  }

  /// Returns the loss.
  double train(const planted::Batch& batch, std::uint64_t edge_seed) {
    edges() = variant_.training;
    block_.attention.op().options.seed = edge_seed;
    fovea::zero_gradients(*this);
    const View<float> logits = forward(batch.tokens, kBatch);
    const View<float> d_logits = d_logits_.resize(logits.shape());
    const double loss = fovea::softmax_cross_entropy<float>(logits, batch.answers, d_logits);
    const View<float> d_normal = d_normal_.resize(kBatch, task_.length, kWidth);
    const View<float> d_y = d_y_.resize(d_normal.shape());
    classifier_.backward(normal_.view(), classifier_saved_, d_logits, d_normal);
    norm_.backward(y_.view(), norm_saved_, d_normal, d_y);
    block_.backward(View<const float>(x_.view()), block_saved_, d_y, d_normal);
    embedding_.backward(batch.tokens, d_normal);
    return loss;
  }

  Score score(Index step) {
    edges() = variant_.inference;
    const planted::Batch batch = task_.draw(kTestBatch, kTestSeed);
    const View<float> logits = forward(batch.tokens, kTestBatch);
    Score score{.step = step};
    Index right = 0, asked = 0;
    for (Index b = 0; b < kTestBatch; ++b) {
      for (Index i = 0; i < task_.length; ++i) {
        const Index answer = batch.answers[static_cast<std::size_t>(b * task_.length + i)];
        if (answer < 0) continue;
        Index best = 0;
        for (Index v = 1; v < task_.values; ++v) {
          if (logits(b, 0, i, v) > logits(b, 0, i, best)) best = v;
        }
        right += best == answer ? 1 : 0;
        ++asked;
      }
    }
    score.accuracy = static_cast<double>(right) / static_cast<double>(asked);
    count_edges(batch, score);
    return score;
  }

 private:
  EdgeSource& edges() { return block_.attention.op().options.edges; }

  View<float> forward(const std::vector<Index>& tokens, Index batch) {
    const View<float> x = x_.resize(batch, task_.length, kWidth);
    const View<float> y = y_.resize(x.shape());
    const View<float> normal = normal_.resize(x.shape());
    const View<float> logits = logits_.resize(batch, task_.length, task_.values);
    embedding_.forward(tokens, x);
    block_.forward(View<const float>(x), y, block_saved_);
    norm_.forward(y, normal, norm_saved_);
    classifier_.forward(normal, logits, classifier_saved_);
    return logits;
  }

  /// Counts the indices that the last forward pass predicted.
  void count_edges(const planted::Batch& batch, Score& score) {
    const View<float> dominant = block_saved_.attention.heads.learned.dominant.view();
    const Index rows = task_.length;
    double edges[3] = {}, seen[3] = {};
    std::vector<int> kind(static_cast<std::size_t>(rows), 2);
    for (Index a = 0; a < task_.addresses; ++a) kind[static_cast<std::size_t>(task_.row_of(a))] = 1;
    for (Index b = 0; b < kTestBatch; ++b) {
      const auto kind_of = [&](Index i) {
        const bool asked = batch.answers[static_cast<std::size_t>(b * rows + i)] >= 0;
        return asked ? 0 : kind[static_cast<std::size_t>(i)];
      };
      for (Index i = 0; i < rows; ++i) {
        ++seen[kind_of(i)];
        for (Index m = 0; m < dominant.width(); ++m) {
          ++edges[kind_of(std::min(rows - 1, static_cast<Index>(dominant(b, 0, i, m))))];
        }
      }
    }
    score.asked = edges[0] / seen[0];
    score.not_asked = edges[1] / seen[1];
    score.others = edges[2] / seen[2];
  }

  planted::Messages task_;
  Variant variant_;
  fovea::Initialiser initialiser_;
  fovea::Embedding<float> embedding_;
  Block block_;
  fovea::LayerNorm<float> norm_;
  fovea::Linear<float> classifier_;
  Block::Saved block_saved_;
  fovea::LayerNorm<float>::Saved norm_saved_;
  fovea::Linear<float>::Saved classifier_saved_;
  Buffer<float> x_, y_, normal_, logits_, d_logits_, d_normal_, d_y_;
};

/// The rate rises over 50 steps, and falls to a fifth for the last 30 %.
double rate_at(Index step, Index steps) {
  const double rise = std::min(1.0, static_cast<double>(step + 1) / 50);
  return kRate * rise * (10 * step < 7 * steps ? 1 : 0.2);
}

std::vector<Score> train(const planted::Messages& task, const Variant& variant, Index seed,
                         Index steps, std::mutex& printing) {
  Reader reader(task, variant, seed);
  fovea::Adam<float> adam({.clip_norm = 1.0});
  std::vector<Score> scores;
  double loss = 0;
  const Index every = std::max<Index>(1, steps / kEvaluations);
  for (Index step = 0; step <= steps; ++step) {
    if (step % every == 0 || step == steps) {
      const Score& now = scores.emplace_back(reader.score(step));
      const std::lock_guard lock(printing);
      std::printf("%-20s %4td %6td %8.3f %9.3f %8.2f %10.2f %8.2f\n", variant.name, seed, step,
                  loss, now.accuracy, now.asked, now.not_asked, now.others);
      std::fflush(stdout);
    }
    if (step == steps) break;
    const auto draw = static_cast<std::uint64_t>(step * kSeeds + seed);
    loss = reader.train(task.draw(kBatch, 2 * draw), draw);
    adam.options.learning_rate = rate_at(step, steps);
    adam.step(reader);
  }
  return scores;
}

/// The mean over some models, step by step.
std::vector<Score> mean_of(const std::vector<std::vector<Score>>& models) {
  std::vector<Score> mean(models[0].size());
  const auto share = 1 / static_cast<double>(models.size());
  for (const std::vector<Score>& scores : models) {
    for (std::size_t s = 0; s < mean.size(); ++s) {
      mean[s].step = scores[s].step;
      mean[s].accuracy += share * scores[s].accuracy;
      mean[s].asked += share * scores[s].asked;
      mean[s].not_asked += share * scores[s].not_asked;
      mean[s].others += share * scores[s].others;
    }
  }
  return mean;
}

/// \param scores mean of each variant   \param last accuracies at the end, [variants, seeds]
/// Returns whether the file could be written.
bool write_json(const char* file, const std::vector<std::vector<Score>>& scores,
                const std::vector<std::vector<double>>& last) {
  nlohmann::ordered_json json = {{"program", "far_tokens"}};
  for (std::size_t v = 0; v < scores.size(); ++v) {
    auto& model = json["models"].emplace_back();
    model["name"] = kVariants[v].name;
    model["last_accuracy_of_seeds"] = last[v];
    for (const Score& score : scores[v]) {
      model["mean_scores"].push_back({{"step", score.step},
                                      {"accuracy", score.accuracy},
                                      {"edges_of_asked_rows", score.asked},
                                      {"edges_of_other_addresses", score.not_asked},
                                      {"edges_of_other_rows", score.others}});
    }
  }
  std::ofstream out(file);
  out << json.dump(2) << '\n';
  return out.flush().good();
}

bool draw(const char* file, const std::vector<std::vector<Score>>& scores) {
  drawing::Chart accuracy{"Share of right answers (chance: 1/8)", "training step", {}};
  for (std::size_t v = 0; v < scores.size(); ++v) {
    drawing::Line line{kVariants[v].name, kVariants[v].colour, {}};
    for (const Score& s : scores[v]) {
      line.points.emplace_back(static_cast<double>(s.step), s.accuracy);
    }
    accuracy.lines.push_back(line);
  }
  drawing::Line asked{"rows that are asked", "#0072B2", {}};
  drawing::Line not_asked{"rows of addresses that are not asked", "#56B4E9", {}};
  drawing::Line others{"all other rows", "#999999", {}};
  for (const Score& s : scores[0]) {
    const auto step = static_cast<double>(s.step);
    asked.points.emplace_back(step, s.asked);
    not_asked.points.emplace_back(step, s.not_asked);
    others.points.emplace_back(step, s.others);
  }
  return drawing::write_charts(file, {accuracy,
                                      {"FSAT: predicted edges of a row, on average",
                                       "training step",
                                       {asked, not_asked, others},
                                       20,
                                       4}});
}

/// Returns whether the files are written.
bool learn_and_draw(Index steps) {
  const planted::Messages task;
  std::printf("%-20s %4s %6s %8s %9s   edges of a row: asked, address, other\n", "model", "seed",
              "step", "loss", "accuracy");
  std::vector<std::vector<Score>> models(std::size(kVariants) * kSeeds);
  std::mutex printing;
  fovea::ThreadPool pool;
  fovea::for_each_task(pool, std::ssize(models), [&](Index i, Index /*worker*/) {
    models[static_cast<std::size_t>(i)] =
        train(task, kVariants[i / kSeeds], i % kSeeds, steps, printing);
  });
  std::vector<std::vector<Score>> scores;
  std::vector<std::vector<double>> ends;
  for (auto first = models.begin(); first != models.end(); first += kSeeds) {
    scores.push_back(mean_of({first, first + kSeeds}));
    std::vector<double>& end = ends.emplace_back();
    for (Index seed = 0; seed < kSeeds; ++seed) end.push_back(first[seed].back().accuracy);
  }
  const bool written =
      write_json("far_tokens.json", scores, ends) && draw("far_tokens.svg", scores);
  const auto last = [&](std::size_t v) { return scores[v].back().accuracy; };
  std::printf(
      "mean accuracy: FSAT %.3f, no truncation %.3f, only random %.3f, only predicted %.3f\n",
      last(0), last(1), last(2), last(3));
  std::printf("far_tokens.json and far_tokens.svg: %s\n", written ? "written" : "not written");
  return written;
}

}  // namespace

int main(int argc, char** argv) {
  return program::exit_status("far_tokens", [&] {
    Index steps = 3000;
    program::CommandLine line("far_tokens", "trains FSAT and its ablations.");
    line.add("--steps N", steps, 1, 1 << 30, "steps of each model");
    if (!line.parse(argc, argv)) return 0;
    return learn_and_draw(steps) ? 0 : 1;
  });
}
