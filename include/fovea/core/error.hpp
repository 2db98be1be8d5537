// SPDX-License-Identifier: MIT
/// \file
/// The form of every error message: the operator, the tensor or option, what is wrong with it, what
/// was given, and what would be right.
#pragma once

#include <array>
#include <charconv>
#include <concepts>
#include <stdexcept>
#include <string>
#include <string_view>

#include "fovea/core/config.hpp"

FOVEA_NAMESPACE_BEGIN

/// The shortest text that parses back to x, for example "0.1", or "1e+300" where std::to_string
/// writes 308 characters.
template <std::floating_point T>
std::string to_string(T x) {
  std::array<char, 32> text;
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), x).ptr};
}

/// The range from first to last as text: "0 to 5", "0" for a single value, "none" if it is empty.
/// (As in the functions below, append: GCC 12 warns about operator+ on strings, bug 105329.)
template <std::integral T>
std::string range_text(T first, T last) {
  if (first > last) return "none";
  std::string text = std::to_string(first);
  if (first < last) text.append(" to ").append(std::to_string(last));
  return text;
}

/// Throws std::invalid_argument with the message "<where>: <sentence>".
[[noreturn]] FOVEA_COLD inline void refuse(std::string_view where, std::string_view sentence) {
  std::string message(where);
  message.append(": ").append(sentence);
  FOVEA_THROW(std::invalid_argument(message));
}

/// Throws std::invalid_argument with the message "<where>: <wrong>; <right>", for example
/// "FullAttention: out overlaps q; outputs must not alias inputs or each other".
[[noreturn]] FOVEA_COLD inline void refuse(std::string_view where, std::string_view wrong,
                                           std::string_view right) {
  refuse(where, std::string(wrong).append("; ").append(right));
}

/// Throws std::invalid_argument with the message "<where>: <what> is <got>; expected <expected>",
/// for example "LocalAttention: left is -1; expected at least 0 keys".
[[noreturn]] FOVEA_COLD inline void refuse(std::string_view where, std::string_view what,
                                           std::string_view got, std::string_view expected) {
  refuse(where, std::string(what).append(" is ").append(got),
         std::string("expected ").append(expected));
}

/// Throws std::invalid_argument with the message "<where>: <tensor> is required: <why>".
[[noreturn]] FOVEA_COLD inline void refuse_missing(
    std::string_view where, std::string_view tensor,
    std::string_view why = "it was not given, or was passed without memory") {
  refuse(where, std::string(tensor).append(" is required: ").append(why));
}

/// Throws std::invalid_argument with the message "<where>: <what> must not be given: <why>".
[[noreturn]] FOVEA_COLD inline void refuse_given(std::string_view where, std::string_view what,
                                                 std::string_view why) {
  refuse(where, std::string(what).append(" must not be given: ").append(why));
}

FOVEA_NAMESPACE_END
