// SPDX-License-Identifier: MIT
/// \file
/// The ways to call the forward pass of an operator.
#pragma once

#include <concepts>

#include "fovea/attention/attention.hpp"

FOVEA_NAMESPACE_BEGIN

/// The calls of `forward` for an operator `Op` that derives from this class. `Op` has
/// `check(inputs, out, saved)` and, for this class, `run(inputs, out, saved, executor)`.
template <class Op>
class ForwardCalls {
 public:
  /// Computes attention on the calling thread, and saves nothing.
  /// \param inputs {q, k, v} and, by their names, the rest of Op::Inputs: views, Eigen tensors or
  /// matrices
  /// \param out [B, Hq, Nq, Dv]: every element is written
  /// \throws std::invalid_argument as `check` does, and std::bad_alloc if there is no memory for
  /// scratch; both before anything is written
  template <class Out, class T = Scalar<Out>>
  void forward(const InputsOf<Op, T>& inputs, Out&& out) const {
    forward(inputs, View<T>(out), SavedOf<Op, T>{}, Serial{});
  }

  /// Computes attention on the calling thread, and saves what `saved` has tensors for.
  /// \param saved {lse}, if the operator has one, and the rest of Op::Saved
  template <class Out, class T = Scalar<Out>>
  void forward(const InputsOf<Op, T>& inputs, Out&& out, const SavedOf<Op, T>& saved) const {
    forward(inputs, View<T>(out), saved, Serial{});
  }

  /// Computes attention with an executor, and saves nothing.
  /// \param executor runs the blocks: a `ThreadPool`, any other `Executor`, or an
  /// Eigen::ThreadPoolDevice; or arena.on(...) of one of them, for scratch from an `Arena`
  /// \throws also std::invalid_argument, before anything is written, if an arena is in use or too
  /// small
  template <class Out, class E, class T = Scalar<Out>>
  requires(!std::convertible_to<E, SavedOf<Op, T>>) void forward(const InputsOf<Op, T>& inputs,
                                                                 Out&& out, E&& executor) const {
    forward(inputs, View<T>(out), SavedOf<Op, T>{}, executor);
  }

  /// Computes attention with an executor, and saves what `saved` has tensors for.
  template <class Out, class E, class T = Scalar<Out>>
  void forward(const InputsOf<Op, T>& inputs, Out&& out, const SavedOf<Op, T>& saved,
               E&& executor) const {
    const View<T> to(out);
    const Op& op = static_cast<const Op&>(*this);
    op.check(inputs, to, saved);
    op.run(inputs, to, saved, for_call(executor));
  }

  /// Catches inputs of another family: it does not compile, and says why.
  template <detail::AnyInputs In, class Out, class... Rest>
  requires(!std::convertible_to<const In&, InputsOf<Op, Scalar<Out>>>) void forward(
      const In& /*inputs*/, Out&& /*out*/, const Rest&... /*rest*/) const {
    detail::refuse_family<In>();
  }

 protected:
  ~ForwardCalls() = default;
};

FOVEA_NAMESPACE_END
