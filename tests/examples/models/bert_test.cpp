// SPDX-License-Identifier: MIT
// fovea_test(FULL NEEDS io icu)
#include "examples/models/bert.hpp"

#include <gtest/gtest.h>

#include <filesystem>

#include "examples/models/tiny_bert.hpp"
#include "fovea/core/thread_pool.hpp"
#include "support/scratch_folder.hpp"

namespace fovea_test::examples_models_bert {

namespace fs = std::filesystem;
using models::Bert;
using models::BertSizes;
using models::SentenceTokens;

class BertOfFiles : public testing::Test {
 protected:
  BertOfFiles() { tiny_.write(folder_ / ""); }

  std::string path(const std::string& name) const { return folder_ / name; }
  BertSizes sizes() const { return BertSizes::read(path("config.json")); }
  Bert model() const { return Bert::read(sizes(), path("model.safetensors")); }
  void put(const std::string& name, const std::string& text) const {
    std::ofstream(path(name), std::ios::binary) << text;
  }

  /// The message of f's exception, without the directory; "read" if there is none.
  template <class F>
  std::string complaint(F&& f) const {
    try {
      f();
    } catch (const std::runtime_error& error) {
      const std::string message = error.what();
      const std::size_t folder = path("").size();
      return message.starts_with(path("")) ? message.substr(folder) : message;
    }
    return "read";
  }
  std::string of_model() const {
    return complaint([&] { model(); });
  }
  /// For a config.json in which a text is replaced.
  std::string of_config(const std::string& from, const std::string& to) const {
    std::string config = tiny_.config();
    config.replace(config.find(from), from.size(), to);
    put("config.json", config);
    return of_model();
  }

