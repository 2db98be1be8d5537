// SPDX-License-Identifier: MIT
/// \file
/// How a layer calls its operator: over the tokens that are here, or over all ranks.
#pragma once

#include "fovea/attention/attention.hpp"
#include "fovea/core/executor.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// The forward pass of an operator: of the whole sequence, if the executor spreads its rows.
template <class Op, class T, class E>
void attend(const Op& op, const InputsOf<Op, T>& inputs, const View<T>& out,
            const SavedOf<Op, T>& saved, E&& executor) {
  if constexpr (SpreadsRows<E>) {
    executor.forward(op, inputs, out, saved);
  } else {
    op.forward(inputs, out, saved, executor);
  }
}

/// The backward pass likewise.
template <class Op, class T, class E>
void attend_backward(const Op& op, const InputsOf<Op, T>& inputs, const View<const T>& out,
                     const SavedOf<Op, T>& saved, const View<const T>& d_out,
                     const GradsOf<Op, T>& grads, E&& executor) {
  if constexpr (SpreadsRows<E>) {
    executor.backward(op, inputs, out, saved, d_out, grads);
  } else {
    op.backward(inputs, out, saved, d_out, grads, executor);
  }
}

}  // namespace detail

FOVEA_NAMESPACE_END
