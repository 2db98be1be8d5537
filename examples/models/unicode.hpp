// SPDX-License-Identifier: MIT
/// \file
/// Properties of characters for tokenizers, from ICU.
#pragma once

#include <unicode/uchar.h>
#include <unicode/unorm2.h>
#include <unicode/utf16.h>
#include <unicode/utf8.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <string>
#include <string_view>

namespace models {

inline constexpr char32_t kReplacement = 0xfffd;

// ICU's macros convert signs.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"

/// Removes and returns the first character of a text that is not empty. Invalid UTF-8 is replaced
/// by U+FFFD, as many bytes at once as could have begun a character (Unicode 15, section 3.9).
inline char32_t take_character(std::string_view& text) {
  std::size_t taken = 0;
  UChar32 character = 0;
  U8_NEXT(text.data(), taken, text.size(), character);
  text.remove_prefix(taken);
  return character < 0 ? kReplacement : static_cast<char32_t>(character);
}

/// Appends a character as UTF-8.
inline void append_character(std::string& text, char32_t c) {
  std::array<char, U8_MAX_LENGTH> bytes{};
  std::size_t size = 0;
  U8_APPEND_UNSAFE(bytes.data(), size, c);
  text.append(bytes.data(), size);
}

/// The mask of a character's general category; 0 if it is newer than a version of Unicode.
inline std::uint32_t category_of(char32_t c, std::uint8_t version) {
  UVersionInfo since;
  u_charAge(static_cast<UChar32>(c), since);
  const bool is_there = since[0] > 0 && since[0] <= version;
  return is_there ? U_GET_GC_MASK(static_cast<UChar32>(c)) : 0;
}

/// The version of Unicode whose categories BERT's reference tokenizer uses.
inline constexpr std::uint8_t kVersionOfBert = 8;

/// The mask of a character's general category in BERT's reference tokenizer.
inline std::uint32_t bert_category(char32_t c) {
  switch (c) {  // later versions have other categories for these
    case 0x1734:
      return U_GC_MN_MASK;
    case 0x1885:
    case 0x1886:
      return U_GC_LO_MASK;
    case 0xa9bd:
      return U_GC_MC_MASK;
    case 0x166d:
    case 0x111c9:
      return U_GC_PO_MASK;
    default:
      return category_of(c, kVersionOfBert);
  }
}

/// Unicode's White_Space, except for control characters other than tabs and line ends.
inline bool is_space(char32_t c) {
  return c == '\t' || c == '\n' || c == '\r' || (bert_category(c) & U_GC_Z_MASK) != 0;
}

/// Control, format and private-use characters, which BERT's tokenizer removes.
inline bool is_removed(char32_t c) {
  return c == kReplacement ||
         (bert_category(c) & (U_GC_CC_MASK | U_GC_CF_MASK | U_GC_CO_MASK)) != 0;
}

/// Punctuation, and every ASCII character that is neither letter, digit, space nor control.
inline bool is_punctuation(char32_t c) {
  const std::uint32_t kinds = U_GC_P_MASK | (c < 0x80 ? U_GC_S_MASK : 0);
  return (bert_category(c) & kinds) != 0;
}

/// The blocks that BERT calls Chinese: ideographs, but neither kana nor Hangul.
inline bool is_ideograph(char32_t c) {
  constexpr char32_t blocks[][2] = {{0x3400, 0x4dbf},   {0x4e00, 0x9fff},   {0xf900, 0xfaff},
                                    {0x20000, 0x2a6df}, {0x2a700, 0x2b81f}, {0x2b920, 0x2ceaf},
                                    {0x2f800, 0x2fa1f}};
  return std::any_of(std::begin(blocks), std::end(blocks),
                     [c](const auto& block) { return c >= block[0] && c <= block[1]; });
}

/// Calls f for the characters that c becomes: decomposed (NFD), without accents, in lower case.
/// Spacing marks that remain keep the order of the text.
template <class F>
void fold(char32_t c, F&& f) {
  const auto put = [&](UChar32 part) {
    const auto character = static_cast<char32_t>(part);
    if ((bert_category(character) & U_GC_MN_MASK) == 0) f(static_cast<char32_t>(u_tolower(part)));
  };
  const auto whole = static_cast<UChar32>(c);
  UErrorCode status = U_ZERO_ERROR;
  std::array<UChar, 16> parts;  // more than any character has
  const bool is_known = category_of(c, kVersionOfBert) != 0;
  const std::int32_t size =
      is_known ? unorm2_getDecomposition(unorm2_getNFDInstance(&status), whole, parts.data(),
                                         static_cast<std::int32_t>(parts.size()), &status)
               : -1;
  if (size < 0) return put(whole);
  for (std::int32_t at = 0; at < size;) {
    UChar32 part = 0;
    U16_NEXT(parts.data(), at, size, part);
    put(part);
  }
}

#pragma GCC diagnostic pop

}  // namespace models
