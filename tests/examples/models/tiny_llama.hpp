// SPDX-License-Identifier: MIT
/// \file
/// A model of Llama's kind of a few random weights in a GGUF file, and what it computes in plain
/// loops of double.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "examples/models/unicode.hpp"
#include "support/fill.hpp"

namespace fovea_test {

/// The bytes of a GGUF file, part for part.
class GgufBytes {
 public:
  /// A value of the metadata. \param type as the format numbers it
  void number(const std::string& key, std::uint32_t type, const auto& value) {
    text(key), put(type), put(value), ++values_;
  }
  void size(const std::string& key, Index value) {
    number(key, 4, static_cast<std::uint32_t>(value));
  }
  void string(const std::string& key, const std::string& value) {
    text(key), put(std::uint32_t{8}), text(value), ++values_;
  }
  void strings(const std::string& key, const std::vector<std::string>& all) {
    text(key), put(std::uint32_t{9}), put(std::uint32_t{8}), put(std::uint64_t{all.size()});
    for (const std::string& one : all) text(one);
    ++values_;
  }
  void integers(const std::string& key, const std::vector<std::int32_t>& all) {
    text(key), put(std::uint32_t{9}), put(std::uint32_t{5}), put(std::uint64_t{all.size()});
    for (const std::int32_t one : all) put(one);
    ++values_;
  }

  /// A tensor. \param shape as [rows, columns] \param data its bytes
  void tensor(const std::string& name, const std::vector<Index>& shape, std::uint32_t type,
              const std::string& data) {
    std::swap(bytes_, tensors_);
    text(name), put(static_cast<std::uint32_t>(shape.size()));
    for (std::size_t d = shape.size(); d-- > 0;) put(static_cast<std::uint64_t>(shape[d]));
    put(type), put(std::uint64_t{data_.size()});
    std::swap(bytes_, tensors_);
    data_ += data;
    data_.resize((data_.size() + alignment_ - 1) / alignment_ * alignment_, '\0');
    ++tensor_count_;
  }

  std::string file() const {
    GgufBytes head;
    head.bytes_ = "GGUF";
    head.put(std::uint32_t{3}), head.put(tensor_count_), head.put(values_);
    std::string all = head.bytes_ + bytes_ + tensors_;
    all.resize((all.size() + alignment_ - 1) / alignment_ * alignment_, '\0');
    return all + data_;
  }

  /// The alignment of tensors, and its key.
  void align(std::size_t alignment) {
    size("general.alignment", static_cast<Index>(alignment));
    alignment_ = alignment;
  }

 private:
  void put(const auto& value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void text(const std::string& all) {
    put(std::uint64_t{all.size()});
    bytes_ += all;
  }

  std::string bytes_, tensors_, data_;
  std::size_t alignment_ = 32;
  std::uint64_t values_ = 0, tensor_count_ = 0;
};

/// Which keys a query of a head sees, the later ones apart.
using Sees = std::function<bool(Index head, Index i, Index j)>;

/// Two blocks of four query heads on two key heads.
struct TinyLlama {
  static constexpr Index kWidth = 32, kHidden = 48, kHeads = 4, kKeyHeads = 2, kHead = 8,
                         kBlocks = 2, kPositions = 40;
  static constexpr double kEpsilon = 1e-3, kBase = 100;

  using Rows = std::vector<std::vector<double>>;
  /// [rows][columns], as files have them.
  std::map<std::string, Rows> weights;
  std::vector<std::string> tokens, merges = {"t h", "th e", "Ġ the", "a n"};
  std::vector<std::int32_t> kinds;

