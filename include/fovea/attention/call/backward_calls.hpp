// SPDX-License-Identifier: MIT
/// \file
/// How an operator's backward pass is called.
#pragma once

#include "fovea/attention/attention.hpp"
#include "fovea/attention/call/counted_memory.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// The operator's OutGrads<T> if it has them; otherwise d_out alone. Looked up when called, since
/// the operator is an incomplete type in its base class.
template <class Op, class T>
struct OutGradsFor {
  struct Type {};
};
template <class Op, class T>
requires requires { typename Op::template OutGrads<T>; }
struct OutGradsFor<Op, T> {
  using Type = typename Op::template OutGrads<T>;
};

}  // namespace detail

/// Implements `backward` for an operator `Op` that derives from this class. `Op` has
/// `check_backward(inputs, out, saved, d_out, grads)` and, for this class, `run_backward` with the
/// same arguments and an executor, which documents the gradients. On an executor that only counts,
/// `run_backward` takes its memory and returns.
template <class Op>
class BackwardCalls {
 public:
  /// Computes the gradients of the loss from d_out, its gradient with respect to out. They have the
  /// same bits for any number of threads.
  /// \param inputs as in `forward`
  /// \param out as `forward` wrote it
  /// \param saved as `forward` wrote it, with lse if the operator has one
  /// \param d_out [B, Hq, Nq, Dv]; or, for softmax attention over patterns, {.d_out = ..., .d_lse =
  /// ...} of a loss that also depends on lse (with d_out = 0 the gradients are those of lse alone)
  /// \param grads the gradients; those without a tensor are not computed
  /// \param executor as in `forward`
  /// \throws std::invalid_argument as `check_backward` does, or if the executor's arena is in use
  /// or too small, and std::bad_alloc if scratch cannot be allocated; all before anything is
  /// written
  template <class Out, class T = typename detail::CallScalar<Out>::Type,
            class D = typename detail::OutGradsFor<Op, T>::Type, class E = Serial>
  void backward(const InputsOf<Op, T>& inputs, const Out& out, const SavedOf<Op, T>& saved,
                const D& d_out, const GradsOf<Op, T>& grads, E&& executor = {}) const {
    constexpr bool is_out = std::floating_point<T> && detail::TensorOf<Out, T>;
    constexpr bool has_d_lse = std::same_as<D, typename detail::OutGradsFor<Op, T>::Type>;
    constexpr bool is_d_out = has_d_lse || detail::TensorOf<D, T>;
    static_assert(
        is_out,
        "fovea: out must be the output of forward, a tensor of float or double: an Eigen tensor of "
        "rank 4, an Eigen matrix or a fovea::View; other scalar types have no gradients");
    static_assert(
        !is_out || is_d_out,
        "fovea: d_out must be a tensor of the same scalar type as out; evaluate expressions first, "
        "and convert other tensors, for example with d_out.cast<float>()");
    constexpr bool runs_work = detail::ExecutorLike<E>;
    static_assert(runs_work, FOVEA_RUNS_WORK);
    constexpr bool is_whole = !ShardsRows<E>;
    static_assert(is_whole, FOVEA_SHARDS_NO_ROWS);
    if constexpr (is_out && has_d_lse && runs_work && is_whole) {
      const View<const T> from(out);
      const Op& op = static_cast<const Op&>(*this);
      op.check_backward(inputs, from, saved, d_out.d_out, grads);
      op.check_d_lse(inputs, d_out.d_lse, grads);
      op.run_backward(inputs, from, saved, d_out.d_out, grads, for_call(executor), d_out.d_lse);
    } else if constexpr (is_out && is_d_out && runs_work && is_whole) {
      const View<const T> from(out);
      const View<const T> d_from(d_out);
      const Op& op = static_cast<const Op&>(*this);
      op.check_backward(inputs, from, saved, d_from, grads);
      op.run_backward(inputs, from, saved, d_from, grads, for_call(executor));
    }
  }

  /// Bytes of scratch memory that `backward` takes with that many workers, at most: for all
  /// gradients, with nothing saved but lse, and if there is a row with a large lse (MATHS.md,
  /// section 8).
  template <class T, class O = Op>
  [[nodiscard]] Index backward_workspace_bytes(const typename O::Shape& shape,
                                               Index workers = 1) const {
    return counted_backward<T>(shape, workers);
  }

 protected:
  ~BackwardCalls() = default;

  /// The same for a shape of any type.
  template <class T, class S>
  Index counted_backward(const S& shape, Index workers) const {
    return detail::counted_bytes(workers, [&](const ExecutorRef& executor) {
      using detail::out_shape;
      const auto inputs = detail::of_shape<InputsOf<Op, T>>(shape);
      const auto grads = detail::of_shape<InputsOf<Op, T>, GradsOf<Op, T>>(shape);
      Shape rows = out_shape(inputs);
      const View<const T> out = detail::only_shape<const T>(rows);
      rows[3] = 1;
      SavedOf<Op, T> saved;
      if constexpr (requires { saved.lse; }) saved.lse = detail::only_shape<T>(rows);
      static_cast<const Op&>(*this).run_backward(inputs, out, saved, out, grads, executor);
    });
  }
};

FOVEA_NAMESPACE_END
