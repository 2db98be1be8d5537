// SPDX-License-Identifier: MIT
/// \file
/// Runs a program as users do, in a folder that is gone at the end.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "support/scratch_folder.hpp"

namespace fovea_test {

/// A test of a program.
class RunProgram : public testing::Test {
 protected:
  explicit RunProgram(std::string program) : program_(std::move(program)) {}

  /// Returns the exit status. \param arguments as a shell reads them
  /// \param variables of the environment, before the program
  int run(const std::string& arguments, const std::string& variables = "") {
    const std::string command = "cd '" + (folder_ / "") + "' && " + variables + " '" + program_ +
                                "' " + arguments + " > stdout 2> stderr < /dev/null";
    const int status = std::system(command.c_str());  // NOLINT(cert-env33-c): as users do
    output_ = text_of("stdout");
    errors_ = text_of("stderr");
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
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
