// SPDX-License-Identifier: MIT
/// \file
/// A sketch's keys in blocks of nearby keys, for the choice by blocks (kernels/sketch/blocks.hpp).
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "fovea/attention/call/sequences.hpp"
#include "fovea/attention/smart_bird/options.hpp"
#include "fovea/attention/smart_bird/sketch_keys.hpp"
#include "fovea/core/rounded.hpp"
#include "fovea/core/workspace.hpp"
#include "fovea/kernels/sketch/blocks.hpp"

FOVEA_NAMESPACE_BEGIN

/// The segments of a sequence's keys that are divided into blocks.
///
/// Rows see keys up to some position. If not causal, one segment has all of these, up to a multiple
/// of kSegmentKeys. If causal, segments have kLeastSegment 2^l keys and begin at the even multiples
/// of that: the keys before any position are a series of segments of decreasing length, and fewer
/// than kLeastSegment further keys. So a key is in about log2(N / kLeastSegment) / 2 segments.
class SketchSegments {
 public:
  /// The keys of the shortest segment of a causal sequence: a row that sees half as many keys after
  /// its segments scans as many as in 32 blocks.
  static constexpr Index kLeastSegment = 4096;

  /// Unless the options request blocks, rows use them if they see this many keys in blocks, with
  /// squared_inverse_log; twice as many if causal, where segments are shorter; twice as many with
  /// inverse_log, which has more candidates; and half as many with raw and top_k. (Measured with
  /// keys of 4 columns and K = 20, exhaustive time divided by time by blocks, for normal and for
  /// clustered keys: 1.1 and 1.7 at 16384 keys, 0.9 and 1.0 at 4096; causal, 0.95 and 1.4 at 32768;
  /// inverse_log, 0.9 and 1.5 at 16384; raw, 1.4 and 1.5 at 8192.)
  static constexpr Index kLeastKeys = 16384;
  /// The least number of rows for which blocks are built: building takes as long as is saved in
  /// about 300 rows.
  static constexpr Index kLeastQueries = 1024;
  /// The largest K for which rows use blocks, unless the options request them. (The same ratios are
  /// 0.8 and 0.9 for K = 64.)
  static constexpr Index kMostChosen = 32;
  /// The largest width of a sketch for which rows use blocks, unless the options request them. (The
  /// same ratios are 0.7 and 2.0 for 6 columns and 65536 keys.)
  static constexpr Index kMostWidth = 4;

  /// Appends a sequence's segments for these options, starting at a block. Returns the first block
  /// after them.
  /// \throws std::bad_alloc
  static Index add(const SmartBirdOptions& options, const Sequence& s, Index width, Index block,
                   std::vector<SketchSegment>& to) {
    const auto add_one = [&](Index first, Index keys) {
      to.push_back({first, keys, block});
      block += keys / kBlockKeys;
    };
    if (!has_blocks(options, s, width)) return block;
    if (!options.causal) {
      const Index keys = s.key_end / kSegmentKeys * kSegmentKeys;
      if (keys > 0) add_one(0, keys);
      return block;
    }
    for (Index first = 0; first + kLeastSegment <= s.key_end; first += kLeastSegment) {
      Index keys = kLeastSegment;
      while (first % (2 * keys) == 0 && first + 2 * keys <= s.key_end) keys *= 2;
      for (; keys >= kLeastSegment; keys /= 2) {
        if (first % (2 * keys) == 0) add_one(first, keys);
      }
    }
    return block;
  }

  /// The least number of keys in blocks for which a row uses these.
  static Index least_keys(const SmartBirdOptions& options) {
    if (options.search == SketchSearch::blocks) return kSegmentKeys;
    const Index keys = options.causal ? 2 * kLeastKeys : kLeastKeys;
    switch (options.policy) {
      case SamplingPolicy::inverse_log:
        return 2 * keys;
      case SamplingPolicy::raw:
      case SamplingPolicy::top_k:
        return keys / 2;
      default:
        return keys;
    }
  }

  /// Whether the keys of a sequence are divided into blocks.
  static bool has_blocks(const SmartBirdOptions& options, const Sequence& s, Index width) {
    if (options.search == SketchSearch::exhaustive || options.policy == SamplingPolicy::random ||
        width == 0 || width > kMostBlockWidth) {
      return false;
    }
    if (options.search == SketchSearch::blocks) return true;
    return s.key_end >= least_keys(options) && s.queries >= kLeastQueries &&
           options.keys_per_row <= kMostChosen && width <= kMostWidth;
  }
};

