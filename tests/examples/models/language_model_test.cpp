// SPDX-License-Identifier: MIT
// fovea_test(NEEDS io icu FULL PROGRAM language_model)
// The program as users run it, on a model of a few weights.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <Eigen/Core>
#include <algorithm>
#include <cstring>
#include <filesystem>

#include "examples/models/chosen_attention.hpp"
#include "examples/models/tiny_llama.hpp"
#include "fovea/io/npy.hpp"
#include "fovea/patterns/random_blocks.hpp"
#include "support/run_program.hpp"

namespace fovea_test::examples_models_language_model {

using Ids = std::vector<Index>;

const std::string kPrompt = "an apple and the pear, 12";
/// Of kPrompt by hand: "an" is a merge, and so is "Ġthe", where "Ġ" is the space before it, and
/// each digit is a separate piece.
const Ids kPromptIds = {259, 32, 97,  112, 112, 108, 101, 32, 259, 100,
                        258, 32, 112, 101, 97,  114, 44,  32, 49,  50};

bool sees_all(Index /*head*/, Index /*i*/, Index /*j*/) { return true; }

/// A decoder reads the keys of a group of heads once only if their patterns are the same.
TEST(ChosenAttention, PatternsOfHeadsAreSharedWhereTheyAreEqual) {
  for (const char* shared : {"full", "window:4", "strided:4", "fixed:4"}) {
    EXPECT_EQ(models::AttentionChoice(shared).attention().pattern_period(9), 1) << shared;
  }
  EXPECT_EQ(models::AttentionChoice("bigbird:2").attention().pattern_period(9), 9);
}

class LanguageModel : public RunProgram {
 protected:
  LanguageModel() : RunProgram(FOVEA_PROGRAM) { put("m.gguf", tiny_.bytes().file()); }

  /// The numbers of a .npy file of floats.
  std::vector<float> numbers_of(const std::string& name, const std::vector<Index>& shape) const {
    const auto set = fovea::read_npy(folder_ / name);
    const auto& tensor = set.at("tensor");
    EXPECT_EQ(tensor.shape, shape);
    std::vector<float> all(tensor.bytes.size() / sizeof(float));
    tensor.read(all.data());
    return all;
  }

  /// Runs it for the logits of the prompt, which must be these and have the same bits whatever
  /// pieces it is read in, down to single tokens, and whatever the number of threads.
  void expect_logits(const std::string& options, const TinyLlama& model, const Sees& sees) {
    const std::string read =
        "--model m.gguf --prompt '" + kPrompt + "' --count 0 " + options + " --logits ";
    ASSERT_EQ(run(read + "all.npy --threads 1"), 0) << errors_;
    const auto expected = model.logits(kPromptIds, sees);
    const auto got = numbers_of("all.npy", {std::ssize(kPromptIds), std::ssize(tiny_.tokens)});
    for (std::size_t n = 0, at = 0; n < expected.size(); ++n) {
      for (const double logit : expected[n]) {
        ASSERT_NEAR(static_cast<double>(got[at++]), logit, 3e-5) << options << ", row " << n;
      }
    }
    expect_same_bits(read);
  }
  void expect_same_bits(const std::string& read) {
    for (const char* way : {"--chunk 1", "--chunk 7", "--threads 2"}) {
      ASSERT_EQ(run(read + "again.npy " + way), 0) << errors_;
      EXPECT_EQ(text_of("again.npy"), text_of("all.npy")) << read << way;
    }
  }

