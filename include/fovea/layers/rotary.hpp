// SPDX-License-Identifier: MIT
/// \file
/// Rotary positions (Su et al. 2021): queries and keys are rotated by angles proportional to their
/// positions, so that their product depends on the distance.
#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <vector>

#include "fovea/attention/call/check.hpp"
#include "fovea/core/index_span.hpp"
#include "fovea/core/rounded.hpp"
#include "fovea/kernels/layers/table.hpp"
#include "fovea/layers/layer_check.hpp"
#include "fovea/layers/rotary_call.hpp"
#include "fovea/layers/rotary_yarn.hpp"
#include "fovea/layers/token_sums.hpp"

FOVEA_NAMESPACE_BEGIN

/// Llama 3.1's frequency scaling for longer sequences: frequencies with more than `high` turns in
/// the original length are kept, those with fewer than `low` are divided by `factor`, and those
/// between are a mean of both, weighted linearly in the number of turns.
struct RotaryStretch {
  double factor = 8;              ///< at least 1
  double low = 1;                 ///< turns, at least 0
  double high = 4;                ///< turns, more than low
  double original_length = 8192;  ///< tokens, more than 0
};

/// Options of Rotary.
struct RotaryOptions {
  double base = 10000;  ///< pair i rotates by base^(-2 i / width) per position; more than 0
  RotaryPairing pairing = RotaryPairing::halves;  ///< which channels are rotated together
  /// The number of leading channels of a head that are rotated, even; if 0, all.
  Index width = 0;
  double position_scale = 1;                  ///< multiplies positions; 1 / factor to interpolate
  std::optional<RotaryStretch> stretch = {};  ///< scaling of the frequencies
  std::optional<RotaryYarn> yarn = {};        ///< instead of stretch
  double magnitude = 1;  ///< multiplies cosines and sines, in addition to YaRN's factor
};

/// Rotates pairs of channels (a, b) of each head in place: (a cos - b sin, a sin + b cos), where
/// the angle of pair i at position n is n f_i with f_i = position_scale base^(-2 i / width),
/// optionally stretched, and cos and sin are multiplied by the magnitude. Both are computed in
/// double and rounded to the arithmetic type, or read from tables. 16-bit heads are computed in
/// float, and each element is rounded once.
///
///     fovea::Rotary<float> rotary({.base = 10000}, 64);
///     rotary.turn(q, {.positions = position_ids}, pool);
///     rotary.turn(k, {.positions = position_ids}, pool);
///
/// It has no parameters. Results are bit-identical for all strides, and for a row alone. A call
/// costs 3 flops per rotated element, and two functions of double for each pair of each position
/// whose angles are not cached.
/// \tparam T the type of the heads: float, double, or a 16-bit type
template <TensorScalar T>
class Rotary {
 public:
  /// Rotates nothing.
  Rotary() = default;

  /// For heads of this width.
  /// \throws std::invalid_argument if options are out of range, or if width is odd or more than
  /// head_width
  Rotary(const RotaryOptions& options, Index head_width) : Rotary(name(), options, head_width) {}

  /// \param layer its layer's name, for messages
  /// \throws std::invalid_argument if options are out of range or do not match the heads
  Rotary(const char* layer, const RotaryOptions& options, Index head_width)
      : pairing_(options.pairing), head_width_(head_width) {
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
    if (!std::isfinite(options.magnitude)) {
      refuse(layer, "rotary.magnitude", to_string(options.magnitude), "a finite number");
    }
    magnitude_ = options.magnitude;
    if (options.stretch) check_stretch(layer, *options.stretch);
    if (options.yarn) {
      if (options.stretch) refuse_given(layer, "rotary.yarn", "stretch is given");
      detail::check_yarn(layer, *options.yarn, options.base);
      magnitude_ *= detail::yarn_magnitude(*options.yarn);
    }
    for (Index i = 0; i < width / 2; ++i) {
      const double exponent = -2 * static_cast<double>(i) / static_cast<double>(width);
      double frequency = std::pow(options.base, exponent);
      if (options.stretch) frequency = stretched(frequency, *options.stretch);
      if (options.yarn) {
        frequency = detail::yarn_frequency(*options.yarn, options.base, width, i, frequency);
      }
      frequencies_.push_back(options.position_scale * frequency);
    }
  }

  /// Whether anything is rotated.
  bool turns() const { return !frequencies_.empty(); }

