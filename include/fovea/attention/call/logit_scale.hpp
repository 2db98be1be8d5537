// SPDX-License-Identifier: MIT
/// \file
/// The scale of the logits of every softmax.
#pragma once

#include <cmath>
#include <limits>
#include <optional>

#include "fovea/core/error.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// The chosen scale, or else 1/sqrt(width); 1 if the width is 0.
/// \tparam T the type of the arithmetic
template <class T>
T logit_scale(const std::optional<double>& chosen, Index width) {
  if (chosen) return static_cast<T>(*chosen);
  return width == 0 ? T{1} : static_cast<T>(1 / std::sqrt(static_cast<double>(width)));
}

/// Checks an option that multiplies logits.
/// \tparam T the type of the arithmetic
/// \throws std::invalid_argument if it is set and not finite in T
template <class T>
void check_scale(const char* op, const char* name, const std::optional<double>& scale) {
  constexpr auto most = static_cast<double>((std::numeric_limits<T>::max)());
  if (scale && !(std::abs(*scale) <= most)) {
    refuse(op, name, to_string(*scale), "a finite number of the inputs' type");
  }
}

}  // namespace detail

FOVEA_NAMESPACE_END
