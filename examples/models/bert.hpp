// SPDX-License-Identifier: MIT
/// \file
/// BERT (Devlin et al. 2019) from the files of a checkpoint, and sentence embeddings (Reimers and
/// Gurevych 2019).
#pragma once

#include <array>
#include <cmath>
#include <fovea/attention/full.hpp>
#include <fovea/io/parameters.hpp>
#include <fovea/io/safetensors.hpp>
#include <fovea/layers/embedding.hpp>
#include <fovea/layers/encoder_block.hpp>
#include <fovea/layers/mean_pool.hpp>
#include <fovea/layers/multi_head.hpp>

#include "json_settings.hpp"
#include "word_piece.hpp"

namespace models {

using fovea::View;

namespace detail {

/// Members of BERT's configurations that do not affect the vectors of tokens: only training, other
/// tasks, generation, the pooler or a framework reads them.
inline constexpr std::string_view kOfOtherUses[] = {"_attn_implementation",
                                                    "_attn_implementation_autoset",
                                                    "_name_or_path",
                                                    "_num_labels",
                                                    "architectures",
                                                    "attention_probs_dropout_prob",
                                                    "bos_token_id",
                                                    "chunk_size_feed_forward",
                                                    "classifier_dropout",
                                                    "cls_token_id",
                                                    "directionality",
                                                    "dtype",
                                                    "eos_token_id",
                                                    "finetuning_task",
                                                    "gradient_checkpointing",
                                                    "hidden_dropout_prob",
                                                    "id2label",
                                                    "initializer_range",
                                                    "label2id",
                                                    "language",
                                                    "mask_token_id",
                                                    "model_max_length",
                                                    "name",
                                                    "num_labels",
                                                    "output_attentions",
                                                    "output_hidden_states",
                                                    "output_past",
                                                    "pad_token_id",
                                                    "pooler_fc_size",
                                                    "pooler_num_attention_heads",
                                                    "pooler_num_fc_layers",
                                                    "pooler_size_per_head",
                                                    "pooler_type",
                                                    "problem_type",
                                                    "return_dict",
                                                    "sep_token_id",
                                                    "task_specific_params",
                                                    "tie_word_embeddings",
                                                    "tokenizer_class",
                                                    "torch_dtype",
                                                    "torchscript",
                                                    "transformers_version",
                                                    "unk_token_id",
                                                    "use_cache"};

}  // namespace detail

/// The sizes of a model, from its config.json.
struct BertSizes {
  Index vocabulary = 0, positions = 0, types = 0;  ///< rows of the three embeddings
  Index width = 0, hidden = 0;                     ///< channels of a token, and within the networks
  Index layers = 0, heads = 0;
  double epsilon = 1e-12;
  fovea::GeluForm gelu = fovea::GeluForm::erf;

  /// \throws std::runtime_error if it describes another kind of model
  static BertSizes read(const std::string& path) {
    const JsonSettings config(path);
    constexpr Index most = 1 << 24;
    if (config.text("model_type") != "bert") config.wrong("model_type", "'bert'");
    BertSizes sizes{.vocabulary = config.number("vocab_size", 1, most),
                    .positions = config.number("max_position_embeddings", 2, most),
                    .types = config.number("type_vocab_size", 1, most),
                    .width = config.number("hidden_size", 1, 1 << 16),
                    .hidden = config.number("intermediate_size", 1, 1 << 18),
                    .layers = config.number("num_hidden_layers", 0, 1000),
                    .heads = config.number("num_attention_heads", 1, 1 << 12),
                    .epsilon = config.positive("layer_norm_eps")};
    if (sizes.width % sizes.heads != 0) {
      config.wrong("num_attention_heads",
                   "a divisor of " + std::to_string(sizes.width) + ", the hidden_size");
    }
    if (config.has("position_embedding_type") &&
        config.text("position_embedding_type") != "absolute") {
      config.wrong("position_embedding_type", "'absolute'");
    }
    for (const char* other : {"is_decoder", "add_cross_attention", "is_encoder_decoder"}) {
      if (config.flag(other, false)) config.wrong(other, "false");
    }
    config.expect("pruned_heads", nlohmann::json::object());
    const std::string activation = config.text("hidden_act");
    if (activation == "gelu_new" || activation == "gelu_pytorch_tanh") {
      sizes.gelu = fovea::GeluForm::tanh;
    } else if (activation != "gelu") {
      config.wrong("hidden_act", "'gelu', 'gelu_new' or 'gelu_pytorch_tanh'");
    }
    config.refuse_others(detail::kOfOtherUses);
    return sizes;
  }
};

/// The model, up to the vectors of the tokens.
class Bert : public fovea::LayerParts<Bert> {
 public:
  using Block = fovea::EncoderBlock<fovea::MultiHead<fovea::FullAttention>>;

