// SPDX-License-Identifier: MIT
/// \file
/// What the programs have in common: their command line, their exit status, and the directory of
/// their results.
#pragma once

#include <filesystem>
#include <stdexcept>
#include <string>
#include <system_error>

#include "examples/command_line.hpp"

namespace bench {

using program::ArgumentError;
using program::CommandLine;
using program::exit_status;

/// Makes a directory for results, if there is none. \throws std::runtime_error
inline void make_directory(const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) throw std::runtime_error(directory + ": cannot be created: " + error.message());
}

}  // namespace bench
