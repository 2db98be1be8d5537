// SPDX-License-Identifier: MIT
/// \file
/// The blocks of keys visible to a few rows: bounds of their logits, and evaluation of those that
/// matter for a row.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/sketch/block_bounds.inl.hpp"
#include "fovea/kernels/sketch/select.hpp"
#endif

/// The maximum number of segments used by a row.
inline constexpr int kMostSegments = 32;

/// The blocks of kSketchRows rows, and the remaining keys: those visible to all of the rows, but in
/// no block. Processed row by row.
template <class T>
class KeyBlocks {
 public:
  /// \param memory sketch_block_scratch(args.key_end, args.width) elements
  KeyBlocks(const SketchSelectArgs<T>& args, T* memory) : args_(args), blocks_(*args.blocks) {
    const Index room = padded_size(args.key_end / kBlockKeys) + kPadding;
    for (BlockRow<T>& row : rows_) {
      row = {memory, memory + room, memory + 2 * room, memory + 3 * room, memory + 4 * room};
      memory += 5 * room;
    }
    open_ = reinterpret_cast<Int<T>*>(memory);
    logits_ = memory + room;
    keys_ = reinterpret_cast<Int<T>*>(logits_ + sketch_room(args.key_end));
    factors_ = logits_ + 2 * sketch_room(args.key_end);
    q_ = factors_ + kSketchRows * sketch_moments(args.width);
  }

  /// Finds consecutive segments of visible keys. Returns their number of keys.
  Index cover(Index seen) {
    covered_ = 0;
    segments_ = 0;
    for (Index s = 0; s < blocks_.segment_count && segments_ < kMostSegments; ++s) {
      const SketchSegment& segment = blocks_.segments[s];
      if (segment.first != covered_ || segment.first + segment.keys > seen) continue;
      cover_[segments_++] = segment;
      covered_ += segment.keys;
    }
    return covered_;
  }
  /// The number of these blocks.
  Index count() const { return covered_ / kBlockKeys; }

  /// Bounds the logits of the blocks for kSketchRows rows, and computes those of the remaining
  /// keys.
  /// \param q [width, kSketchRows]   \param scores [kSketchRows, scores_row]
  void bound(const T* q, Index seen, T* scores, Index scores_row) {
    moment_factors<kSketchRows>(q, args_.width, factors_);
    args_.width == 4 ? bound_rows<4>(q, seen, scores, scores_row)
                     : bound_rows<0>(q, seen, scores, scores_row);
  }

  /// Bounds the sums of the exponentials of row r. Returns false if its numbers are too large for
  /// the bounds, or not finite.
  /// \param q [width, kSketchRows]   \param scores the logits of the remaining keys
  bool take_row(const T* q, Index r, T* scores, Index seen) {
    if (!take_query(q, r)) return false;
    row_ = rows_[r];
    behind_ = scores;
    behind_count_ = end_scores(behind_, seen - covered_);
    looked_at_ = seen - covered_;
    const T top_behind = largest_of_vectors(behind_, behind_count_);
    top_ = largest_of_vectors(row_.mean, count());
    top_ = top_behind > top_ ? top_behind : top_;
    bound_sums(row_, count(), top_);
    behind_sum_ = sum_of_powers(behind_, behind_count_, top_);
    add_sums();
    // Also false if a remaining key's logit is NaN.
    return least_ < 0x1p120;
  }

  /// The bounds of each block.
  const BlockRow<T>& row() const { return row_; }
  /// Bounds of the sum of 2^(logit - top()) over all keys.
  double least() const { return least_; }
  double most() const { return most_; }
  T top() const { return top_; }
  /// The rounding error bound of logits and means of logits.
  T room() const { return room_; }
  /// The number of logits computed for the row.
  Index looked_at() const { return looked_at_; }

  /// The places of the blocks with a logit that may be above a bound, and their number.
  const Int<T>* places() const { return open_; }
  Index find_above(T bound) { return places_above(row_.most, count(), bound, open_); }
  /// The number of blocks whose sums have a larger gap.
  Index count_gaps(T gap) { return places_above(row_.gap, count(), gap, open_); }

  /// Sums the exponentials of the blocks whose sums have a larger gap.
  void close_gaps(T gap) {
    args_.width == 4 ? close<4>(gap) : close<0>(gap);
    add_sums();
  }

  /// Keeps the keys with logits above a bound.
  void keep_above(T bound) { args_.width == 4 ? keep<4>(bound) : keep<0>(bound); }
  /// The kept keys' logits, padded with -infinity, and their numbers, unsorted.
  const T* kept_logits() const { return logits_; }
  const Int<T>* kept_keys() const { return keys_; }
  Index kept() const { return kept_; }