  /// Rotates the heads of all rows.
  /// \param heads [B, H, L, D] with any strides and distinct elements; D is the head width given at
  /// construction
  /// \param call positions, and optional tables
  /// \throws std::invalid_argument, before anything is written, if the heads have another width or
  /// share elements; if the number of positions is neither L nor B L; if a table has another shape,
  /// shares elements with the heads, or has no row for a position; if cu_seqlens does not match the
  /// rows; if |position| is above 2^53, beyond which double is not exact
  /// \throws std::bad_alloc if allocation fails
  template <class E = Serial>
  void turn(const View<T>& heads, const RotaryCall<T>& call = {}, E&& executor = {}) const {
    if (!turns()) return;
    if constexpr (ShardsRows<E>) {
      detail::add_to_collective_check(executor, name(), frequencies_, magnitude_, pairing_);
    }
    auto&& threads = as_executor(executor);
    check(heads, call, detail::rows_of_sequence(heads, threads));
    const Index rows = heads.rows();
    const bool has_list = !call.positions.empty();
    const bool differs =
        static_cast<Index>(call.positions.size()) != rows;  // differ between sequences
    const auto position = [&](Index b, Index n) {
      if (has_list) return call.positions[static_cast<std::size_t>(differs ? b * rows + n : n)];
      const Index row = detail::row_of_sequence(threads, n);
      return call.first + row - begin_of(call.cu_seqlens, row);
    };
    if (!call.cosines.empty()) {
      return turn_rows(heads, call.cosines, call.sines, call.backward, threads, position);
    }
    RotaryAngles<Compute<T>> own;
    RotaryAngles<Compute<T>>& angles = call.angles == nullptr ? own : *call.angles;
    const auto turn_by = [&](const auto& row_of) {
      turn_rows(heads, angles.cosines(), angles.sines(), call.backward, threads, row_of);
    };
    if (!has_list && !ShardsRows<E>) {
      angles.make(frequencies_, magnitude_, call.first, rows);
      return turn_by([&](Index b, Index n) { return position(b, n) - call.first; });
    }
    std::vector<Index> positions;
    const Index listed = has_list && differs ? heads.batch() : 1;
    positions.reserve(static_cast<std::size_t>(listed * rows));
    for (Index b = 0; b < listed; ++b) {
      for (Index n = 0; n < rows; ++n) positions.push_back(position(b, n));
    }
    angles.make(frequencies_, magnitude_, positions);
    turn_by([&](Index b, Index n) { return listed == 1 ? n : b * rows + n; });
  }

 private:
  /// The name in error messages.
  static constexpr const char* name() { return "Rotary"; }

  /// The largest position.
  static constexpr Index kMostPosition = Index{1} << 53;

  /// The first row of the packed sequence that a row belongs to.
  static Index begin_of(const IndexSpan& ends, Index row) {
    return ends.empty() ? 0 : *(std::upper_bound(ends.begin(), ends.end(), row) - 1);
  }

  /// \param rows the rows of the sequence, of which heads may have a part
  void check(const View<T>& heads, const RotaryCall<T>& call, Index rows) const {
    detail::check_extent(name(), "heads", heads.shape(), 3, head_width_,
                         "the head width that it was constructed for");
    detail::check_distinct(name(), "heads", heads);
    if (!call.cu_seqlens.empty()) check_packed(heads, call, rows);
    const auto count = static_cast<Index>(call.positions.size());
    if (count != 0 && count != heads.rows() && count != heads.batch() * heads.rows()) {
      refuse(name(), "the number of positions", std::to_string(count),
             std::to_string(heads.batch() * heads.rows()) + ", batch times rows of heads, or " +
                 std::to_string(heads.rows()) + ", the rows");
    }
    const bool has_tables = !call.cosines.empty() || !call.sines.empty();
    if (has_tables) check_tables(heads, call);
    const Range allowed =
        has_tables ? Range{0, call.cosines.rows()} : Range{-kMostPosition, kMostPosition + 1};
    const auto refuse_position = [&](const std::string& what, Index position) {
      refuse(name(), what, std::to_string(position),
             has_tables ? "0 to " + std::to_string(allowed.end - 1) + ", the rows of the tables"
                        : "a magnitude of at most 2^53, which double represents exactly");
    };
    for (Index i = 0; i < count; ++i) {
      const Index position = call.positions[static_cast<std::size_t>(i)];
      if (allowed.holds(position)) continue;
      refuse_position("positions[" + std::to_string(i) + "]", position);
    }
    if (count != 0 || rows == 0) return;
    if (!allowed.holds(call.first)) refuse_position("first", call.first);
    const Index last = call.first + longest(call.cu_seqlens, rows) - 1;
    if (!allowed.holds(last)) refuse_position("the position of the last row", last);
  }

