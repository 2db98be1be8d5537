// SPDX-License-Identifier: MIT
/// \file
/// Error messages about files, and the display of names from files.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/core/config.hpp"

FOVEA_NAMESPACE_BEGIN

/// Throws std::runtime_error with the message "<file>: <what is wrong>".
[[noreturn]] inline void refuse_file(std::string_view file, std::string_view what) {
  std::string message(file);
  message.append(": ").append(what);
  FOVEA_THROW(std::runtime_error(message));
}

/// A quoted name for a message: at most 100 characters, with '?' for unprintable ones.
inline std::string quoted_name(std::string_view name) {
  constexpr std::size_t most = 100;
  std::string text = "'";
  for (const char c : name.substr(0, most)) text += c >= ' ' && c <= '~' ? c : '?';
  return text + (name.size() > most ? "...'" : "'");
}

/// Up to ten quoted names, and the number of further ones.
inline std::string quoted_names(const std::vector<std::string>& names) {
  constexpr std::size_t most = 10;
  std::string text;
  for (std::size_t i = 0; i < names.size() && i < most; ++i) {
    text += (i == 0 ? "" : ", ") + quoted_name(names[i]);
  }
  if (names.size() > most) text += " and " + std::to_string(names.size() - most) + " more";
  return text;
}

FOVEA_NAMESPACE_END
