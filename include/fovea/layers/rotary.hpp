// SPDX-License-Identifier: MIT
/// \file
/// Rotary positions (Su et al. 2021): queries and keys are turned by angles that grow with their
/// position, so that their product knows the distance of the two.
#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <vector>

#include "fovea/core/rounded.hpp"
#include "fovea/kernels/layers/table.hpp"
#include "fovea/layers/layer_check.hpp"
#include "fovea/layers/token_sums.hpp"

FOVEA_NAMESPACE_BEGIN

/// How Llama 3.1 stretches the frequencies of a model to longer sequences: those with more than
/// `high` turns in the original length stay, those with fewer than `low` are divided by `factor`,
/// and between them it is a mean of both, weighted linearly in the number of turns.
struct RotaryStretch {
  double factor = 8;              ///< at least 1
  double low = 1;                 ///< turns, at least 0
  double high = 4;                ///< turns, more than low
  double original_length = 8192;  ///< tokens, more than 0
};

/// Options of Rotary.
struct RotaryOptions {
  double base = 10000;  ///< pair i turns by base^(-2 i / width) for each position; more than 0
  RotaryPairing pairing = RotaryPairing::halves;  ///< which channels are turned together
  /// How many channels of a head are turned, from the first one on: an even number. If it is 0,
  /// all.
  Index width = 0;
  double position_scale = 1;  ///< what positions are multiplied by: 1 / factor to interpolate
  std::optional<RotaryStretch> stretch = {};  ///< of the frequencies; none by default
};

/// The cosines and sines of the angles of consecutive positions. Layers with the same frequencies
/// may share one.
template <class T>
class RotaryAngles {
 public:
  /// Makes them for rows at positions `first`, first + 1, ... unless they are there already.
  /// \throws std::bad_alloc
  void make(std::span<const double> frequencies, Index first, Index rows) {
    const auto pairs = static_cast<Index>(frequencies.size());
    const bool are_same = std::equal(frequencies.begin(), frequencies.end(), frequencies_.begin(),
                                     frequencies_.end());
    if (first == first_ && rows == rows_ && are_same) return;
    rows_ = -1;
    const View<T> cosines = cosines_.resize(1, rows, pairs);
    const View<T> sines = sines_.resize(1, rows, pairs);
    for (Index n = 0; n < rows; ++n) {
      for (Index i = 0; i < pairs; ++i) {
        const double angle =
            static_cast<double>(first + n) * frequencies[static_cast<std::size_t>(i)];
        cosines(0, 0, n, i) = static_cast<T>(std::cos(angle));
        sines(0, 0, n, i) = static_cast<T>(std::sin(angle));
      }
    }
    frequencies_.assign(frequencies.begin(), frequencies.end());
    first_ = first;
    rows_ = rows;
  }

  /// [1, 1, rows, pairs]
  View<const T> cosines() const { return cosines_.view(); }
  /// [1, 1, rows, pairs]
  View<const T> sines() const { return sines_.view(); }

 private:
  Buffer<T> cosines_;
  Buffer<T> sines_;
  std::vector<double> frequencies_;
  Index first_ = 0;
  Index rows_ = -1;
};

/// Turns pairs of channels (a, b) of each head in place: (a cos - b sin, a sin + b cos), where the
/// angle of pair i at position n is n f_i with f_i = position_scale base^(-2 i / width), stretched
/// or not. Angles are computed in double. It learns nothing, and the bits are the same for any
/// number of threads, and for a row alone.
template <class T>
class Rotary {
 public:
  /// Positions that turn nothing.
  Rotary() = default;

  /// \param layer that it is a part of, for messages
  /// \throws std::invalid_argument if options are out of range or do not go with the heads
  Rotary(const char* layer, const RotaryOptions& options, Index head_width)
      : pairing_(options.pairing) {
    const Index width = options.width == 0 ? head_width : options.width;
    if (width < 2 || width > head_width || width % 2 != 0) {
      refuse(layer, "rotary.width", std::to_string(width),
             "an even number up to " + std::to_string(head_width) + ", the width of a head");
    }
    if (!(options.base > 0 && std::isfinite(options.base))) {
      refuse(layer, "rotary.base", to_string(options.base), "a finite number above 0");
    }
    if (!std::isfinite(options.position_scale)) {
      refuse(layer, "rotary.position_scale", to_string(options.position_scale), "a finite number");
    }
    if (options.stretch) check_stretch(layer, *options.stretch);
    for (Index i = 0; i < width / 2; ++i) {
      const double exponent = -2 * static_cast<double>(i) / static_cast<double>(width);
      const double frequency = std::pow(options.base, exponent);
      frequencies_.push_back(options.position_scale * (options.stretch
                                                           ? stretched(frequency, *options.stretch)
                                                           : frequency));
    }
  }

