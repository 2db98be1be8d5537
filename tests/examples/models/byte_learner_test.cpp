// SPDX-License-Identifier: MIT
// fovea_test(FULL NEEDS io LINK fovea_byte_learners)
// Every operator's model of bytes: it learns, goes on from a checkpoint with the same bits, and its
// decoder continues a text as its forward pass would.
#include "examples/models/byte_learner.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>

#include "fovea/io/safetensors.hpp"
#include "support/scratch_folder.hpp"

namespace fovea_test::examples_models_byte_learner {

using fovea::Index;
using models::ByteLearner;
using models::ByteSettings;
using models::ByteText;

ByteSettings small(const std::string& op) {
  return {.op = op,
          .length = 16,
          .width = 8,
          .layers = 2,
          .heads = 2,
          .steps = 150,
          .batch = 4,
          .learning_rate = 1e-2,
          .seed = 3};
}

std::vector<unsigned char> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

class ByteLearners : public testing::Test {
 protected:
  ByteLearners() {
    std::ofstream file(text_path_);
    for (int i = 0; i < 100; ++i) file << "the square of " << i << " is " << i * i << ".\n";
  }

  template <class F>
  static std::string complaint(F&& f) {
    try {
      f();
    } catch (const std::exception& error) {
      return error.what();
    }
    return "none";
  }

