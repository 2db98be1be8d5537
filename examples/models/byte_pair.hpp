// SPDX-License-Identifier: MIT
/// \file
/// Byte-level byte pair encoding (Sennrich et al. 2016; Radford et al. 2019), in the GPT-2 form of
/// GGUF files.
#pragma once

#include <algorithm>
#include <cstdint>
#include <queue>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "gguf.hpp"
#include "unicode.hpp"

namespace models {

/// Splits a text into the pieces that are encoded separately: contractions, words, numbers and runs
/// of other characters, each with a space before it, and white space. This is GPT-2's expression
/// `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`.
class PieceCutter {
 public:
  /// \param single_digits whether each digit is a separate piece, without a space before it, and
  /// nothing is merged across it
  PieceCutter(std::string_view text, bool single_digits)
      : text_(text), single_digits_(single_digits) {}

  /// The next piece; empty at the end.
  std::string_view next() {
    const std::size_t begin = at_;
    if (begin == text_.size()) return {};
    const std::size_t contraction = contraction_at(begin);
    if (contraction != 0) {
      at_ += contraction;
    } else if (single_digits_ && kind_at(begin) == Kind::number) {
      at_ += size_of_character(begin);
    } else if (!take_word()) {
      take_spaces();
    }
    return text_.substr(begin, at_ - begin);
  }

 private:
  static constexpr std::uint8_t kVersion = 14;  // of Unicode, as in the reference

  enum class Kind { letter, number, space, other, end };

  Kind kind_at(std::size_t at) const {
    if (at == text_.size()) return Kind::end;
    std::string_view rest = text_.substr(at);
    const char32_t character = take_character(rest);
    if (u_isUWhiteSpace(static_cast<UChar32>(character)) != 0) return Kind::space;
    const std::uint32_t category = category_of(character, kVersion);
    if ((category & U_GC_L_MASK) != 0) return Kind::letter;
    return (category & U_GC_N_MASK) != 0 ? Kind::number : Kind::other;
  }

  std::size_t size_of_character(std::size_t at) const {
    std::string_view rest = text_.substr(at);
    take_character(rest);
    return text_.size() - at - rest.size();
  }

  /// The end of the run of one kind that begins at a place.
  std::size_t end_of_run(std::size_t at) const {
    const Kind kind = kind_at(at);
    while (kind_at(at) == kind) at += size_of_character(at);
    return at;
  }

  std::size_t contraction_at(std::size_t at) const {
    const std::string_view rest = text_.substr(at);
    for (const std::string_view one : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"}) {
      if (rest.starts_with(one)) return one.size();
    }
    return 0;
  }

  /// Whether there is a run of letters, numbers or other characters, with a space before it or not.
  bool take_word() {
    const std::size_t begin = text_[at_] == ' ' ? at_ + 1 : at_;
    const Kind kind = kind_at(begin);
    if (kind == Kind::space || kind == Kind::end) return false;
    if (single_digits_ && kind == Kind::number) return false;
    at_ = end_of_run(begin);
    return true;
  }

  /// A run of white space but its last character, which belongs to what follows; all of it if
  /// nothing follows, or a digit apart, or if it is one character.
  void take_spaces() {
    const std::size_t end = end_of_run(at_);
    std::size_t last = at_;
    while (true) {
      const std::size_t next = last + size_of_character(last);
      if (next == end) break;
      last = next;
    }
    const Kind behind = kind_at(end);
    const bool takes_all =
        last == at_ || behind == Kind::end || (single_digits_ && behind == Kind::number);
    at_ = takes_all ? end : last;
  }

