// SPDX-License-Identifier: MIT
/// \file
/// Continues texts by a model of the Llama family from a GGUF file, with its own attention or
/// another operator, and measures the time and the perplexity. See --help.
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fovea/core/thread_pool.hpp>
#include <limits>
#include <optional>

#include "../command_line.hpp"
#include "byte_pair.hpp"
#include "language_session.hpp"
#include "sampling.hpp"

namespace {

using fovea::Index;
using fovea::View;
using program::ArgumentError;
using program::CommandLine;

/// The arguments.
struct Asked {
  std::string model;  ///< empty: in the usual place
  std::string weights = "f32", cache = "32", attention = "full";
  int threads = 0;  ///< 0: those of the machine
  std::string prompt, chat, perplexity, dump, tokens;
  std::string text;  ///< for --dump-qkv
  bool is_chat = false, continues = false;
  Index count = 64, chunk = 512;
  models::Sampling sampling = {.temperature = 0, .top_k = 40};
  std::string logits;
  Index length = 2048;
  bool length_given = false;
  Index layer = 0;
};

void add_model(CommandLine& line, Asked& to) {
  line.section("the model");
  line.add("--model FILE", to.model,
           "the file (smollm2.gguf in $FOVEA_MODELS, or in ~/.cache/fovea/models)");
  line.add(
      "--weights TYPE", to.weights,
      "f32, f16 or bf16: the type of the matrices in memory; quantised ones (Q4_0, Q8_0 ...) are "
      "expanded when loaded, since products with quantised weights are outside the library's "
      "scope");
  line.add("--cache BITS", to.cache,
           "32 or 16: the bits of cached keys and values, for full attention and patterns");
  line.add("--attention SPEC", to.attention,
           "the operator that replaces the model's attention: full, window:W,sink:S, "
           "strided:STRIDE, fixed:STRIDE,summary:C, bigbird:BLOCK, smart_bird:KEYS");
  line.add("--threads T", to.threads, 1, 1024, "threads (those of the machine)");
}

void add_tasks(CommandLine& line, Asked& to) {
  line.section("task, one of");
  line.add_any("--prompt TEXT", to.prompt, "continue the text");
  line.add_any("--chat TEXT", to.chat, "answer the text as an assistant");
  line.add("--perplexity FILE", to.perplexity,
           "print the perplexity of the first tokens of a text");
  line.add("--dump-qkv DIR", to.dump,
           "write q.npy, k.npy and v.npy, the inputs of attention for the first tokens of "
           "--text FILE, for fovea_compare --qkv");
  line.add("--tokens FILE", to.tokens, "print the token numbers of a text");
}

void add_options_of_tasks(CommandLine& line, Asked& to) {
  constexpr Index most = 1 << 30;
  line.section("options of --prompt and --chat");
  line.add("--count N", to.count, 0, most, "number of tokens to generate");
  line.add("--temperature X", to.sampling.temperature, 0, std::numeric_limits<double>::max(),
           "sampling temperature; 0 takes the most probable token");
  line.add("--top-k K", to.sampling.top_k, 1, most, "sample from the K most probable tokens");
  line.add("--seed S", to.sampling.seed, 0, most, "seed of the samples");
  line.add("--chunk N", to.chunk, 1, 1 << 20, "tokens of the prompt that are read at once");
  line.add("--logits FILE", to.logits,
           "write the logits of the prompt, .npy of float32 [tokens, vocabulary]");
  line.section("options of --perplexity and --dump-qkv");
  line.add("--length N", to.length, 2, most, "number of tokens, at most the length of the model");
  line.add("--text FILE", to.text, "the text of --dump-qkv");
  line.add("--layer L", to.layer, 0, most, "the layer of --dump-qkv");
}

/// Parses the arguments; nothing if help was requested, which is printed. \throws ArgumentError
std::optional<Asked> asked(int argc, const char* const* argv) {
  Asked to;
  CommandLine line("language_model", "runs a model of the Llama family from a GGUF file.");
  add_model(line, to);
  add_tasks(line, to);
  add_options_of_tasks(line, to);
  line.footer("`bash examples/models/fetch_models.sh` fetches the file.");
  line.needs("--dump-qkv", {"--text"});
  if (!line.parse(argc, argv)) return {};
  int tasks = 0;
  for (const char* task : {"--prompt", "--chat", "--perplexity", "--dump-qkv", "--tokens"}) {
    tasks += line.has(task) ? 1 : 0;
  }
  if (tasks != 1) {
    throw ArgumentError(
        "expected one of --prompt, --chat, --perplexity, --dump-qkv and --tokens; see --help");
  }
  to.is_chat = line.has("--chat");
  to.continues = to.is_chat || line.has("--prompt");
  to.length_given = line.has("--length");
  return to;
}

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

std::string model_file(const Asked& asked) {
  const auto variable = [](const char* name) {
    const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): one thread
    return std::string(value == nullptr ? "" : value);
  };
  const std::string models = variable("FOVEA_MODELS");
  const std::string folder = models.empty() ? variable("HOME") + "/.cache/fovea/models" : models;
  const std::string file = asked.model.empty() ? folder + "/smollm2.gguf" : asked.model;
  std::error_code error;
  if (!std::filesystem::exists(file, error)) {
    fovea::refuse_file(file,
                       "no such file; `bash examples/models/fetch_models.sh` downloads the model, "
                       "and --model sets its path");
  }
  return file;
}