  TinyLlama() {
    for (int byte = 0, next = 256; byte < 256; ++byte) {
      const bool is_printable = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
      tokens.emplace_back();
      models::append_character(tokens.back(), static_cast<char32_t>(is_printable ? byte : next++));
    }
    for (const std::string& merge : merges) {
      const std::size_t space = merge.find(' ');
      tokens.push_back(merge.substr(0, space) + merge.substr(space + 1));
    }
    kinds.assign(tokens.size(), 1);
    for (const char* special : {"<|im_start|>", "<|im_end|>"}) {
      tokens.emplace_back(special);
      kinds.push_back(3);
    }
    add("token_embd", static_cast<Index>(tokens.size()), kWidth);
    for (Index i = 0; i < kBlocks; ++i) {
      const std::string block = "blk." + std::to_string(i) + ".";
      add(block + "attn_q", kHeads * kHead, kWidth);
      add(block + "attn_k", kKeyHeads * kHead, kWidth);
      add(block + "attn_v", kKeyHeads * kHead, kWidth);
      add(block + "attn_output", kWidth, kHeads * kHead);
      add(block + "ffn_gate", kHidden, kWidth);
      add(block + "ffn_up", kHidden, kWidth);
      add(block + "ffn_down", kWidth, kHidden);
      add(block + "attn_norm", 1, kWidth);
      add(block + "ffn_norm", 1, kWidth);
    }
    add("output_norm", 1, kWidth);
  }

  /// The factors of the positions of pair c of a head, and of cosines and sines.
  std::function<double(Index pair)> frequency = [](Index pair) {
    return std::pow(kBase, -2.0 * static_cast<double>(pair) / kHead);
  };
  double magnitude = 1;

  /// The token that ends a text.
  Index end() const { return static_cast<Index>(tokens.size()) - 1; }
  /// The bytes of a token.
  std::string bytes_of(Index token) const {
    if (token < 256) return {static_cast<char>(token)};
    constexpr const char* merged[] = {"th", "the", " the", "an"};
    return token < 260 ? merged[token - 256] : tokens[static_cast<std::size_t>(token)];
  }

  /// The file. \param more metadata that it begins with
  GgufBytes bytes(GgufBytes file = {}) const {
    file.string("general.architecture", "llama");
    file.size("llama.embedding_length", kWidth);
    file.size("llama.block_count", kBlocks);
    file.size("llama.feed_forward_length", kHidden);
    file.size("llama.attention.head_count", kHeads);
    file.size("llama.attention.head_count_kv", kKeyHeads);
    file.size("llama.context_length", kPositions);
    file.number("llama.rope.freq_base", 6, static_cast<float>(kBase));
    file.number("llama.attention.layer_norm_rms_epsilon", 6, static_cast<float>(kEpsilon));
    file.string("tokenizer.ggml.model", "gpt2");
    file.string("tokenizer.ggml.pre", "smollm");
    file.strings("tokenizer.ggml.tokens", tokens);
    file.integers("tokenizer.ggml.token_type", kinds);
    file.strings("tokenizer.ggml.merges", merges);
    file.size("tokenizer.ggml.eos_token_id", end());
    for (const auto& [name, rows] : weights) {
      std::string data;
      for (const auto& row : rows) {
        for (const double value : row) {
          const auto number = static_cast<float>(value);
          data.append(reinterpret_cast<const char*>(&number), sizeof(number));
        }
      }
      std::vector<Index> shape = {std::ssize(rows), std::ssize(rows[0])};
      if (shape[0] == 1) shape.erase(shape.begin());
      file.tensor(name + ".weight", shape, 0, data);
    }
    return file;
  }

  /// Queries, keys and values of a block as attention reads them: [tokens][heads * kHead].
  struct Heads {
    Rows q, k, v;
  };

  /// The logits of what follows each token. \param of_block if given, gets that block's heads
  Rows logits(const std::vector<Index>& ids, const Sees& sees, Index block = -1,
              Heads* of_block = nullptr) const {
    const Rows& table = weights.at("token_embd");
    Rows x;
    for (const Index id : ids) x.push_back(table[static_cast<std::size_t>(id)]);
    for (Index i = 0; i < kBlocks; ++i) {
      const std::string name = "blk." + std::to_string(i) + ".";
      const Rows a = normal(x, name + "attn_norm");
      const Heads heads{turned(mapped(a, name + "attn_q")), turned(mapped(a, name + "attn_k")),
                        mapped(a, name + "attn_v")};
      if (i == block) *of_block = heads;
      add_to(x, mapped(attended(heads, sees), name + "attn_output"));
      const Rows b = normal(x, name + "ffn_norm");
      Rows gate = mapped(b, name + "ffn_gate");
      const Rows up = mapped(b, name + "ffn_up");
      for (std::size_t n = 0; n < gate.size(); ++n) {
        for (std::size_t c = 0; c < gate[n].size(); ++c) {
          gate[n][c] *= up[n][c] / (1 + std::exp(-gate[n][c]));
        }
      }
      add_to(x, mapped(gate, name + "ffn_down"));
    }
    return mapped(normal(x, "output_norm"), "token_embd");
  }