  /// A model of random weights.
  explicit Bert(const BertSizes& sizes) {
    fovea::Initialiser initialiser(1);
    embedding_.table = {"embedding.table", sizes.vocabulary, sizes.width};
    embedding_.position = {"embedding.position", sizes.positions, sizes.width};
    norm_ = fovea::LayerNorm<float>(sizes.width, {.epsilon = sizes.epsilon});
    for (Index i = 0; i < sizes.layers; ++i) {
      blocks_.emplace_back(
          fovea::MultiHead<fovea::FullAttention>(
              fovea::FullAttention{}, {.width = sizes.width, .heads = sizes.heads, .bias = true},
              initialiser),
          fovea::FeedForward<float>(sizes.width, sizes.hidden, initialiser, {.gelu = sizes.gelu}),
          fovea::EncoderBlockOptions{.norm_first = false, .epsilon = sizes.epsilon});
    }
  }

  /// Reads a model. \throws std::runtime_error if the tensors are not those of these sizes
  static Bert read(const BertSizes& sizes, const std::string& path) {
    fovea::TensorSet set = fovea::read_safetensors(path);
    check_sizes(sizes, set);
    const fovea::StoredTensor types = set.at(kTypes);
    // Not needed here: the numbers 0, 1, 2, ..., and the classifier of BERT's training.
    for (const char* name :
         {kTypes, "embeddings.position_ids", "pooler.dense.weight", "pooler.dense.bias"}) {
      set.tensors.erase(name);
    }
    Bert model(sizes);
    fovea::load_parameters(model, set, {.sources = sources});
    // All tokens are of type 0.
    fovea::RowMatrix<float> type(sizes.types, sizes.width);
    types.read(type.data());
    model.embedding_.position.value.rowwise() += type.row(0);
    model.visit([](auto& parameter) { parameter.gradient.resize(0, 0); });  // nothing is trained
    return model;
  }

  template <class Self, class F>
  static void each_part(Self& self, F&& f) {
    f(self.embedding_);
    f("embedding", self.norm_);
    f("blocks", self.blocks_);
  }

  Index width() const { return norm_.width(); }

  /// Computes a vector for each token. Intermediate results are not kept.
  /// \param tokens [L] \param y [1, 1, L, C] is written
  template <class E>
  void forward(std::span<const Index> tokens, const View<float>& y, E&& executor) const {
    fovea::Buffer<float> buffer;
    const View<float> x = buffer.resize(y.shape());
    embedding_.forward(tokens, x, executor);
    norm_.forward(x, y, executor);
    Block::Saved room;  // the same for all blocks
    for (const Block& block : blocks_) {
      fovea::detail::copy_activations<float>(y, x, executor);
      block.forward(View<const float>(x), y, room, executor);
    }
  }

 private:
  static constexpr const char* kTypes = "embeddings.token_type_embeddings.weight";

