// SPDX-License-Identifier: MIT
/// \file
/// Embeds sentences by all-MiniLM-L6-v2, or another BERT with mean pooling, and prints their cosine
/// similarities. See --help.
#include <cstdlib>
#include <fovea/core/thread_pool.hpp>
#include <fovea/io/npy.hpp>
#include <iostream>
#include <optional>

#include "../command_line.hpp"
#include "bert.hpp"

namespace {

using fovea::Index;

/// The arguments.
struct Asked {
  std::string model;  ///< empty: in the usual place
  std::string sentences, json, npy, tokens;
  int threads = 0;  ///< 0: those of the machine
  std::vector<std::string> words;
};

/// Parses the arguments; nothing if help was requested, which is printed. \throws ArgumentError
std::optional<Asked> asked(int argc, const char* const* argv) {
  Asked to;
  program::CommandLine line("sentence_embedding",
                            "computes embeddings of sentences, vectors of length 1, and their "
                            "cosine similarities.");
  line.add("--model DIR", to.model,
           "folder of model.safetensors, config.json and vocab.txt (minilm in $FOVEA_MODELS, or in "
           "~/.cache/fovea/models)");
  line.add("--sentences FILE", to.sentences,
           "a file with one sentence per line, added to the sentences above");
  line.add("--json FILE", to.json, "write sentences, tokens and embeddings");
  line.add("--npy FILE", to.npy, "write the embeddings as float32 [sentences, width]");
  line.add("--tokens FILE", to.tokens, "only print the token numbers of each line of FILE");
  line.add("--threads T", to.threads, 1, 1024, "threads (those of the machine)");
  line.add_words("sentences", to.words, "each in quotation marks");
  line.footer(
      "The model is BERT with mean pooling (all-MiniLM-L6-v2). Sentences are truncated to the "
      "number "
      "of tokens in sentence_bert_config.json (256), with a message. `bash "
      "examples/models/fetch_models.sh` fetches the files.");
  if (!line.parse(argc, argv)) return {};
  return to;
}

/// A sentence, its tokens and its embedding.
struct Sentence {
  std::string text;
  models::TokenList tokens = {};
  std::vector<float> embedding = {};
};

std::string model_folder(const Asked& asked) {
  const auto variable = [](const char* name) {
    const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): one thread
    return std::string(value == nullptr ? "" : value);
  };
  if (!asked.model.empty()) return asked.model;
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

/// Prints all similarities of a few sentences, or for many the most similar one of each.
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

/// Threads share the sentences if there are many, and otherwise their rows. The bits are the same.
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

void run(const Asked& asked) {
  std::vector<Sentence> sentences;
  for (const std::string& word : asked.words) sentences.push_back({.text = word});
  for (const std::string& file : {asked.sentences, asked.tokens}) {
    if (file.empty()) continue;
    for (Sentence& sentence : lines_of(file)) sentences.push_back(std::move(sentence));
  }
  if (sentences.empty()) {
    throw program::ArgumentError("no sentences are given; see --help");
  }
  for (const std::string& path : {asked.json, asked.npy}) {
    if (!path.empty()) fovea::check_output(path);
  }
  const std::string folder = model_folder(asked);
  check_files(folder);
  const auto sizes = models::BertSizes::read(folder + "/config.json");
  models::check_pooling(folder, sizes.width);
  const auto tokens = models::SentenceTokens::read(folder, sizes);
  for (Sentence& sentence : sentences) sentence.tokens = tokens.encode(sentence.text);
  if (!asked.tokens.empty()) return print_tokens(sentences);
  const auto model = models::Bert::read(sizes, folder + "/model.safetensors");
  for (std::size_t i = 0; i < sentences.size(); ++i) {
    const auto& [ids, left_out] = sentences[i].tokens;
    if (left_out == 0) continue;
    std::fprintf(stderr,
                 "note: sentence %zu has %zu tokens; the last %zu are omitted, since this model's "
                 "sentences have at most %zu\n",
                 i + 1, ids.size() + left_out, left_out, ids.size());
  }
  const fovea::ThreadPool pool(asked.threads == 0 ? fovea::default_concurrency() : asked.threads);
  embed_all(model, pool, sentences);
  if (!asked.json.empty()) write_json(asked.json, sentences);
  if (!asked.npy.empty()) write_npy(asked.npy, sentences, model.width());
  print_cosines(sentences);
}

}  // namespace

int main(int argc, char** argv) {
  return program::exit_status("sentence_embedding", [&] {
    if (const auto to_do = asked(argc, argv)) run(*to_do);
    return 0;
  });
}