  TinyLlama tiny_;
};

TEST_F(LanguageModel, CutsATextIntoTokens) {
  put("text", kPrompt + "<|im_end|>\xff");
  EXPECT_EQ(run("--model m.gguf --tokens text"), 0) << errors_;
  std::string expected;
  for (const Index id : kPromptIds) expected += std::to_string(id) + " ";
  EXPECT_EQ(output_, expected + std::to_string(tiny_.end()) + " 255\n");
}

TEST_F(LanguageModel, ComputesTheLogitsOfEachKindOfAttention) {
  expect_logits("", tiny_, sees_all);
  expect_logits("--attention window:5", tiny_,
                [](Index, Index i, Index j) { return i - j < 5 || j < 4; });
  expect_logits("--attention window:3,sink:1", tiny_,
                [](Index, Index i, Index j) { return i - j < 3 || j < 1; });
  expect_logits("--attention window:6,sink:0", tiny_,
                [](Index, Index i, Index j) { return i - j < 6; });
  expect_logits("--attention strided:4", tiny_,
                [](Index, Index i, Index j) { return i - j <= 4 || (i - j) % 4 == 0; });
  expect_logits("--attention fixed:5,summary:2", tiny_,
                [](Index, Index i, Index j) { return j / 5 == i / 5 || j % 5 >= 3; });
  expect_logits("--attention bigbird:2", tiny_, [](Index head, Index i, Index j) {
    const fovea::RandomBlocks drawn{
        .block = 2, .head = head, .causal = true, .skip_first = 2, .skip_near = 1};
    return j < 4 || i < 4 || i / 2 - j / 2 <= 1 || drawn.allows(i, j);
  });
  expect_logits("--attention smart_bird:64", tiny_, sees_all);
}

TEST_F(LanguageModel, SmartBirdKeepsKeysForAnyStepSizes) {
  const std::string read = "--model m.gguf --prompt '" + kPrompt + "' --count 0 --logits ";
  ASSERT_EQ(run(read + "full.npy"), 0) << errors_;
  ASSERT_EQ(run(read + "all.npy --attention smart_bird:3 --threads 1"), 0) << errors_;
  EXPECT_NE(text_of("all.npy"), text_of("full.npy"));
  expect_same_bits("--attention smart_bird:3 " + read);
}

TEST_F(LanguageModel, RoundsMatricesTo16Bits) {
  const auto rounded = [&](auto round) {
    TinyLlama model = tiny_;
    for (auto& [name, rows] : model.weights) {
      if (rows.size() == 1) continue;  // scales of norms are kept
      for (auto& row : rows) {
        for (double& value : row) {
          value = static_cast<double>(static_cast<float>(round(static_cast<float>(value))));
        }
      }
    }
    return model;
  };
  expect_logits("--weights f16", rounded([](float x) { return Eigen::half(x); }), sees_all);
  expect_logits("--weights bf16", rounded([](float x) { return Eigen::bfloat16(x); }), sees_all);
}

TEST_F(LanguageModel, KeepsKeysAndValuesIn16Bits) {
  const std::string read = "--model m.gguf --prompt '" + kPrompt + "' --count 0 --logits ";
  ASSERT_EQ(run(read + "full.npy"), 0) << errors_;
  const std::vector<Index> shape = {std::ssize(kPromptIds), std::ssize(tiny_.tokens)};
  const auto full = numbers_of("full.npy", shape);
  for (const char* options : {"--cache 16 ", "--cache 16 --weights f16 --attention window:6 "}) {
    ASSERT_EQ(run(options + read + "all.npy --threads 1"), 0) << errors_;
    expect_same_bits(options + read);
  }
  ASSERT_EQ(run("--cache 16 " + read + "all.npy"), 0) << errors_;
  const auto got = numbers_of("all.npy", shape);
  EXPECT_NE(got, full);
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], full[i], 0.02F);
}

TEST_F(LanguageModel, ContinuesATextTheLikeliestWay) {
  Ids ids = kPromptIds;
  for (int i = 0; i < 12; ++i) {
    const auto last = tiny_.logits(ids, sees_all).back();
    const Index next = std::max_element(last.begin(), last.end()) - last.begin();
    if (next == tiny_.end()) break;
    ids.push_back(next);
  }
  ASSERT_GT(ids.size(), kPromptIds.size());
  EXPECT_EQ(run("--model m.gguf --prompt '" + kPrompt + "' --count 12"), 0) << errors_;
  const std::string continued = output_.substr(0, output_.size() - 1);
  std::string bytes;
  for (std::size_t i = kPromptIds.size(); i < ids.size(); ++i) bytes += tiny_.bytes_of(ids[i]);
  EXPECT_EQ(continued, bytes);
  EXPECT_NE(errors_.find("prompt: 20 tokens, "), std::string::npos) << errors_;
  const std::string drawn =
      "--model m.gguf --chat 'the pear' --count 9 --temperature 1.5 --seed 4 ";
  ASSERT_EQ(run(drawn), 0) << errors_;
  const std::string first = output_;
  ASSERT_EQ(run(drawn + "--threads 1"), 0) << errors_;
  EXPECT_EQ(output_, first);
  ASSERT_EQ(run("--model m.gguf --chat 'the pear' --count 9 --temperature 1.5 --seed 5"), 0);
  EXPECT_NE(output_, first);
}

