// SPDX-License-Identifier: MIT
/// \file
/// Texts with labels, byte by byte: the files that fortune(6) reads, one for each topic.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "bench/io/read_file.hpp"
#include "bench/learning/task.hpp"

namespace learning {

/// A text of at most L bytes (longer ones are truncated); the label is the number of its file. In a
/// file, texts are separated by lines of "%". Every tenth text of a file is held out: odd seeds
/// draw those in turn, even seeds draw from the others, all files with the same probability.
class LabelledTexts final : public Task {
 public:
  /// \param files at least two
  /// \throws std::runtime_error if one cannot be read or has too few texts
  LabelledTexts(const std::vector<std::string>& files, Index length) : Task(length) {
    if (files.size() < 2) {
      throw std::runtime_error("--texts: expected at least two files, one for each label");
    }
    for (std::size_t label = 0; label < files.size(); ++label) {
      const std::vector<std::string> texts = texts_of(bench::read_file(files[label]));
      if (texts.size() < kTenth) {
        throw std::runtime_error(files[label] + ": it has " + std::to_string(texts.size()) +
                                 " texts between lines of '%'; expected at least " +
                                 std::to_string(kTenth));
      }
      learnt_.emplace_back();
      for (std::size_t i = 0; i < texts.size(); ++i) {
        if (i % kTenth == kTenth - 1) {
          held_out_.push_back({texts[i], static_cast<Index>(label)});
        } else {
          learnt_.back().push_back(texts[i]);
        }
      }
    }
  }

  Index vocabulary() const override { return 256; }
  Index classes() const override { return std::ssize(learnt_); }
  bool asks_rows() const override { return false; }
  /// The number of texts that are held out.
  Index held_out() const { return std::ssize(held_out_); }

  Batch draw(Index sequences, std::uint64_t seed, Index number) const override {
    Batch batch{sequences, {}, {}, {}};
    for (Index b = 0; b < sequences; ++b) {
      Draws draws(seed, number, b);
      if (seed % 2 == 1) {
        const auto& [text, label] = held_out_[static_cast<std::size_t>((number + b) % held_out())];
        append(text, label, batch);
      } else {
        const Index label = draws.below(classes());
        const auto& texts = learnt_[static_cast<std::size_t>(label)];
        append(texts[static_cast<std::size_t>(draws.below(std::ssize(texts)))], label, batch);
      }
    }
    return batch;
  }

  /// The texts of a file, none of them empty.
  static std::vector<std::string> texts_of(std::string_view file) {
    std::vector<std::string> texts(1);
    while (!file.empty()) {
      const std::size_t end = std::min(file.find('\n'), file.size() - 1);
      const std::string_view line = file.substr(0, end + 1);
      file.remove_prefix(end + 1);
      if (line == "%\n" || line == "%") {
        if (!texts.back().empty()) texts.emplace_back();
      } else {
        texts.back() += line;
      }
    }
    if (texts.back().empty()) texts.pop_back();
    return texts;
  }

 private:
  static constexpr std::size_t kTenth = 10;

  struct Labelled {
    std::string text;
    Index label;
  };

  void append(std::string_view text, Index label, Batch& batch) const {
    const std::string_view read = text.substr(0, static_cast<std::size_t>(length()));
    for (const char c : read) batch.tokens.push_back(static_cast<unsigned char>(c));
    batch.tokens.resize(batch.tokens.size() + static_cast<std::size_t>(length()) - read.size(), 0);
    batch.lengths.push_back(std::ssize(read));
    batch.targets.push_back(label);
  }

  std::vector<std::vector<std::string>> learnt_;  // of each label
  std::vector<Labelled> held_out_;
};

}  // namespace learning
