// SPDX-License-Identifier: MIT
/// \file
/// The ways to call the forward pass of an operator.
#pragma once

#include <concepts>

#include "fovea/attention/attention.hpp"

FOVEA_NAMESPACE_BEGIN

/// `forward` of an operator `Op` that derives from it and has `check(inputs, out, saved)` and, for
/// this class, `run(inputs, out, saved, executor)`.
template <class Op>
class ForwardCalls {
 public:
  /// \param inputs {q, k, v} and, by their names, the rest of Op::Inputs: views, Eigen tensors or
  ///               matrices
  /// \param out [B, Hq, Nq, Dv], every element written
  /// \throws as `check`, before anything is written; std::bad_alloc for the scratch.
  template <class Out, class T = Scalar<Out>>
  void forward(const InputsOf<Op, T>& inputs, Out&& out) const {
    forward(inputs, View<T>(out), SavedOf<Op, T>{}, Serial{});
  }

  /// \param saved {lse}, if the operator has one, and the rest of Op::Saved
  template <class Out, class T = Scalar<Out>>
  void forward(const InputsOf<Op, T>& inputs, Out&& out, const SavedOf<Op, T>& saved) const {
    forward(inputs, View<T>(out), saved, Serial{});
  }

  /// \param executor runs the blocks: `ThreadPool`, any `Executor`, Eigen::ThreadPoolDevice
  template <class Out, class E, class T = Scalar<Out>>
  requires(!std::convertible_to<E, SavedOf<Op, T>>) void forward(const InputsOf<Op, T>& inputs,
                                                                 Out&& out, E&& executor) const {
    forward(inputs, View<T>(out), SavedOf<Op, T>{}, executor);
  }

  template <class Out, class E, class T = Scalar<Out>>
  void forward(const InputsOf<Op, T>& inputs, Out&& out, const SavedOf<Op, T>& saved,
               E&& executor) const {
    const View<T> to(out);
    const Op& op = static_cast<const Op&>(*this);
    op.check(inputs, to, saved);
    op.run(inputs, to, saved, as_executor(executor));
  }

  /// Inputs of another family: does not compile, and says why.
  template <detail::AnyInputs I, class Out, class... Rest>
  requires(!std::convertible_to<const I&, InputsOf<Op, Scalar<Out>>>) void forward(
      const I& /*inputs*/, Out&& /*out*/, const Rest&... /*rest*/) const {
    detail::refuse_family<I>();
  }

 protected:
  ~ForwardCalls() = default;
};

FOVEA_NAMESPACE_END
