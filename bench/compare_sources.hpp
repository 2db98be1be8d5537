// SPDX-License-Identifier: MIT
/// \file
/// The default document of fovea_compare: the sources of this project, one after the other.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "bench/npy.hpp"

namespace bench {

/// The .hpp and .cpp files below a folder, sorted by path; none if there is no such folder.
inline std::vector<std::string> source_files(const std::filesystem::path& folder) {
  std::vector<std::string> paths;
  std::error_code error;
  for (std::filesystem::recursive_directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    const std::string extension = it->path().extension().string();
    if (extension == ".hpp" || extension == ".cpp") paths.push_back(it->path().generic_string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

/// The bytes of the sources below `root`, include/ first. \throws std::runtime_error
inline std::string source_document(const std::filesystem::path& root) {
  std::string document;
  for (const char* folder : {"include", "examples", "tests", "bench"}) {
    for (const std::string& path : source_files(root / folder)) document += read_file(path);
  }
  if (document.empty()) {
    throw std::runtime_error(root.string() +
                             ": the sources of this build are no longer there; give --text FILE");
  }
  return document;
}

}  // namespace bench
