// SPDX-License-Identifier: MIT
/// \file
/// What the kernel of rotary positions takes.
#pragma once

#include "fovea/simd/matrix.hpp"

FOVEA_NAMESPACE_BEGIN

/// Which channels of a head are turned together.
enum class RotaryPairing : unsigned char {
  halves,  ///< channel i with channel i + width / 2, as in GPT-NeoX and Llama's Transformers form
  neighbours,  ///< channel 2 i with channel 2 i + 1, as in RoFormer and GGUF's form of Llama
};

/// Rows of heads whose pairs of channels are turned in place. Pair i of row n becomes
/// (a cos - b sin, a sin + b cos) with the angle (n, i), or with its negative. Heads may be stored
/// in 16 bits: each element is then rounded once.
template <class T, Storage S = Storage::native>
struct RotaryArgs {
  OutputMatrix<S> x;        ///< [rows, channels] of the first head
  Index x_head = 0;         ///< elements from one head of x to the next
  Index rows = 0;           ///< number of rows
  Index heads = 0;          ///< number of heads
  Index pairs = 0;          ///< pairs that are turned: the first 2 pairs channels of a head
  Matrix<const T> cosines;  ///< [rows, pairs] of the angles
  Matrix<const T> sines;    ///< [rows, pairs] of the angles
  RotaryPairing pairing = RotaryPairing::halves;  ///< which channels are a pair
  bool is_back = false;  ///< whether the angles are taken with the other sign
};

FOVEA_NAMESPACE_END
