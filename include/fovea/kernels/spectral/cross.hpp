// SPDX-License-Identifier: MIT
/// \file
/// Arguments of the hidden-state cross kernels, which surround FFTW's transforms.
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

/// Transposes rows [count, channels] into one sequence per channel.
template <class T>
struct GatherChannelsArgs {
  const T* rows = nullptr;  ///< [count, channels] is read
  Index row = 0;            ///< row stride in elements
  Index column = 1;         ///< channel stride in elements
  Index count = 0;          ///< number of rows read; sequences are 0 from there on
  Index channels = 0;       ///< number of channels read
  T* sequences = nullptr;   ///< [channels rounded up to lanes, length] is written
  Index stride = 0;         ///< sequence stride in elements
  Index length = 0;         ///< the length of a sequence: a multiple of kRootBlock, at least count
};

/// Transposes one sequence per channel back into rows [length, channels].
template <class T>
struct ScatterChannelsArgs {
  const T* sequences = nullptr;  ///< [channels rounded up to lanes, count rounded up] is read
  Index stride = 0;              ///< sequence stride in elements
  T* rows = nullptr;             ///< [length, channels] is written
  Index row = 0;                 ///< row stride in elements
  Index column = 1;              ///< channel stride in elements
  Index count = 0;               ///< number of rows from the sequences; later rows become +0
  Index length = 0;              ///< number of rows written
  Index channels = 0;            ///< number of channels written
};

/// The outer step of a transform of R M complex elements.
template <class T>
struct OuterStepArgs {
  const T* x = nullptr;  ///< complex [R M], or its first half if `half`, is read
  T* z = nullptr;        ///< complex [R, M] is written
  OuterRoots<T> roots;   ///< the roots of this size; their `rows` is R
  Index columns = 0;     ///< M: a multiple of kRootBlock if R > 1
  bool half = false;     ///< whether x has only its first half, and the rest is 0
};

/// The outer step of an inverse transform, whose result is y, and out = y - a b. y has R M complex
/// elements, or the first half of them, treated as twice as many real ones, rounded up to a
/// multiple of kRootBlock.
template <class T>
struct FinishArgs {
  const T* z = nullptr;  ///< complex [R, M]: inversely transformed rows
  Index stride = 0;      ///< row stride in complex elements
  OuterRoots<T> roots;   ///< the roots of this size; their `rows` is R
  Index columns = 0;     ///< M
  bool half = false;     ///< whether only the first half of y is computed
  const T* a = nullptr;  ///< the first factor, as long as y
  const T* b = nullptr;  ///< the second factor, as long as y
  T* out = nullptr;      ///< written, as long as y; may be a or b
};

/// The product of two spectra. z1 becomes the spectrum whose inverse transform is y, in the first
/// M/2 elements of each row.
template <class T>
struct CrossProductArgs {
  T* z1 = nullptr;         ///< complex [R, M] spectrum of the first tensor, overwritten
  const T* z2 = nullptr;   ///< complex [R, M] spectrum of the second tensor
  SpectrumRoots<T> roots;  ///< the roots of these spectra, which hold R and M
  T scale = 1;             ///< a factor of the result
};

/// The product for a gradient. z, the spectrum of one tensor, is overwritten by that of the
/// gradient of the other.
template <class T>
struct CorrelationArgs {
  T* z = nullptr;          ///< complex [R, M], overwritten
  const T* g = nullptr;    ///< complex [R, M / 2]: the spectrum of the gradient of the output
  SpectrumRoots<T> roots;  ///< the roots of z, which hold R and M
  Index columns = 0;       ///< M
  T scale = 1;             ///< a factor of the result
};

FOVEA_NAMESPACE_END
