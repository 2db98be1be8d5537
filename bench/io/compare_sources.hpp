// SPDX-License-Identifier: MIT
/// \file
/// The document of fovea_compare and fovea_search: a file, or the concatenated sources of this
/// project.
#pragma once

#include <algorithm>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "bench/io/compare_arguments.hpp"
#include "bench/io/read_file.hpp"

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
                             ": the source tree of this build no longer exists; give --text FILE");
  }
  return document;
}

struct Document {
  std::string bytes;
  std::string what;  ///< for people
};

/// The requested text, or the sources below `root`. \throws std::runtime_error
inline Document document_of(const CompareArguments& arguments, const std::filesystem::path& root) {
  const bool own = arguments.text_file.empty() || arguments.text_file == kOwnSources;
  Document document{own ? source_document(root) : read_file(arguments.text_file),
                    own ? "the sources of fovea" : arguments.text_file};
  if (document.bytes.empty()) throw std::runtime_error(arguments.text_file + ": is empty");
  document.what += ", " + std::to_string(document.bytes.size()) + " bytes";
  if (static_cast<Index>(document.bytes.size()) < arguments.lengths.back()) {
    document.what += ", repeated";
  }
  return document;
}

}  // namespace bench