  std::string_view text_;
  bool single_digits_;
  std::size_t at_ = 0;
};

/// The vocabulary and the merges of a model.
class BytePairs {
 public:
  /// \throws std::runtime_error if the file has no tokens of this kind, or if they are inconsistent
  explicit BytePairs(const Gguf& file) : single_digits_(has_single_digits(file)) {
    const std::string& origin = file.tensors.origin;
    for (const char* added : {"add_bos_token", "add_eos_token", "add_space_prefix"}) {
      const std::string key = std::string("tokenizer.ggml.") + added;
      if (!file.has(key) || !file.at<bool>(key)) continue;
      fovea::refuse_file(
          origin, fovea::quoted_name(key) + " is true; expected false, since no tokens are added");
    }
    const auto& tokens = file.at<std::vector<std::string>>("tokenizer.ggml.tokens");
    const auto& kinds = file.at<std::vector<std::int64_t>>("tokenizer.ggml.token_type");
    if (kinds.size() != tokens.size()) {
      fovea::refuse_file(origin, "it has " + std::to_string(tokens.size()) + " tokens and " +
                                     std::to_string(kinds.size()) + " types of tokens");
    }
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const bool is_special = kinds[i] == kControl || kinds[i] == kUserDefined;
      const auto token = static_cast<Index>(i);
      texts_.push_back(is_special ? tokens[i] : bytes_of(tokens[i]));
      (is_special ? special_ : tokens_).emplace(texts_.back(), token);
    }
    read_merges(file);
    for (int byte = 0; byte < 256; ++byte) {
      const auto found = tokens_.find(std::string(1, static_cast<char>(byte)));
      of_byte_[static_cast<std::size_t>(byte)] = found == tokens_.end() ? -1 : found->second;
    }
  }

  /// The number of tokens.
  Index vocabulary() const { return static_cast<Index>(texts_.size()); }
  /// The bytes of a token.
  const std::string& text_of(Index token) const { return texts_[static_cast<std::size_t>(token)]; }

  /// The token whose text this is; -1 if there is none. \param text such as "<|im_end|>"
  Index special(std::string_view text) const {
    const auto found = special_.find(std::string(text));
    return found == special_.end() ? -1 : found->second;
  }

  /// The tokens of a text, in which special tokens such as "<|im_end|>" are recognised. Bytes
  /// without a token in the vocabulary are omitted, as in the authors' implementation.
  std::vector<Index> encode(std::string_view text) const {
    std::vector<Index> all;
    std::size_t begin = 0;
    for (std::size_t at = 0; at < text.size();) {
      const auto [token, size] = special_at(text.substr(at));
      if (size == 0) {
        ++at;
        continue;
      }
      encode_pieces(text.substr(begin, at - begin), all);
      all.push_back(token);
      begin = at += size;
    }
    encode_pieces(text.substr(begin), all);
    return all;
  }

 private:
  static constexpr std::int64_t kControl = 3;
  static constexpr std::int64_t kUserDefined = 4;

  /// The result of merging two neighbours, and its priority.
  struct Merge {
    std::size_t rank;
    Index token;
  };

  static std::uint64_t key_of(Index left, Index right) {
    return static_cast<std::uint64_t>(left) << 32U | static_cast<std::uint64_t>(right);
  }

  static bool has_single_digits(const Gguf& file) {
    const auto& kind = file.at<std::string>("tokenizer.ggml.model");
    const auto& pieces = file.at<std::string>("tokenizer.ggml.pre");
    if (kind != "gpt2" || (pieces != "smollm" && pieces != "gpt-2")) {
      fovea::refuse_file(file.tensors.origin, "its tokenizer is " +
                                                  fovea::quoted_name(kind + ", " + pieces) +
                                                  "; expected 'gpt2, smollm' or 'gpt2, gpt-2'");
    }
    return pieces == "smollm";
  }

  /// The bytes that a token represents: printable bytes of Latin-1 are written as themselves, and
  /// the others as the code points from 256 on.
  static std::string bytes_of(const std::string& written) {
    std::string bytes;
    for (std::string_view rest = written; !rest.empty();) {
      const std::string_view before = rest;
      const char32_t character = take_character(rest);
      if (character < 256) {
        bytes += static_cast<char>(character);
      } else if (character - 256 < other_bytes().size()) {
        bytes += static_cast<char>(other_bytes()[character - 256]);
      } else {  // a token that no text is encoded to
        bytes += before.substr(0, before.size() - rest.size());
      }
    }
    return bytes;
  }

  static const std::vector<unsigned char>& other_bytes() {
    static const std::vector<unsigned char> all = [] {
      std::vector<unsigned char> other;
      for (int byte = 0; byte < 256; ++byte) {
        const bool is_printable = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
        if (!is_printable) other.push_back(static_cast<unsigned char>(byte));
      }
      return other;
    }();
    return all;
  }