  /// Refuses a config.json whose tensors differ from those of the file, before memory is allocated
  /// for them.
  static void check_sizes(const BertSizes& sizes, const fovea::TensorSet& set) {
    const auto check = [&](const std::string& name, Index rows, Index columns) {
      const std::vector<Index>& shape = set.at(name).shape;
      if (shape == std::vector<Index>{rows, columns}) return;
      fovea::refuse_file(set.origin, fovea::quoted_name(name) + " is " + fovea::shape_text(shape) +
                                         "; expected " + fovea::shape_text({rows, columns}) +
                                         ", as in config.json");
    };
    check("embeddings.word_embeddings.weight", sizes.vocabulary, sizes.width);
    check("embeddings.position_embeddings.weight", sizes.positions, sizes.width);
    check(kTypes, sizes.types, sizes.width);
    for (Index i = 0; i < sizes.layers; ++i) {
      const std::string layer = "encoder.layer." + std::to_string(i) + '.';
      check(layer + "attention.self.query.weight", sizes.width, sizes.width);
      check(layer + "intermediate.dense.weight", sizes.hidden, sizes.width);
    }
  }

  /// The tensors of the file that a parameter is read from.
  static std::vector<fovea::ParameterSource> sources(const std::string& name) {
    struct Part {
      std::string_view ours, theirs;
    };
    constexpr std::array<Part, 7> parts = {{{"embedding.norm", "embeddings.LayerNorm"},
                                            {"attention.out", "attention.output.dense"},
                                            {"norm1", "attention.output.LayerNorm"},
                                            {"feed_forward.in", "intermediate.dense"},
                                            {"feed_forward.out", "output.dense"},
                                            {"norm2", "output.LayerNorm"},
                                            {"attention.qkv", "attention.self."}}};
    if (name == "embedding.table") return {{"embeddings.word_embeddings.weight"}};
    if (name == "embedding.position") return {{"embeddings.position_embeddings.weight"}};
    std::string layer;
    std::string_view rest = name;
    if (rest.starts_with("blocks.")) {
      const std::size_t number = rest.find('.', 7);
      layer = "encoder.layer." + name.substr(7, number - 6);
      rest.remove_prefix(number + 1);
    }
    const std::size_t dot = rest.rfind('.');
    const std::string_view kind = rest.substr(dot + 1);
    const bool is_matrix = kind == "weight";
    const char* const theirs = is_matrix || kind == "scale" ? ".weight" : ".bias";
    for (const Part& part : parts) {
      if (part.ours != rest.substr(0, dot)) continue;
      const std::string from = layer + std::string(part.theirs);
      if (part.ours != "attention.qkv") return {{from + theirs, is_matrix}};
      return {{from + "query" + theirs, is_matrix},
              {from + "key" + theirs, is_matrix},
              {from + "value" + theirs, is_matrix}};
    }
    return {{name}};
  }

  fovea::Embedding<float> embedding_;
  fovea::LayerNorm<float> norm_;
  std::vector<Block> blocks_;
};

/// The tokens of sentences, as defined by tokenizer_config.json, sentence_bert_config.json and
/// vocab.txt of a folder.
struct SentenceTokens {
  WordPiece pieces;
  Index longest;  ///< tokens of a sentence; what is more is left out

