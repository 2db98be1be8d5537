// SPDX-License-Identifier: MIT
/// \file
/// Runs a program as users do, in a directory that is removed at the end.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>

#include "support/index.hpp"
#include "support/scratch_folder.hpp"

namespace fovea_test {

/// How often a text occurs in another.
inline Index count(const std::string& text, const std::string& of) {
  Index n = 0;
  for (std::size_t at = 0; (at = text.find(of, at)) != text.npos; at += of.size()) ++n;
  return n;
}

/// A test of a program.
class RunProgram : public testing::Test {
 protected:
  explicit RunProgram(std::string program) : program_(std::move(program)) {}

  /// Returns the exit status of a shell's command in the folder.
  int shell(const std::string& command) {
    const std::string whole =
        "cd '" + (folder_ / "") + "' && " + command + " > stdout 2> stderr < /dev/null";
    const int status = std::system(whole.c_str());  // NOLINT(cert-env33-c): as users do
    output_ = text_of("stdout");
    errors_ = text_of("stderr");
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  /// Returns the exit status of the program. \param arguments as a shell reads them
  /// \param variables of the environment, before the program
  int run(const std::string& arguments, const std::string& variables = "") {
    return shell(variables + " '" + program_ + "' " + arguments);
  }

  std::string text_of(const std::string& name) const {
    std::ifstream file(folder_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void put(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }
  bool has(const std::string& name) const { return std::filesystem::exists(folder_ / name); }

  ScratchFolder folder_;
  std::string output_, errors_;

 private:
  std::string program_;
};

}  // namespace fovea_test