TEST_F(LanguageModel, AcceptsPromptsOfAnyBytes) {
  const std::string prompt = "--an apple";
  const auto expected = [&](const std::string& arguments) {
    EXPECT_EQ(run("--model m.gguf --count 5 " + arguments), 0) << errors_;
    return output_;
  };
  const std::string first = expected("--prompt='" + prompt + "'");
  EXPECT_EQ(expected("--prompt '" + prompt + "'"), first);
  EXPECT_NE(errors_.find("prompt: 9 tokens, "), std::string::npos) << errors_;
  EXPECT_NE(expected("--prompt=--count"), "");
  expected("--chat ''");
}

TEST_F(LanguageModel, StopsAtItsLastPosition) {
  EXPECT_EQ(run("--model m.gguf --prompt '" + kPrompt + "' --count 1000 --temperature 2"), 0);
  const std::size_t comma = errors_.find("then ");
  ASSERT_NE(comma, std::string::npos) << errors_;
  EXPECT_LE(std::stoi(errors_.substr(comma + 5)), TinyLlama::kPositions - 20);
}

TEST_F(LanguageModel, MeasuresPerplexity) {
  put("text", kPrompt + kPrompt + kPrompt);
  const auto logits = tiny_.logits(kPromptIds, sees_all);
  double sum = 0;
  for (std::size_t i = 0; i + 1 < kPromptIds.size(); ++i) {
    double total = 0;
    for (const double logit : logits[i]) total += std::exp(logit);
    sum += std::log(total) - logits[i][static_cast<std::size_t>(kPromptIds[i + 1])];
  }
  EXPECT_EQ(run("--model m.gguf --perplexity text --length 20"), 0) << errors_;
  ASSERT_TRUE(output_.starts_with("perplexity ")) << output_;
  EXPECT_NEAR(std::stod(output_.substr(11)) / std::exp(sum / 19), 1, 1e-5);
  EXPECT_NE(output_.find(" of 20 tokens, "), std::string::npos);
}

TEST_F(LanguageModel, WritesTheInputsOfAttention) {
  put("text", kPrompt);
  EXPECT_EQ(run("--model m.gguf --dump-qkv out --text text --layer 1 --length 20"), 0) << errors_;
  TinyLlama::Heads heads;
  tiny_.logits(kPromptIds, sees_all, 1, &heads);
  const auto expect = [&](const std::string& name, const TinyLlama::Rows& rows, Index count) {
    const auto got = numbers_of("out/" + name, {count, 20, TinyLlama::kHead});
    std::size_t at = 0;
    for (Index h = 0; h < count; ++h) {
      for (std::size_t n = 0; n < 20; ++n) {
        for (Index c = 0; c < TinyLlama::kHead; ++c) {
          ASSERT_NEAR(static_cast<double>(got[at++]),
                      rows[n][static_cast<std::size_t>(h * TinyLlama::kHead + c)], 3e-5);
        }
      }
    }
  };
  expect("q.npy", heads.q, TinyLlama::kHeads);
  expect("k.npy", heads.k, TinyLlama::kKeyHeads);
  expect("v.npy", heads.v, TinyLlama::kKeyHeads);
}

/// A file whose metadata begin with these.
template <class Add>
std::string with(const TinyLlama& tiny, const Add& add) {
  GgufBytes more;
  add(more);
  return tiny.bytes(more).file();
}