  ScratchFolder folder_;
  std::string text_path_ = folder_ / "text";
  fovea::ThreadPool pool_{2};
};

TEST_F(ByteLearners, TheTextHasALearnableAndARandomPart) {
  std::ofstream(text_path_) << "aaaaaaaaabbbbbbbbbcccccccccddd";  // 30
  const ByteText text(text_path_, 2);
  EXPECT_EQ(text.size(), 30);
  EXPECT_EQ(text.train_size(), 27);
  std::vector<Index> tokens, targets;
  text.append(true, 0, 2, tokens, targets);
  text.append(true, 0.9999, 2, tokens, targets);
  text.append(false, 0, 2, tokens, targets);
  EXPECT_EQ(tokens, (std::vector<Index>{'a', 'a', 'c', 'c', 'd', 'd'}));
  EXPECT_EQ(targets, (std::vector<Index>{'a', 'a', 'c', 'c', 'd', 'd'}));
  EXPECT_NEAR(text.unigram_bits(), 3 * 0.3 * std::log2(1 / 0.3) + 0.1 * std::log2(10), 1e-12);
  EXPECT_EQ(complaint([&] { ByteText(text_path_, 3); }),
            text_path_ +
                ": it has 30 bytes; expected at least 40, since a tenth of them is held out and "
                "--length is 3");
}

TEST_F(ByteLearners, LearnWithEveryOperator) {
  const ByteText text(text_path_, 16);
  for (const std::string& op : models::byte_operators()) {
    const auto learner = models::make_byte_learner(small(op));
    double first = 0, last = 0;
    for (int i = 0; i < 150; ++i) {
      last = learner->learn(text, pool_);
      if (i == 0) first = last;
    }
    EXPECT_GT(first, 6) << op;
    EXPECT_LT(last, text.unigram_bits()) << op;
    EXPECT_LT(learner->validate(text, pool_), text.unigram_bits()) << op;
    EXPECT_EQ(learner->step(), 150);
  }
}

TEST_F(ByteLearners, ContinueFromACheckpointWithTheSameBits) {
  const ByteText text(text_path_, 16);
  const std::string path = folder_ / "model";
  for (const std::string& op : models::byte_operators()) {
    const auto whole = models::make_byte_learner(small(op));
    const auto half = models::make_byte_learner(small(op));
    for (int i = 0; i < 6; ++i) whole->learn(text, pool_);
    for (int i = 0; i < 3; ++i) half->learn(text, pool_);
    half->save(path);
    ByteSettings settings{.steps = 0};
    const auto other = models::load_byte_learner(path, settings);
    EXPECT_EQ(settings.op, op);
    EXPECT_EQ(settings.steps, 150);
    EXPECT_EQ(settings.learning_rate, 1e-2);
    EXPECT_EQ(other->step(), 3);
    const fovea::ThreadPool alone(1);
    for (int i = 0; i < 3; ++i) other->learn(text, alone);
    EXPECT_EQ(other->logits(bytes_of("the square")), whole->logits(bytes_of("the square"))) << op;
  }
}

/// The text that the forward pass continues by the likeliest bytes.
std::string continued(const ByteLearner& learner, const std::string& prompt, Index count) {
  std::string text = prompt;
  std::string context = prompt;
  constexpr std::size_t longest = 16;
  if (context.size() > longest) context = text.substr(text.size() - longest / 2);
  for (Index i = 0; i < count; ++i) {
    if (context.size() > longest) context = text.substr(text.size() - longest / 2);
    const std::vector<float> logits = learner.logits(bytes_of(context));
    const auto row = logits.end() - 256;
    const char next = static_cast<char>(std::max_element(row, logits.end()) - row);
    text += next;
    context += next;
  }
  return text.substr(prompt.size());
}

TEST_F(ByteLearners, TheDecoderContinuesATextAsTheForwardPassWould) {
  const ByteText text(text_path_, 16);
  for (const std::string& op : models::byte_operators()) {
    SCOPED_TRACE(op);
    const auto learner = models::make_byte_learner(small(op));
    for (int i = 0; i < 30; ++i) learner->learn(text, pool_);
    for (const std::string prompt : {"t", "the square", "the square of 12 is longer"}) {
      EXPECT_EQ(learner->generate(prompt, 40, {.temperature = 0}, pool_),
                continued(*learner, prompt, 40));
    }
    const models::Sampling drawn{.temperature = 2, .seed = 4};
    const std::string made = learner->generate("the", 40, drawn, pool_);
    EXPECT_EQ(learner->generate("the", 40, drawn, fovea::ThreadPool(1)), made);
    EXPECT_NE(learner->generate("the", 40, {.temperature = 2, .seed = 5}, pool_), made);
  }
}

TEST_F(ByteLearners, BytesAreDrawnFromTheLikeliest) {
  std::vector<float> logits(256, -1e30f);
  logits['a'] = std::log(6.0f);
  logits['b'] = std::log(3.0f);
  logits['c'] = 0;
  std::map<char, int> counts;
  for (Index i = 0; i < 4000; ++i) {
    ++counts[static_cast<char>(models::draw_token(logits, {}, i))];
    EXPECT_EQ(models::draw_token(logits, {.temperature = 0}, i), 'a');
    EXPECT_EQ(models::draw_token(logits, {.top_k = 1}, i), 'a');
    EXPECT_NE(models::draw_token(logits, {.top_k = 2}, i), 'c');
    EXPECT_EQ(models::draw_token(logits, {.temperature = 1e-9}, i), 'a');
  }
  EXPECT_EQ(counts.size(), 3u);
  EXPECT_NEAR(counts['a'] / 4000.0, 0.6, 0.03);
  EXPECT_NEAR(counts['b'] / 4000.0, 0.3, 0.03);
  EXPECT_NEAR(counts['c'] / 4000.0, 0.1, 0.03);
}

TEST_F(ByteLearners, RefuseOtherCheckpoints) {
  const std::string path = folder_ / "model";
  models::make_byte_learner(small("full"))->save(path);
  const auto with = [&](const std::string& name, const std::string& value) {
    fovea::TensorSet set = fovea::read_safetensors(path);
    set.metadata[name] = value;
    const std::string other = folder_ / "other";
    fovea::write_safetensors(other, set);
    ByteSettings settings;
    return complaint([&] { models::load_byte_learner(other, settings); }).substr(other.size());
  };
  EXPECT_EQ(with("operator", "half"), ": its operator is 'half', which is not supported");
  EXPECT_EQ(with("width", "9"),
            ": 'embedding.table' is [256, 8]; expected [256, 9], as in its metadata");
  EXPECT_EQ(with("width", "-1"), ": 'width' in its metadata is '-1', which no model supports");
  EXPECT_EQ(with("learning_rate", "nan"),
            ": 'learning_rate' in its metadata is 'nan', which no model supports");
  EXPECT_EQ(with("layers", "4096"), ": there is no tensor 'blocks.2.feed_forward.in.weight'");
  EXPECT_EQ(with("operator", "delta").substr(0, 14), ": missing are ");
  EXPECT_EQ(complaint([&] { models::make_byte_learner(small("half")); }).substr(0, 26),
            "--operator: 'half' is none");
}

}  // namespace fovea_test::examples_models_byte_learner