std::string text_of(const std::string& path) { return std::string(fovea::MappedFile(path).text()); }

models::WeightType weight_type(const std::string& name) {
  if (name == "f32") return models::WeightType::f32;
  if (name == "f16") return models::WeightType::f16;
  if (name == "bf16") return models::WeightType::bf16;
  throw ArgumentError("--weights: '" + name + "' is not f32, f16 or bf16");
}

std::unique_ptr<models::LanguageSession> session_of(const Asked& asked, const models::Gguf& file,
                                                    Index reserve) {
  const models::WeightType weights = weight_type(asked.weights);
  models::AttentionChoice choice(asked.attention);
  const std::string& bits = asked.cache;
  if (bits != "32" && bits != "16") {
    throw ArgumentError("--cache: '" + bits + "' is not 32 or 16");
  }
  if (!choice.is_smart_bird()) {
    return models::pattern_session(file, choice.attention(), {weights, bits == "16"}, reserve);
  }
  if (bits == "16") throw std::runtime_error("--attention smart_bird takes --cache 32");
  if (weights != models::WeightType::f32) {
    throw std::runtime_error("--attention smart_bird takes --weights f32");
  }
  return models::smart_bird_session(file, choice.keys(), reserve);
}

/// The first tokens of a text.
std::vector<Index> first_tokens(const Asked& asked, const std::string& file,
                                const models::BytePairs& pairs, Index most) {
  const Index count = asked.length_given ? asked.length : std::min(asked.length, most);
  program::check_range<Index>("--length", count, 2, most);
  std::vector<Index> tokens = pairs.encode(text_of(file));
  if (std::ssize(tokens) < count) {
    throw std::runtime_error(file + ": has " + std::to_string(tokens.size()) +
                             " tokens; expected at least " + std::to_string(count));
  }
  tokens.resize(static_cast<std::size_t>(count));
  return tokens;
}

/// -log of the probability of a token.
double surprise(const float* logits, Index vocabulary, Index token) {
  float largest = logits[0];
  for (Index i = 1; i < vocabulary; ++i) largest = std::max(largest, logits[i]);
  double sum = 0;
  for (Index i = 0; i < vocabulary; ++i) sum += std::exp(double{logits[i]} - double{largest});
  return std::log(sum) + double{largest} - double{logits[token]};
}

void print_perplexity(models::LanguageSession& session, std::span<const Index> tokens,
                      const fovea::ThreadPool& pool) {
  constexpr Index chunk = 256;
  const Index count = std::ssize(tokens);
  const Stopwatch watch;
  double sum = 0;
  for (Index first = 0; first < count; first += chunk) {
    const Index many = std::min(chunk, count - first);
    const View<const float> logits = session.step(
        tokens.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(many)), many,
        pool);
    for (Index i = 0; i < many && first + i + 1 < count; ++i) {
      sum += surprise(&logits(0, 0, i, 0), logits.width(),
                      tokens[static_cast<std::size_t>(first + i + 1)]);
    }
  }
  std::printf("perplexity %.4f of %td tokens, %.1f s\n",
              std::exp(sum / static_cast<double>(count - 1)), tokens.size(), watch.seconds());
}

void dump(const models::LanguageSession& session, std::span<const Index> tokens, const Asked& asked,
          const fovea::ThreadPool& pool) {
  program::check_range<Index>("--layer", asked.layer, 0, session.sizes().blocks - 1);
  const models::LayerHeads heads = session.heads_of(tokens, asked.layer, pool);
  std::filesystem::create_directories(asked.dump);
  constexpr const char* names[] = {"/q.npy", "/k.npy", "/v.npy"};
  for (std::size_t i = 0; i < 3; ++i) {
    fovea::write_npy(asked.dump + names[i],
                     {.dtype = fovea::Dtype::f32,
                      .shape = heads.shapes[i],
                      .bytes = std::as_bytes(std::span<const float>(heads.values[i]))});
  }
}

/// A prompt, and the model's continuation.
class Continuation {
 public:
  Continuation(models::LanguageSession& session, const models::BytePairs& pairs,
               const fovea::ThreadPool& pool)
      : session_(session), pairs_(pairs), pool_(pool) {}