TEST_F(LanguageModel, InterpolatesPositions) {
  TinyLlama scaled;
  scaled.frequency = [&](Index pair) { return tiny_.frequency(pair) / 4; };
  for (const char* key : {"llama.rope.scaling.factor", "llama.rope.scale_linear"}) {
    put("m.gguf", with(tiny_, [&](GgufBytes& file) { file.number(key, 6, 4.0F); }));
    expect_logits("", scaled, sees_all);
  }
  const auto of_type = [&](const std::string& type) {
    return with(tiny_, [&](GgufBytes& file) {
      file.string("llama.rope.scaling.type", type);
      file.number("llama.rope.scaling.factor", 6, 4.0F);
      file.number("llama.rope.scale_linear", 6, 2.0F);  // the older key counts where it is alone
    });
  };
  put("m.gguf", of_type("linear"));
  expect_logits("", scaled, sees_all);
  put("m.gguf", of_type("none"));
  expect_logits("", tiny_, sees_all);
}

/// The four pairs of a head make 9.9, 3.1, 0.99 and 0.31 turns in 62 positions. 3 turns and 1 turn
/// are those of pairs 1.03 and 1.99, rounded to 1 and 2: no pair lies between them. 20 turns and
/// 0.5 turns are those of pairs -0.6 and 2.6, rounded to 0 and 3: pairs 1 and 2 are divided by a
/// part.
TEST_F(LanguageModel, StretchesPositionsByYarn) {
  const auto expect = [&](float fast, float slow, const std::vector<double>& divided, float more) {
    const auto file = with(tiny_, [&](GgufBytes& keys) {
      keys.string("llama.rope.scaling.type", "yarn");
      keys.number("llama.rope.scaling.factor", 6, 8.0F);
      keys.size("llama.rope.scaling.original_context_length", 62);
      keys.number("llama.rope.scaling.yarn_beta_fast", 6, fast);
      keys.number("llama.rope.scaling.yarn_beta_slow", 6, slow);
      keys.number("llama.rope.scaling.finetuned", 7, true);
      if (more != 1) keys.number("llama.rope.scaling.attn_factor", 6, more);
    });
    put("m.gguf", file);
    TinyLlama stretched;
    stretched.magnitude = (1 + 0.1 * std::log(8.0)) * static_cast<double>(more);
    stretched.frequency = [&](Index pair) {
      const double part = divided[static_cast<std::size_t>(pair)];
      return tiny_.frequency(pair) * (1 - part + part / 8);
    };
    expect_logits("", stretched, sees_all);
  };
  expect(3, 1, {0, 0, 1, 1}, 1);
  expect(20, 0.5F, {0, 1.0 / 3, 2.0 / 3, 1}, 1);
  expect(20, 0.5F, {0, 1.0 / 3, 2.0 / 3, 1}, 1.25F);
}

class BadLanguageModel : public LanguageModel {
 protected:
  /// Its line of output; nothing was written. \param model replaces the file
  std::string refusal(const std::string& arguments, const std::string& model = "") {
    if (!model.empty()) put("m.gguf", model);
    EXPECT_NE(run(arguments), 0) << arguments;
    EXPECT_EQ(output_, "");
    EXPECT_FALSE(has("l.npy"));
    EXPECT_FALSE(has("out"));
    EXPECT_TRUE(errors_.starts_with("language_model: ")) << errors_;
    EXPECT_EQ(errors_.find('\n'), errors_.size() - 1) << errors_;
    return errors_.substr(16, errors_.size() - 17);
  }
  std::string of_model(const std::string& model) {
    return refusal("--model m.gguf --prompt a --logits l.npy", model);
  }
};