 private:
  void add(const std::string& name, Index rows, Index columns) {
    const auto draw = gaussian(100 + weights.size(), 0.3);
    Rows all;
    for (Index i = 0; i < rows; ++i) {
      auto& row = all.emplace_back();
      for (Index j = 0; j < columns; ++j) {
        // What floats are, too.
        row.push_back(static_cast<double>(static_cast<float>((rows == 1) + draw(0, 0, i, j))));
      }
    }
    weights[name] = std::move(all);
  }

  Rows mapped(const Rows& x, const std::string& name) const {
    Rows y;
    for (const auto& row : x) {
      auto& to = y.emplace_back();
      for (const auto& weight : weights.at(name)) {
        double dot = 0;
        for (std::size_t c = 0; c < row.size(); ++c) dot += row[c] * weight[c];
        to.push_back(dot);
      }
    }
    return y;
  }

  Rows normal(Rows x, const std::string& name) const {
    for (auto& row : x) {
      double squares = 0;
      for (const double z : row) squares += z * z / static_cast<double>(row.size());
      for (std::size_t c = 0; c < row.size(); ++c) {
        row[c] *= weights.at(name)[0][c] / std::sqrt(squares + kEpsilon);
      }
    }
    return x;
  }

  /// Turns the pairs (2 c, 2 c + 1) of each head by n frequency(c).
  Rows turned(Rows x) const {
    for (std::size_t n = 0; n < x.size(); ++n) {
      for (std::size_t c = 0; c < x[n].size(); c += 2) {
        const double angle = static_cast<double>(n) * frequency(static_cast<Index>(c) % kHead / 2);
        const double a = magnitude * x[n][c], b = magnitude * x[n][c + 1];
        x[n][c] = a * std::cos(angle) - b * std::sin(angle);
        x[n][c + 1] = a * std::sin(angle) + b * std::cos(angle);
      }
    }
    return x;
  }

  static Rows attended(const Heads& heads, const Sees& sees) {
    Rows out(heads.q.size(), std::vector<double>(kHeads * kHead, 0));
    for (Index h = 0; h < kHeads; ++h) {
      const auto of_query = static_cast<std::size_t>(h * kHead);
      const auto of_key = static_cast<std::size_t>(h / (kHeads / kKeyHeads) * kHead);
      for (std::size_t i = 0; i < out.size(); ++i) {
        double total = 0;
        std::vector<double> sum(kHead, 0);
        for (std::size_t j = 0; j <= i; ++j) {
          if (!sees(h, static_cast<Index>(i), static_cast<Index>(j))) continue;
          double dot = 0;
          for (std::size_t c = 0; c < kHead; ++c) {
            dot += heads.q[i][of_query + c] * heads.k[j][of_key + c];
          }
          const double weight = std::exp(dot / std::sqrt(static_cast<double>(kHead)));
          total += weight;
          for (std::size_t c = 0; c < kHead; ++c) sum[c] += weight * heads.v[j][of_key + c];
        }
        for (std::size_t c = 0; c < kHead; ++c) out[i][of_query + c] = sum[c] / total;
      }
    }
    return out;
  }

  static void add_to(Rows& x, const Rows& y) {
    for (std::size_t n = 0; n < x.size(); ++n) {
      for (std::size_t c = 0; c < x[n].size(); ++c) x[n][c] += y[n][c];
    }
  }
};

}  // namespace fovea_test
