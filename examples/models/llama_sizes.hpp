// SPDX-License-Identifier: MIT
/// \file
/// The metadata of a GGUF file about a model of the Llama family. Every key is read, or known to
/// not affect the results, or refused by its name.
#pragma once

#include <cmath>
#include <fovea/layers/rotary.hpp>
#include <set>
#include <string>
#include <vector>

#include "gguf.hpp"

namespace models {

/// The sizes of a model.
struct LlamaSizes {
  Index vocabulary = 0;
  Index blocks = 0;
  Index width = 0;
  Index hidden = 0;
  Index heads = 0;
  Index key_heads = 0;
  Index head_width = 0;
  Index length = 0;  ///< the positions that it was trained for
  fovea::RotaryOptions rotary = {};
  double epsilon = 0;
  bool is_tied = false;  ///< whether the table of tokens gives the logits, too
};

namespace detail {

/// The metadata of one kind of model, and which of them were read.
class ModelKeys {
 public:
  ModelKeys(const Gguf& file, const std::string& kind) : file_(file), prefix_(kind + ".") {}

  /// The size that is the value of a key. \throws std::runtime_error as Gguf::size_at
  Index size(const std::string& name, Index least, Index most) {
    return file_.size_at(known(name), least, most);
  }
  /// The same, or another size if there is no such key.
  Index size(const std::string& name, Index otherwise, Index least, Index most) {
    return file_.has(known(name)) ? size(name, least, most) : otherwise;
  }

  /// The number that is the value of a key. \throws std::runtime_error unless it is above 0 and
  /// finite
  double positive(const std::string& name) {
    const std::string key = known(name);
    const double value = file_.at<double>(key);
    if (!(value > 0 && std::isfinite(value)))
      wrong(key, fovea::to_string(value), "a number above 0");
    return value;
  }
  /// The same, or another number if there is no such key.
  double positive(const std::string& name, double otherwise) {
    return file_.has(known(name)) ? positive(name) : otherwise;
  }

  /// The text that a key gives, which is one of these; the first one if there is no such key.
  /// \throws std::runtime_error
  std::string text(const std::string& name, const std::vector<std::string>& expected) {
    const std::string key = known(name);
    if (!file_.has(key)) return expected[0];
    const auto& value = file_.at<std::string>(key);
    if (std::find(expected.begin(), expected.end(), value) == expected.end()) {
      wrong(key, fovea::quoted_name(value), fovea::quoted_names(expected));
    }
    return value;
  }

  /// Refuses a size that is not the one that the model is computed with.
  void expect(const std::string& name, Index size) { this->size(name, size, size, size); }

  /// A key that does not affect the results.
  void ignore(const std::string& name) { known(name); }

  /// Refuses the keys of this kind of model that were not read. \throws std::runtime_error
  void refuse_others() const {
    std::vector<std::string> others;
    for (const auto& [key, value] : file_.metadata) {
      if (key.starts_with(prefix_) && known_.count(key) == 0) others.push_back(key);
    }
    if (others.empty()) return;
    fovea::refuse_file(file_.tensors.origin, "unknown keys: " + fovea::quoted_names(others));
  }

 private:
  std::string known(const std::string& name) { return *known_.insert(prefix_ + name).first; }

  [[noreturn]] void wrong(const std::string& key, const std::string& value,
                          const std::string& expected) const {
    fovea::refuse_file(file_.tensors.origin,
                       fovea::quoted_name(key) + " is " + value + "; expected " + expected);
  }

