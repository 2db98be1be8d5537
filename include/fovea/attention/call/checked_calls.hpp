// SPDX-License-Identifier: MIT
/// \file
/// The calls of an operator that reads its own tensors, and their checks.
#pragma once

#include <string_view>

#include "fovea/attention/call/backward_calls.hpp"
#include "fovea/attention/call/forward_calls.hpp"
#include "fovea/kernels/unit.hpp"

FOVEA_NAMESPACE_BEGIN

/// The types of an operator's tensors and sizes, and its options.
template <template <class> class InputsT, template <class> class SavedT,
          template <class> class GradsT, class ShapeT, class OptionsT>
class OperatorTypes {
 public:
  /// The inputs, for tensors of T.
  template <class T>
  using Inputs = InputsT<T>;
  /// What the forward pass saves: each member, if a tensor is given.
  template <class T>
  using Saved = SavedT<T>;
  /// The gradients, for tensors of T.
  template <class T>
  using Grads = GradsT<T>;
  /// A call's sizes.
  using Shape = ShapeT;

  OptionsT options;  ///< checked at every call

  /// Default options.
  OperatorTypes() = default;
  /// Holds the options.
  explicit OperatorTypes(const OptionsT& chosen) : options(chosen) {}
};

/// The calls and checks of an operator `Op` that derives from this class. `Op` has the members that
/// ForwardCalls and BackwardCalls require and `check_read(inputs)`, which checks options and
/// inputs, and may redefine the protected members below.
template <class Op>
class CheckedCalls : public ForwardCalls<Op>, public BackwardCalls<Op> {
 public:
  /// Checks `forward`'s arguments. Cost: O(1), and O(B) for key lengths, unless the operator
  /// documents more.
  /// \throws std::invalid_argument, whose message names the operator, the tensor, the dimension,
  /// what was expected and what was given
  template <class T>
  void check(const InputsOf<Op, T>& inputs, const View<T>& out,
             const SavedOf<Op, T>& saved = {}) const;
  /// The same without check_values, for a part of a sequence's rows.
  template <class T>
  void check_tensors(const InputsOf<Op, T>& inputs, const View<T>& out,
                     const SavedOf<Op, T>& saved) const;

  /// \throws std::invalid_argument as `check` does, for everything that `backward` takes
  template <class T>
  void check_backward(const InputsOf<Op, T>& inputs, const View<const T>& out,
                      const SavedOf<Op, T>& saved, const View<const T>& d_out,
                      const GradsOf<Op, T>& grads) const;
  /// The same without check_values, for a part of a sequence's rows.
  template <class T>
  void check_backward_tensors(const InputsOf<Op, T>& inputs, const View<const T>& out,
                              const SavedOf<Op, T>& saved, const View<const T>& d_out,
                              const GradsOf<Op, T>& grads) const;

 protected:
  ~CheckedCalls() = default;

  /// Whether the backward pass requires lse; other saved tensors are optional.
  static constexpr bool kNeedsLse = true;

  /// Checks the inputs' values, and what depends on the whole sequence's length.
  template <class In>
  void check_values(const In& /*inputs*/) const {}
  /// Checks the saved tensors besides lse that a backward pass reads: their shapes.
  template <class In, class S>
  void check_saved(const In& inputs, const S& saved) const;
  /// The shape of a saved tensor, by name.
  template <class In>
  Shape saved_shape(const In& inputs, std::string_view /*name*/) const {
    return detail::row_shape(inputs);
  }

 private:
  const Op& op() const { return static_cast<const Op&>(*this); }
};

FOVEA_NAMESPACE_END

#if FOVEA_HAS_PASS_BODIES
#include "fovea/attention/call/checked_calls.inl.hpp"
#endif