TEST_F(BadLanguageModel, InvalidOptions) {
  const std::string one =
      "expected one of --prompt, --chat, --perplexity, --dump-qkv and --tokens; see --help";
  EXPECT_EQ(refusal(""), one);
  EXPECT_EQ(refusal("--model m.gguf --prompt ''"), "there are no tokens in the prompt");
  EXPECT_EQ(refusal("--model m.gguf --prompt="), "there are no tokens in the prompt");
  for (const char* none : {"--prompt", "--prompt --count 3", "--prompt -- a", "--prompt --help",
                           "--prompt --count=3"}) {
    EXPECT_EQ(refusal(std::string("--model m.gguf ") + none), "--prompt needs a value");
  }
  EXPECT_EQ(refusal("--model '' --prompt a"), "--model needs a value");
  EXPECT_EQ(refusal("--model m.gguf --prompt a --logits="), "--logits needs a value");
  EXPECT_EQ(refusal("--model m.gguf --prompt a --count ''"),
            "--count: '' is not a whole number from 0 to 1073741824");
  EXPECT_EQ(refusal("--prompt a --chat b"), one);
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  for (const char* flags : {"--model pipe --prompt a", "--model m.gguf --tokens pipe",
                            "--model m.gguf --perplexity pipe", "--model . --prompt a"}) {
    const std::string said = refusal(flags);
    EXPECT_TRUE(said.ends_with(": cannot be read: it is not a regular file")) << said;
  }
  EXPECT_EQ(refusal("--model none.gguf --prompt a").substr(0, 26), "none.gguf: no such file; `");
  const std::string model = "--model m.gguf ";
  EXPECT_EQ(refusal(model + "--prompt '" + kPrompt + kPrompt + kPrompt + "' --logits l.npy"),
            "the prompt has 60 tokens; the model has positions for 40");
  put("text", kPrompt);
  EXPECT_EQ(refusal(model + "--perplexity text"), "text: has 20 tokens; expected at least 40");
  EXPECT_EQ(refusal(model + "--perplexity text --length 41"),
            "--length: '41' is not a whole number from 2 to 40");
  EXPECT_EQ(refusal(model + "--dump-qkv out --text text --length 20 --layer 2"),
            "--layer: '2' is not a whole number from 0 to 1");
  EXPECT_EQ(refusal(model + "--dump-qkv out"), "--dump-qkv requires --text");
  EXPECT_EQ(refusal(model + "--prompt a --weights f8"), "--weights: 'f8' is not f32, f16 or bf16");
  EXPECT_EQ(refusal(model + "--prompt a --cache 8"), "--cache: '8' is not 32 or 16");
  EXPECT_EQ(refusal(model + "--prompt a --cache 16 --attention smart_bird:8"),
            "--attention smart_bird takes --cache 32");
  EXPECT_EQ(refusal(model + "--prompt a --logits none/l.npy"),
            "none/l.npy: cannot be written: No such file or directory");
}

TEST_F(BadLanguageModel, InvalidAttention) {
  const auto of = [&](const std::string& attention) {
    return refusal("--model m.gguf --prompt a --logits l.npy --attention " + attention);
  };
  for (const char* name : {"fsat", "fat", "fnet", "linformer", "nystromformer", "sinkhorn"}) {
    EXPECT_EQ(of(name),
              std::string("--attention ") + name + ": it sees later tokens, so it cannot decode");
  }
  EXPECT_EQ(of("window:0"), "--attention window:0: window is 0; expected 1 to " +
                                std::to_string(fovea::kFarPosition));
  EXPECT_EQ(of("window:8,sinks:1"), "--attention window:8,sinks:1: 'sinks' is not a part of it");
  EXPECT_EQ(of("strided:x"), "--attention strided:x: 'x' is no number");
  EXPECT_EQ(of("fixed:4,summary:9"),
            "--attention fixed:4,summary:9: summary is 9; expected 1 to 4");
  EXPECT_EQ(of("window:3,window:4"), "--attention window:3,window:4: 'window' is given twice");
  EXPECT_EQ(of("smart_bird:8,sink:1"),
            "--attention smart_bird:8,sink:1: 'sink' is not a part of it");
  EXPECT_NE(of("half").find("expected full, window:W,sink:S, "), std::string::npos);
}

TEST_F(BadLanguageModel, TruncatedFiles) {
  const std::string whole = tiny_.bytes().file();
  for (std::size_t part = 0; part < 16; ++part) {
    const std::string said = of_model(whole.substr(0, 1 + whole.size() * part / 16));
    EXPECT_TRUE(said.starts_with("m.gguf: it ")) << said;
  }
  put("m.gguf", "");
  EXPECT_EQ(refusal("--model m.gguf --prompt a"), "m.gguf: it is not a GGUF file");
}