  /// \param sizes of the model, which has a row for each token
  /// \throws std::runtime_error if files are missing, or do not match the model
  static SentenceTokens read(const std::string& folder, const BertSizes& sizes) {
    WordPieceOptions options;
    Index longest = sizes.positions;
    if (const auto config = JsonSettings::if_there(folder + "/tokenizer_config.json")) {
      options.lower_case = config->flag("do_lower_case", true);
      options.space_ideographs = config->flag("tokenize_chinese_chars", true);
      if (config->flag("strip_accents", options.lower_case) != options.lower_case) {
        config->wrong("strip_accents", "null, or the same as 'do_lower_case'");
      }
      if (!config->flag("do_basic_tokenize", true)) config->wrong("do_basic_tokenize", "true");
      config->expect("never_split", nlohmann::json::array());
      config->expect_token("unk_token", "[UNK]");
      config->expect_token("cls_token", "[CLS]");
      config->expect_token("sep_token", "[SEP]");
      if (config->has("model_max_length")) {
        const double most = config->positive("model_max_length");
        if (most < static_cast<double>(longest)) longest = static_cast<Index>(most);
      }
    }
    if (const auto config = JsonSettings::if_there(folder + "/sentence_bert_config.json")) {
      if (config->has("max_seq_length")) {
        longest = config->number("max_seq_length", 2, sizes.positions);
      }
      if (config->flag("do_lower_case", false) && !options.lower_case) {
        config->wrong("do_lower_case", "false, as in tokenizer_config.json");
      }
      config->refuse_others({});
    }
    const std::string path = folder + "/vocab.txt";
    SentenceTokens tokens{WordPiece::read(path, options), longest};
    if (tokens.pieces.size() != sizes.vocabulary) {
      fovea::refuse_file(path, "it has " + std::to_string(tokens.pieces.size()) +
                                   " tokens; expected " + std::to_string(sizes.vocabulary) +
                                   ", the vocab_size of config.json");
    }
    return tokens;
  }

  TokenList encode(std::string_view sentence) const { return pieces.encode(sentence, longest); }
};

/// Refuses a folder whose sentences are not the mean of their tokens, or begin with a prompt.
/// \param width of a token \throws std::runtime_error
inline void check_pooling(const std::string& folder, Index width) {
  if (const auto config = JsonSettings::if_there(folder + "/1_Pooling/config.json")) {
    if (!config->flag("pooling_mode_mean_tokens", true)) {
      config->wrong("pooling_mode_mean_tokens", "true: other kinds of pooling are not supported");
    }
    for (const char* other :
         {"pooling_mode_cls_token", "pooling_mode_max_tokens", "pooling_mode_mean_sqrt_len_tokens",
          "pooling_mode_weightedmean_tokens", "pooling_mode_lasttoken"}) {
      if (config->flag(other, false)) config->wrong(other, "false");
    }
    config->expect("word_embedding_dimension", width);
    constexpr std::string_view of_prompts[] = {"include_prompt"};
    config->refuse_others(of_prompts);
  }
  const std::string prompts = folder + "/config_sentence_transformers.json";
  if (const auto config = JsonSettings::if_there(prompts)) {
    if (config->has("default_prompt_name")) config->wrong("default_prompt_name", "null");
  }
  const std::string modules = folder + "/modules.json";
  std::error_code error;
  if (!std::filesystem::exists(modules, error)) return;
  for (const JsonSettings& module : JsonSettings::list(modules)) {
    const std::string type = module.text("type");
    const std::string name = type.substr(type.rfind('.') + 1);
    if (name != "Transformer" && name != "Pooling" && name != "Normalize") {
      module.wrong("type", "Transformer, Pooling or Normalize of sentence_transformers");
    }
    if (name == "Transformer") module.expect("path", "");
    if (name == "Pooling") module.expect("path", "1_Pooling");
  }
}

/// The embedding of a sentence: the mean of its tokens' vectors, of length 1.
template <class E>
std::vector<float> embed(const Bert& model, std::span<const Index> tokens, E&& executor) {
  fovea::Buffer<float> buffer;
  const View<float> y = buffer.resize(1, static_cast<Index>(tokens.size()), model.width());
  model.forward(tokens, y, executor);
  std::vector<float> mean(static_cast<std::size_t>(model.width()));
  fovea::MeanPool<float>().forward(View<const float>(y),
                                   View<float>(mean.data(), {1, 1, 1, model.width()}), executor);
  double squares = 0;
  for (const float x : mean) squares += static_cast<double>(x) * static_cast<double>(x);
  const double norm = std::max(std::sqrt(squares), 1e-12);
  for (float& x : mean) x = static_cast<float>(static_cast<double>(x) / norm);
  return mean;
}

}  // namespace models
