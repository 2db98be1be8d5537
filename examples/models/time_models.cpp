// SPDX-License-Identifier: MIT
/// \file
/// Executes the commands of compare_times.py on stdin, one per line, and prints the time of each.
/// usage: time_models MODEL.gguf MINILM_DIR [THREADS]
#include <chrono>
#include <filesystem>
#include <iostream>
#include <sstream>

#include "../command_line.hpp"
#include "bench/measure/probe.hpp"
#include "bert.hpp"
#include "language_session.hpp"

namespace {

using fovea::Index;

/// Tokens that are no text: times do not depend on them. compare_times.py has the same ones.
std::vector<Index> some_tokens(Index count, Index vocabulary) {
  std::vector<Index> tokens;
  for (Index i = 0; i < count; ++i) tokens.push_back((i * 7919 + 104729) % vocabulary);
  return tokens;
}

models::WeightType type_of(const std::string& name) {
  if (name == "f16") return models::WeightType::f16;
  return name == "bf16" ? models::WeightType::bf16 : models::WeightType::f32;
}

/// Executes commands. Models stay loaded between them.
class Worker {
 public:
  Worker(const std::string& gguf, const std::string& minilm, int threads)
      : file_(models::read_gguf(gguf)), minilm_(minilm), pool_(threads) {}

  /// Returns seconds, or for "bandwidth" bytes per second.
  double run(std::istringstream& line) {
    std::string what;
    line >> what;
    if (what == "bandwidth") return bench::read_bandwidth(Index{1} << 28);
    if (what == "embed") return embed(line);
    if (what == "write") return write(line);
    if (what == "load") return load(line);
    std::string weights;
    Index count = 0;
    line >> weights >> count;
    if (what == "prefill") return prefill(session(weights), count);
    if (what == "decode") return decode(session(weights), count);
    throw std::runtime_error("'" + what + "' is not understood");
  }

 private:
  models::LanguageSession& session(const std::string& weights) {
    auto& session = sessions_[weights];
    if (!session) {
      session = models::pattern_session(file_, models::ChosenAttention(), {type_of(weights)}, 2048);
    }
    return *session;
  }

  /// That many tokens at once; the last one has logits.
  double prefill(models::LanguageSession& session, Index count) const {
    session.rollback(0);
    const auto tokens = some_tokens(count, session.sizes().vocabulary);
    return bench::seconds_of([&] { session.step(tokens, 1, pool_); });
  }

  /// That many tokens one by one, after 16 others.
  double decode(models::LanguageSession& session, Index count) const {
    prefill(session, 16);
    const auto tokens = some_tokens(count, session.sizes().vocabulary);
    const auto awake = pool_.stay_awake();
    return bench::seconds_of([&] {
      for (const Index& token : tokens) session.step({&token, 1}, 1, pool_);
    });
  }

  /// "write PATH f32|bf16": all tensors, in the layout that frameworks have.
  double write(std::istringstream& line) const {
    std::string path, type;
    line >> path >> type;
    fovea::TensorSet set{.origin = path};
    std::vector<std::vector<float>> floats;
    std::vector<std::vector<Eigen::bfloat16>> shorts;
    for (const auto& [name, tensor] : file_.tensors.tensors) {
      const auto count = static_cast<std::size_t>(tensor.size());
      auto& all = floats.emplace_back(count);
      tensor.read(all.data());
      fovea::StoredTensor stored{.shape = tensor.shape,
                                 .bytes = std::as_bytes(std::span<const float>(all))};
      if (type == "bf16") {
        auto& rounded = shorts.emplace_back(count);
        for (std::size_t i = 0; i < count; ++i) rounded[i] = static_cast<Eigen::bfloat16>(all[i]);
        stored.dtype = fovea::Dtype::bf16;
        stored.bytes = std::as_bytes(std::span<const Eigen::bfloat16>(rounded));
      }
      set.tensors.emplace(name, stored);
    }
    return bench::seconds_of([&] { fovea::write_safetensors(path, set); });
  }

  /// "load PATH f32|bf16": a model of that type, from its file.
  double load(std::istringstream& line) const {
    std::string path, type;
    line >> path >> type;
    const models::LlamaSizes sizes = models::llama_sizes(file_);
    const auto time = [&]<class W>(W) {
      using Model = models::Llama<models::ChosenAttention, W>;
      std::optional<Model> model;
      return bench::seconds_of([&] {
        model = models::load_llama<models::ChosenAttention, W>(sizes, models::ChosenAttention(),
                                                               fovea::read_safetensors(path));
      });
    };
    return type == "bf16" ? time(Eigen::bfloat16()) : time(float());
  }

  /// "embed N": a sentence of that many tokens.
  double embed(std::istringstream& line) {
    Index count = 0;
    line >> count;
    if (!bert_) {
      const auto sizes = models::BertSizes::read(minilm_ + "/config.json");
      bert_.emplace(models::Bert::read(sizes, minilm_ + "/model.safetensors"));
    }
    const auto tokens = some_tokens(count, 30522);
    return bench::seconds_of([&] { models::embed(*bert_, tokens, pool_); });
  }

  models::Gguf file_;
  std::string minilm_;
  fovea::ThreadPool pool_;
  std::map<std::string, std::unique_ptr<models::LanguageSession>> sessions_;
  std::optional<models::Bert> bert_;
};

}  // namespace

int main(int argc, char** argv) {
  return program::exit_status("time_models", [&] {
    if (argc != 3 && argc != 4) {
      throw program::ArgumentError("usage: time_models MODEL.gguf MINILM_DIR [THREADS]");
    }
    Worker worker(argv[1], argv[2], argc == 4 ? std::stoi(argv[3]) : 1);
    for (std::string line; std::getline(std::cin, line);) {
      std::istringstream words(line);
      std::printf("%.9g\n", worker.run(words));
      std::fflush(stdout);
    }
    return 0;
  });
}
