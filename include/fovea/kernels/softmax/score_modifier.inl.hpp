// SPDX-License-Identifier: MIT
/// \file
/// Calls a user's function of logits for rows of a tile. The tile holds half-logits of base 2, the
/// function takes logits in natural units.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/softmax/block.hpp"
#include "fovea/simd/softmax_weight.inl.hpp"
#endif

/// Modifies a row of at most kKeyTile logits.
/// \param logits [count rounded up to lanes]
/// \param slopes [count rounded up to lanes] multiplied by the derivatives; null: not requested
template <class T>
FOVEA_NOINLINE void modify_row(const ScoreModifierArgs<T>& modifier, const PairRow& pairs,
                               T* logits, T* slopes) {
  alignas(kVecBytes) T natural[kKeyTile];
  alignas(kVecBytes) T derivatives[kKeyTile];
  const T to_natural = static_cast<T>(1.38629436111989061883);  // 2 ln 2
  for (Index n = 0; n < pairs.count; n += kLanes<T>) {
    store(natural + n, fma(load(logits + n), set1(to_natural), zero<T>()));
  }
  if (slopes != nullptr) {
    modifier.derivative(modifier.modifier, pairs, natural, derivatives);
    for (Index n = 0; n < pairs.count; ++n) slopes[n] *= derivatives[n];
  }
  modifier.value(modifier.modifier, pairs, natural);
  for (Index n = 0; n < pairs.count; ++n) logits[n] = natural[n] * logit_factor(T{1});
}
