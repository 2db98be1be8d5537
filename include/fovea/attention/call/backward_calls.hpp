// SPDX-License-Identifier: MIT
/// \file
/// The way to call the backward pass of an operator.
#pragma once

#include "fovea/attention/attention.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// The OutGrads<T> of an operator that has them; nothing of one that does not. Looked up when it is
/// called, since a base class knows its operator only by name.
template <class Op, class T>
struct OutGradsFor {};
template <class Op, class T>
requires requires { typename Op::template OutGrads<T>; }
struct OutGradsFor<Op, T> {
  using Type = typename Op::template OutGrads<T>;
};

}  // namespace detail

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
  requires(std::floating_point<T> &&
           !detail::kIsOutGrads<D>) void backward(const InputsOf<Op, T>& inputs, const Out& out,
                                                  const SavedOf<Op, T>& saved, const D& d_out,
                                                  const GradsOf<Op, T>& grads,
                                                  E&& executor = {}) const {
    const View<const T> from(out);
    const View<const T> d_from(d_out);
    const Op& op = static_cast<const Op&>(*this);
    op.check_backward(inputs, from, saved, d_from, grads);
    op.run_backward(inputs, from, saved, d_from, grads, for_call(executor));
  }

  /// The same for a loss that also depends on lse, by an operator that writes it: softmax attention
  /// over a pattern. With d_out = 0 the gradients are those of lse alone.
  /// \param from the gradients of the loss with respect to out, and to lse if that is given
  template <class Out, class E = Serial, class T = Scalar<Out>>
  requires std::floating_point<T>
  void backward(const InputsOf<Op, T>& inputs, const Out& out, const SavedOf<Op, T>& saved,
                const typename detail::OutGradsFor<Op, T>::Type& from, const GradsOf<Op, T>& grads,
                E&& executor = {}) const {
    const View<const T> made(out);
    const Op& op = static_cast<const Op&>(*this);
    op.check_backward(inputs, made, saved, from.d_out, grads);
    op.check_d_lse(inputs, from.d_lse, grads);
    op.run_backward(inputs, made, saved, from.d_out, grads, for_call(executor), from.d_lse);
  }

 protected:
  ~BackwardCalls() = default;
};

FOVEA_NAMESPACE_END
