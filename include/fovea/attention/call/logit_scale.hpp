// SPDX-License-Identifier: MIT
/// \file
/// The scale of the logits of every softmax.
#pragma once

#include <cmath>
#include <optional>

#include "fovea/core/config.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// The one that is chosen, or 1 / sqrt(width); 1 where queries have no width. \tparam T of the
/// arithmetic
template <class T>
T logit_scale(const std::optional<double>& chosen, Index width) {
  if (chosen) return static_cast<T>(*chosen);
  return width == 0 ? T{1} : static_cast<T>(1 / std::sqrt(static_cast<double>(width)));
}

}  // namespace detail

FOVEA_NAMESPACE_END
