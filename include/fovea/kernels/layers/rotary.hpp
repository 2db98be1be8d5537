// SPDX-License-Identifier: MIT
/// \file
/// Arguments of the rotary-position kernel.
#pragma once

#include "fovea/simd/matrix.hpp"

FOVEA_NAMESPACE_BEGIN

/// Which channels of a head are rotated together.
enum class RotaryPairing : unsigned char {
  halves,  ///< channel i with channel i + width / 2, as in GPT-NeoX and Llama's Transformers form
  neighbours,  ///< channel 2 i with channel 2 i + 1, as in RoFormer and GGUF's form of Llama
};

/// Rows of heads whose pairs of channels are rotated in place. Pair i of row n becomes (a cos - b
/// sin, a sin + b cos) with the angle (n, i), or with its negative. 16-bit heads are rounded once
/// per element.
template <class T, Storage S = Storage::native>
struct RotaryArgs {
  OutputMatrix<S> x;        ///< [rows, channels] of the first head
  Index x_head = 0;         ///< head stride of x in elements
  Index rows = 0;           ///< number of rows
  Index heads = 0;          ///< number of heads
  Index pairs = 0;          ///< rotated pairs: the first 2 pairs channels of a head
  Matrix<const T> cosines;  ///< [rows, pairs] of the angles
  Matrix<const T> sines;    ///< [rows, pairs] of the angles
  RotaryPairing pairing = RotaryPairing::halves;  ///< which channels are a pair
  bool is_back = false;                           ///< whether angles are negated
};

FOVEA_NAMESPACE_END
