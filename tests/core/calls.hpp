// SPDX-License-Identifier: MIT
/// \file
/// Calls for tests of executors, and their effects.
#pragma once

#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>

#include "support/index.hpp"

namespace fovea_test {

/// Calls f; returns the text of the std::runtime_error it throws, or "no error".
template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "no error";
}

/// Long enough for other threads to come, if any may; no result depends on it.
inline void linger() { std::this_thread::sleep_for(std::chrono::microseconds(100)); }

[[noreturn]] inline void fail_at(Index i) {
  throw std::runtime_error("failed at " + std::to_string(i));
}

}  // namespace fovea_test
