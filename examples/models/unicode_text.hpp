// SPDX-License-Identifier: MIT
/// \file
/// What a tokenizer of BERT asks of a character.
#pragma once

#include <algorithm>
#include <iterator>

#include "unicode_tables.hpp"
#include "utf8.hpp"

namespace models {

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
