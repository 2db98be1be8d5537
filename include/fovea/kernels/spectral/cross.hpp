// SPDX-License-Identifier: MIT
/// \file
/// The kernels of the cross of hidden states, which surround the transforms of FFTW: their
/// arguments.
#pragma once

#include "fovea/core/config.hpp"

FOVEA_NAMESPACE_BEGIN

/// The roots of the outer step are stored for each multiple of this many elements, and for each
/// distance below it.
inline constexpr Index kRootBlock = 16;

/// The roots e^{-2 pi i m r / (R M)} of an outer step, for m in [0, M) and r in [0, R). Each is a
/// product of two: in `blocks` m is a multiple of kRootBlock, in `lanes` it is less than
/// kRootBlock.
template <class T>
struct OuterRoots {
  Index rows = 1;             ///< R: 1, 2, 4, 8 or 16
  const T* blocks = nullptr;  ///< [M / kRootBlock, R] complex
  const T* lanes = nullptr;   ///< [R, 2, kRootBlock] real parts, then imaginary parts
};

/// The roots e^{-2 pi i k / N} of a spectrum, for k = R * place + row. Each is a product of two.
template <class T>
struct SpectrumRoots {
  Index rows = 1;               ///< R
  Index columns = 0;            ///< M, even; N = R M
  const T* of_place = nullptr;  ///< [M / 2] complex: the roots of k = R * place
  const T* of_row = nullptr;    ///< [R] complex: the roots of k = row
};

/// Turns rows [count, channels] into one sequence for each channel.
template <class T>
struct GatherChannelsArgs {
  const T* rows = nullptr;  ///< [count, channels] is read
  Index row = 0;            ///< the stride from row to row, in elements
  Index column = 1;         ///< the stride from channel to channel, in elements
  Index count = 0;          ///< how many rows are read; sequences are 0 from there on
  Index channels = 0;       ///< how many channels are read
  T* sequences = nullptr;   ///< [channels rounded up to lanes, length] is written
  Index stride = 0;         ///< the stride from sequence to sequence, in elements
  Index length = 0;         ///< the length of a sequence: a multiple of kRootBlock, at least count
};

/// Turns one sequence for each channel back into rows [length, channels].
template <class T>
struct ScatterChannelsArgs {
  const T* sequences = nullptr;  ///< [channels rounded up to lanes, count rounded up] is read
  Index stride = 0;              ///< the stride from sequence to sequence, in elements
  T* rows = nullptr;             ///< [length, channels] is written
  Index row = 0;                 ///< the stride from row to row, in elements
  Index column = 1;              ///< the stride from channel to channel, in elements
  Index count = 0;               ///< how many rows come from the sequences; later rows become +0
  Index length = 0;              ///< how many rows are written
  Index channels = 0;            ///< how many channels are written
};

/// The outer step of a transform of R M complex elements.
template <class T>
struct SpreadArgs {
  const T* x = nullptr;  ///< complex [R M], or its first half if `half`, is read
  T* z = nullptr;        ///< complex [R, M] is written
  OuterRoots<T> roots;   ///< the roots of this size; their `rows` is R
  Index columns = 0;     ///< M: a multiple of kRootBlock if R > 1
  bool half = false;     ///< whether x has its first half only, and the rest counts as 0
};

/// The outer step of an inverse transform, whose result is y, and out = y - a b. y has R M complex
/// elements, or the first half of them, and is taken as twice as many real ones, rounded up to a
/// multiple of kRootBlock.
template <class T>
struct FinishArgs {
  const T* z = nullptr;  ///< complex [R, M]: rows that were transformed back
  Index stride = 0;      ///< the stride from row to row, in complex elements
  OuterRoots<T> roots;   ///< the roots of this size; their `rows` is R
  Index columns = 0;     ///< M
  bool half = false;     ///< whether the first half of y alone is computed
  const T* a = nullptr;  ///< the first factor, as long as y
  const T* b = nullptr;  ///< the second factor, as long as y
  T* out = nullptr;      ///< is written, as long as y; it may be a or b
};

/// The product of two spectra. z1 becomes what is transformed back to y: the first M/2 elements in
/// each of its rows.
template <class T>
struct CrossProductArgs {
  T* z1 = nullptr;         ///< complex [R, M] spectrum of the first tensor, overwritten
  const T* z2 = nullptr;   ///< complex [R, M] spectrum of the second tensor
  SpectrumRoots<T> roots;  ///< the roots of these spectra, which hold R and M
  T scale = 1;             ///< a factor of the result
};

/// The product for a gradient. z, the spectrum of one tensor, becomes that of the gradient of the
/// other.
template <class T>
struct CorrelationArgs {
  T* z = nullptr;          ///< complex [R, M], overwritten
  const T* g = nullptr;    ///< complex [R, M / 2]: the spectrum of the gradient of the output
  SpectrumRoots<T> roots;  ///< the roots of z, which hold R and M
  Index columns = 0;       ///< M
  T scale = 1;             ///< a factor of the result
};

FOVEA_NAMESPACE_END
