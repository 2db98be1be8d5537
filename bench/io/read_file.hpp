// SPDX-License-Identifier: MIT
/// \file
/// Reads a text of any length.
#pragma once

#include <string>

#include "fovea/io/mapped_file.hpp"

namespace bench {

/// All bytes of a regular file. \throws std::runtime_error "<path>: <what is wrong>"
inline std::string read_file(const std::string& path) {
  return std::string(fovea::MappedFile(path).text());
}

}  // namespace bench
