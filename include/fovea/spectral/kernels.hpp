// SPDX-License-Identifier: MIT
/// \file
/// What surrounds FFTW's transforms in the cross of hidden states, compiled once per
/// instruction-set level: the arguments of its kernels, their table, and the choice of the level.
/// They are few and short, so each translation unit that uses them compiles them.
#pragma once

#include "fovea/core/config.hpp"

FOVEA_NAMESPACE_BEGIN

/// Roots of the outer step are stored for each of this many elements, and within so many.
inline constexpr Index kRootBlock = 16;

/// e^{-2 pi i m r / (R M)}, m in [0, M), r in [0, R), as products of two: m is a multiple of
/// kRootBlock in `blocks`, and less than kRootBlock in `lanes`.
template <class T>
struct OuterRoots {
  Index rows = 1;             // R: 1, 2, 4, 8 or 16
  const T* blocks = nullptr;  // [M / kRootBlock, R] complex
  const T* lanes = nullptr;   // [R, 2, kRootBlock] real parts, imaginary parts
};

/// e^{-2 pi i k / N} for k = R * place + row, as products of two.
template <class T>
struct SpectrumRoots {
  Index rows = 1;               // R
  Index columns = 0;            // M, even; N = R M
  const T* of_place = nullptr;  // [M / 2] complex: of R * place
  const T* of_row = nullptr;    // [R] complex
};

/// A few rows [count, channels] to sequences.
template <class T>
struct GatherChannelsArgs {
  const T* rows = nullptr;  // [count, channels]
  Index row = 0;            // strides
  Index column = 1;
  Index count = 0;
  Index channels = 0;
  T* sequences = nullptr;  // [channels rounded up to lanes, length], `stride` apart
  Index stride = 0;
  Index length = 0;  // a multiple of kRootBlock, at least count
};

/// Sequences to rows [length, channels].
template <class T>
struct ScatterChannelsArgs {
  const T* sequences = nullptr;  // as above
  Index stride = 0;
  T* rows = nullptr;  // [length, channels]
  Index row = 0;
  Index column = 1;
  Index count = 0;  // rows from there on are 0
  Index length = 0;
  Index channels = 0;
};

/// The outer step of a transform of R M complex elements.
template <class T>
struct SpreadArgs {
  const T* x = nullptr;  // complex: [R M], or its first half where the rest is 0
  T* z = nullptr;        // complex [R, M]
  OuterRoots<T> roots;
  Index columns = 0;  // M; a multiple of kRootBlock if R > 1
  bool half = false;  // of x the first half is there
};

/// The outer step of an inverse transform, y, and out = y - a b, of R M complex elements or of the
/// first half of them, as twice as many real ones; rounded up to kRootBlock.
template <class T>
struct FinishArgs {
  const T* z = nullptr;  // complex [R, M]
  Index stride = 0;      // complex elements from row to row
  OuterRoots<T> roots;
  Index columns = 0;  // M
  bool half = false;
  const T* a = nullptr;
  const T* b = nullptr;
  T* out = nullptr;  // may be a or b
};

/// Z1 [R, M] becomes what is transformed back to y: in each of its rows the first M/2 elements.
template <class T>
struct CrossProductArgs {
  T* z1 = nullptr;
  const T* z2 = nullptr;
  SpectrumRoots<T> roots;
  T scale = 1;
};

/// Z [R, M], the spectrum of one tensor, becomes that of the gradient of the other.
template <class T>
struct CorrelationArgs {
  T* z = nullptr;
  const T* g = nullptr;  // [R, M / 2], of the gradient of the output
  SpectrumRoots<T> roots;
  Index columns = 0;  // M
  T scale = 1;
};

FOVEA_NAMESPACE_END
