// SPDX-License-Identifier: MIT
/// \file
/// Data of the hidden-state cross for one sequence length, shared by calls: transform sizes, plans,
/// and tables of roots of unity.
#pragma once

#include <cmath>
#include <memory>
#include <numbers>
#include <type_traits>

#include "fovea/core/workspace.hpp"
#include "fovea/kernels/spectral/table.hpp"
#include "fovea/simd/padding.hpp"
#include "fovea/spectral/plan_cache.hpp"
#include "fovea/spectral/transform_size.hpp"

FOVEA_NAMESPACE_BEGIN

/// The row stride of a spectrum, in elements of T.
constexpr Index spectrum_row(const TransformSize& size) {
  return padded_size(2 * size.columns, kRootBlock);
}

/// The roots of unity for transforms of N and N/2 elements, each rounded once.
template <class T>
class CrossRoots {
 public:
  /// Computes the roots for transforms of this size. \throws std::bad_alloc
  explicit CrossRoots(const TransformSize& size)
      : size_(size),
        table_(elements(size), Index{sizeof(T)}),
        place_(table_.data<T>()),
        row_(place_ + padded_size(size.columns, kRootBlock)),
        whole_(row_ + padded_size(2 * size.rows, kRootBlock)),
        half_(whole_ + outer_elements(size.rows, size.columns)) {
    for (Index k = 0; k < size.columns / 2; ++k) put(place_ + 2 * k, k, size.columns);
    for (Index r = 0; r < size.rows; ++r) put(row_ + 2 * r, r, size.size());
    if (size.rows == 1) return;
    fill_outer(whole_, size.columns);
    fill_outer(half_, size.columns / 2);
  }

  /// The roots e^{-2 pi i k / N} of the products of spectra.
  SpectrumRoots<T> spectrum() const { return {size_.rows, size_.columns, place_, row_}; }
  /// The roots of the outer step of transforms of N elements.
  OuterRoots<T> whole() const { return outer(whole_, size_.columns); }
  /// The roots of the outer step of transforms of N/2 elements.
  OuterRoots<T> half() const { return outer(half_, size_.columns / 2); }

 private:
  static Index blocks(Index columns) { return (columns + kRootBlock - 1) / kRootBlock; }

  static Index outer_elements(Index rows, Index columns) {
    return rows == 1 ? 0 : 2 * rows * (padded_size(blocks(columns), kRootBlock) + kRootBlock);
  }

  static Index elements(const TransformSize& size) {
    return padded_size(size.columns, kRootBlock) + padded_size(2 * size.rows, kRootBlock) +
           outer_elements(size.rows, size.columns) + outer_elements(size.rows, size.columns / 2);
  }

  /// Writes e^{-2 pi i k / n}, computed in a wider type from an angle of at most pi / 4.
  static void put(T* to, Index k, Index n, Index imaginary = 1) {
    using Wide = std::conditional_t<std::is_same_v<T, float>, double, long double>;
    k %= n;
    const Index eighth = 8 * k / n;
    const Index quarter = (eighth + 1) / 2;  // the nearest axis
    const Wide angle = 2 * std::numbers::pi_v<Wide> * static_cast<Wide>(4 * k - quarter * n) /
                       (4 * static_cast<Wide>(n));
    const Wide cosine = std::cos(angle);
    const Wide sine = std::sin(angle);
    const Wide re[] = {cosine, -sine, -cosine, sine};
    const Wide im[] = {-sine, -cosine, sine, cosine};
    to[0] = static_cast<T>(re[quarter % 4]);
    to[imaginary] = static_cast<T>(im[quarter % 4]);
  }

  void fill_outer(T* to, Index columns) const {
    const Index rows = size_.rows;
    T* const lanes = to + 2 * rows * padded_size(blocks(columns), kRootBlock);
    for (Index r = 0; r < rows; ++r) {
      for (Index block = 0; block < blocks(columns); ++block) {
        put(to + 2 * (block * rows + r), block * kRootBlock * r, rows * columns);
      }
      for (Index m = 0; m < kRootBlock; ++m) {
        put(lanes + 2 * kRootBlock * r + m, m * r, rows * columns, kRootBlock);
      }
    }
  }

  OuterRoots<T> outer(const T* from, Index columns) const {
    if (size_.rows == 1) return {};
    return {size_.rows, from, from + 2 * size_.rows * padded_size(blocks(columns), kRootBlock)};
  }

  TransformSize size_;
  Workspace table_;
  T* place_;
  T* row_;
  T* whole_;
  T* half_;
};

/// The transforms of sequences of length n, of N = R M elements: R rows of M columns.
template <class T>
struct CrossPlan {
  Index length = 0;                            ///< n, the rows of the sequence
  TransformSize size;                          ///< R and M
  std::shared_ptr<const CrossRoots<T>> roots;  ///< the roots of unity of this size
  std::shared_ptr<const FftPlan<T>> forward;   ///< forward transforms of M elements
  /// inverse transforms of M/2 elements; null in a backward pass
  std::shared_ptr<const FftPlan<T>> inverse_half;
  /// forward transforms of M/2 elements; null in a forward pass
  std::shared_ptr<const FftPlan<T>> forward_half;
  /// inverse transforms of M elements; null in a forward pass
  std::shared_ptr<const FftPlan<T>> inverse;

  /// Gets plans and roots from the caches, creating missing ones.
  /// \pre n >= 2
  /// \throws as FftPlan
  CrossPlan(Index n, FftPlanning planning, bool is_backward)
      : length(n), size(transform_size(n)), roots(roots_of(size)) {
    const auto plan = [&](Index elements, FftDirection direction) {
      return fft_plan<T>({elements, direction, planning});
    };
    forward = plan(size.columns, FftDirection::forward);
    if (is_backward) {
      forward_half = plan(size.columns / 2, FftDirection::forward);
      inverse = plan(size.columns, FftDirection::inverse);
    } else {
      inverse_half = plan(size.columns / 2, FftDirection::inverse);
    }
  }

  /// The row stride of a spectrum, in elements of T.
  Index row() const { return spectrum_row(size); }

  /// Computes the spectrum [R, M] of a sequence of real numbers, padded by zeros to N complex
  /// elements.
  /// \param x the sequence
  /// \param spectrum has R + 1 rows. Each row is transformed into the preceding row, so that no
  /// second array occupies the cache.
  void transform(const CrossKernels<T>& kernels, const T* x, T* spectrum) const {
    kernels.outer_step({x, spectrum + row(), roots->whole(), size.columns, true});
    for (Index r = 0; r < size.rows; ++r) {
      forward->execute(spectrum + (r + 1) * row(), spectrum + r * row());
    }
  }

 private:
  static std::shared_ptr<const CrossRoots<T>> roots_of(const TransformSize& size) {
    static auto& cache = *new SharedCache<TransformSize, CrossRoots<T>>(kCachedPlans);
    return cache.find_or_make(size, [&] { return std::make_shared<const CrossRoots<T>>(size); });
  }
};

FOVEA_NAMESPACE_END
