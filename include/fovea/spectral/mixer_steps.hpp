// SPDX-License-Identifier: MIT
/// \file
/// The two steps of FourierMixer, each around an FFTW transform: sums of row pairs, and columns of
/// sequences. Callers pass tensors, plans and scratch, so bits do not depend on how rows and
/// columns are distributed.
#pragma once

#include <algorithm>

#include "fovea/core/view.hpp"
#include "fovea/kernels/spectral/table.hpp"
#include "fovea/simd/padding.hpp"
#include "fovea/spectral/fft_plan.hpp"

FOVEA_NAMESPACE_BEGIN

/// The column pairs of a mixer of D columns that are not mirror images of others.
constexpr Index mixer_pairs(Index width) { return (width / 2 + 2) / 2; }

/// How the work of a mixer is divided, for given numbers of rows and columns.
template <class T>
struct MixerSizes {
  /// The rows n of a task, each with its mirror image N - n: as many as the widest register holds.
  static constexpr Index kRows = 16;
  /// The pairs of columns of a task. Their parts of a result row are whole cache lines, and their
  /// spectra fit a second-level cache.
  static constexpr Index kPairs = 64 / Index{sizeof(T)};

  Index rows;   ///< N
  Index width;  ///< D

  /// The rows that are not mirror images of others.
  Index own_rows() const { return rows / 2 + 1; }
  /// The pairs of columns that are not mirror images of others.
  Index pairs() const { return mixer_pairs(width); }
  /// Tasks of the first step.
  Index row_tasks() const { return (own_rows() + kRows - 1) / kRows; }
  /// Tasks of the second step.
  Index pair_tasks() const { return (pairs() + kPairs - 1) / kPairs; }

  /// The stride of sequences in scratch, in elements: an odd number of lines, so that sequences do
  /// not map to one cache set.
  Index stride() const {
    constexpr Index line = 64 / Index{sizeof(T)};
    return padded_size(2 * (rows + 1), 2 * line) + line;
  }
  /// Elements of the sequences along the rows.
  Index sequences() const { return pairs() * stride(); }
  /// Elements of a row of complex numbers.
  Index spectrum() const { return padded_size(2 * width); }
  /// Elements of a row of sums.
  Index sums() const { return padded_size(width + 1); }
  /// Scratch elements per worker.
  Index worker() const {
    return (std::max)(2 * spectrum() + kRows * sums(), (std::min)(kPairs, pairs()) * stride());
  }
};

/// The first step of a mixer: each row is transformed together with its mirror image.
template <class T>
struct MixerRows {
  const FftPlan<T>& plan;  ///< a forward transform of D elements
  const View<const T>& x;  ///< [B, 1, N, D]; only requested rows are read

  /// The sums of rows n and N - n. \param n at most N / 2
  /// \param scratch two rows of complex numbers, `MixerSizes::spectrum` each, aligned as plans
  /// require   \param sums [D + 1] is written
  void sum(Index b, Index n, T* scratch, T* sums) const {
    const MixerKernels<T> kernels;
    const Index width = x.width();
    const Index mirror = n == 0 ? 0 : x.rows() - n;
    T* const joined = scratch;
    T* const spectrum = joined + MixerSizes<T>{x.rows(), width}.spectrum();
    kernels.join_rows({&x(b, 0, n, 0), &x(b, 0, mirror, 0), x.strides()[3], width, joined});
    plan.execute(joined, spectrum);
    kernels.fold_row({spectrum, width, sums});
  }
};

/// The second step of a mixer: the sequence of each pair of columns is transformed into four
/// columns of the result.
template <class T>
struct MixerColumns {
  const FftPlan<T>& plan;  ///< a forward transform of N elements
  const View<T>& out;      ///< [B, 1, N, D]; only columns of mixed pairs are written

  /// Writes the columns of some pairs. The bits of a pair do not depend on which are mixed
  /// together. \param sequences of these pairs, computed by `MixerKernels::unpack_sums` \param
  /// first, count the pairs, at most `MixerSizes::kPairs` \param spectra [count] sequences,
  /// `MixerSizes::stride` apart, aligned as plans require
  void mix(Index b, const T* sequences, Index first, Index count, T* spectra) const {
    const Index rows = out.rows();
    const Index stride = MixerSizes<T>{rows, out.width()}.stride();
    for (Index j = 0; j < count; ++j) {
      T* const spectrum = spectra + j * stride;
      plan.execute(sequences + j * stride, spectrum);
      std::copy_n(spectrum, 2, spectrum + 2 * rows);
    }
    MixerKernels<T>().mixed_columns({spectra, stride, first, count, rows, out.width(),
                                     &out(b, 0, 0, 0), out.strides()[2], out.strides()[3]});
  }
};

FOVEA_NAMESPACE_END
