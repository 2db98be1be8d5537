// SPDX-License-Identifier: MIT
/// \file
/// The library's operators that no text can be continued with.
#pragma once

#include <algorithm>
#include <iterator>
#include <string_view>

namespace models {

/// What is said of an operator for which `cannot_decode`.
inline constexpr const char* kCannotDecode = "it sees later tokens, so it cannot decode";

/// Whether an operator of this name sees what follows a token.
inline bool cannot_decode(std::string_view name) {
  constexpr std::string_view all[] = {"fat",  "fnet",          "fsat",    "linformer",
                                      "luna", "nystromformer", "sinkhorn"};
  return std::find(std::begin(all), std::end(all), name) != std::end(all);
}

}  // namespace models