  const Gguf& file_;
  std::string prefix_;
  std::set<std::string> known_;
};

/// Rotary positions, with the frequencies of longer sequences if there are any.
inline fovea::RotaryOptions rotary_of(ModelKeys& keys, Index head_width, Index length) {
  fovea::RotaryOptions rotary{.base = keys.positive("rope.freq_base", 10000),
                              .pairing = fovea::RotaryPairing::neighbours,
                              .width = keys.size("rope.dimension_count", head_width, 2, head_width),
                              .magnitude = keys.positive("rope.scaling.attn_factor", 1)};
  const std::string scaling = keys.text("rope.scaling.type", {"linear", "none", "yarn"});
  const double older = keys.positive("rope.scale_linear", 1);  // the older key for the same
  const double factor = keys.positive("rope.scaling.factor", older);
  const fovea::RotaryYarn yarn{
      .factor = factor,
      .fast = keys.positive("rope.scaling.yarn_beta_fast", 32),
      .slow = keys.positive("rope.scaling.yarn_beta_slow", 1),
      .original_length = static_cast<double>(
          keys.size("rope.scaling.original_context_length", length, 1, Index{1} << 40))};
  keys.ignore("rope.scaling.finetuned");
  if (scaling == "linear") rotary.position_scale = 1 / factor;
  if (scaling == "yarn") rotary.yarn = yarn;
  return rotary;
}

/// Refuses sizes other than those of the file's largest matrices, before memory is allocated.
inline void check_shapes(const Gguf& file, const LlamaSizes& sizes) {
  const auto check = [&](const std::string& name, Index rows) {
    const std::vector<Index>& shape = file.tensors.at(name).shape;
    const std::vector<Index> expected = {rows, sizes.width};
    if (shape != expected) {
      fovea::refuse_file(file.tensors.origin, fovea::quoted_name(name) + " is " +
                                                  fovea::shape_text(shape) + "; expected " +
                                                  fovea::shape_text(expected));
    }
  };
  check("token_embd.weight", sizes.vocabulary);
  for (Index i = 0; i < sizes.blocks; ++i) {
    const std::string block = "blk." + std::to_string(i) + ".";
    check(block + "attn_q.weight", sizes.heads * sizes.head_width);
    check(block + "attn_k.weight", sizes.key_heads * sizes.head_width);
    check(block + "ffn_gate.weight", sizes.hidden);
  }
}

}  // namespace detail

/// The sizes in a file. \throws std::runtime_error if it is of another kind, if they are
/// inconsistent, or if a key is not supported
inline LlamaSizes llama_sizes(const Gguf& file) {
  constexpr Index most = 1 << 24;
  const auto& kind = file.at<std::string>("general.architecture");
  if (kind != "llama") {
    fovea::refuse_file(file.tensors.origin,
                       "its architecture is " + fovea::quoted_name(kind) + "; expected 'llama'");
  }
  detail::ModelKeys keys(file, kind);
  LlamaSizes sizes;
  const std::vector<Index>& table = file.tensors.at("token_embd.weight").shape;
  sizes.vocabulary = table[0];
  sizes.width = keys.size("embedding_length", 1, most);
  sizes.blocks = keys.size("block_count", 1, 4096);
  sizes.hidden = keys.size("feed_forward_length", 1, most);
  sizes.heads = keys.size("attention.head_count", 1, sizes.width);
  sizes.key_heads = keys.size("attention.head_count_kv", sizes.heads, 1, sizes.heads);
  sizes.head_width = keys.size("attention.key_length", sizes.width / sizes.heads, 1, most);
  sizes.length = keys.size("context_length", 1, Index{1} << 40);
  sizes.rotary = detail::rotary_of(keys, sizes.head_width, sizes.length);
  sizes.epsilon = keys.positive("attention.layer_norm_rms_epsilon");
  sizes.is_tied = file.tensors.tensors.count("output.weight") == 0;
  keys.expect("vocab_size", sizes.vocabulary);
  keys.expect("attention.value_length", sizes.head_width);
  for (const char* none : {"attention.sliding_window", "expert_count", "expert_used_count"}) {
    keys.expect(none, 0);
  }
  keys.text("tensor_data_layout", {"Meta AI original pth"});  // neighbours are turned together
  keys.refuse_others();
  detail::check_shapes(file, sizes);
  return sizes;
}

}  // namespace models
