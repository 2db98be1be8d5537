// SPDX-License-Identifier: MIT
/// \file
/// The ways to call a step of a decoder.
#pragma once

#include <concepts>

#include "fovea/attention/attention.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// Whether the inputs of a step bring tokens to append.
template <class In>
bool has_new_tokens(const In& inputs) {
  if constexpr (requires { inputs.sketch_k; }) {
    if (!inputs.sketch_k.is_none()) return true;
  }
  return !inputs.k.is_none() || !inputs.v.is_none();
}

/// How many tokens the inputs of a step bring.
template <class In>
Index new_tokens(const In& inputs) {
  return has_new_tokens(inputs) ? inputs.k.rows() : 0;
}

}  // namespace detail

/// The calls of `step` for a decoder `D` of the scalar T that derives from this class. `D` has, for
/// this class, `run_step(inputs, out, saved, executor)`, which documents what is read and thrown.
/// \tparam Inputs the operator's Inputs<T>
/// \tparam Saved the operator's Saved<T>
template <class D, class T, class Inputs, class Saved>
class StepCalls {
 public:
  /// Computes attention for the last n positions, on the calling thread. If the inputs have k and
  /// v, these are appended first.
  /// \param inputs q [B, Hq, n, D], and the rest as in `forward`, where Nk is the length after
  /// appending
  /// \param out [B, Hq, n, Dv]: every element is written
  template <class Out>
  void step(const Inputs& inputs, Out&& out) {
    step(inputs, View<T>(out), Saved{}, Serial{});
  }

  /// Does the same, and saves what `saved` has tensors for, as in `forward`.
  template <class Out>
  void step(const Inputs& inputs, Out&& out, const Saved& saved) {
    step(inputs, View<T>(out), saved, Serial{});
  }

  /// Does the same with an executor, as in `forward`.
  template <class Out, class E>
  requires(!std::convertible_to<E, Saved>) void step(const Inputs& inputs, Out&& out,
                                                     E&& executor) {
    step(inputs, View<T>(out), Saved{}, executor);
  }

  /// Does the same with an executor, and saves what `saved` has tensors for.
  template <class Out, class E>
  void step(const Inputs& inputs, Out&& out, const Saved& saved, E&& executor) {
    static_cast<D&>(*this).run_step(inputs, View<T>(out), saved, for_call(executor));
  }

 protected:
  ~StepCalls() = default;
};

FOVEA_NAMESPACE_END
