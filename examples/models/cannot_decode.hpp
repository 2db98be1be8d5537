// SPDX-License-Identifier: MIT
/// \file
/// The operators of the library that cannot continue a text.
#pragma once

#include <algorithm>
#include <iterator>
#include <string_view>

namespace models {

/// The message about an operator for which `cannot_decode` is true.
inline constexpr const char* kCannotDecode = "it sees later tokens, so it cannot decode";

/// Whether rows of the operator of this name depend on later tokens.
inline bool cannot_decode(std::string_view name) {
  constexpr std::string_view all[] = {"fat",  "fnet",          "fsat",    "linformer",
                                      "luna", "nystromformer", "sinkhorn"};
  return std::find(std::begin(all), std::end(all), name) != std::end(all);
}

}  // namespace models
