// SPDX-License-Identifier: MIT
// fovea_test(ALONE)
/// \file
/// The blocks of keys of a few rows where nothing stays closed, at every level: all keys are kept,
/// with the logits of the exhaustive choice, the sum of their exponentials is known, and no more
/// than their own scratch is written.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "fovea/core/key_run.hpp"
#include "fovea/core/philox.hpp"
#include "fovea/core/rounded.hpp"
#include "fovea/core/workspace.hpp"
#include "fovea/kernels/sketch/select.hpp"
#include "fovea/simd/isa.hpp"
#include "fovea/simd/matrix.hpp"
#include "kernels/sketch/drawn_blocks.hpp"
#include "support/fill.hpp"
#include "support/levels.hpp"

namespace {

/// The result for one row.
template <class T>
struct KeptKeys {
  using Index = fovea::Index;
  using Position = typename fovea::SketchBlocks<T>::Position;
  bool is_bounded;
  double least_bounded, most_bounded;  // of the sum before the gaps are closed
  double least, most;                  // and after it
  T top;
  T* logits;
  Position* keys;
  Index count;
};

/// The functions of key_blocks_body.inl.hpp for one level.
template <class T>
struct KeyBlocksOfLevel {
  void (*keep_all)(const fovea::SketchSelectArgs<T>& args, const T* q, T* memory, T* scores,
                   KeptKeys<T>* rows);
};

}  // namespace

#define FOVEA_LEVEL_BODY "kernels/sketch/key_blocks_body.inl.hpp"
#include "fovea/simd/foreach_level.hpp"

namespace fovea_test {
namespace {

using fovea::kBlockKeys;
using fovea::kSketchRows;

/// After the blocks there are keys outside of blocks.
constexpr Index kBehind = 100;
constexpr Index kKeys = kBlocks * kBlockKeys + kBehind;

/// A sequence of keys whose blocks follow each other, and the queries of kSketchRows rows.
template <class T>
struct Sequence {
  explicit Sequence(Index d)
      : blocks(d, 0.5, 3),
        columns(as_size(d * fovea::sketch_room(kKeys))),
        positions(as_size(kKeys)),
        largest(as_size(d)) {
    const Index row = fovea::sketch_room(kKeys);
    const Fill behind = gaussian(4, 2);
    const Fill query = gaussian(5);
    for (Index c = 0; c < d; ++c) {
      for (Index n = 0; n < kKeys; ++n) {
        const bool is_behind = n >= kBlocks * kBlockKeys;
        const T x = is_behind ? static_cast<T>(behind(0, 0, n, c))
                              : blocks.key(n / kBlockKeys, n % kBlockKeys, c);
        columns[as_size(c * row + n)] = x;
        largest[as_size(c)] = std::max(largest[as_size(c)], std::abs(x));
      }
      for (Index r = 0; r < kSketchRows; ++r) q.push_back(static_cast<T>(query(0, 0, r, c)));
    }
    std::iota(positions.begin(), positions.end(), 0);
    given.keys = columns.data();
    given.keys_row = row;
    given.positions = positions.data();
    given.moments = blocks.moments.data();
    given.moments_row = kBlocks;
    given.largest = largest.data();
    given.segments = &segment;
    given.segment_count = 1;
    args.keys = columns.data();
    args.keys_row = row;
    args.blocks = &given;
    args.width = d;
    args.rows = kSketchRows;
    args.key_end = kKeys;
  }
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;

  /// The logit of a key, rounded as in the exhaustive choice.
  T logit(Index r, Index n) const {
    T sum = 0;
    for (Index c = 0; c < args.width; ++c) {
      sum +=
          fovea::rounded(q[as_size(c * kSketchRows + r)] * columns[as_size(c * args.keys_row + n)]);
    }
    return sum;
  }

  DrawnBlocks<T> blocks;
  std::vector<T> columns;  // [d, sketch_room(kKeys)]
  std::vector<typename fovea::SketchBlocks<T>::Position> positions;
  std::vector<T> largest;  // [d]
  std::vector<T> q;        // [d, kSketchRows]
  fovea::SketchSegment segment{0, kBlocks* kBlockKeys, 0};
  fovea::SketchBlocks<T> given;
  fovea::SketchSelectArgs<T> args;
};

/// Scratch of the required size, between numbers that must not change.
template <class T>
class Fenced {
 public:
  explicit Fenced(Index size) : size_(size), memory_(3 * size, Index{sizeof(T)}) {
    std::fill_n(memory_.template data<T>(), 3 * size, kFence);
  }
  T* data() { return memory_.template data<T>() + size_; }
  Index changed() const {
    const T* const all = memory_.template data<T>();
    Index count = 0;
    for (Index n = 0; n < size_; ++n) count += all[n] != kFence || all[2 * size_ + n] != kFence;
    return count;
  }

 private:
  static constexpr T kFence = T(-12345);
  Index size_;
  fovea::Workspace memory_;
};

template <class T>
void expect_row(const Sequence<T>& sequence, Index r, const KeptKeys<T>& row) {
  constexpr double rounding = sizeof(T) == 4 ? 1e-5 : 1e-13;
  ASSERT_TRUE(row.is_bounded);
  ASSERT_EQ(row.count, kKeys);
  std::vector<Index> times(as_size(kKeys));
  double sum = 0;
  for (Index n = 0; n < kKeys; ++n) {
    const Index key = row.keys[n];
    ASSERT_TRUE(key >= 0 && key < kKeys);
    ++times[as_size(key)];
    EXPECT_EQ(row.logits[n], sequence.logit(r, key)) << "key " << key;
    sum += std::exp2(static_cast<double>(sequence.logit(r, n)) - static_cast<double>(row.top));
  }
  EXPECT_EQ(std::count(times.begin(), times.end(), 1), kKeys);
  EXPECT_LE(row.least_bounded, sum * (1 + rounding));
  EXPECT_GE(row.most_bounded, sum * (1 - rounding));
  EXPECT_NEAR(row.least, sum, sum * rounding);
  EXPECT_EQ(row.least, row.most);
}

template <class T>
void expect_all_kept() {
  for (const Index d : {1, 4, 8}) {
    SCOPED_TRACE("width " + std::to_string(d));
    const Sequence<T> sequence(d);
    Fenced<T> memory(fovea::sketch_block_scratch(kKeys, d));
    std::vector<T> scores(as_size(kSketchRows * fovea::sketch_room(kKeys)));
    std::vector<T> logits(as_size(kSketchRows * kKeys));
    std::vector<typename fovea::SketchBlocks<T>::Position> keys(as_size(kSketchRows * kKeys));
    KeptKeys<T> rows[kSketchRows] = {};
    for (Index r = 0; r < kSketchRows; ++r) {
      rows[r].logits = logits.data() + r * kKeys;
      rows[r].keys = keys.data() + r * kKeys;
    }
    FOVEA_AT_LEVEL(fovea::isa_level(), operations<T>())
        .keep_all(sequence.args, sequence.q.data(), memory.data(), scores.data(), rows);
    EXPECT_EQ(memory.changed(), 0);
    for (Index r = 0; r < kSketchRows; ++r) expect_row(sequence, r, rows[r]);
  }
}

TEST(SketchKeyBlocks, KeepAllKeysInTheirScratch) {
  at_each_level([] {
    expect_all_kept<float>();
    expect_all_kept<double>();
  });
}

}  // namespace
}  // namespace fovea_test