  TinyBert tiny_;
  ScratchFolder folder_;
};

TEST_F(BertOfFiles, MatchesThePapers) {
  const Bert made = model();
  for (const std::vector<Index>& tokens :
       {std::vector<Index>{2, 3}, {2, 5, 6, 9, 10, 3}, {2, 1, 1, 7, 8, 4, 0, 11, 5, 3}}) {
    const std::vector<double> expected = tiny_.embedding(tokens);
    const std::vector<float> got = models::embed(made, tokens, fovea::Serial{});
    ASSERT_EQ(got.size(), expected.size());
    double squares = 0;
    for (std::size_t c = 0; c < got.size(); ++c) {
      EXPECT_NEAR(static_cast<double>(got[c]), expected[c], 2e-6) << c;
      squares += expected[c] * expected[c];
    }
    EXPECT_NEAR(squares, 1, 1e-12);
    const fovea::ThreadPool three(3);
    EXPECT_EQ(models::embed(made, tokens, three), got);
  }
}

TEST_F(BertOfFiles, SupportsTheTanhFormOfGelu) {
  const std::vector<Index> tokens = {2, 5, 6, 9, 10, 3};
  const std::vector<float> erf = models::embed(model(), tokens, fovea::Serial{});
  EXPECT_EQ(of_config("\"gelu\"", "\"gelu_new\""), "read");
  const std::vector<float> tanh = models::embed(model(), tokens, fovea::Serial{});
  double largest = 0;
  for (std::size_t c = 0; c < erf.size(); ++c) {
    largest = std::max(largest, static_cast<double>(std::abs(erf[c] - tanh[c])));
  }
  EXPECT_GT(largest, 1e-7);
  EXPECT_LT(largest, 1e-2);
}

TEST_F(BertOfFiles, KeepsNoGradients) {
  Index values = 0, gradients = 0;
  model().visit([&](const auto& parameter) {
    values += parameter.value.size();
    gradients += parameter.gradient.size();
  });
  EXPECT_EQ(gradients, 0);
  Index stored = 0;
  for (const auto& [name, weight] : tiny_.weights) stored += weight.rows * weight.columns;
  const Index unused = 2 * TinyBert::kWidth + TinyBert::kWidth * (TinyBert::kWidth + 1);
  EXPECT_EQ(values, stored - unused);  // but for the types and the pooler
}

TEST_F(BertOfFiles, ReportsMismatchedTensors) {
  const auto all = tiny_.weights;
  const std::string bias = "encoder.layer.1.attention.self.key.bias";
  tiny_.weights.erase(bias);
  tiny_.write_tensors(path("model.safetensors"));
  EXPECT_EQ(of_model(), "model.safetensors: missing are '" + bias + "'");
  tiny_.weights = all;
  tiny_.weights["head.weight"] = all.at(bias);
  tiny_.write_tensors(path("model.safetensors"));
  EXPECT_EQ(of_model(), "model.safetensors: unknown are 'head.weight'");
  tiny_.weights = all;
  tiny_.weights.erase("embeddings.word_embeddings.weight");
  tiny_.write_tensors(path("model.safetensors"));
  EXPECT_EQ(of_model(),
            "model.safetensors: there is no tensor 'embeddings.word_embeddings.weight'");
  tiny_.weights = all;
  tiny_.weights[bias] = all.at("encoder.layer.1.intermediate.dense.bias");
  tiny_.write_tensors(path("model.safetensors"));
  EXPECT_EQ(of_model(),
            "model.safetensors: 'blocks.1.attention.qkv.bias' is [1, 24]; got "
            "'encoder.layer.1.attention.self.value.bias' of [8] after 20 columns");
}

TEST_F(BertOfFiles, ReportsInvalidFiles) {
  fs::resize_file(path("model.safetensors"), fs::file_size(path("model.safetensors")) - 1);
  EXPECT_EQ(of_model().substr(0, 32), "model.safetensors: the data of '");
  fs::resize_file(path("model.safetensors"), 100);
  EXPECT_EQ(of_model().substr(0, 34), "model.safetensors: its header has ");
  fs::resize_file(path("model.safetensors"), 3);
  EXPECT_EQ(of_model(), "model.safetensors: it is too short for a safetensors file");
  fs::remove(path("model.safetensors"));
  EXPECT_EQ(of_model(), "model.safetensors: cannot be read: No such file or directory");
}

TEST_F(BertOfFiles, ReportsInvalidConfigs) {
  EXPECT_EQ(of_config("\"bert\"", "\"llama\""),
            "config.json: 'model_type' is 'llama'; expected 'bert'");
  EXPECT_EQ(of_config("\"gelu\"", "\"relu\""),
            "config.json: 'hidden_act' is 'relu'; expected 'gelu', 'gelu_new' or "
            "'gelu_pytorch_tanh'");
  EXPECT_EQ(of_config("\"num_attention_heads\": 2", "\"num_attention_heads\": 3"),
            "config.json: 'num_attention_heads' is '3'; expected a divisor of 8, the hidden_size");
  EXPECT_EQ(of_config("\"hidden_size\": 8", "\"hidden_size\": -8"),
            "config.json: 'hidden_size' is '-8'; expected a whole number from 1 to 65536");
  EXPECT_EQ(of_config("\"hidden_size\": 8", "\"hidden_size\": 18446744073709551615"),
            "config.json: 'hidden_size' is '18446744073709551615'; expected a whole number from 1 "
            "to 65536");
  EXPECT_EQ(of_config("\"hidden_size\": 8,", ""),
            "config.json: 'hidden_size' is missing; expected a whole number from 1 to 65536");
  EXPECT_EQ(of_config("1e-3", "0"),
            "config.json: 'layer_norm_eps' is '0'; expected a number above 0");
  EXPECT_EQ(of_config("\"absolute\"", "\"relative_key\""),
            "config.json: 'position_embedding_type' is 'relative_key'; expected 'absolute'");
  const auto with = [&](const std::string& members) {
    return of_config("\"layer_norm_eps\"", members + ", \"layer_norm_eps\"");
  };
  for (const std::string flag : {"is_decoder", "add_cross_attention", "is_encoder_decoder"}) {
    EXPECT_EQ(with("\"" + flag + "\": true"),
              "config.json: '" + flag + "' is 'true'; expected false");
    EXPECT_EQ(with("\"" + flag + "\": false"), "read");
  }
  EXPECT_EQ(with(R"("pruned_heads": {"0": [1]})"),
            R"(config.json: 'pruned_heads' is '{"0":[1]}'; expected {})");
  EXPECT_EQ(with(R"("embedding_size": 4, "pad_token_id": 0, "rope_scaling": {"factor": 2})"),
            "config.json: unknown members: 'embedding_size', 'rope_scaling'");
  EXPECT_EQ(with(R"("pruned_heads": {}, "torch_dtype": "float32", "rope_scaling": null)"), "read");
  // Sizes that the file does not have, before memory is taken for them.
  EXPECT_EQ(of_config("\"hidden_size\": 8", "\"hidden_size\": 65536"),
            "model.safetensors: 'embeddings.word_embeddings.weight' is [12, 8]; expected [12, "
            "65536], as in config.json");
  EXPECT_EQ(of_config("\"intermediate_size\": 12", "\"intermediate_size\": 13"),
            "model.safetensors: 'encoder.layer.0.intermediate.dense.weight' is [12, 8]; expected "
            "[13, 8], as in config.json");
  EXPECT_EQ(of_config("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1000"),
            "model.safetensors: there is no tensor "
            "'encoder.layer.2.attention.self.query.weight'");
  EXPECT_EQ(of_config("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1").substr(0, 73),
            "model.safetensors: unknown are 'encoder.layer.1.attention.output.LayerNor");
  for (const std::string& text :
       {std::string(), std::string("[1, 2]"), std::string("{\"a\": "), std::string("\xff\xfe"),
        std::string("nonsense"), tiny_.config() + std::string(1, '\0'),
        tiny_.config() + std::string(1, '\0') + "{}", "\xef\xbb\xbf" + tiny_.config()}) {
    put("config.json", text);
    EXPECT_EQ(of_model(), "config.json: it is not a JSON object") << text;
  }
  std::string deep;
  for (int i = 0; i < 200000; ++i) deep += "{\"a\":";
  put("config.json", deep);
  EXPECT_EQ(of_model(), "config.json: it is not a JSON object");
  fs::remove(path("config.json"));
  EXPECT_EQ(of_model(), "config.json: cannot be read: No such file or directory");
}

TEST_F(BertOfFiles, TokensGoWithTheModel) {
  const auto of_tokens = [&] {
    return complaint([&] { SentenceTokens::read(path(""), sizes()); }).substr(1);
  };
  const SentenceTokens tokens = SentenceTokens::read(path(""), sizes());
  EXPECT_EQ(tokens.longest, 7);
  EXPECT_EQ(tokens.encode("The CATS sat.").ids, (std::vector<Index>{2, 5, 7, 9, 10, 3}));
  EXPECT_EQ(tokens.encode("the the the the the the the").left_out, 2u);
  put("tokenizer_config.json", R"({"do_lower_case": false, "strip_accents": null})");
  EXPECT_EQ(SentenceTokens::read(path(""), sizes()).encode("The cat").ids,
            (std::vector<Index>{2, 1, 6, 3}));
  put("tokenizer_config.json", R"({"do_lower_case": true, "strip_accents": false})");
  EXPECT_EQ(of_tokens(),
            "tokenizer_config.json: 'strip_accents' is 'false'; expected null, or "
            "the same as 'do_lower_case'");
  put("tokenizer_config.json", R"({"do_lower_case": "yes"})");
  EXPECT_EQ(of_tokens(), "tokenizer_config.json: 'do_lower_case' is 'yes'; expected true or false");
  put("tokenizer_config.json", R"({"do_basic_tokenize": false})");
  EXPECT_EQ(of_tokens(), "tokenizer_config.json: 'do_basic_tokenize' is 'false'; expected true");
  put("tokenizer_config.json", R"({"never_split": ["the"]})");
  EXPECT_EQ(of_tokens(), "tokenizer_config.json: 'never_split' is '[\"the\"]'; expected []");
  put("tokenizer_config.json", R"({"cls_token": "<s>", "never_split": null})");
  EXPECT_EQ(of_tokens(), "tokenizer_config.json: 'cls_token' is '<s>'; expected '[CLS]'");
  put("tokenizer_config.json", R"({"cls_token": {"content": "<s>"}})");
  EXPECT_EQ(of_tokens(),
            "tokenizer_config.json: 'cls_token' is '{\"content\":\"<s>\"}'; expected '[CLS]'");
  put("tokenizer_config.json", R"({"do_lower_case": false})");
  put("sentence_bert_config.json", R"({"max_seq_length": 7, "do_lower_case": true})");
  EXPECT_EQ(of_tokens(),
            "sentence_bert_config.json: 'do_lower_case' is 'true'; expected false, as in "
            "tokenizer_config.json");
  put("sentence_bert_config.json", R"({"max_seq_length": 7, "transformer_task": "fill-mask"})");
  EXPECT_EQ(of_tokens(), "sentence_bert_config.json: unknown members: 'transformer_task'");
  put("sentence_bert_config.json", R"({"max_seq_length": 7})");
  put("tokenizer_config.json",
      R"({"model_max_length": 8, "cls_token": {"content": "[CLS]"}, "sep_token": "[SEP]"})");
  EXPECT_EQ(SentenceTokens::read(path(""), sizes()).longest, 7);
  fs::remove(path("sentence_bert_config.json"));
  EXPECT_EQ(SentenceTokens::read(path(""), sizes()).longest, 8);
  put("tokenizer_config.json", R"({"model_max_length": 1000000000000000019884624838656})");
  EXPECT_EQ(SentenceTokens::read(path(""), sizes()).longest, 10);
  fs::remove(path("tokenizer_config.json"));
  put("sentence_bert_config.json", R"({"max_seq_length": 11})");
  EXPECT_EQ(of_tokens(),
            "sentence_bert_config.json: 'max_seq_length' is '11'; expected a whole "
            "number from 2 to 10");
  fs::remove(path("sentence_bert_config.json"));
  EXPECT_EQ(SentenceTokens::read(path(""), sizes()).longest, 10);
  std::ofstream(path("vocab.txt"), std::ios::app) << "one\nmore\n";
  EXPECT_EQ(of_tokens(), "vocab.txt: it has 14 tokens; expected 12, the vocab_size of config.json");
}

TEST_F(BertOfFiles, PoolingIsTheMean) {
  const auto of = [&](const std::string& name, const std::string& text) {
    fs::create_directories(path("1_Pooling"));
    put(name, text);
    const std::string said = complaint([&] { models::check_pooling(path(""), TinyBert::kWidth); });
    fs::remove(path(name));
    return said == "read" ? said : said.substr(said.find(": ") + 2);
  };
  EXPECT_EQ(complaint([&] { models::check_pooling(path(""), TinyBert::kWidth); }), "read");
  const auto of_pooling = [&](const char* text) { return of("1_Pooling/config.json", text); };
  EXPECT_EQ(of_pooling(R"({"pooling_mode_mean_tokens": true, "word_embedding_dimension": 8,
                           "pooling_mode_lasttoken": false, "include_prompt": true})"),
            "read");
  EXPECT_EQ(of_pooling(R"({"pooling_mode_mean_tokens": false})"),
            "'pooling_mode_mean_tokens' is 'false'; expected true: other kinds of pooling are not "
            "supported");
  for (const std::string mode :
       {"cls_token", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken"}) {
    EXPECT_EQ(of_pooling(("{\"pooling_mode_" + mode + "\": true}").c_str()),
              "'pooling_mode_" + mode + "' is 'true'; expected false");
  }
  EXPECT_EQ(of_pooling(R"({"word_embedding_dimension": 9})"),
            "'word_embedding_dimension' is '9'; expected 8");
  EXPECT_EQ(of_pooling(R"({"pooling_mode": "mean"})"), "unknown members: 'pooling_mode'");
  EXPECT_EQ(of("config_sentence_transformers.json",
               R"({"prompts": {"query": "q: "}, "default_prompt_name": "query"})"),
            "'default_prompt_name' is 'query'; expected null");
  EXPECT_EQ(of("config_sentence_transformers.json", R"({"default_prompt_name": null})"), "read");
  const auto of_modules = [&](const char* text) { return of("modules.json", text); };
  EXPECT_EQ(
      of_modules(R"([{"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"},
      {"idx": 1, "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
      {"idx": 2, "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}])"),
      "read");
  EXPECT_EQ(of_modules(R"([{"path": "2_Dense", "type": "sentence_transformers.models.Dense"}])"),
            "'type' is 'sentence_transformers.models.Dense'; expected Transformer, Pooling or "
            "Normalize of sentence_transformers");
  EXPECT_EQ(
      of_modules(R"([{"path": "3_Pooling", "type": "sentence_transformers.models.Pooling"}])"),
      "'path' is '3_Pooling'; expected \"1_Pooling\"");
  for (const char* none : {"{}", "[1]", "[{}", ""}) {
    EXPECT_EQ(of_modules(none), "it is not a JSON list of objects") << none;
  }
}

}  // namespace fovea_test::examples_models_bert
