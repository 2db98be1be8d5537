// SPDX-License-Identifier: MIT
/// \file
/// What a forward pass writes besides the output, for each family.
#pragma once

#include "fovea/core/members.hpp"
#include "fovea/core/scalar.hpp"

FOVEA_NAMESPACE_BEGIN

/// What softmax attention saves for its backward pass. Members without a tensor are not written.
template <class T>
struct SoftmaxSaved {
  /// [B, Hq, Nq, 1]: the natural logarithm of the row's sum of exp(logit), or -infinity if the row
  /// sees no key. Its rounding costs the gradients no accuracy, however large it is.
  ViewMember<Compute<T>> lse = {};

  FOVEA_TENSORS(lse)
};

/// Attention over lists of keys saves the same as softmax attention.
template <class T>
using IndexedSaved = SoftmaxSaved<T>;
/// FSAT attention saves the same as softmax attention.
template <class T>
using FsatSaved = SoftmaxSaved<T>;

/// What Smart Bird attention saves. Members without a tensor are not written.
template <class T>
struct SmartBirdSaved {
  ViewMember<Compute<T>> lse = {};  ///< as in SoftmaxSaved
  /// [B, Hq, Nq, K]: the keys chosen for each row, ascending, and -1 after the last one.
  ViewMember<Index> indices = {};

  FOVEA_TENSORS(lse, indices)
};

/// What FMM attention saves of its near field. Members without a tensor are not written. A backward
/// pass that gets both does not recompute the near field; the gradients have the same bits.
template <class T>
struct FmmSaved {
  ViewMember<Compute<T>> near_out = {};  ///< [B, Hq, Nq, Dv]: the near field's output alone
  ViewMember<Compute<T>> near_lse = {};  ///< [B, Hq, Nq, 1]: its lse, as in SoftmaxSaved

  FOVEA_TENSORS(near_out, near_lse)
};

/// Linear attention and the delta rule save nothing: their backward passes recompute the states.
template <class T>
struct LinearSaved {
  /// Does nothing: there is no member.
  template <class F>
  constexpr void for_each_tensor(F&& /*visit*/) const {}
};

FOVEA_NAMESPACE_END