  /// Whether anything is turned.
  bool turns() const { return !frequencies_.empty(); }

  /// Turns the heads of all rows.
  /// \param heads [B, H, L, D] columns of a matrix of activations, as `as_heads` views them
  /// \param first the position of the first row \param angles room, kept from call to call
  /// \param is_back whether they are turned back, as the gradient of the turned heads is
  /// \param ends [S + 1] where packed sequences begin and end, as Tokens::cu_seqlens: the first row
  /// of each of them has the position `first`; empty: they are not packed
  /// \throws std::bad_alloc
  template <class E>
  void turn(const View<T>& heads, Index first, RotaryAngles<T>& angles, bool is_back, E&& executor,
            std::span<const Index> ends = {}) const {
    if (!turns()) return;
    if constexpr (SpreadsRows<E>) {
      executor.for_each_range([&](Index place, const Range& rows) {
        const View<T> some(detail::row_at(heads, 0, place),
                           {heads.batch(), heads.heads(), rows.end - rows.begin, heads.width()},
                           heads.strides());
        turn(some, first + rows.begin, angles, is_back, executor.executor(), ends);
      });
    } else {
      turn_rows(heads, first, angles, is_back, executor, ends);
    }
  }

 private:
  /// Turns the heads of consecutive rows.
  template <class E>
  void turn_rows(const View<T>& heads, Index first, RotaryAngles<T>& angles, bool is_back,
                 E&& executor, std::span<const Index> ends) const {
    angles.make(frequencies_, first, heads.rows());
    const LayerKernels<T> kernels;
    const double products = kProducts * static_cast<double>(heads.heads() * heads.width());
    const auto turn_some = [&](Index b, Index row, Index count, Index position) {
      kernels.turn_heads({.x = detail::row_at(heads, b, row),
                          .x_row = heads.strides()[2],
                          .rows = count,
                          .heads = heads.heads(),
                          .head_width = heads.width(),
                          .pairs = static_cast<Index>(frequencies_.size()),
                          .cosines = detail::row_at(angles.cosines(), 0, position),
                          .sines = detail::row_at(angles.sines(), 0, position),
                          .pairing = pairing_,
                          .is_back = is_back});
    };
    detail::for_each_row_block(as_executor(executor), heads.batch(), heads.rows(), products,
                               [&](Index b, Index row, Index count) {
                                 if (ends.empty()) return turn_some(b, row, count, row);
                                 for (Index at = row; at < row + count;) {
                                   const auto end = std::upper_bound(ends.begin(), ends.end(), at);
                                   const Index stop = (std::min)(*end, row + count);
                                   turn_some(b, at, stop - at, at - *(end - 1));
                                   at = stop;
                                 }
                               });
  }

  /// Multiply-adds that take as long as a channel does.
  static constexpr double kProducts = 8;

  static void check_stretch(const char* layer, const RotaryStretch& stretch) {
    const auto check = [&](const char* name, double value, bool holds, const char* expected) {
      if (!holds || !std::isfinite(value)) {
        refuse(layer, std::string("rotary.stretch.") + name, to_string(value), expected);
      }
    };
    check("factor", stretch.factor, stretch.factor >= 1, "a finite number, at least 1");
    check("low", stretch.low, stretch.low >= 0, "a finite number, at least 0");
    check("high", stretch.high, stretch.high > stretch.low, "a finite number above low");
    check("original_length", stretch.original_length, stretch.original_length > 0,
          "a finite number above 0");
  }

  static double stretched(double frequency, const RotaryStretch& stretch) {
    constexpr double full_turn = 6.28318530717958647693;
    const double turns = stretch.original_length * frequency / full_turn;
    if (turns > stretch.high) return frequency;
    if (turns < stretch.low) return frequency / stretch.factor;
    const double kept = (turns - stretch.low) / (stretch.high - stretch.low);
    return (1 - kept) * frequency / stretch.factor + rounded(kept * frequency);
  }

  RotaryPairing pairing_ = RotaryPairing::halves;
  std::vector<double> frequencies_;
};

FOVEA_NAMESPACE_END
