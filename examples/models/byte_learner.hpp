// SPDX-License-Identifier: MIT
/// \file
/// Training of a language model of bytes, independent of its operator: the interface that the
/// program calls. Each byte_model_*.cpp implements it for a few operators.
#pragma once

#include <cstdint>
#include <fovea/core/thread_pool.hpp>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "sampling.hpp"

namespace models {

using fovea::Index;

/// The settings of a model and its training.
struct ByteSettings {
  std::string op = "full";  ///< one of the operators below
  Index length = 256;       ///< bytes of a sequence
  Index width = 64, layers = 2, heads = 4;
  Index steps = 500;            ///< in all
  Index batch = 8;              ///< sequences of a step
  double learning_rate = 2e-3;  ///< after the warm-up
  std::uint64_t seed = 1;       ///< of weights and batches
};

/// The bytes of a text, the last tenth of which is held out.
class ByteText {
 public:
  /// \throws std::runtime_error if it is too short for sequences of this length
  ByteText(const std::string& path, Index length);

  Index train_size() const { return train_; }
  Index size() const { return static_cast<Index>(bytes_.size()); }
  /// Bits per byte of a prediction by byte frequencies.
  double unigram_bits() const;
  /// Appends `length` bytes and, for each, the next one. \param part of the text: training or held
  /// out   \param place in [0, 1) of it
  void append(bool part, double place, Index length, std::vector<Index>& tokens,
              std::vector<Index>& targets) const;

 private:
  std::vector<unsigned char> bytes_;
  Index train_;
};

/// A model that is trained.
class ByteLearner {
 public:
  virtual ~ByteLearner() = default;
  /// The number of weights.
  virtual Index parameters() const = 0;
  /// The number of training steps so far.
  virtual Index step() const = 0;
  /// Makes a training step. \return bits per byte, mean over the batch
  virtual double learn(const ByteText& text, const fovea::ThreadPool& pool) = 0;
  /// Bits per byte of the held-out text.
  virtual double validate(const ByteText& text, const fovea::ThreadPool& pool) = 0;
  /// The logits of the byte after each of these. \return [bytes, 256]
  virtual std::vector<float> logits(std::span<const unsigned char> bytes) const = 0;
  /// Continues a text by that many bytes. If a text is longer than the model's sequences, decoding
  /// restarts with the last half of such a length.
  virtual std::string generate(const std::string& prompt, Index count, const Sampling& sampling,
                               const fovea::ThreadPool& pool) const = 0;
  /// Writes a checkpoint to continue from. \throws std::runtime_error
  virtual void save(const std::string& path) = 0;
};

/// The operators' names.
std::vector<std::string> byte_operators();
/// A model with random weights. \throws std::invalid_argument for inconsistent settings
std::unique_ptr<ByteLearner> make_byte_learner(const ByteSettings& settings);
/// The model of a file. \param settings are written, except for the steps if they are 1 or more:
/// then training continues up to them \throws std::runtime_error
std::unique_ptr<ByteLearner> load_byte_learner(const std::string& path, ByteSettings& settings);

}  // namespace models