 private:
  template <int D>
  void bound_rows(const T* q, Index seen, T* scores, Index scores_row) {
    Index at = 0;
    for (int s = 0; s < segments_; ++s) {
      const Index n = cover_[s].keys / kBlockKeys;
      block_logits<kSketchRows, D>(factors_, blocks_.moments + cover_[s].block, blocks_.moments_row,
                                   args_.width, n, rows_, at);
      at += n;
    }
    Vec<T> unused[kSketchRows] = {};
    sketch_logits<kSketchRows, D>(q, args_.keys + covered_, args_.keys_row, args_.width, 0,
                                  seen - covered_, scores, scores_row, unused);
  }

  /// A logit is a sum of rounded products; so is a mean of logits, and mean keys are rounded, too.
  bool take_query(const T* q, Index r) {
    constexpr T epsilon = sizeof(T) == 4 ? T(0x1p-23) : T(0x1p-52);
    constexpr T most_logit = 4096, most_q = T(0x1p30);
    T size = 0;
    bool is_small = true;
    for (Index c = 0; c < args_.width; ++c) {
      q_[c] = q[c * kSketchRows + r];
      const T x = q_[c] < 0 ? -q_[c] : q_[c];
      size += rounded(x * blocks_.largest[c]);
      is_small = is_small && x <= most_q && blocks_.largest[c] <= kMostBlockKey<T>;
    }
    room_ = static_cast<T>(2 * args_.width + 4) * epsilon * size;
    return is_small && size <= most_logit;
  }

  void add_sums() {
    double gap = 0;
    least_ = behind_sum_;
    add_bounds(row_, count(), least_, gap);
    most_ = least_ + gap;
  }

  template <int D>
  FOVEA_NOINLINE void close(T gap) {
    Index at = 0;
    for (int s = 0; s < segments_; ++s) {
      const Index n = cover_[s].keys / kBlockKeys;
      const Index wide = places_above(row_.gap + at, n, gap, open_);
      looked_at_ += wide * kBlockKeys;
      for (Index i = 0; i < wide; ++i) {
        const T* const columns = blocks_.keys + (cover_[s].block + open_[i]) * kBlockKeys;
        row_.least[at + open_[i]] = block_sum<D>(q_, columns, blocks_.keys_row, args_.width, top_);
        row_.gap[at + open_[i]] = 0;
      }
      at += n;
    }
  }

  template <int D>
  FOVEA_NOINLINE void keep(T bound) {
    kept_ = 0;
    IntVec<T> key = lane_index<T>() + set1_int<T>(static_cast<Int<T>>(covered_));
    for (Index j = 0; j < behind_count_; j += kLanes<T>) {
      keep_vector(load(behind_ + j), key, bound);
      key = key + set1_int<T>(kLanes<T>);
    }
    Index at = 0;
    for (int s = 0; s < segments_; ++s) {
      const Index n = cover_[s].keys / kBlockKeys;
      const Index above = places_above(row_.most + at, n, bound, open_);
      looked_at_ += above * kBlockKeys;
      for (Index i = 0; i < above; ++i) {
        const Index first = (cover_[s].block + open_[i]) * kBlockKeys;
        for (Index j = first; j < first + kBlockKeys; j += kLanes<T>) {
          keep_vector(key_logits<D>(q_, blocks_.keys + j, blocks_.keys_row, args_.width),
                      load_int<T>(blocks_.positions + j), bound);
        }
      }
      at += n;
    }
    store(logits_ + kept_, set1(-MathConstants<T>::kInfinity));
  }

  FOVEA_INLINE void keep_vector(Vec<T> logits, IntVec<T> keys, T bound) {
    const std::uint32_t above = mask_bits(logits > set1(bound));
    store_lanes(logits_ + kept_, logits, above);
    store_lanes_int<T>(keys_ + kept_, keys, above);
    kept_ += bit_count(above);
  }

  const SketchSelectArgs<T>& args_;
  const SketchBlocks<T>& blocks_;
  BlockRow<T> rows_[kSketchRows];
  T* factors_;    // [sketch_moments(width), kSketchRows]
  Int<T>* open_;  // places of blocks
  T* logits_;     // of the kept keys
  Int<T>* keys_;  // their numbers
  SketchSegment cover_[kMostSegments];
  int segments_ = 0;
  Index covered_ = 0;
  // Of one row:
  T* q_;  // [width]
  BlockRow<T> row_{};
  T* behind_ = nullptr;  // logits of the remaining keys
  Index behind_count_ = 0;
  double behind_sum_ = 0;
  double least_ = 0;
  double most_ = 0;
  T top_ = 0;
  T room_ = 0;
  Index kept_ = 0;
  Index looked_at_ = 0;
};
