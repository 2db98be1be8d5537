// SPDX-License-Identifier: MIT
/// \file
/// Continues texts by a model of Llama's kind from a GGUF file, with its own attention or another
/// operator in its place, and measures what that costs. See --help.
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fovea/core/thread_pool.hpp>
#include <optional>

#include "byte_pair.hpp"
#include "command_line.hpp"
#include "language_session.hpp"
#include "sampling.hpp"

namespace {

using fovea::Index;
using fovea::View;

constexpr const char* kHelp =
    R"(language_model: a model of Llama's kind, from a GGUF file.

usage: language_model [options]

  --model FILE        the file (smollm2.gguf in $FOVEA_MODELS, or in ~/.cache/fovea/models)
  --weights TYPE      f32, f16 or bf16: how matrices are kept        (f32)
  --cache BITS        32 or 16: how keys and values are kept, of full
                      attention and patterns                         (32)
  --attention SPEC    what attends, in place of the model's own:     (full)
                      full, window:W,sink:S, strided:STRIDE, fixed:STRIDE,summary:C,
                      bigbird:BLOCK, smart_bird:KEYS
  --threads T         threads                                        (those of the machine)

what is done: one of
  --prompt TEXT       continues the text
  --chat TEXT         continues the text as the answer of an assistant to it; both take
    --count N           by so many tokens                            (64)
    --temperature X     0 takes the likeliest token                  (0)
    --top-k K           draws from so many                           (40)
    --seed S            of the draws                                 (1)
    --chunk N           tokens of the prompt that are read at once   (512)
    --logits FILE       writes those of the prompt, .npy of float32 [tokens, vocabulary]
  --perplexity FILE   of the first tokens of a text
    --length N          so many                                      (2048)
  --dump-qkv DIR      writes q.npy, k.npy and v.npy of the first tokens of --text FILE, as
                      attention reads them, for fovea_compare --qkv
    --layer L           of this layer                                (0)
    --length N          so many                                      (2048)
  --tokens FILE       prints the numbers of the tokens of a text
  --help              this text

`bash examples/models/fetch_models.sh` fetches the file.
)";

constexpr std::array<std::string_view, 19> kFlags = {
    "--model",       "--weights", "--attention", "--threads", "--prompt",     "--count", "--seed",
    "--temperature", "--top-k",   "--chunk",     "--logits",  "--perplexity", "--layer", "--length",
    "--dump-qkv",    "--text",    "--tokens",    "--chat",    "--cache"};

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

std::string model_file(const models::CommandLine& line) {
  const auto variable = [](const char* name) {
    const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): one thread
    return std::string(value == nullptr ? "" : value);
  };
  const std::string models = variable("FOVEA_MODELS");
  const std::string folder = models.empty() ? variable("HOME") + "/.cache/fovea/models" : models;
  const std::string file = line.text("--model", folder + "/smollm2.gguf");
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
  throw std::runtime_error("--weights: '" + name + "' is not f32, f16 or bf16");
}

