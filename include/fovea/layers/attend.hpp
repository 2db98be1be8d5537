// SPDX-License-Identifier: MIT
/// \file
/// How a layer calls its operator: on its tokens, or across all ranks.
#pragma once

#include "fovea/attention/attention.hpp"
#include "fovea/core/executor.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// An operator's forward pass; over the whole sequence if the executor shards its rows.
/// \param arguments the arguments of its `forward` before the executor
template <class Op, class E, class... Arguments>
void forward_over(const Op& op, E&& executor, const Arguments&... arguments) {
  if constexpr (ShardsRows<E>) {
    executor.forward(op, arguments...);
  } else {
    op.forward(arguments..., executor);
  }
}

/// The backward pass likewise.
template <class Op, class E, class... Arguments>
void backward_over(const Op& op, E&& executor, const Arguments&... arguments) {
  if constexpr (ShardsRows<E>) {
    executor.backward(op, arguments...);
  } else {
    op.backward(arguments..., executor);
  }
}

/// The forward pass of an attention operator.
template <class Op, class T, class E>
void attend(const Op& op, const InputsOf<Op, T>& inputs, const View<T>& out,
            const SavedOf<Op, T>& saved, E&& executor) {
  forward_over(op, executor, inputs, out, saved);
}

/// The backward pass likewise.
template <class Op, class T, class E>
void attend_backward(const Op& op, const InputsOf<Op, T>& inputs, const View<const T>& out,
                     const SavedOf<Op, T>& saved, const View<const T>& d_out,
                     const GradsOf<Op, T>& grads, E&& executor) {
  backward_over(op, executor, inputs, out, saved, d_out, grads);
}

}  // namespace detail

FOVEA_NAMESPACE_END