/// The blocks of all sequences of a call. A segment is recursively halved, at a median of the
/// column in which its keys vary most, down to blocks: the order of a k-d tree (Bentley 1975).
/// Cost: O(d n log n) for a segment of n keys.
template <class T>
class SketchBlockKeys {
 public:
  /// No blocks.
  /// \param width d
  explicit SketchBlockKeys(Index width) : width_(width) {}

  /// Divides the sequences' keys into segments, and allocates the memory for their blocks.
  /// \param memory the call's (memory_of)
  /// \throws std::bad_alloc
  template <class Memory>
  void plan(const SmartBirdOptions& options, const Sequences<T>& sequences, Memory&& memory) {
    Index s = 0;
    while (s < sequences.count() && !SketchSegments::has_blocks(options, sequences[s], width_)) ++s;
    if (s == sequences.count()) return;
    least_keys_ = SketchSegments::least_keys(options);
    first_segment_.reserve(static_cast<std::size_t>(sequences.count()) + 1);
    first_segment_.push_back(0);
    for (s = 0; s < sequences.count(); ++s) {
      blocks_ = SketchSegments::add(options, sequences[s], width_, blocks_, segments_);
      first_segment_.push_back(segment_count());
    }
    numbers_ = memory.take(numbers(width_, blocks_, segment_count()), Index{sizeof(T)});
    positions_ = memory.take(blocks_ * kBlockKeys, Index{sizeof(Position)});
  }

  /// The number of segments of all sequences.
  Index segment_count() const { return static_cast<Index>(segments_.size()); }

  /// The sequence that a segment belongs to.
  Index sequence_of(Index segment) const {
    const auto after = std::upper_bound(first_segment_.begin(), first_segment_.end(), segment);
    return static_cast<Index>(after - first_segment_.begin()) - 1;
  }

  /// Builds the blocks of a sequence's segment.
  void make(Index segment, const Sequence& s, const SketchKeys<T>& keys) noexcept {
    const SketchSegment& made = segments_[static_cast<std::size_t>(segment)];
    const Columns columns{keys.keys(s.batch, s.first_key), keys.room()};
    Position* const order = positions_.template data<Position>() + made.block * kBlockKeys;
    std::iota(order, order + made.keys, static_cast<Position>(made.first));
    if (!find_largest(columns, made, largest(segment))) {
      // No row uses blocks with NaN, or with squares that overflow.
      for (Index m = 0; m < sketch_moments(width_); ++m) {
        std::fill_n(moments(m) + made.block, made.keys / kBlockKeys, T{0});
      }
      return;
    }
    divide(columns, order, made.keys);
    for (Index b = 0; b < made.keys / kBlockKeys; ++b) {
      put_keys(columns, made.block + b);
      put_moments(made.block + b);
    }
  }

  /// Prepares the blocks for reading, after all of them are built.
  void finish() noexcept {
    for (std::size_t s = 0; s + 1 < first_segment_.size(); ++s) {
      const Index first = first_segment_[s];
      for (Index n = first + 1; n < first_segment_[s + 1]; ++n) {
        for (Index c = 0; c < width_; ++c) {
          largest(first)[c] = (std::max)(largest(first)[c], largest(n)[c]);
        }
      }
    }
  }

  /// A sequence's blocks; without segments if it has none.
  SketchBlocks<T> of(Index s) const {
    if (segments_.empty()) return {};
    const Index first = first_segment_[static_cast<std::size_t>(s)];
    const Index count = first_segment_[static_cast<std::size_t>(s) + 1] - first;
    SketchBlocks<T> blocks;
    if (count == 0) return blocks;
    blocks.keys = numbers_.template data<T>();
    blocks.keys_row = blocks_ * kBlockKeys;
    blocks.positions = positions_.template data<Position>();
    blocks.moments = blocks.keys + width_ * blocks.keys_row;
    blocks.moments_row = blocks_;
    blocks.largest = blocks.moments + sketch_moments(width_) * blocks_ + first * width_;
    blocks.segments = segments_.data() + first;
    blocks.segment_count = count;
    blocks.least_keys = least_keys_;
    return blocks;
  }

 private:
  using Position = typename SketchBlocks<T>::Position;

