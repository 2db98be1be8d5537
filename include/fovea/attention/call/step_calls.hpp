// SPDX-License-Identifier: MIT
/// \file
/// The ways to call a step of a decoder.
#pragma once

#include <concepts>

#include "fovea/attention/attention.hpp"

FOVEA_NAMESPACE_BEGIN

/// `step` of a decoder `D` for the scalar T that derives from it and has, for this class,
/// `run_step(inputs, out, saved, executor)`, which says what it reads and throws.
/// \tparam Inputs, Saved of its operator, for T
template <class D, class T, class Inputs, class Saved>
class StepCalls {
 public:
  /// Attention of the last n positions; with k and v in the inputs, once those are appended.
  /// \param inputs q [B, Hq, n, D], and the rest as in `forward`, where Nk is the length after
  ///               appending
  /// \param out [B, Hq, n, Dv], every element written
  template <class Out>
  void step(const Inputs& inputs, Out&& out) {
    step(inputs, View<T>(out), Saved{}, Serial{});
  }

  /// \param saved as in `forward`
  template <class Out>
  void step(const Inputs& inputs, Out&& out, const Saved& saved) {
    step(inputs, View<T>(out), saved, Serial{});
  }

  /// \param executor as in `forward`
  template <class Out, class E>
  requires(!std::convertible_to<E, Saved>) void step(const Inputs& inputs, Out&& out,
                                                     E&& executor) {
    step(inputs, View<T>(out), Saved{}, executor);
  }

  template <class Out, class E>
  void step(const Inputs& inputs, Out&& out, const Saved& saved, E&& executor) {
    static_cast<D&>(*this).run_step(inputs, View<T>(out), saved, as_executor(executor));
  }

 protected:
  ~StepCalls() = default;
};

FOVEA_NAMESPACE_END