std::unique_ptr<models::LanguageSession> session_of(const models::CommandLine& line,
                                                    const models::Gguf& file, Index reserve) {
  const models::WeightType weights = weight_type(line.text("--weights", "f32"));
  models::AttentionChoice choice(line.text("--attention", "full"));
  const std::string bits = line.text("--cache", "32");
  if (bits != "32" && bits != "16") {
    throw std::runtime_error("--cache: '" + bits + "' is not 32 or 16");
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
std::vector<Index> first_tokens(const models::CommandLine& line, const char* flag,
                                const models::BytePairs& pairs, Index most) {
  const Index count = line.number("--length", std::min<Index>(2048, most), 2, most);
  std::vector<Index> tokens = pairs.encode(text_of(line.text(flag)));
  if (std::ssize(tokens) < count) {
    throw std::runtime_error(line.text(flag) + ": has " + std::to_string(tokens.size()) +
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

void dump(const models::LanguageSession& session, std::span<const Index> tokens,
          const models::CommandLine& line, const fovea::ThreadPool& pool) {
  const std::string folder = line.text("--dump-qkv");
  const Index layer = line.number("--layer", 0, 0, session.sizes().blocks - 1);
  const models::LayerHeads heads = session.heads_of(tokens, layer, pool);
  std::filesystem::create_directories(folder);
  constexpr const char* names[] = {"/q.npy", "/k.npy", "/v.npy"};
  for (std::size_t i = 0; i < 3; ++i) {
    fovea::write_npy(folder + names[i],
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

std::string prompt_of(const models::CommandLine& line, const models::BytePairs& pairs) {
  if (!line.has("--chat")) return line.any_text("--prompt");
  if (pairs.special("<|im_start|>") < 0) {
    throw std::runtime_error("--chat: the model has no token '<|im_start|>'");
  }
  return "<|im_start|>user\n" + line.any_text("--chat") + "<|im_end|>\n<|im_start|>assistant\n";
}

void continue_prompt(const models::CommandLine& line, const models::Gguf& file,
                     const models::BytePairs& pairs, const fovea::ThreadPool& pool) {
  const Index count = line.number("--count", 64, 0, 1 << 30);
  const Index chunk = line.number("--chunk", 512, 1, 1 << 20);
  const models::Sampling sampling{
      .temperature = line.real("--temperature", 0, 0),
      .top_k = line.number("--top-k", 40, 1, 1 << 30),
      .seed = static_cast<std::uint64_t>(line.number("--seed", 1, 0, 1 << 30))};
  const std::vector<Index> tokens = pairs.encode(prompt_of(line, pairs));
  const Index length = models::llama_sizes(file).length;
  if (tokens.empty()) throw std::runtime_error("there are no tokens in the prompt");
  if (std::ssize(tokens) > length) {
    throw std::runtime_error("the prompt has " + std::to_string(tokens.size()) +
                             " tokens; the model has positions for " + std::to_string(length));
  }
  if (line.has("--logits")) fovea::check_output(line.text("--logits"));
  const Index reserve = std::min(length, std::ssize(tokens) + count);
  const auto session = session_of(line, file, reserve);
  Continuation text(*session, pairs, pool);
  text.read(tokens, chunk, line.has("--logits"));
  if (line.has("--logits")) {
    fovea::write_npy(line.text("--logits"),
                     {.dtype = fovea::Dtype::f32,
                      .shape = {std::ssize(tokens), session->sizes().vocabulary},
                      .bytes = std::as_bytes(std::span<const float>(text.logits()))});
  }
  const Index end = file.has("tokenizer.ggml.eos_token_id")
                        ? file.size_at("tokenizer.ggml.eos_token_id", 0, pairs.vocabulary() - 1)
                        : -1;
  text.print(count, sampling, end);
}

void run(const models::CommandLine& line) {
  int tasks = 0;
  for (const char* flag : {"--prompt", "--chat", "--perplexity", "--dump-qkv", "--tokens"}) {
    tasks += line.has(flag) ? 1 : 0;
  }
  if (tasks != 1) {
    throw std::runtime_error(
        "expected one of --prompt, --chat, --perplexity, --dump-qkv and --tokens; see --help");
  }
  const auto threads = static_cast<int>(line.number("--threads", 0, 1, 1024));
  const models::Gguf file = models::read_gguf(model_file(line));
  const models::BytePairs pairs(file);
  if (line.has("--tokens")) {
    const char* between = "";
    for (const Index token : pairs.encode(text_of(line.text("--tokens")))) {
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
  const fovea::ThreadPool pool(threads == 0 ? fovea::default_concurrency() : threads);
  if (line.has("--prompt") || line.has("--chat")) return continue_prompt(line, file, pairs, pool);
  if (line.has("--perplexity")) {
    const std::vector<Index> tokens = first_tokens(line, "--perplexity", pairs, sizes.length);
    return print_perplexity(*session_of(line, file, std::ssize(tokens)), tokens, pool);
  }
  if (!line.has("--text")) throw std::runtime_error("--dump-qkv needs --text FILE");
  const std::vector<Index> tokens = first_tokens(line, "--text", pairs, sizes.length);
  dump(*session_of(line, file, 0), tokens, line, pool);
}

}  // namespace

int main(int argc, char** argv) {
  return models::exit_status("language_model", [&] {
    const std::span<char* const> arguments(argv, static_cast<std::size_t>(argc));
    const models::CommandLine line(arguments.subspan(argc > 0 ? 1 : 0), kFlags, false);
    if (line.help()) {
      std::fputs(kHelp, stdout);
    } else {
      run(line);
    }
  });
}
