// SPDX-License-Identifier: MIT
/// \file
/// The way to call the backward pass of an operator.
#pragma once

#include "fovea/attention/attention.hpp"

FOVEA_NAMESPACE_BEGIN

/// The call of `backward` for an operator `Op` that derives from this class. `Op` has
/// `check_backward(inputs, out, saved, d_out, grads)` and, for this class, `run_backward` with the
/// same arguments and an executor, which documents what the gradients are.
template <class Op>
class BackwardCalls {
 public:
  /// Computes the gradients of the loss from d_out, its gradient with respect to out. They have the
  /// same bits for any number of threads.
  /// \param inputs as in `forward`
  /// \param out as `forward` wrote it
  /// \param saved as `forward` wrote it, with lse if the operator has one
  /// \param d_out [B, Hq, Nq, Dv]
  /// \param grads the gradients: those that have a tensor are written
  /// \param executor as in `forward`
  /// \throws std::invalid_argument as `check_backward` does, or if the arena of the executor is in
  /// use or too small, and std::bad_alloc if there is no memory for scratch; all before anything is
  /// written
  template <class Out, class D, class E = Serial, class T = Scalar<Out>>
  requires std::floating_point<T>
  void backward(const InputsOf<Op, T>& inputs, const Out& out, const SavedOf<Op, T>& saved,
                const D& d_out, const GradsOf<Op, T>& grads, E&& executor = {}) const {
    const View<const T> from(out);
    const View<const T> d_from(d_out);
    const Op& op = static_cast<const Op&>(*this);
    op.check_backward(inputs, from, saved, d_from, grads);
    op.run_backward(inputs, from, saved, d_from, grads, for_call(executor));
  }

 protected:
  ~BackwardCalls() = default;
};

FOVEA_NAMESPACE_END