TEST_F(BadLanguageModel, InconsistentFiles) {
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string bytes = tiny_.bytes().file();
    const std::size_t at = bytes.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return of_model(bytes.replace(at, from.size(), to));
  };
  const std::string renamed = changed("blk.1.ffn_up.weight", "blk.1.ffn_xx.weight");
  EXPECT_NE(renamed.find("blk.1.ffn_up.weight"), std::string::npos) << renamed;
  EXPECT_NE(renamed.find("blk.1.ffn_xx.weight"), std::string::npos) << renamed;
  EXPECT_EQ(changed("smollm", "sm0llm"),
            "m.gguf: its tokenizer is 'gpt2, sm0llm'; expected 'gpt2, smollm' or 'gpt2, gpt-2'");
  EXPECT_EQ(changed("general.arch", "general.ARCH"), "m.gguf: there is no 'general.architecture'");
  const std::string huge(8, '\x7f');
  const std::string key = "llama.embedding_length";
  EXPECT_TRUE(changed(key.substr(0, 5), key.substr(0, 5) + huge).starts_with("m.gguf: "))
      << errors_;
  std::string entries = tiny_.bytes().file();
  EXPECT_TRUE(of_model(entries.replace(8, 8, huge)).starts_with("m.gguf: it is too short for"));
  TinyLlama other;
  other.tokens.push_back("more");
  other.kinds.push_back(1);
  EXPECT_EQ(of_model(other.bytes().file()), "m.gguf: it has 263 tokens, and a table of 262");
  TinyLlama narrow;
  narrow.weights["blk.0.attn_q"].pop_back();
  EXPECT_EQ(of_model(narrow.bytes().file()),
            "m.gguf: 'blk.0.attn_q.weight' is [31, 32]; expected [32, 32]");
  TinyLlama short_value;
  short_value.weights["blk.1.attn_v"].pop_back();
  EXPECT_EQ(of_model(short_value.bytes().file()),
            "m.gguf: 'blocks.1.attention.qkv.weight' is [32, 64]; got 63 columns in total");
}

TEST_F(BadLanguageModel, UnsupportedKeys) {
  const auto of_keys = [&](const auto& add) { return of_model(with(tiny_, add)); };
  const std::string unknown = "m.gguf: unknown keys: ";
  for (const char* name : {"attention.scale", "logit_scale", "attn_logit_softcapping",
                           "embedding_scale", "rope.scaling.yarn_ext_factor",
                           "rope.scaling.yarn_log_multiplier", "final_logit_softcapping"}) {
    const std::string key = std::string("llama.") + name;
    EXPECT_EQ(of_keys([&](GgufBytes& file) { file.number(key, 6, 0.5F); }),
              unknown + "'" + key + "'");
  }
  EXPECT_EQ(of_keys([](GgufBytes& file) {
              file.number("llama.one", 7, true);
              file.strings("llama.two", {"a"});
              file.size("mamba.three", 3);
            }),
            unknown + "'llama.one', 'llama.two'");
  const auto of_size = [&](const char* key, Index size) {
    return of_keys([&](GgufBytes& file) { file.size(key, size); });
  };
  EXPECT_EQ(of_size("llama.attention.sliding_window", 8),
            "m.gguf: 'llama.attention.sliding_window' is 8; expected 0");
  EXPECT_EQ(of_size("llama.expert_count", 8), "m.gguf: 'llama.expert_count' is 8; expected 0");
  EXPECT_EQ(of_size("llama.attention.value_length", 4),
            "m.gguf: 'llama.attention.value_length' is 4; expected 8");
  EXPECT_EQ(of_size("llama.vocab_size", 4), "m.gguf: 'llama.vocab_size' is 4; expected 262");
  EXPECT_EQ(of_keys([](GgufBytes& file) { file.string("llama.rope.scaling.type", "longrope"); }),
            "m.gguf: 'llama.rope.scaling.type' is 'longrope'; expected 'linear', 'none', 'yarn'");
  for (const float factor : {0.0F, -2.0F, std::nanf(""), INFINITY}) {
    EXPECT_TRUE(of_keys([&](GgufBytes& file) {
                  file.number("llama.rope.scaling.factor", 6, factor);
                }).starts_with("m.gguf: 'llama.rope.scaling.factor' is "))
        << factor;
  }
  EXPECT_EQ(of_keys([](GgufBytes& file) {
              file.string("llama.rope.scaling.type", "yarn");
              file.number("llama.rope.scaling.factor", 6, 0.5F);
            }),
            "m.gguf: its sizes are inconsistent: MultiHead: rotary.yarn.factor is 0.5; expected a "
            "finite number, at least 1");
  for (const std::string name : {"add_bos_token", "add_eos_token", "add_space_prefix"}) {
    const std::string key = "tokenizer.ggml." + name;
    EXPECT_EQ(of_keys([&](GgufBytes& file) { file.number(key, 7, true); }),
              "m.gguf: '" + key + "' is true; expected false, since no tokens are added");
  }
  // These change nothing.
  put("m.gguf", with(tiny_, [](GgufBytes& file) {
        file.size("llama.vocab_size", 262);
        file.size("llama.attention.key_length", TinyLlama::kHead);
        file.size("llama.attention.value_length", TinyLlama::kHead);
        file.size("llama.rope.dimension_count", TinyLlama::kHead);
        file.size("llama.expert_count", 0);
        file.size("llama.expert_used_count", 0);
        file.string("llama.tensor_data_layout", "Meta AI original pth");
        file.number("tokenizer.ggml.add_bos_token", 7, false);
      }));
  expect_logits("", tiny_, sees_all);
}

