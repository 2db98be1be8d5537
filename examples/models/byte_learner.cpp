// SPDX-License-Identifier: MIT
// Common parts of all models of bytes: the text, the draws, and the lookup by name.
#include "byte_learner.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fovea/core/philox.hpp>
#include <fovea/io/safetensors.hpp>
#include <numeric>

#include "byte_model.hpp"

namespace models {

ByteText::ByteText(const std::string& path, Index length) {
  const fovea::MappedFile file(path);
  const auto* const bytes = reinterpret_cast<const unsigned char*>(file.bytes().data());
  bytes_.assign(bytes, bytes + file.bytes().size());
  train_ = size() - size() / 10;
  if (size() - train_ <= length) {
    fovea::refuse_file(path, "it has " + std::to_string(size()) + " bytes; expected at least " +
                                 std::to_string(10 * (length + 1)) +
                                 ", since a tenth of them is held out and --length is " +
                                 std::to_string(length));
  }
}

double ByteText::unigram_bits() const {
  std::vector<double> counts(kBytes, 0);
  for (const unsigned char c : bytes_) ++counts[c];
  double bits = 0;
  for (const double count : counts) {
    const double share = count / static_cast<double>(size());
    if (count > 0) bits -= share * std::log2(share);
  }
  return bits;
}

void ByteText::append(bool part, double place, Index length, std::vector<Index>& tokens,
                      std::vector<Index>& targets) const {
  const Index begin = part ? 0 : train_;
  const Index end = part ? train_ : size();
  const auto places = static_cast<double>(end - begin - length);
  const auto first = static_cast<std::size_t>(begin + static_cast<Index>(place * places));
  for (std::size_t i = first; i < first + static_cast<std::size_t>(length); ++i) {
    tokens.push_back(bytes_[i]);
    targets.push_back(bytes_[i + 1]);
  }
}

std::vector<std::string> byte_operators() {
  return {"full", "local", "strided", "fixed", "bigbird", "linear", "delta", "fmm", "smart_bird"};
}

namespace {

std::unique_ptr<ByteLearner> build(const ByteSettings& settings,
                                   const fovea::TensorSet* checkpoint) {
  for (const auto make : {make_softmax_learner, make_sparse_learner, make_linear_learner}) {
    if (auto learner = make(settings, checkpoint)) return learner;
  }
  std::string names;
  for (const std::string& name : byte_operators()) names += (names.empty() ? "" : ", ") + name;
  throw std::runtime_error("--operator: '" + settings.op + "' is none of " + names);
}

/// A number in the metadata of a checkpoint. \throws std::runtime_error
template <class Number>
Number number_of(const fovea::TensorSet& set, const std::string& name, Number low, Number high) {
  const std::string& text = set.string_at(name);
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size() ||
      !(number >= low && number <= high)) {
    fovea::refuse_file(set.origin, fovea::quoted_name(name) + " in its metadata is " +
                                       fovea::quoted_name(text) + ", which no model supports");
  }
  return number;
}

}  // namespace

std::unique_ptr<ByteLearner> make_byte_learner(const ByteSettings& settings) {
  return build(settings, nullptr);
}

std::unique_ptr<ByteLearner> load_byte_learner(const std::string& path, ByteSettings& settings) {
  const fovea::TensorSet set = fovea::read_safetensors(path);
  const Index steps = settings.steps;
  settings = {.op = set.string_at("operator"),
              .length = number_of<Index>(set, "length", 1, 1 << 24),
              .width = number_of<Index>(set, "width", 1, 1 << 16),
              .layers = number_of<Index>(set, "layers", 0, 1 << 12),
              .heads = number_of<Index>(set, "heads", 1, 1 << 12),
              .steps = number_of<Index>(set, "steps", 0, Index{1} << 40),
              .batch = number_of<Index>(set, "batch", 1, 1 << 20),
              .learning_rate = number_of<double>(set, "learning_rate", 0.0, 1e6),
              .seed = number_of<std::uint64_t>(set, "seed", 0, ~std::uint64_t{0})};
  if (steps > 0) settings.steps = steps;
  // No memory is allocated for sizes that the file does not have.
  const auto check = [&](const std::string& name, Index rows, Index columns) {
    const std::vector<Index>& shape = set.at(name).shape;
    if (shape != std::vector<Index>{rows, columns}) {
      fovea::refuse_file(path, fovea::quoted_name(name) + " is " + fovea::shape_text(shape) +
                                   "; expected " + fovea::shape_text({rows, columns}) +
                                   ", as in its metadata");
    }
  };
  check("embedding.table", kBytes, settings.width);
  check("embedding.position", settings.length, settings.width);
  for (Index i = 0; i < settings.layers; ++i) {
    check("blocks." + std::to_string(i) + ".feed_forward.in.weight", settings.width,
          4 * settings.width);
  }
  const auto names = byte_operators();
  if (std::find(names.begin(), names.end(), settings.op) == names.end()) {
    fovea::refuse_file(
        path, "its operator is " + fovea::quoted_name(settings.op) + ", which is not supported");
  }
  return build(settings, &set);
}

}  // namespace models
