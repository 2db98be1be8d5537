// SPDX-License-Identifier: MIT
/// \file
/// The message of a refused call, whose form is checked.
#pragma once

#include <gtest/gtest.h>

#include <cctype>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

namespace fovea_test {

/// What is wrong with the form of a message (.github/CONTRIBUTING.md, "Messages"); empty if
/// nothing is.
inline std::string fault_of_message(const std::string& text) {
  std::size_t name = 0;
  while (name < text.size() && (std::isalnum(static_cast<unsigned char>(text[name])) != 0 ||
                                text[name] == '_' || text[name] == '.')) {
    ++name;
  }
  const bool is_of_rank = text.starts_with("rank ");
  if (name == 0 || (!is_of_rank && text.find(": ", name) == std::string::npos)) {
    return "it begins with no operator";
  }
  for (const char* const phrase :
       {"is missing", "expected one of", "is given;", "asked for", "expected none", "  ", "; ;"}) {
    if (text.find(phrase) != std::string::npos) return std::string("it says ") + phrase;
  }
  // Ranges "2 to 5" and "[2, 5)" must not be empty.
  for (const std::string between : {" to ", ", "}) {
    for (auto at = text.find(between); at != std::string::npos; at = text.find(between, at + 1)) {
      auto first = at;
      while (first > 0 && (std::isdigit(static_cast<unsigned char>(text[first - 1])) != 0 ||
                           text[first - 1] == '-')) {
        --first;
      }
      const char* const behind = text.c_str() + at + between.size();
      char* end = nullptr;
      const long long last = std::strtoll(behind, &end, 10);
      if (first == at || end == behind) continue;
      const bool is_range =
          between == " to " || (first > 0 && text[first - 1] == '[' && *end == ')');
      if (is_range && std::strtoll(text.c_str() + first, nullptr, 10) >= last) {
        return "its range is empty or of one number";
      }
    }
  }
  return {};
}

/// Whether a text is what is expected, where "..." stands for any text.
inline bool is_like(std::string_view text, std::string_view expected) {
  const std::size_t gap = expected.find("...");
  if (gap == std::string_view::npos) return text == expected;
  if (!text.starts_with(expected.substr(0, gap))) return false;
  for (std::size_t at = gap; at <= text.size(); ++at) {
    if (is_like(text.substr(at), expected.substr(gap + 3))) return true;
  }
  return false;
}

/// The message of the std::invalid_argument that f throws, or "accepted". The message must have
/// the form of all messages.
template <class F>
std::string refusal(F&& f) {
  try {
    f();
  } catch (const std::invalid_argument& error) {
    EXPECT_EQ(fault_of_message(error.what()), "") << error.what();
    return error.what();
  }
  return "accepted";
}

}  // namespace fovea_test
