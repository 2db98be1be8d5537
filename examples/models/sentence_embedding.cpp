// SPDX-License-Identifier: MIT
/// \file
/// Embeds sentences by all-MiniLM-L6-v2, or another BERT with the mean of its tokens, and prints
/// how alike they are. See --help.
#include <array>
#include <cstdlib>
#include <fovea/core/thread_pool.hpp>
#include <fovea/io/npy.hpp>
#include <iostream>

#include "bert.hpp"
#include "command_line.hpp"

namespace {

using fovea::Index;

constexpr const char* kHelp =
    R"(sentence_embedding: sentences as vectors of length 1, and the cosines between them.

usage: sentence_embedding [options] "sentence" "sentence" ...

  --model DIR        folder of model.safetensors, config.json and vocab.txt
                     (minilm in $FOVEA_MODELS, or in ~/.cache/fovea/models)
  --sentences FILE   sentences of a file, a line each, after those above
  --json FILE        writes sentences, tokens and embeddings
  --npy FILE         writes the embeddings as float32 [sentences, width]
  --tokens FILE      only prints the numbers of the tokens of each line of FILE
  --threads T        threads (those of the machine)
  --help             this text

The model is BERT with the mean of its tokens (all-MiniLM-L6-v2). A sentence has at most as many
tokens as sentence_bert_config.json says (256); what is more is left out, and said.
`bash examples/models/fetch_models.sh` fetches the files.
)";

constexpr std::array<std::string_view, 6> kFlags = {"--model", "--sentences", "--json",
                                                    "--npy",   "--tokens",    "--threads"};

/// A sentence and what is computed of it.
struct Sentence {
  std::string text;
  models::TokenList tokens = {};
  std::vector<float> embedding = {};
};

std::string model_folder(const models::CommandLine& line) {
  const auto variable = [](const char* name) {
    const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): one thread
    return std::string(value == nullptr ? "" : value);
  };
  if (line.has("--model")) return line.text("--model");
  const std::string models = variable("FOVEA_MODELS");
  return (models.empty() ? variable("HOME") + "/.cache/fovea/models" : models) + "/minilm";
}

void check_files(const std::string& folder) {
  for (const char* name : {"/config.json", "/vocab.txt", "/model.safetensors"}) {
    std::error_code error;
    if (std::filesystem::exists(folder + name, error)) continue;
    fovea::refuse_file(folder + name,
                       "no such file; `bash examples/models/fetch_models.sh` downloads the model, "
                       "and --model sets its path");
  }
}

std::vector<Sentence> lines_of(const std::string& path) {
  const fovea::MappedFile file(path);
  std::string_view text = file.text();
  std::vector<Sentence> sentences;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    sentences.push_back({.text = std::string(line)});
    text.remove_prefix(std::min(line.size() + 1, text.size()));
  }
  return sentences;
}

void print_tokens(const std::vector<Sentence>& sentences) {
  for (const Sentence& sentence : sentences) {
    const char* between = "";
    for (const Index id : sentence.tokens.ids) {
      std::cout << between << id;
      between = " ";
    }
    std::cout << "\n";
  }
}

double cosine(const Sentence& a, const Sentence& b) {
  double sum = 0;
  for (std::size_t c = 0; c < a.embedding.size(); ++c) {
    sum += static_cast<double>(a.embedding[c]) * static_cast<double>(b.embedding[c]);
  }
  return sum;
}

/// The beginning of a sentence on a separate line, for any bytes.
std::string shown(std::string_view text) {
  constexpr std::size_t most = 72;
  std::string line;
  while (!text.empty() && line.size() < most) {
    const char32_t c = models::take_character(text);
    models::append_character(line, c < 0x20 || (c >= 0x7f && c < 0xa0) ? U' ' : c);
  }
  return text.empty() ? line : line + "...";
}

/// All cosines of a few sentences; of many, the one that each is most alike.
void print_cosines(const std::vector<Sentence>& sentences) {
  constexpr std::size_t most = 16;
  const std::size_t count = sentences.size();
  if (count <= most) {
    std::printf("     ");
    for (std::size_t j = 0; j < count; ++j) std::printf(" %6zu", j + 1);
    std::printf("\n");
  }
  for (std::size_t i = 0; i < count; ++i) {
    std::printf("%4zu ", i + 1);
    std::size_t nearest = i;
    double largest = -2;
    for (std::size_t j = 0; j < count; ++j) {
      const double of_both = cosine(sentences[i], sentences[j]);
      if (count <= most) std::printf(" %6.3f", of_both);
      if (j != i && of_both > largest) {
        largest = of_both;
        nearest = j;
      }
    }
    if (count > most) std::printf(" %6.3f to %4zu", largest, nearest + 1);
    std::printf("  %s\n", shown(sentences[i].text).c_str());
  }
}

