// SPDX-License-Identifier: MIT
/// \file
/// A BERT with a few random weights, stored like its checkpoints, and its results by plain loops in
/// double.
#pragma once

#include <cmath>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "fovea/io/safetensors.hpp"
#include "support/fill.hpp"

namespace fovea_test {

/// [rows, columns] of a tensor of the file; a vector has one row.
struct Weight {
  Index rows, columns;
  bool is_vector;
  std::vector<float> values;

  double operator()(Index i, Index j) const {
    return static_cast<double>(values[static_cast<std::size_t>(i * columns + j)]);
  }
};

/// Two layers of two heads.
struct TinyBert {
  static constexpr Index kWidth = 8, kHidden = 12, kHeads = 2, kLayers = 2, kPositions = 10;
  static constexpr double kEpsilon = 1e-3;  // large enough to be seen

  std::vector<std::string> vocabulary = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the",
                                         "cat",   "cats",  "##s",   "sat",   ".",      "un"};
  std::map<std::string, Weight> weights;

  TinyBert() {
    const auto rows = static_cast<Index>(vocabulary.size());
    add("embeddings.word_embeddings.weight", rows, kWidth);
    add("embeddings.position_embeddings.weight", kPositions, kWidth);
    add("embeddings.token_type_embeddings.weight", 2, kWidth);
    add_norm("embeddings.LayerNorm");
    for (Index i = 0; i < kLayers; ++i) {
      const std::string layer = "encoder.layer." + std::to_string(i) + ".";
      for (const char* part : {"query", "key", "value"}) {
        add_map(layer + "attention.self." + part, kWidth, kWidth);
      }
      add_map(layer + "attention.output.dense", kWidth, kWidth);
      add_norm(layer + "attention.output.LayerNorm");
      add_map(layer + "intermediate.dense", kWidth, kHidden);
      add_map(layer + "output.dense", kHidden, kWidth);
      add_norm(layer + "output.LayerNorm");
    }
    add_map("pooler.dense", kWidth, kWidth);
  }

