// SPDX-License-Identifier: MIT
/// \file
/// Results of our programs, read back from their JSON. Test:
/// tests/bench/io/compare_against_test.cpp.
#pragma once

#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <string>

#include "bench/io/read_file.hpp"
#include "fovea/core/config.hpp"
#include "tests/structure/json.hpp"

namespace bench {

/// Reads the members of one object of a result of some program.
class RunReader {
 public:
  RunReader(const std::string& file, const std::string& program, const fovea_test::Json& object)
      : file_(file), program_(program), object_(object) {}

  [[noreturn]] void refuse(const std::string& why) const {
    throw std::runtime_error(file_ + ": is not a result of " + program_ + ": " + why);
  }

  bool has(const char* key) const { return object_.find(key) != nullptr; }

  const fovea_test::Json& at(const char* key) const {
    const fovea_test::Json* const found = object_.find(key);
    if (found == nullptr) refuse(std::string("it lacks ") + key);
    return *found;
  }

  /// An object in this one.
  RunReader in(const fovea_test::Json& object) const { return {file_, program_, object}; }
  const std::string& text(const char* key) const { return at(key).text; }
  std::string text_or(const char* key, const std::string& other) const {
    return has(key) ? text(key) : other;
  }
  fovea::Index integer(const char* key) const { return std::atoll(text(key).c_str()); }
  double number(const char* key) const { return std::atof(text(key).c_str()); }

  /// None if it is null, or not there.
  std::optional<double> optional(const char* key) const {
    if (!has(key) || text(key) == "null") return {};
    return number(key);
  }

 private:
  const std::string& file_;
  const std::string& program_;
  const fovea_test::Json& object_;
};

/// The JSON of a file. \throws std::runtime_error if it is no result of that program
inline fovea_test::Json read_result(const std::string& file, const std::string& program) {
  fovea_test::Json root;
  std::string why;
  try {
    root = fovea_test::JsonReader::read(read_file(file));
    const fovea_test::Json* const name = root.find("program");
    if (name == nullptr || name->text != program) why = "it names another program";
  } catch (const std::runtime_error& error) {
    why = error.what();
  }
  if (!why.empty()) throw std::runtime_error(file + ": is not a result of " + program + ": " + why);
  return root;
}

}  // namespace bench