  void read_merges(const Gguf& file) {
    const auto& merges = file.at<std::vector<std::string>>("tokenizer.ggml.merges");
    for (std::size_t rank = 0; rank < merges.size(); ++rank) {
      const std::size_t space = merges[rank].find(' ', 1);
      if (space == std::string::npos) wrong_merge(file, rank);
      const std::string left = bytes_of(merges[rank].substr(0, space));
      const std::string right = bytes_of(merges[rank].substr(space + 1));
      const auto a = tokens_.find(left);
      const auto b = tokens_.find(right);
      const auto both = tokens_.find(left + right);
      if (a == tokens_.end() || b == tokens_.end() || both == tokens_.end())
        wrong_merge(file, rank);
      merges_.emplace(key_of(a->second, b->second), Merge{rank, both->second});
    }
  }

  [[noreturn]] static void wrong_merge(const Gguf& file, std::size_t rank) {
    fovea::refuse_file(file.tensors.origin,
                       "merge " + std::to_string(rank) + " of its tokens is not one of them");
  }

  /// The longest special token at the beginning of a text, and its size; 0 if there is none.
  std::pair<Index, std::size_t> special_at(std::string_view text) const {
    std::pair<Index, std::size_t> found{-1, 0};
    for (const auto& [written, token] : special_) {
      if (written.size() > found.second && text.starts_with(written)) {
        found = {token, written.size()};
      }
    }
    return found;
  }

  void encode_pieces(std::string_view text, std::vector<Index>& all) const {
    PieceCutter pieces(text, single_digits_);
    while (true) {
      const std::string_view piece = pieces.next();
      if (piece.empty()) return;
      encode_piece(piece, all);
    }
  }

  /// Merges neighbours, the earliest merge first and the leftmost of equal ones, until there is
  /// nothing to merge. It takes O(n log n) for n bytes.
  void encode_piece(std::string_view piece, std::vector<Index>& all) const {
    struct Part {
      Index token;
      std::size_t before;
      std::size_t behind;
    };
    struct Candidate {
      std::size_t rank;
      std::size_t left;
      std::uint64_t key;
      bool operator<(const Candidate& other) const {
        return rank != other.rank ? rank > other.rank : left > other.left;
      }
    };
    constexpr std::size_t none = static_cast<std::size_t>(-1);
    std::vector<Part> parts;
    for (const char byte : piece) {
      const Index token = of_byte_[static_cast<unsigned char>(byte)];
      if (token >= 0) parts.push_back({token, parts.size() - 1, parts.size() + 1});
    }
    if (parts.empty()) return;
    parts.back().behind = none;
    std::priority_queue<Candidate> candidates;
    const auto offer = [&](std::size_t left) {
      if (left == none || parts[left].behind == none) return;
      const std::uint64_t key = key_of(parts[left].token, parts[parts[left].behind].token);
      const auto merge = merges_.find(key);
      if (merge != merges_.end()) candidates.push({merge->second.rank, left, key});
    };
    for (std::size_t i = 0; i < parts.size(); ++i) offer(i);
    while (!candidates.empty()) {
      const Candidate best = candidates.top();
      candidates.pop();
      Part& left = parts[best.left];
      if (left.token < 0 || left.behind == none) continue;
      Part& right = parts[left.behind];
      if (key_of(left.token, right.token) != best.key) continue;  // one of them has grown since
      left.token = merges_.at(best.key).token;
      right.token = -1;
      left.behind = right.behind;
      if (left.behind != none) parts[left.behind].before = best.left;
      offer(left.before);
      offer(best.left);
    }
    for (std::size_t i = 0; i != none; i = parts[i].behind) all.push_back(parts[i].token);
  }

  bool single_digits_;
  std::vector<std::string> texts_;
  std::unordered_map<std::string, Index> tokens_;
  std::unordered_map<std::string, Index> special_;
  std::unordered_map<std::uint64_t, Merge> merges_;
  std::array<Index, 256> of_byte_{};
};

}  // namespace models
