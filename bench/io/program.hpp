// SPDX-License-Identifier: MIT
/// \file
/// What every program of ours does with errors: a line on stderr, and the exit status; and with the
/// directory of its results.
#pragma once

#include <cstdio>
#include <exception>
#include <filesystem>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>

#include "bench/io/compare_arguments.hpp"

namespace bench {

/// Makes a directory for results, if there is none. \throws std::runtime_error
inline void make_directory(const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) throw std::runtime_error(directory + ": cannot be created: " + error.message());
}

/// The status of run(): 2 for a command line that is not understood, 1 for any other error.
template <class Run>
int exit_status(const char* program, const Run& run) {
  try {
    return run();
  } catch (const ArgumentError& error) {
    std::fprintf(stderr, "%s: %s\n", program, error.what());
    return 2;
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "%s: not enough memory; use shorter --lengths\n", program);
    return 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", program, error.what());
    return 1;
  }
}

}  // namespace bench