  /// Keys of a sequence, column by column.
  struct Columns {
    const T* data;
    Index row;

    const T* operator[](Index c) const { return data + c * row; }
  };

  static Index numbers(Index width, Index blocks, Index segments) {
    return blocks * (width * kBlockKeys + sketch_moments(width)) + segments * width;
  }

  T* keys(Index c) { return numbers_.template data<T>() + c * blocks_ * kBlockKeys; }
  T* moments(Index m) { return keys(width_) + m * blocks_; }
  T* largest(Index segment) { return moments(sketch_moments(width_)) + segment * width_; }

  /// Writes the largest of each column. Returns whether all keys are small enough; infinity for
  /// columns where they are not.
  bool find_largest(const Columns& columns, const SketchSegment& segment, T* to) const {
    bool all_small = true;
    for (Index c = 0; c < width_; ++c) {
      const T* const column = columns[c] + segment.first;
      bool is_small = true;
      T most = 0;
      for (Index n = 0; n < segment.keys; ++n) {
        const T x = std::abs(column[n]);
        is_small = is_small && x <= kMostBlockKey<T>;
        most = x > most ? x : most;
      }
      to[c] = is_small ? most : std::numeric_limits<T>::infinity();
      all_small = all_small && is_small;
    }
    return all_small;
  }

  void divide(const Columns& columns, Position* order, Index keys) const {
    if (keys <= kBlockKeys) return;
    const T* const column = columns[widest(columns, order, keys)];
    const Index half = keys / kBlockKeys / 2 * kBlockKeys;
    std::nth_element(order, order + half, order + keys,
                     [=](Position a, Position b) { return column[a] < column[b]; });
    divide(columns, order, half);
    divide(columns, order + half, keys - half);
  }

  /// The column in which keys vary most.
  Index widest(const Columns& columns, const Position* order, Index keys) const {
    Index widest = 0;
    double most = -1;
    for (Index c = 0; c < width_; ++c) {
      const auto shift = static_cast<double>(columns[c][order[0]]);
      double sum = 0;
      double squares = 0;
      for (Index n = 0; n < keys; ++n) {
        const double x = static_cast<double>(columns[c][order[n]]) - shift;
        sum += x;
        squares += rounded(x * x);
      }
      const double variance = squares - sum * sum / static_cast<double>(keys);
      if (variance > most) {
        most = variance;
        widest = c;
      }
    }
    return widest;
  }

  void put_keys(const Columns& columns, Index block) {
    const Position* const order = positions_.template data<Position>() + block * kBlockKeys;
    for (Index c = 0; c < width_; ++c) {
      T* const to = keys(c) + block * kBlockKeys;
      for (Index n = 0; n < kBlockKeys; ++n) to[n] = columns[c][order[n]];
    }
  }

  void put_moments(Index block) {
    double away[kMostBlockWidth][kBlockKeys];  // from the mean
    for (Index c = 0; c < width_; ++c) {
      const T* const column = keys(c) + block * kBlockKeys;
      double sum = 0;
      for (Index n = 0; n < kBlockKeys; ++n) sum += static_cast<double>(column[n]);
      const T mean = static_cast<T>(sum / kBlockKeys);
      double reach = 0;
      for (Index n = 0; n < kBlockKeys; ++n) {
        away[c][n] = static_cast<double>(column[n]) - static_cast<double>(mean);
        reach = (std::max)(reach, std::abs(away[c][n]));
      }
      moments(c)[block] = mean;
      moments(width_ + c)[block] = static_cast<T>(reach * (1 + 0x1p-20));
    }
    Index m = 2 * width_;
    for (Index c = 0; c < width_; ++c) {
      for (Index other = c; other < width_; ++other, ++m) {
        double sum = 0;
        for (Index n = 0; n < kBlockKeys; ++n) sum += away[c][n] * away[other][n];
        moments(m)[block] = static_cast<T>((other == c ? 1 : 2) * sum / kBlockKeys);
      }
    }
  }

  Index width_;
  Index least_keys_ = 0;
  Index blocks_ = 0;
  std::vector<SketchSegment> segments_;
  std::vector<Index> first_segment_;  // [sequences + 1]
  Workspace numbers_;  // keys [d, blocks, kBlockKeys], moments [.., blocks], largest [segments, d]
  Workspace positions_;
};

FOVEA_NAMESPACE_END
