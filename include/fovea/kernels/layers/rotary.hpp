// SPDX-License-Identifier: MIT
/// \file
/// What the kernel of rotary positions takes.
#pragma once

#include "fovea/core/config.hpp"

FOVEA_NAMESPACE_BEGIN

/// Which channels of a head are turned together.
enum class RotaryPairing : unsigned char {
  halves,  ///< channel i with channel i + width / 2, as in GPT-NeoX and Llama's Transformers form
  neighbours,  ///< channel 2 i with channel 2 i + 1, as in RoFormer and GGUF's form of Llama
};

/// Rows of heads whose pairs of channels are turned in place. Pair i of row n becomes
/// (a cos - b sin, a sin + b cos) with the angle (n, i), or with its negative.
template <class T>
struct RotaryArgs {
  T* x = nullptr;              ///< [rows, heads, head_width], of which 2 pairs channels are turned
  Index x_row = 0;             ///< elements from one row of x to the next
  Index rows = 0;              ///< number of rows
  Index heads = 0;             ///< number of heads, which lie side by side
  Index head_width = 0;        ///< channels of a head
  Index pairs = 0;             ///< pairs that are turned: the first 2 pairs channels of a head
  const T* cosines = nullptr;  ///< [rows, pairs] of the angles, dense
  const T* sines = nullptr;    ///< [rows, pairs] of the angles, dense
  RotaryPairing pairing = RotaryPairing::halves;  ///< which channels are a pair
  bool is_back = false;  ///< whether the angles are taken with the other sign
};

FOVEA_NAMESPACE_END