void write_json(const std::string& path, const std::vector<Sentence>& sentences) {
  nlohmann::json all = nlohmann::json::array();
  for (const Sentence& sentence : sentences) {
    all.push_back({{"text", sentence.text},
                   {"tokens", sentence.tokens.ids},
                   {"tokens_left_out", sentence.tokens.left_out},
                   {"embedding", sentence.embedding}});
  }
  const auto replace = nlohmann::json::error_handler_t::replace;  // what is no UTF-8
  fovea::write_file(path, nlohmann::json{{"sentences", all}}.dump(1, ' ', false, replace) + "\n");
}

void write_npy(const std::string& path, const std::vector<Sentence>& sentences, Index width) {
  std::vector<float> rows;
  for (const Sentence& sentence : sentences) {
    rows.insert(rows.end(), sentence.embedding.begin(), sentence.embedding.end());
  }
  fovea::write_npy(path, {.dtype = fovea::Dtype::f32,
                          .shape = {static_cast<Index>(sentences.size()), width},
                          .bytes = std::as_bytes(std::span<const float>(rows))});
}

/// Many sentences are shared out to the threads, of a few each one's rows; the bits are the same.
void embed_all(const models::Bert& model, const fovea::ThreadPool& pool,
               std::vector<Sentence>& sentences) {
  const auto count = std::ssize(sentences);
  if (count < 2 * pool.concurrency()) {
    for (Sentence& sentence : sentences) {
      sentence.embedding = models::embed(model, sentence.tokens.ids, pool);
    }
    return;
  }
  fovea::for_each_task(pool, count, [&](Index i, Index /*worker*/) {
    Sentence& sentence = sentences[static_cast<std::size_t>(i)];
    sentence.embedding = models::embed(model, sentence.tokens.ids, fovea::Serial{});
  });
}

void run(const models::CommandLine& line) {
  std::vector<Sentence> sentences;
  for (const std::string& word : line.words()) sentences.push_back({.text = word});
  for (const char* flag : {"--sentences", "--tokens"}) {
    if (!line.has(flag)) continue;
    for (Sentence& sentence : lines_of(line.text(flag))) sentences.push_back(std::move(sentence));
  }
  const auto threads = static_cast<int>(line.number("--threads", 0, 1, 1024));
  if (sentences.empty()) throw std::runtime_error("no sentences are given; see --help");
  const std::string json = line.text("--json"), npy = line.text("--npy");
  for (const std::string& path : {json, npy}) {
    if (!path.empty()) fovea::check_output(path);
  }
  const std::string folder = model_folder(line);
  check_files(folder);
  const auto sizes = models::BertSizes::read(folder + "/config.json");
  models::check_pooling(folder, sizes.width);
  const auto tokens = models::SentenceTokens::read(folder, sizes);
  for (Sentence& sentence : sentences) sentence.tokens = tokens.encode(sentence.text);
  if (line.has("--tokens")) return print_tokens(sentences);
  const auto model = models::Bert::read(sizes, folder + "/model.safetensors");
  for (std::size_t i = 0; i < sentences.size(); ++i) {
    const auto& [ids, left_out] = sentences[i].tokens;
    if (left_out == 0) continue;
    std::fprintf(stderr,
                 "note: sentence %zu has %zu tokens; the last %zu are omitted, since this model's "
                 "sentences have at most %zu\n",
                 i + 1, ids.size() + left_out, left_out, ids.size());
  }
  const fovea::ThreadPool pool(threads == 0 ? fovea::default_concurrency() : threads);
  embed_all(model, pool, sentences);
  if (!json.empty()) write_json(json, sentences);
  if (!npy.empty()) write_npy(npy, sentences, model.width());
  print_cosines(sentences);
}

}  // namespace

int main(int argc, char** argv) {
  return models::exit_status("sentence_embedding", [&] {
    const std::span<char* const> arguments(argv, static_cast<std::size_t>(argc));
    const models::CommandLine line(arguments.subspan(argc > 0 ? 1 : 0), kFlags, true);
    if (line.help()) {
      std::fputs(kHelp, stdout);
    } else {
      run(line);
    }
  });
}
