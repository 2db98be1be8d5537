// SPDX-License-Identifier: MIT
/// \file
/// The scale of the logits of every softmax.
#pragma once

#include <cmath>
#include <optional>

#include "fovea/core/config.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// The scale that was chosen, or else 1/sqrt(width); 1 if the queries have no width.
/// \tparam T the type of the arithmetic
template <class T>
T logit_scale(const std::optional<double>& chosen, Index width) {
  if (chosen) return static_cast<T>(*chosen);
  return width == 0 ? T{1} : static_cast<T>(1 / std::sqrt(static_cast<double>(width)));
}

}  // namespace detail

FOVEA_NAMESPACE_END
