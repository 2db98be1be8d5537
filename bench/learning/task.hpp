// SPDX-License-Identifier: MIT
/// \file
/// What small models are trained on: batches of tokens with the answers, drawn by number, so that
/// all systems see the same ones.
#pragma once

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/learning/list_ops.hpp"

namespace learning {

using fovea::Index;

/// The target of a row without a question, as fovea::kNoTarget.
inline constexpr Index kUnasked = -1;

/// Sequences of one task, padded to one length.
struct Batch {
  Index sequences = 0;
  std::vector<Index> tokens;   ///< [B L]
  std::vector<Index> lengths;  ///< [B], or empty if all rows are read
  std::vector<Index> targets;  ///< [B L] for rows, or [B] for sequences
};

/// A task for sequences of at most that many tokens.
class Task {
 public:
  explicit Task(Index length) : length_(length) {}
  virtual ~Task() = default;

  Index length() const { return length_; }
  virtual Index vocabulary() const = 0;
  virtual Index classes() const = 0;
  /// Whether each row answers, from the rows before it, or the sequence as a whole.
  virtual bool asks_rows() const = 0;
  /// The same sequences for the same numbers. Odd seeds draw what is held out.
  virtual Batch draw(Index sequences, std::uint64_t seed, Index number) const = 0;

 private:
  Index length_;
};

/// The copy task of Katharopoulos et al. (2020), which FMMformer (Nguyen et al. 2021, section 4.1)
/// also uses: n of ten symbols, a separator, and the symbols again, where n is drawn from [L/4,
/// (L-1)/2) for each sequence. A row predicts the next token, and the rows from the separator to
/// the last one but one have targets.
class CopyTask final : public Task {
 public:
  static constexpr Index kSymbols = 10;

  /// \throws std::invalid_argument if sequences are too short
  explicit CopyTask(Index length) : Task(length) {
    if (length < 8) {
      throw std::invalid_argument("copy: the length is " + std::to_string(length) +
                                  "; expected at least 8");
    }
  }

  Index vocabulary() const override { return kSymbols + 1; }
  Index classes() const override { return kSymbols + 1; }
  bool asks_rows() const override { return true; }

  Batch draw(Index sequences, std::uint64_t seed, Index number) const override {
    const auto all = static_cast<std::size_t>(sequences * length());
    Batch batch{sequences, std::vector<Index>(all, 0), {}, std::vector<Index>(all, kUnasked)};
    for (Index b = 0; b < sequences; ++b) {
      Draws draws(seed, number, b);
      const Index least = length() / 4;
      const Index n = least + draws.below((length() - 1) / 2 - least);
      Index* const tokens = &batch.tokens[static_cast<std::size_t>(b * length())];
      Index* const targets = &batch.targets[static_cast<std::size_t>(b * length())];
      for (Index i = 0; i < n; ++i) tokens[i] = tokens[n + 1 + i] = 1 + draws.below(kSymbols);
      for (Index i = n - 1; i < 2 * n; ++i) targets[i] = tokens[i + 1];
    }
    return batch;
  }
};

/// ListOps: the value of an expression.
class ListOpsTask final : public Task {
 public:
  ListOpsTask(Index shortest, Index length) : Task(length), trees_{shortest, length} {}

  Index vocabulary() const override { return ListOps::kVocabulary; }
  Index classes() const override { return 10; }
  bool asks_rows() const override { return false; }

  Batch draw(Index sequences, std::uint64_t seed, Index number) const override {
    Batch batch{sequences, {}, {}, {}};
    for (Index b = 0; b < sequences; ++b) {
      Draws draws(seed, number, b);
      std::vector<Index> tokens;
      batch.targets.push_back(trees_.draw(draws, tokens));
      batch.lengths.push_back(static_cast<Index>(tokens.size()));
      tokens.resize(static_cast<std::size_t>(length()), 0);
      batch.tokens.insert(batch.tokens.end(), tokens.begin(), tokens.end());
    }
    return batch;
  }

 private:
  ListOps trees_;
};

}  // namespace learning
