// SPDX-License-Identifier: MIT
/// \file
/// The tokenizer of BERT (Devlin et al. 2019): text is cleaned, split at spaces and punctuation,
/// and each word into the longest pieces of a vocabulary.
#pragma once

#include <algorithm>
#include <fovea/io/mapped_file.hpp>
#include <unordered_map>
#include <vector>

#include "unicode.hpp"

namespace models {

using fovea::Index;

/// Options of WordPiece, as in tokenizer_config.json.
struct WordPieceOptions {
  bool lower_case = true;          ///< whether accents and upper case are taken off
  bool space_ideographs = true;    ///< whether each ideograph is a word
  std::size_t longest_word = 100;  ///< characters; a longer word is unknown
};

/// The tokens of a text.
struct TokenList {
  std::vector<Index> ids;    ///< with the first and the last one that BERT wants
  std::size_t left_out = 0;  ///< how many did not fit
};

/// A vocabulary and its rules.
class WordPiece {
 public:
  /// \param vocabulary token i at i; of equal ones the last one counts
  /// \param origin its name, for messages
  /// \throws std::runtime_error if [UNK], [CLS] or [SEP] is not in it
  WordPiece(std::vector<std::string> vocabulary, const std::string& origin,
            const WordPieceOptions& options = {})
      : options_(options), size_(static_cast<Index>(vocabulary.size())) {
    Index next = 0;
    for (std::string& token : vocabulary) ids_.insert_or_assign(std::move(token), next++);
    const auto need = [&](const char* token) {
      const auto found = ids_.find(std::string_view(token));
      if (found == ids_.end()) {
        fovea::refuse_file(origin, "there is no " + std::string(token) +
                                       " in it; expected a BERT vocabulary, one token per line");
      }
      return found->second;
    };
    unknown_ = need("[UNK]");
    begin_ = need("[CLS]");
    end_ = need("[SEP]");
    for (const char* token : {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}) {
      if (ids_.contains(std::string_view(token))) special_.emplace_back(token);
    }
  }

  /// Reads vocab.txt, one token per line. \throws std::runtime_error
  static WordPiece read(const std::string& path, const WordPieceOptions& options = {}) {
    const fovea::MappedFile file(path);
    std::string_view text = file.text();
    std::vector<std::string> tokens;
    while (!text.empty()) {
      std::string_view line = text.substr(0, text.find('\n'));
      text.remove_prefix(std::min(line.size() + 1, text.size()));
      if (line.ends_with('\r')) line.remove_suffix(1);
      tokens.emplace_back(line);
    }
    return WordPiece(std::move(tokens), path, options);
  }

  /// The number of tokens.
  Index size() const { return size_; }

  /// The tokens of a text of any bytes: [CLS], its pieces, [SEP], at most `longest` in total. The
  /// special tokens may occur in the text, as in the reference implementation.
  TokenList encode(std::string_view text, Index longest) const {
    TokenList list{.ids = {begin_}};
    while (!text.empty()) {
      const auto [at, token] = next_special(text);
      for (const std::string& word : words(text.substr(0, at))) append_pieces(word, list.ids);
      if (token != nullptr) list.ids.push_back(ids_.find(*token)->second);
      text.remove_prefix(at + (token == nullptr ? 0 : token->size()));
    }
    const auto most = static_cast<std::size_t>(longest) - 1;
    if (list.ids.size() > most) {
      list.left_out = list.ids.size() - most;
      list.ids.resize(most);
    }
    list.ids.push_back(end_);
    return list;
  }

  /// The words of a text for the vocabulary: cleaned, and split at spaces, ideographs and
  /// punctuation.
  std::vector<std::string> words(std::string_view text) const {
    std::vector<std::string> all;
    std::string word;
    const auto end_word = [&] {
      if (!word.empty()) all.push_back(std::move(word));
      word.clear();
    };
    const auto put = [&](char32_t c) {
      const bool ends_word = is_punctuation(c);
      if (ends_word) end_word();
      append_character(word, c);
      if (ends_word) end_word();
    };
    while (!text.empty()) {
      const char32_t c = take_character(text);
      if (is_space(c)) {
        end_word();
        continue;
      }
      if (is_removed(c)) continue;
      const bool is_alone = options_.space_ideographs && is_ideograph(c);
      if (is_alone) end_word();
      if (options_.lower_case) {
        fold(c, put);
      } else {
        put(c);
      }
      if (is_alone) end_word();
    }
    end_word();
    return all;
  }

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const {
      return std::hash<std::string_view>{}(text);
    }
  };

  /// The position of the first special token of a text, and which it is; the end if there is none.
  std::pair<std::size_t, const std::string*> next_special(std::string_view text) const {
    for (std::size_t at = text.find('['); at != text.npos; at = text.find('[', at + 1)) {
      for (const std::string& token : special_) {
        if (text.substr(at).starts_with(token)) return {at, &token};
      }
    }
    return {text.size(), nullptr};
  }

  /// Appends the longest piece at the beginning of a word, the longest at the beginning of the
  /// rest, and so on; one unknown token if there is none.
  void append_pieces(const std::string& word, std::vector<Index>& ids) const {
    std::vector<std::size_t> ends;  // of its characters, in bytes
    for (std::string_view rest = word; !rest.empty();) {
      take_character(rest);
      ends.push_back(word.size() - rest.size());
    }
    const std::size_t before = ids.size();
    std::size_t first = 0;  // character
    while (first < ends.size() && ends.size() <= options_.longest_word) {
      const std::size_t from = first == 0 ? 0 : ends[first - 1];
      std::string piece = first == 0 ? "" : "##";
      piece.append(word, from);
      std::size_t last = ends.size();
      auto found = ids_.find(piece);
      while (found == ids_.end() && --last > first) {
        piece.resize(piece.size() - (ends[last] - ends[last - 1]));
        found = ids_.find(piece);
      }
      if (found == ids_.end()) break;
      ids.push_back(found->second);
      first = last;
    }
    if (first == ends.size()) return;
    ids.resize(before);
    ids.push_back(unknown_);
  }

  WordPieceOptions options_;
  Index size_;
  std::unordered_map<std::string, Index, Hash, std::equal_to<>> ids_;
  std::vector<std::string> special_;
  Index unknown_ = 0, begin_ = 0, end_ = 0;
};

}  // namespace models
