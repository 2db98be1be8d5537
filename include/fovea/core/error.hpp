// SPDX-License-Identifier: MIT
/// \file
/// One form for every refusal: operator, tensor, dimension, expected, got.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include "fovea/core/config.hpp"

FOVEA_NAMESPACE_BEGIN

/// Throws std::invalid_argument "<where>: <what> is <got>; expected <expected>", for example
/// "FullAttention: heads of k is 3; expected a divisor of 8, the heads of q".
[[noreturn]] inline void refuse(std::string_view where, std::string_view what, std::string_view got,
                                std::string_view expected) {
  std::string message(where);
  message.append(": ").append(what).append(" is ").append(got);
  message.append("; expected ").append(expected);
  FOVEA_THROW(std::invalid_argument(message));
}

FOVEA_NAMESPACE_END