  /// Reads the prompt. \param all whether the logits of all its tokens are kept
  void read(std::span<const Index> tokens, Index chunk, bool all) {
    const Stopwatch watch;
    const Index count = std::ssize(tokens);
    for (Index first = 0; first < count; first += chunk) {
      const Index many = std::min(chunk, count - first);
      const View<const float> logits = session_.step(
          tokens.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(many)),
          all ? many : Index{first + many == count}, pool_);
      if (all) all_.insert(all_.end(), logits.data(), logits.data() + logits.size());
      if (first + many == count) keep_last(logits);
    }
    seconds_of_prompt_ = watch.seconds();
    prompt_ = count;
  }

  /// Prints tokens as they are drawn, up to a number, or to one that ends the text.
  void print(Index count, const models::Sampling& sampling, Index end) {
    const Stopwatch watch;
    const Index room = session_.sizes().length - session_.length();
    const auto awake = pool_.stay_awake();
    for (; made_ < std::min(count, room); ++made_) {
      const Index token = models::draw_token(last_, sampling, made_);
      if (token == end) break;
      const std::string& text = pairs_.text_of(token);
      std::fwrite(text.data(), 1, text.size(), stdout);
      std::fflush(stdout);
      keep_last(session_.step({&token, 1}, 1, pool_));
    }
    std::printf("\n");
    std::fprintf(stderr, "prompt: %td tokens, %.1f a second; then %td tokens, %.1f a second\n",
                 prompt_, static_cast<double>(prompt_) / seconds_of_prompt_, made_,
                 static_cast<double>(made_) / std::max(watch.seconds(), 1e-9));
  }

  /// [tokens of the prompt, vocabulary]
  const std::vector<float>& logits() const { return all_; }

 private:
  void keep_last(const View<const float>& logits) {
    const float* const row = &logits(0, 0, logits.rows() - 1, 0);
    last_.assign(row, row + logits.width());
  }

  models::LanguageSession& session_;
  const models::BytePairs& pairs_;
  const fovea::ThreadPool& pool_;
  std::vector<float> all_;
  std::vector<float> last_;
  double seconds_of_prompt_ = 0;
  Index prompt_ = 0;
  Index made_ = 0;
};

std::string prompt_of(const Asked& asked, const models::BytePairs& pairs) {
  if (!asked.is_chat) return asked.prompt;
  if (pairs.special("<|im_start|>") < 0) {
    throw std::runtime_error("--chat: the model has no token '<|im_start|>'");
  }
  return "<|im_start|>user\n" + asked.chat + "<|im_end|>\n<|im_start|>assistant\n";
}

void continue_prompt(const Asked& asked, const models::Gguf& file, const models::BytePairs& pairs,
                     const fovea::ThreadPool& pool) {
  const std::vector<Index> tokens = pairs.encode(prompt_of(asked, pairs));
  const Index length = models::llama_sizes(file).length;
  if (tokens.empty()) throw std::runtime_error("there are no tokens in the prompt");
  if (std::ssize(tokens) > length) {
    throw std::runtime_error("the prompt has " + std::to_string(tokens.size()) +
                             " tokens; the model has positions for " + std::to_string(length));
  }
  const bool keeps_logits = !asked.logits.empty();
  if (keeps_logits) fovea::check_output(asked.logits);
  const Index reserve = std::min(length, std::ssize(tokens) + asked.count);
  const auto session = session_of(asked, file, reserve);
  Continuation text(*session, pairs, pool);
  text.read(tokens, asked.chunk, keeps_logits);
  if (keeps_logits) {
    fovea::write_npy(asked.logits, {.dtype = fovea::Dtype::f32,
                                    .shape = {std::ssize(tokens), session->sizes().vocabulary},
                                    .bytes = std::as_bytes(std::span<const float>(text.logits()))});
  }
  const Index end = file.has("tokenizer.ggml.eos_token_id")
                        ? file.size_at("tokenizer.ggml.eos_token_id", 0, pairs.vocabulary() - 1)
                        : -1;
  text.print(asked.count, asked.sampling, end);
}

void run(const Asked& asked) {
  const models::Gguf file = models::read_gguf(model_file(asked));
  const models::BytePairs pairs(file);
  if (!asked.tokens.empty()) {
    const char* between = "";
    for (const Index token : pairs.encode(text_of(asked.tokens))) {
      std::printf("%s%td", between, token);
      between = " ";
    }
    std::printf("\n");
    return;
  }
  const models::LlamaSizes sizes = models::llama_sizes(file);
  if (pairs.vocabulary() != sizes.vocabulary) {
    fovea::refuse_file(file.tensors.origin, "it has " + std::to_string(pairs.vocabulary()) +
                                                " tokens, and a table of " +
                                                std::to_string(sizes.vocabulary));
  }
  const fovea::ThreadPool pool(asked.threads == 0 ? fovea::default_concurrency() : asked.threads);
  if (asked.continues) return continue_prompt(asked, file, pairs, pool);
  if (!asked.perplexity.empty()) {
    const std::vector<Index> tokens = first_tokens(asked, asked.perplexity, pairs, sizes.length);
    return print_perplexity(*session_of(asked, file, std::ssize(tokens)), tokens, pool);
  }
  const std::vector<Index> tokens = first_tokens(asked, asked.text, pairs, sizes.length);
  dump(*session_of(asked, file, 0), tokens, asked, pool);
}

}  // namespace

int main(int argc, char** argv) {
  return program::exit_status("language_model", [&] {
    if (const auto to_do = asked(argc, argv)) run(*to_do);
    return 0;
  });
}
