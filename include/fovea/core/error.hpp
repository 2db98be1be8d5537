// SPDX-License-Identifier: MIT
/// \file
/// The form of every error message: it names the operator, the tensor, the dimension, the value
/// that was got and the value that was expected.
#pragma once

#include <array>
#include <charconv>
#include <concepts>
#include <stdexcept>
#include <string>
#include <string_view>

#include "fovea/core/config.hpp"

FOVEA_NAMESPACE_BEGIN

/// The shortest text that is read back as x, for example "0.1", or "1e+300" where std::to_string
/// writes 308 characters.
template <std::floating_point T>
std::string to_string(T x) {
  std::array<char, 32> text;
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), x).ptr};
}

/// Throws std::invalid_argument with the message "<where>: <what> is <got>; expected <expected>",
/// for example "FullAttention: heads of k is 3; expected a divisor of 8, the heads of q".
[[noreturn]] inline void refuse(std::string_view where, std::string_view what, std::string_view got,
                                std::string_view expected) {
  std::string message(where);
  message.append(": ").append(what).append(" is ").append(got);
  message.append("; expected ").append(expected);
  FOVEA_THROW(std::invalid_argument(message));
}

FOVEA_NAMESPACE_END
