// SPDX-License-Identifier: MIT
/// \file
/// The keys that each head of a row keeps (Smart Bird, eqs. 2 and 3, section 3.1). They are exactly
/// those of the K largest scores s = u p, with few draws. Candidates are found first, by a
/// threshold that the wanted number of keys is expected to pass, and only these draw. If fewer than
/// K pass, the threshold is lowered.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/sketch/hits.inl.hpp"
#endif

/// One call under one policy.
template <SamplingPolicy P, class T>
class SketchSelect {
 public:
  explicit SketchSelect(const SketchSelectArgs<T>& args)
      : args_(args),
        room_(sketch_room(args.key_end)),
        scores_(static_cast<T*>(args.scratch)),
        q_(scores_ + (kSketchRows + 6) * room_),
        hits_(args, scores_ + kSketchRows * room_,
              reinterpret_cast<std::int64_t*>(q_ + sketch_room(kSketchRows * args.width)), room_) {}

  void run() {
    for (Index first = 0; first < args_.rows; first += kSketchRows) {
      run(first, smaller(kSketchRows, args_.rows - first), ~std::uint32_t{0});
    }
  }

  /// Chooses the keys of up to kSketchRows rows from `first` on: of those whose bits are set.
  void run(Index first, Index count, std::uint32_t rows) {
    if (rows == 0) return;
    if constexpr (P != SamplingPolicy::random) {
      // A decoder has one row; computing kSketchRows takes longer.
      count == 1 ? score<1>(first, count) : score<kSketchRows>(first, count);
    }
    for (Index r = 0; r < count; ++r) {
      if (((rows >> r) & 1) != 0) choose(first + r, r);
    }
  }

  /// The number of keys that a row sees.
  Index visible(Index row) const {
    if (!args_.causal) return args_.key_end;
    return clamped(args_.first_position + row + 1, 0, args_.key_end);
  }

  /// Sets q() to the queries of up to R rows, repeating the last one if there are fewer.
  template <int R = kSketchRows>
  void scale_queries(Index first, Index count) {
    const T factor = args_.scale * MathConstants<T>::kLog2E;
    for (Index c = 0; c < args_.width; ++c) {
      for (Index r = 0; r < R; ++r) {
        const Index row = first + smaller(r, count - 1);
        q_[c * R + r] = args_.q.data[row * args_.q.row + c * args_.q.column] * factor;
      }
    }
  }
  /// [width, R]: queries, scaled so that logits are logarithms to base 2.
  const T* q() const { return q_; }

  /// Buffer for the logits of one of kSketchRows rows, and its size.
  T* scores(Index r) const { return scores_ + r * room_; }
  Index room() const { return room_; }
  /// The hits of one head.
  SketchHits<P, T>& hits() { return hits_; }

  /// The number of keys to expect above a threshold so that one in a hundred heads finds fewer than
  /// K.
  T first_guess() const {
    const T most = static_cast<T>(args_.chosen);
    if constexpr (P == SamplingPolicy::top_k) return most;
    T root = 1;  // an upper bound of the square root of K
    while (root * root < most) root += 1;
    return most + T(2.5) * root + 2;
  }

  /// The list of a head and a row.
  Index* index_row(Index h, Index row) const {
    return args_.indices + h * args_.indices_head + row * args_.indices_row;
  }

  /// Copies the keys of head 0.
  void repeat_head(Index h, Index row) const {
    const Index* const from = index_row(0, row);
    Index* const to = index_row(h, row);
    for (Index n = 0; n < args_.chosen; ++n) {
      to[n * args_.indices_column] = from[n * args_.indices_column];
    }
  }

 private:
  /// Computes the logits of up to R rows.
  template <int R>
  void score(Index first, Index count) {
    scale_queries<R>(first, count);
    // First whole vectors visible to all rows, then those visible to some.
    all_see_ = visible(first) / kLanes<T> * kLanes<T>;
    Vec<T> most[R];
    FOVEA_UNROLL
    for (int r = 0; r < R; ++r) most[r] = set1(-MathConstants<T>::kInfinity);
    add_logits(0, all_see_, most);
    FOVEA_UNROLL
    for (int r = 0; r < R; ++r) most_[r] = most[r];
    add_logits(all_see_, visible(first + count - 1), most);
  }

  template <int R>
  void add_logits(Index begin, Index end, Vec<T> (&most)[R]) const {
    if (args_.width == 4) {
      sketch_logits<R, 4>(q_, args_.keys, args_.keys_row, 4, begin, end, scores_, room_, most);
    } else {
      sketch_logits<R, 0>(q_, args_.keys, args_.keys_row, args_.width, begin, end, scores_, room_,
                          most);
    }
  }

  /// Chooses the keys of a row for all heads.
  /// \param r the row's place among those scored together
  void choose(Index row, Index r) {
    SketchRow<T> sketch;
    const Index keys = visible(row);
    if constexpr (P == SamplingPolicy::random) {
      sketch = {nullptr, keys, 0, 0, true};
    } else {
      sketch = sketch_row(scores_ + r * room_, all_see_, keys, most_[r]);
    }
    const bool is_number = sketch.is_number || keys == 0;
    if (args_.is_number != nullptr) args_.is_number[row] = is_number;
    if (args_.looked_at != nullptr) args_.looked_at[row] = keys;
    if (keys <= args_.chosen || !is_number) {
      for (Index h = 0; h < args_.heads; ++h) write_first(h, row, smaller(keys, args_.chosen));
      return;
    }
    T wanted = first_guess();
    hits_.candidates().find(sketch, wanted);
    for (Index h = 0; h < args_.heads; ++h) {
      if (P == SamplingPolicy::top_k && h > 0) {
        repeat_head(h, row);
        continue;
      }
      while (!choose_for_head(h, row)) {
        wanted *= 2;
        hits_.candidates().find(sketch, wanted);
      }
    }
  }

  /// Writes only the first `count` keys.
  void write_first(Index h, Index row, Index count) const {
    Index* const to = index_row(h, row);
    for (Index n = 0; n < args_.chosen; ++n) to[n * args_.indices_column] = n < count ? n : -1;
  }

  /// Chooses the keys of one head. Returns whether enough keys scored above the bound; only then
  /// are the head's keys written.
  bool choose_for_head(Index h, Index row) {
    if (!hits_.find(h, row)) return false;
    hits_.write(index_row(h, row));
    return true;
  }

  const SketchSelectArgs<T>& args_;
  Index room_;
  T* scores_;  // [kSketchRows, room_]
  T* q_;       // [width, R], scaled, for up to R = kSketchRows rows
  SketchHits<P, T> hits_;
  Index all_see_ = 0;
  Vec<T> most_[kSketchRows];  // in lanes, the largest of the logits that all rows see
};
