// SPDX-License-Identifier: MIT
/// \file
/// What a call refuses with.
#pragma once

#include <stdexcept>
#include <string>

namespace fovea_test {

/// The message of the std::invalid_argument that f throws, or "accepted".
template <class F>
std::string refusal(F&& f) {
  try {
    f();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace fovea_test