TEST_F(BadLanguageModel, TensorsWithGapsOrOverlaps) {
  const std::string whole = tiny_.bytes().file();
  const auto moved = [&](const std::string& name, std::int64_t by) {
    std::string bytes = whole;
    const std::size_t at = bytes.find(name) + name.size() + 4 + 2 * 8 + 4;  // of a matrix
    std::uint64_t offset = 0;
    std::memcpy(&offset, bytes.data() + at, 8);
    offset += static_cast<std::uint64_t>(by);
    std::memcpy(bytes.data() + at, &offset, 8);
    return of_model(bytes);
  };
  const std::string name = "blk.0.attn_output.weight";
  for (const std::int64_t by : {-32, 4, 32, -4096, 1 << 30}) {  // over others, not aligned, gaps
    const std::string said = moved(name, by);
    EXPECT_TRUE(said.starts_with("m.gguf: the data of '" + name + "' begins at byte ")) << said;
    EXPECT_TRUE(said.ends_with(", after the preceding data, aligned")) << said;
  }
  const auto of_alignment = [&](std::size_t alignment) {
    return with(tiny_, [&](GgufBytes& file) { file.align(alignment); });
  };
  for (const std::size_t alignment : {1U, 3U, 4U, 24U, 33U}) {
    EXPECT_EQ(of_model(of_alignment(alignment)), "m.gguf: 'general.alignment' is " +
                                                     std::to_string(alignment) +
                                                     "; expected a power of 2 of at least 8");
  }
  EXPECT_EQ(of_model(with(tiny_, [](GgufBytes& file) { file.size("general.alignment", 0); })),
            "m.gguf: 'general.alignment' is 0; expected 1 to 1048576");
  for (const std::size_t alignment : {8U, 64U, 4096U}) {
    put("m.gguf", of_alignment(alignment));
    expect_logits("", tiny_, sees_all);
  }
}

/// Changed bytes are refused in a sentence, or give another model that runs.
TEST_F(BadLanguageModel, ChangedBytesDoNoHarm) {
  const std::string whole = tiny_.bytes().file();
  const std::size_t head = whole.find("blk.1.ffn_norm.weight") + 40;
  Draw draw(8);
  for (int round = 0; round < 60; ++round) {
    std::string bytes = whole;
    for (int change = 0; change <= round % 3; ++change) {
      const auto at = static_cast<std::size_t>(draw(0, static_cast<Index>(head)));
      bytes[at] = static_cast<char>(draw(0, 255));
    }
    put("m.gguf", bytes);
    const int status = run("--model m.gguf --prompt a --count 1 --logits l.npy");
    ASSERT_TRUE(status == 0 || status == 1) << status << errors_;
    EXPECT_EQ(has("l.npy"), status == 0);
    std::filesystem::remove(folder_ / "l.npy");
  }
}

TEST_F(LanguageModel, PrintsHelp) {
  EXPECT_EQ(run("--help"), 0);
  EXPECT_TRUE(output_.starts_with("language_model: ")) << output_;
}

}  // namespace fovea_test::examples_models_language_model
