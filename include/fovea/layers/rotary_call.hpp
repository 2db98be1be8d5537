// SPDX-License-Identifier: MIT
/// \file
/// What a call of Rotary takes besides heads: positions of tokens, and cosines and sines of angles.
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
  /// Makes them, times a magnitude, for rows at positions `first`, first + 1, ... unless they are
  /// there already.
  /// \throws std::bad_alloc
  void make(std::span<const double> frequencies, double magnitude, Index first, Index rows) {
    if (first == first_ && are(frequencies, magnitude, rows, {})) return;
    fill(frequencies, magnitude, rows, [&](Index n) { return first + n; });
    positions_.clear();
    first_ = first;
    rows_ = rows;
  }
  /// Makes them for rows at these positions, unless they are there already.
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

  /// Leaves no rows, until the caller knows of which positions they are.
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
  std::vector<Index> positions_;  // if it is empty, those from first_ on
  Index first_ = 0;
  Index rows_ = -1;
};

/// What Rotary::turn takes besides the heads [B, H, L, D].
template <class T>
struct RotaryCall {
  Index first = 0;  ///< the position of row 0 of each sequence, where `positions` is not given
  /// [B, L] the position of each token, integers of 32 or 64 bits, or [L] if all sequences have the
  /// same, in any order and with any repetitions; if empty, row n has the position first + n.
  IndexSpan positions = {};
  /// [S + 1] where packed sequences begin and end, as Tokens::cu_seqlens: the first row of each of
  /// them has the position `first`. If empty, sequences are not packed.
  IndexSpan cu_seqlens = {};
  /// [1, 1, P, pairs] the cosine of each pair's angle at positions 0 to P - 1, or [B, 1, P, pairs],
  /// a table for each sequence, with any strides. Both tables are given or none. They replace the
  /// angles that the options describe, and position p reads row p.
  ViewMember<const Compute<T>> cosines = {};
  ViewMember<const Compute<T>> sines = {};  ///< the sines, in the shape of the cosines
  /// Whether heads are turned by the negative angles, which takes the gradient of turned heads to
  /// that of the heads and, if the magnitude is 1, turned heads back to what they were.
  bool backward = false;
  /// Keeps the angles from call to call. If null, they are computed for this call alone.
  RotaryAngles<Compute<T>>* angles = nullptr;
};

FOVEA_NAMESPACE_END
