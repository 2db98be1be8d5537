// SPDX-License-Identifier: MIT
/// \file
/// UTF-8 of any quality, and ranges of characters.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>
#include <string_view>

namespace models {

/// Characters from first to last.
struct CharacterRange {
  char32_t first, last;
};

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

/// Whether a character is in one of these ascending ranges.
template <std::size_t N>
bool is_in(const CharacterRange (&ranges)[N], char32_t c) {
  const auto* const at =
      std::lower_bound(std::begin(ranges), std::end(ranges), c,
                       [](const CharacterRange& range, char32_t x) { return range.last < x; });
  return at != std::end(ranges) && at->first <= c;
}

}  // namespace models
