// SPDX-License-Identifier: MIT
/// \file
/// Reads a text of any length, from a pipe as well.
#pragma once

#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

namespace bench {

/// All bytes of a file. \throws std::runtime_error
inline std::string read_file(const std::string& path) {
  std::error_code error;
  const bool is_directory = std::filesystem::is_directory(path, error);
  std::ifstream stream(path, std::ios::binary);
  if (is_directory || !stream) throw std::runtime_error(path + ": cannot be read");
  std::ostringstream bytes;
  bytes << stream.rdbuf();
  if (stream.bad() || bytes.bad()) throw std::runtime_error(path + ": cannot be read");
  return std::move(bytes).str();
}

}  // namespace bench