  std::string config() const {
    return R"({"model_type": "bert", "hidden_act": "gelu", "hidden_size": 8,
               "intermediate_size": 12, "num_attention_heads": 2, "num_hidden_layers": 2,
               "max_position_embeddings": 10, "type_vocab_size": 2, "layer_norm_eps": 1e-3,
               "position_embedding_type": "absolute", "vocab_size": )" +
           std::to_string(vocabulary.size()) + "}";
  }

  /// Writes all files into a folder that is there.
  void write(const std::string& folder) const {
    std::ofstream(folder + "/config.json") << config();
    std::ofstream(folder + "/tokenizer_config.json") << R"({"do_lower_case": true})";
    std::ofstream(folder + "/sentence_bert_config.json") << R"({"max_seq_length": 7})";
    std::ofstream words(folder + "/vocab.txt");
    for (const std::string& token : vocabulary) words << token << "\n";
    write_tensors(folder + "/model.safetensors");
  }

  void write_tensors(const std::string& path) const {
    fovea::TensorSet set;
    for (const auto& [name, weight] : weights) {
      std::vector<Index> shape = {weight.rows, weight.columns};
      if (weight.is_vector) shape.erase(shape.begin());
      set.tensors[name] = {.dtype = fovea::Dtype::f32,
                           .shape = shape,
                           .bytes = std::as_bytes(std::span<const float>(weight.values))};
    }
    fovea::write_safetensors(path, set);
  }

  /// The embedding of these tokens, as the papers have it.
  std::vector<double> embedding(const std::vector<Index>& tokens) const {
    Rows x;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      std::vector<double> row;
      for (Index c = 0; c < kWidth; ++c) {
        row.push_back(of("embeddings.word_embeddings.weight", tokens[i], c) +
                      of("embeddings.position_embeddings.weight", static_cast<Index>(i), c) +
                      of("embeddings.token_type_embeddings.weight", 0, c));
      }
      x.push_back(row);
    }
    normalise(x, "embeddings.LayerNorm");
    for (Index i = 0; i < kLayers; ++i) {
      const std::string layer = "encoder.layer." + std::to_string(i) + ".";
      x = sum(x, mapped(attended(x, layer), layer + "attention.output.dense"));
      normalise(x, layer + "attention.output.LayerNorm");
      Rows inner = mapped(x, layer + "intermediate.dense");
      for (auto& row : inner) {
        for (double& z : row) z = z * (1 + std::erf(z / std::sqrt(2.0))) / 2;
      }
      x = sum(x, mapped(inner, layer + "output.dense"));
      normalise(x, layer + "output.LayerNorm");
    }
    std::vector<double> mean(kWidth, 0);
    for (const auto& row : x) {
      for (std::size_t c = 0; c < row.size(); ++c) mean[c] += row[c];
    }
    double squares = 0;
    for (const double m : mean) squares += m * m;
    for (double& m : mean) m /= std::sqrt(squares);
    return mean;
  }

 private:
  using Rows = std::vector<std::vector<double>>;

  void add(const std::string& name, Index rows, Index columns, bool is_vector = false) {
    Weight weight{rows, columns, is_vector, {}};
    const auto draw = gaussian(100 + weights.size(), 0.6);
    for (Index i = 0; i < rows; ++i) {
      for (Index j = 0; j < columns; ++j) {
        weight.values.push_back(static_cast<float>(draw(0, 0, i, j)));
      }
    }
    weights[name] = weight;
  }
  void add_map(const std::string& name, Index in, Index out) {
    add(name + ".weight", out, in);
    add(name + ".bias", 1, out, true);
  }
  void add_norm(const std::string& name) {
    add(name + ".weight", 1, kWidth, true);
    add(name + ".bias", 1, kWidth, true);
  }

  double of(const std::string& name, Index i, Index j) const { return weights.at(name)(i, j); }

  Rows mapped(const Rows& x, const std::string& name) const {
    const Weight& weight = weights.at(name + ".weight");
    Rows y;
    for (const auto& row : x) {
      auto& to = y.emplace_back();
      for (Index j = 0; j < weight.rows; ++j) {
        double dot = of(name + ".bias", 0, j);
        for (Index i = 0; i < weight.columns; ++i) {
          dot += row[static_cast<std::size_t>(i)] * weight(j, i);
        }
        to.push_back(dot);
      }
    }
    return y;
  }

  Rows attended(const Rows& x, const std::string& layer) const {
    const Rows q = mapped(x, layer + "attention.self.query");
    const Rows k = mapped(x, layer + "attention.self.key");
    const Rows v = mapped(x, layer + "attention.self.value");
    constexpr std::size_t width = kWidth / kHeads;
    Rows out(x.size(), std::vector<double>(kWidth, 0));
    for (std::size_t first = 0; first < kWidth; first += width) {
      for (std::size_t i = 0; i < x.size(); ++i) {
        double total = 0;
        std::vector<double> weight;
        for (std::size_t j = 0; j < x.size(); ++j) {
          double dot = 0;
          for (std::size_t c = first; c < first + width; ++c) dot += q[i][c] * k[j][c];
          weight.push_back(std::exp(dot / std::sqrt(static_cast<double>(width))));
          total += weight.back();
        }
        for (std::size_t j = 0; j < x.size(); ++j) {
          for (std::size_t c = first; c < first + width; ++c) {
            out[i][c] += weight[j] / total * v[j][c];
          }
        }
      }
    }
    return out;
  }

  static Rows sum(const Rows& x, const Rows& y) {
    Rows z = x;
    for (std::size_t i = 0; i < x.size(); ++i) {
      for (std::size_t c = 0; c < x[i].size(); ++c) z[i][c] += y[i][c];
    }
    return z;
  }

  void normalise(Rows& x, const std::string& name) const {
    for (auto& row : x) {
      double mean = 0, variance = 0;
      for (const double z : row) mean += z / kWidth;
      for (const double z : row) variance += (z - mean) * (z - mean) / kWidth;
      for (Index c = 0; c < kWidth; ++c) {
        double& z = row[static_cast<std::size_t>(c)];
        z = (z - mean) / std::sqrt(variance + kEpsilon) * of(name + ".weight", 0, c) +
            of(name + ".bias", 0, c);
      }
    }
  }
};

}  // namespace fovea_test