  /// The rows of the longest sequence.
  static Index longest(const IndexSpan& ends, Index rows) {
    if (ends.empty()) return rows;
    Index most = 0;
    for (std::size_t s = 1; s < ends.size(); ++s) most = (std::max)(most, ends[s] - ends[s - 1]);
    return most;
  }

  static void check_packed(const View<T>& heads, const RotaryCall<T>& call, Index rows) {
    if (heads.batch() != 1) {
      refuse_extent(name(), "heads", heads.shape(), 0, "1, since cu_seqlens is given");
    }
    if (!call.positions.empty()) {
      refuse_given(name(), "cu_seqlens", "positions are given");
    }
    detail::check_cu_seqlens(name(), "cu_seqlens", call.cu_seqlens, rows, "heads");
  }

  void check_tables(const View<T>& heads, const RotaryCall<T>& call) const {
    const Shape& shape = call.cosines.shape();
    if (shape[0] != 1 || call.cosines.empty()) {
      detail::check_extent(name(), "cosines", shape, 0, heads.batch(), "the batch of heads, or 1");
    }
    detail::check_extent(name(), "cosines", shape, 1, 1, "since all heads have the same angles");
    detail::check_extent(name(), "cosines", shape, 3, static_cast<Index>(frequencies_.size()),
                         "the number of rotated pairs of a head");
    detail::check_extents(name(), "sines", call.sines.shape(), shape, "the shape of cosines");
    detail::check_apart(name(), "heads", heads, "cosines", call.cosines);
    detail::check_apart(name(), "heads", heads, "sines", call.sines);
  }

  /// Rotates heads by the angles in some rows of tables.
  /// \param row_of called as row_of(b, n): the row of the tables for row n of sequence b
  template <class E, class F>
  void turn_rows(const View<T>& heads, const View<const Compute<T>>& cosines,
                 const View<const Compute<T>>& sines, bool is_back, E&& threads,
                 const F& row_of) const {
    const RotaryKernels<Compute<T>, kStorage<T>> kernels;
    const double products = kProducts * static_cast<double>(heads.heads() * heads.width());
    const auto at = [](const View<const Compute<T>>& table, Index b,
                       Index row) -> Matrix<const Compute<T>> {
      return {detail::row_at(table, table.batch() == 1 ? 0 : b, row), table.strides()[2],
              table.strides()[3]};
    };
    detail::for_each_row_block(
        threads, heads.batch(), heads.rows(), products, [&](Index b, Index first, Index count) {
          for (Index n = first, run = 0; n < first + count; n += run) {
            const Index row = row_of(b, n);
            run = 1;  // rows with consecutive table rows
            while (n + run < first + count && row_of(b, n + run) == row + run) ++run;
            kernels.turn_heads(
                {.x = {detail::row_at(heads, b, n), heads.strides()[2], heads.strides()[3]},
                 .x_head = heads.strides()[1],
                 .rows = run,
                 .heads = heads.heads(),
                 .pairs = static_cast<Index>(frequencies_.size()),
                 .cosines = at(cosines, b, row),
                 .sines = at(sines, b, row),
                 .pairing = pairing_,
                 .is_back = is_back});
          }
        });
  }

  /// Cost of one channel, in multiply-adds.
  static constexpr double kProducts = 8;

  static void check_stretch(const char* layer, const RotaryStretch& stretch) {
    const auto check = [&](const char* name, double value, bool holds, const char* expected) {
      if (!holds || !std::isfinite(value)) {
        refuse(layer, std::string("rotary.stretch.") + name, to_string(value), expected);
      }
    };
    check("factor", stretch.factor, stretch.factor >= 1, "a finite number of at least 1");
    check("low", stretch.low, stretch.low >= 0, "a finite number of at least 0");
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
  Index head_width_ = 0;
  std::vector<double> frequencies_;
  double magnitude_ = 1;
};

FOVEA_NAMESPACE_END
