// SPDX-License-Identifier: MIT
/// \file
/// Arguments of the Fourier mixer kernels, which surround FFTW's transforms.
#pragma once

#include "fovea/core/config.hpp"

FOVEA_NAMESPACE_BEGIN

/// Two rows as one row of complex numbers: to[d] = first[d] + i second[d].
template <class T>
struct JoinRowsArgs {
  const T* first = nullptr;   ///< [width]
  const T* second = nullptr;  ///< [width]
  Index column = 1;           ///< element stride of both
  Index width = 0;            ///< D
  T* to = nullptr;            ///< complex [width] is written
};

/// sums[c] = (re z[c] + im z[c]) / 2, and sums[width] = sums[0].
template <class T>
struct FoldRowArgs {
  const T* z = nullptr;  ///< complex [width]
  Index width = 0;       ///< D, at least 1
  T* sums = nullptr;     ///< [width + 1] is written
};

/// Converts the sums of a block of rows to parts of sequences along the rows. Pair j of columns is
/// the complex sequence z_j[n] = sums[n, D - 2j] + i sums[n, D - 2j - 1], and its mirror image is
/// z_j[N - n] = sums[n, 2j] + i sums[n, 2j + 1].
template <class T>
struct UnpackSumsArgs {
  const T* sums = nullptr;  ///< [count, D + 1]
  Index row = 0;            ///< row stride of `sums`
  Index first = 0;          ///< n of the first row
  Index count = 0;          ///< number of rows
  Index rows = 0;           ///< N
  Index width = 0;          ///< D
  Index pairs = 0;          ///< number of column pairs
  T* sequences = nullptr;   ///< complex [pairs, N + 1]
  Index stride = 0;         ///< sequence stride in elements of T
};

/// Computes the columns of the result from the transforms of some pairs. With h = re Z[k] + im Z[k]
/// and g = re Z[k] - im Z[k], and h', g' the same at N - k, the columns 2j, 2j + 1, D - 2j, D - 2j
/// - 1 of row k are (h + g') / 2, (h' - g) / 2, (g + h') / 2 and (h - g') / 2.
template <class T>
struct MixedColumnsArgs {
  const T* spectra = nullptr;  ///< complex [pairs, N + 1], where Z[N] = Z[0]
  Index stride = 0;            ///< spectrum stride in elements of T
  Index first = 0;             ///< j of the first pair
  Index pairs = 0;             ///< number of pairs
  Index rows = 0;              ///< N
  Index width = 0;             ///< D
  T* out = nullptr;            ///< [N, D], these columns are written
  Index row = 0;               ///< row stride of `out`
  Index column = 1;            ///< column stride of `out`
};

FOVEA_NAMESPACE_END
