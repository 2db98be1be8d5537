// SPDX-License-Identifier: MIT
/// \file
/// The form of messages about files, and how names that come from files are shown in them.
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

/// A name in quotes, as it may stand in a message: no longer than 100 characters, and with a '?'
/// for each one that is not printable.
inline std::string quoted_name(std::string_view name) {
  constexpr std::size_t most = 100;
  std::string text = "'";
  for (const char c : name.substr(0, most)) text += c >= ' ' && c <= '~' ? c : '?';
  return text + (name.size() > most ? "...'" : "'");
}

/// Up to ten names in quotes, and how many more there are.
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
