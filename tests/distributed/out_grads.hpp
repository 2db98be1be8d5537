// SPDX-License-Identifier: MIT
/// \file
/// The d_out argument of any operator's backward pass.
#pragma once

#include "fovea/core/view.hpp"

namespace fovea_test {

/// Whether an operator takes the gradient with respect to lse.
template <class Op, class T>
inline constexpr bool kTakesDLse = requires {
  typename Op::template OutGrads<T>;
};

/// Both gradients for an operator that takes that of lse, and d_out for others.
template <class Op, class T>
auto out_grads(const fovea::View<const T>& d_out, const fovea::View<const T>& d_lse) {
  if constexpr (kTakesDLse<Op, T>) {
    return typename Op::template OutGrads<T>{.d_out = d_out, .d_lse = d_lse};
  } else {
    return d_out;
  }
}

}  // namespace fovea_test
