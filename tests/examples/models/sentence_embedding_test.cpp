// SPDX-License-Identifier: MIT
// fovea_test(NEEDS io FULL PROGRAM sentence_embedding)
// The program as users run it, on a model of a few weights.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "examples/models/tiny_bert.hpp"
#include "fovea/io/npy.hpp"
#include "support/run_program.hpp"

namespace fovea_test::examples_models_sentence_embedding {

class SentenceEmbedding : public RunProgram {
 protected:
  SentenceEmbedding() : RunProgram(FOVEA_PROGRAM) {
    std::filesystem::create_directories(folder_ / "minilm");
    tiny_.write(folder_ / "minilm");
  }

  TinyBert tiny_;
};

TEST_F(SentenceEmbedding, PrintsCosines) {
  EXPECT_EQ(run("--model minilm 'The cat sat.' 'the CAT sat.' 'un'"), 0) << errors_;
  EXPECT_EQ(errors_, "");
  const std::vector<double> a = tiny_.embedding({2, 5, 6, 9, 10, 3});
  const std::vector<double> b = tiny_.embedding({2, 11, 3});
  double cosine = 0;
  for (std::size_t c = 0; c < a.size(); ++c) cosine += a[c] * b[c];
  char expected[300];
  std::snprintf(expected, sizeof expected,
                "           1      2      3\n"
                "   1   1.000  1.000 %6.3f  The cat sat.\n"
                "   2   1.000  1.000 %6.3f  the CAT sat.\n"
                "   3  %6.3f %6.3f  1.000  un\n",
                cosine, cosine, cosine, cosine);
  EXPECT_EQ(output_, expected);
}

TEST_F(SentenceEmbedding, WritesEmbeddings) {
  put("lines.txt", "The cat sat.\n\nbad \xff bytes");
  EXPECT_EQ(run("--model=minilm --sentences lines.txt --npy e.npy --json e.json --threads 2 un"), 0)
      << errors_;
  const auto set = fovea::read_npy(folder_ / "e.npy");
  const auto& tensor = set.at("tensor");
  EXPECT_EQ(tensor.shape, (std::vector<Index>{4, TinyBert::kWidth}));
  std::vector<float> rows(4 * TinyBert::kWidth);
  tensor.read(rows.data());
  const auto json = nlohmann::json::parse(text_of("e.json"));
  const std::vector<std::vector<Index>> tokens = {
      {2, 11, 3}, {2, 5, 6, 9, 10, 3}, {2, 3}, {2, 1, 1, 3}};
  for (std::size_t i = 0; i < 4; ++i) {
    const auto& sentence = json["sentences"][i];
    EXPECT_EQ(sentence["tokens"].get<std::vector<Index>>(), tokens[i]);
    EXPECT_EQ(sentence["tokens_left_out"], 0);
    const std::vector<double> expected = tiny_.embedding(tokens[i]);
    for (std::size_t c = 0; c < expected.size(); ++c) {
      EXPECT_NEAR(static_cast<double>(rows[i * expected.size() + c]), expected[c], 2e-6);
      EXPECT_EQ(sentence["embedding"][c].get<float>(), rows[i * expected.size() + c]);
    }
  }
  EXPECT_EQ(json["sentences"][3]["text"], "bad \xEF\xBF\xBD bytes");
  const std::string first = text_of("e.npy");
  EXPECT_EQ(run("--model=minilm --sentences lines.txt --npy e.npy --threads 1 un"), 0);
  EXPECT_EQ(text_of("e.npy"), first);
}

TEST_F(SentenceEmbedding, PrintsTheNearestOfManySentences) {
  std::string lines;
  for (int i = 0; i < 17; ++i) lines += i % 2 == 0 ? "the cat\n" : "un\n";
  put("lines.txt", lines);
  EXPECT_EQ(run("--model minilm --sentences lines.txt"), 0) << errors_;
  EXPECT_TRUE(output_.starts_with("   1   1.000 to    3  the cat\n   2   1.000 to    4  un\n"))
      << output_;
}

TEST_F(SentenceEmbedding, ShowsSentencesOfAnyBytes) {
  put("lines.txt", "un\x1b[2J\xff" + std::string(80, 'e'));
  EXPECT_EQ(run("--model minilm --sentences lines.txt"), 0) << errors_;
  EXPECT_EQ(output_,
            "           1\n   1   1.000  un [2J\xEF\xBF\xBD" + std::string(63, 'e') + "...\n");
}

TEST_F(SentenceEmbedding, PrintsTokens) {
  put("lines.txt", "the cats\nun [SEP] sat\n\nthe the the the the the the");
  EXPECT_EQ(run("--model minilm --tokens lines.txt"), 0) << errors_;
  EXPECT_EQ(output_, "2 5 7 3\n2 11 3 9 3\n2 3\n2 5 5 5 5 5 3\n");
}

TEST_F(SentenceEmbedding, ReportsTruncatedSentences) {
  EXPECT_EQ(run("--model minilm un 'the the the the the the the'"), 0);
  EXPECT_EQ(errors_,
            "note: sentence 2 has 9 tokens; the last 2 are omitted, since this model's sentences "
            "have at most 7\n");
}

TEST_F(SentenceEmbedding, FindsItsModel) {
  EXPECT_EQ(run("un", "FOVEA_MODELS=."), 0) << errors_;
  EXPECT_EQ(run("un", "FOVEA_MODELS= HOME=/nowhere"), 1);
  EXPECT_EQ(
      errors_,
      "sentence_embedding: /nowhere/.cache/fovea/models/minilm/config.json: no such file; `bash "
      "examples/models/fetch_models.sh` downloads the model, and --model sets its path\n");
}

TEST_F(SentenceEmbedding, RefusesWithOneLineAndWritesNothing) {
  const auto refusal = [&](const std::string& arguments) {
    EXPECT_NE(run(arguments), 0) << arguments;
    EXPECT_EQ(output_, "");
    EXPECT_FALSE(has("e.npy"));
    return errors_;
  };
  const std::string name = "sentence_embedding: ";
  EXPECT_EQ(refusal(""), name + "no sentences are given; see --help\n");
  EXPECT_EQ(refusal("--modle minilm un"),
            name + "The following argument was not expected: --modle\n");
  EXPECT_EQ(refusal("un --model"), name + "--model needs a value\n");
  EXPECT_EQ(refusal("un --model a --model b"),
            name + "--model: At Most 1 required but received 2\n");
  EXPECT_EQ(refusal("un --threads 0"),
            name + "--threads: '0' is not a whole number from 1 to 1024\n");
  EXPECT_EQ(refusal("--model minilm --sentences none.txt"),
            name + "none.txt: cannot be read: No such file or directory\n");
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(refusal("--model minilm --sentences pipe"),
            name + "pipe: cannot be read: it is not a regular file\n");
  EXPECT_EQ(refusal("--model minilm --npy '' un"), name + "--npy needs a value\n");
  EXPECT_EQ(refusal("--model minilm --npy none/e.npy un"),
            name + "none/e.npy: cannot be written: No such file or directory\n");
  put("minilm/model.safetensors", "short");
  EXPECT_EQ(refusal("--model minilm --npy e.npy un"),
            name + "minilm/model.safetensors: it is too short for a safetensors file\n");
  std::filesystem::remove(folder_ / "minilm/model.safetensors");
  std::filesystem::rename(folder_ / "pipe", folder_ / "minilm/model.safetensors");
  EXPECT_EQ(refusal("--model minilm --npy e.npy un"),
            name + "minilm/model.safetensors: cannot be read: it is not a regular file\n");
}

TEST_F(SentenceEmbedding, PrintsHelp) {
  EXPECT_EQ(run("--help"), 0);
  EXPECT_TRUE(output_.starts_with("sentence_embedding: ")) << output_;
  for (const char* flag : {"--model", "--sentences", "--json", "--npy", "--tokens", "--threads"}) {
    EXPECT_NE(output_.find(flag), std::string::npos) << flag;
  }
}

}  // namespace fovea_test::examples_models_sentence_embedding
