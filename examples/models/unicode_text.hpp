// SPDX-License-Identifier: MIT
/// \file
/// Text as characters: UTF-8 of any quality, and what a tokenizer of BERT asks of a character.
#pragma once

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

#include "unicode_tables.hpp"

namespace models {

inline constexpr char32_t kReplacement = 0xfffd;

/// Takes the first character off a text that is not empty. What is no UTF-8 is replaced by U+FFFD,
/// as many bytes at once as could have begun a character (Unicode 15, section 3.9).
inline char32_t take_character(std::string_view& text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  std::size_t length = 1;
  unsigned low = 0x80, high = 0xbf;  // of the second byte
  if (first >= 0xc2 && first <= 0xf4) length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  if (first == 0xe0) low = 0xa0;  // no longer form than needed
  if (first == 0xf0) low = 0x90;
  if (first == 0xed) high = 0x9f;  // no surrogates
  if (first == 0xf4) high = 0x8f;  // nothing above U+10FFFF
  char32_t character =
      length == 1 ? (first < 0x80 ? first : kReplacement) : first & (0x7fu >> length);
  std::size_t taken = 1;
  for (; taken < length; ++taken) {
    if (taken == text.size() || byte(taken) < low || byte(taken) > high) break;
    character = character << 6 | (byte(taken) & 0x3fu);
    low = 0x80;
    high = 0xbf;
  }
  text.remove_prefix(taken);
  return taken == length ? character : kReplacement;
}

/// Appends a character as UTF-8.
inline void append_character(std::string& text, char32_t c) {
  const auto put = [&](char32_t bits) { text += static_cast<char>(bits); };
  const auto rest = [&](int shift) { put(0x80 | (c >> shift & 0x3f)); };
  if (c < 0x80) return put(c);
  if (c < 0x800) {
    put(0xc0 | c >> 6);
  } else if (c < 0x10000) {
    put(0xe0 | c >> 12);
    rest(6);
  } else {
    put(0xf0 | c >> 18);
    rest(12);
    rest(6);
  }
  rest(0);
}

/// Whether a character lies in one of these ranges, which ascend.
template <std::size_t N>
bool is_in(const CharacterRange (&ranges)[N], char32_t c) {
  const auto* const at =
      std::lower_bound(std::begin(ranges), std::end(ranges), c,
                       [](const CharacterRange& range, char32_t x) { return range.last < x; });
  return at != std::end(ranges) && at->first <= c;
}

/// Unicode's White_Space, but for the controls among it that are no tab and no end of line.
inline bool is_space(char32_t c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

/// The blocks that BERT calls Chinese: ideographs, but neither kana nor Hangul.
inline bool is_ideograph(char32_t c) {
  constexpr CharacterRange blocks[] = {{0x3400, 0x4dbf},   {0x4e00, 0x9fff},   {0xf900, 0xfaff},
                                       {0x20000, 0x2a6df}, {0x2a700, 0x2b81f}, {0x2b920, 0x2ceaf},
                                       {0x2f800, 0x2fa1f}};
  return is_in(blocks, c);
}

/// Calls f for the characters that c becomes: decomposed (NFD), without accents, in lower case.
/// Marks that stay where they take room are left in the order of the text.
template <class F>
void fold(char32_t c, F&& f) {
  if (c < 0x80) return f(c >= 'A' && c <= 'Z' ? c + 32 : c);
  if (is_in(kMarks, c)) return;
  if (c >= 0xac00 && c <= 0xd7a3) {  // a syllable of Hangul (Unicode 15, section 3.12)
    const char32_t syllable = c - 0xac00;
    f(0x1100 + syllable / 588);
    f(0x1161 + syllable % 588 / 28);
    if (syllable % 28 != 0) f(0x11a7 + syllable % 28);
    return;
  }
  if (c >= 0xf900 && c < 0xf900 + kIdeographs.size()) return f(kIdeographs[c - 0xf900]);
  if (c >= 0x2f800 && c < 0x2f800 + kMoreIdeographs.size()) {
    return f(kMoreIdeographs[c - 0x2f800]);
  }
  const auto* const run =
      std::upper_bound(std::begin(kFolds), std::end(kFolds), c,
                       [](char32_t x, const FoldRun& fold_run) { return x < fold_run.first; });
  if (run != std::begin(kFolds)) {
    const FoldRun& found = *std::prev(run);
    const int beyond = static_cast<int>(c - found.first);
    const int index = beyond / found.step;
    if (beyond % found.step == 0 && index < found.count) {
      return f(static_cast<char32_t>(static_cast<int>(found.target) + index * found.advance));
    }
  }
  for (const LongFold& several : kLongFolds) {
    if (several.from != c) continue;
    for (const char32_t to : several.to) {
      if (to != 0) f(to);
    }
    return;
  }
  f(c);
}

}  // namespace models
