// SPDX-License-Identifier: MIT
/// \file
/// What a forward pass writes beside the output, for each family.
#pragma once

#include "fovea/core/scalar.hpp"
#include "fovea/core/view.hpp"

FOVEA_NAMESPACE_BEGIN

/// What softmax attention saves for its backward pass, each only if it is given.
/// `for_each_tensor(visit)`, here and below, calls visit(name, tensor) for every member.
template <class T>
struct SoftmaxSaved {
  /// [B, Hq, Nq, 1]: natural logarithm of the row's sum of exp(logit); -inf if it sees no key. Its
  /// rounding costs the gradients no digits, however large it is.
  View<Compute<T>> lse = {};

  template <class F>
  constexpr void for_each_tensor(F&& visit) const {
    visit("lse", lse);
  }
};

/// Attention over lists of keys saves the same.
template <class T>
using IndexedSaved = SoftmaxSaved<T>;
template <class T>
using FsatSaved = SoftmaxSaved<T>;

/// What Smart Bird attention saves, each only if it is given.
template <class T>
struct SmartBirdSaved {
  View<Compute<T>> lse = {};  ///< as in SoftmaxSaved
  /// [B, Hq, Nq, K]: the keys that were chosen for each row, ascending, -1 behind the last.
  View<Index> indices = {};

  template <class F>
  constexpr void for_each_tensor(F&& visit) const {
    visit("lse", lse);
    visit("indices", indices);
  }
};

/// Linear attention, the delta rule and FMM attention save nothing: their backward passes compute
/// the states again.
template <class T>
struct LinearSaved {
  template <class F>
  constexpr void for_each_tensor(F&& /*visit*/) const {}
};

FOVEA_NAMESPACE_END
