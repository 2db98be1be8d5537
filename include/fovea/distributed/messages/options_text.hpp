// SPDX-License-Identifier: MIT
/// \file
/// Options in words, by which ranks see that all of them call the same. Those that change no
/// message would go unnoticed otherwise, and each rank would compute something else.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

#include "fovea/attention/softmax/options.hpp"
#include "fovea/core/error.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed::detail {

/// A number or an enumerator in words.
template <class X>
std::string option_text(const X& value) {
  if constexpr (std::is_floating_point_v<X>) {
    return to_string(value);
  } else {
    return std::to_string(static_cast<std::uint64_t>(value));
  }
}

/// Options that are set, each after a comma: all but 0, false and nothing.
/// \param name of the first one   \param value of it   \param more names and values of others
template <class X, class... More>
std::string options_text(const char* name, const X& value, const More&... more) {
  std::string text;
  const auto say = [&](const std::string& said) {
    text.append(", ").append(name).append(" ").append(said);
  };
  if constexpr (requires { value.has_value(); }) {
    if (value) say(option_text(*value));
  } else if (value != X{}) {
    say(option_text(value));
  }
  if constexpr (sizeof...(More) > 0) text += options_text(more...);
  return text;
}

/// What the options of softmax attention say of its numbers. What they say of who sees whom, plans
/// tell.
inline std::string softmax_text(const SoftmaxOptions& options) {
  std::string text = options_text("scale", options.scale, "soft cap", options.soft_cap);
  const Dropout& dropout = options.dropout;
  // Where nothing is drawn, ranks may have seeds of their own.
  if (dropout.probability > 0) {
    text += options_text("dropout", dropout.probability, "of seed", dropout.seed);
  }
  return text;
}

}  // namespace distributed::detail

FOVEA_NAMESPACE_END
