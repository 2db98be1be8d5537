// SPDX-License-Identifier: MIT
/// \file
/// Arguments of Rotary besides heads: token positions, and cosines and sines of angles.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "fovea/core/index_span.hpp"
#include "fovea/core/members.hpp"
#include "fovea/layers/activation.hpp"

FOVEA_NAMESPACE_BEGIN

/// The cosines and sines of the angles of some positions. Layers with the same frequencies may
/// share one.
template <class T>
class RotaryAngles {
 public:
  /// Computes them, times a magnitude, for positions `first`, first + 1, ..., unless cached.
  /// \throws std::bad_alloc
  void make(std::span<const double> frequencies, double magnitude, Index first, Index rows) {
    if (first == first_ && are(frequencies, magnitude, rows, {})) return;
    fill(frequencies, magnitude, rows, [&](Index n) { return first + n; });
    positions_.clear();
    first_ = first;
    rows_ = rows;
  }
  /// Computes them for these positions, unless cached.
  /// \throws std::bad_alloc
  void make(std::span<const double> frequencies, double magnitude, IndexSpan positions) {
    const auto rows = static_cast<Index>(positions.size());
    if (rows != 0 && are(frequencies, magnitude, rows, positions)) return;
    fill(frequencies, magnitude, rows,
         [&](Index n) { return positions[static_cast<std::size_t>(n)]; });
    positions_.assign(positions.begin(), positions.end());
    rows_ = rows;
  }

  /// [1, 1, rows, pairs]
  View<const T> cosines() const { return cosines_.view(); }
  /// [1, 1, rows, pairs]
  View<const T> sines() const { return sines_.view(); }

 private:
  bool are(std::span<const double> frequencies, double magnitude, Index rows,
           IndexSpan positions) const {
    return rows == rows_ && magnitude == magnitude_ &&
           std::ranges::equal(frequencies, frequencies_) &&
           std::ranges::equal(positions, positions_);
  }

  /// Clears the rows until the caller has set their positions.
  template <class F>
  void fill(std::span<const double> frequencies, double magnitude, Index rows, const F& position) {
    const auto pairs = static_cast<Index>(frequencies.size());
    rows_ = -1;
    const View<T> cosines = cosines_.resize(1, rows, pairs);
    const View<T> sines = sines_.resize(1, rows, pairs);
    for (Index n = 0; n < rows; ++n) {
      for (Index i = 0; i < pairs; ++i) {
        const double angle =
            static_cast<double>(position(n)) * frequencies[static_cast<std::size_t>(i)];
        cosines(0, 0, n, i) = static_cast<T>(magnitude * std::cos(angle));
        sines(0, 0, n, i) = static_cast<T>(magnitude * std::sin(angle));
      }
    }
    frequencies_.assign(frequencies.begin(), frequencies.end());
    magnitude_ = magnitude;
  }

  Buffer<T> cosines_;
  Buffer<T> sines_;
  std::vector<double> frequencies_;
  double magnitude_ = 1;
  std::vector<Index> positions_;  // if empty, those from first_ on
  Index first_ = 0;
  Index rows_ = -1;
};

/// Arguments of Rotary::turn besides the heads [B, H, L, D].
template <class T>
struct RotaryCall {
  Index first = 0;  ///< the position of each sequence's row 0, if `positions` is empty
  /// [B, L] the position of each token, integers of 32 or 64 bits, or [L] shared by all sequences,
  /// in any order, repetitions allowed; if empty, row n has position first + n.
  IndexSpan positions = {};
  /// [S + 1] bounds of packed sequences, as Tokens::cu_seqlens; the first row of each has position
  /// `first`. If empty, sequences are not packed.
  IndexSpan cu_seqlens = {};
  /// [1, 1, P, pairs] the cosine of each pair's angle at positions 0 to P - 1, or [B, 1, P, pairs],
  /// one table per sequence, with any strides. Set both tables or none. They replace the options'
  /// angles; position p reads row p.
  ViewMember<const Compute<T>> cosines = {};
  ViewMember<const Compute<T>> sines = {};  ///< the sines, in the shape of the cosines
  /// Whether to rotate by the negative angles, which maps gradients of rotated heads to gradients
  /// of heads and, if the magnitude is 1, inverts the rotation.
  bool backward = false;
  /// Caches angles between calls. If null, they are computed for each call.
  RotaryAngles<Compute<T>>* angles = nullptr;
};

FOVEA_NAMESPACE_END
