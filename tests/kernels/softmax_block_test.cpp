// SPDX-License-Identifier: MIT
/// \file
/// Tests of kernels/softmax_block.hpp for blocks that no window makes: steps, several runs, bounds
/// of any kind; with scratch between guard pages.
#include "fovea/kernels/softmax_block.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <vector>

#include "fovea/kernels/table.hpp"
#include "support/fill.hpp"
#include "support/levels.hpp"
#include "support/oracle/softmax.hpp"
#include "support/tensor.hpp"

namespace fovea_test {
namespace {

using fovea::KeyRun;
using fovea::Matrix;
using fovea::QueryBlock;

constexpr Index kQueries = 1300;
constexpr Index kKeys = 2700;

/// A block and the storage of its bounds.
struct Block {
  QueryBlock block;
  std::vector<KeyRun> runs;
  std::vector<std::vector<Index>> bounds;  // lower and upper of each run, or empty
  Index key_end = kKeys;

  bool sees(Index r, Index j) const {
    if (j >= key_end) return false;
    for (const KeyRun& run : runs) {
      const Index t = (j - run.first) / run.step;
      if (j < run.first || (j - run.first) % run.step != 0 || t >= run.count) continue;
      if (run.lower == nullptr || (run.lower[r] <= t && t < run.upper[r])) return true;
    }
    return false;
  }

  /// The block of its row r alone, its runs cut to what that row sees: tiles and segments must lie
  /// where they lay.
  Block alone(Index r) const {
    Block one;
    one.runs = runs;
    one.key_end = key_end;
    for (KeyRun& run : one.runs) {
      if (run.lower == nullptr) continue;
      const Index low = run.lower[r];
      run.first += run.step * low;
      run.count = std::max<Index>(0, run.upper[r] - low);
      run.lower = run.upper = nullptr;
    }
    one.block = block;
    one.block.first = block.first + block.step * r;
    one.block.count = 1;
    return one;
  }
};

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : seed_(seed) {}
  Index operator()(Index low, Index high) {
    const auto span = static_cast<std::uint64_t>(high - low + 1);
    return low + static_cast<Index>(hash(seed_, ++count_, 0, 0, 0) % span);
  }

 private:
  std::uint64_t seed_;
  Index count_ = 0;
};

/// Bounds of every row: narrow, wide, empty, or growing like a causal pattern.
void draw_bounds(Draw& draw, Index rows, Index count, std::vector<Index>& lower,
                 std::vector<Index>& upper) {
  const Index kind = draw(0, 2);
  for (Index r = 0; r < rows; ++r) {
    if (kind == 0) {
      lower.push_back(draw(0, count));
      upper.push_back(std::min(count, lower.back() + draw(0, 5) - 1 + (lower.back() == 0 ? 1 : 0)));
    } else if (kind == 1) {
      lower.push_back(draw(0, count / 3));
      upper.push_back(draw(0, count));
    } else {
      lower.push_back(0);
      upper.push_back(count * (r + 1) / rows);
    }
  }
}

/// Runs one after the other over the keys, each with its own step and bounds.
Block draw_block(std::uint64_t seed) {
  Draw draw(seed);
  Block made;
  made.block.step = draw(1, 3);
  made.block.count = draw(0, 3) == 0 ? draw(1, 400) : draw(1, 70);
  made.block.first = draw(0, kQueries - made.block.step * (made.block.count - 1) - 1);
  const Index runs = draw(0, 9) == 0 ? 0 : draw(0, 1) == 0 ? 1 : draw(2, 4);
  const Index reach = draw(0, 2) == 0 ? kKeys / std::max<Index>(1, runs) : 60;
  Index next = draw(0, 300);
  made.bounds.resize(as_size(2 * runs));  // filled below: the runs keep pointers into it
  for (Index n = 0; n < runs; ++n) {
    KeyRun run;
    run.step = draw(0, 1) == 0 ? 1 : draw(2, 5);
    run.first = std::min(next + draw(0, 9), kKeys);
    run.count = std::min(draw(0, reach), kKeys - run.first) / run.step;
    next = run.first + run.step * run.count;
    if (draw(0, 2) != 0) {
      std::vector<Index>& lower = made.bounds[as_size(2 * n)];
      std::vector<Index>& upper = made.bounds[as_size(2 * n + 1)];
      draw_bounds(draw, made.block.count, run.count, lower, upper);
      run.lower = lower.data();
      run.upper = upper.data();
    }
    made.runs.push_back(run);
  }
  if (draw(0, 2) == 0) made.key_end = draw(0, next);
  if (runs == 1 && made.runs[0].count <= fovea::kBandKeys) made.block.most_keys = fovea::kBandKeys;
  return made;
}

template <class T>
struct Data {
  explicit Data(std::uint64_t seed)
      : width(1 + static_cast<Index>(seed * 7 % 20)),
        value_width(1 + static_cast<Index>(seed % 19)) {
    q = Tensor<T>({1, 1, kQueries, width});
    k = Tensor<T>({1, 1, kKeys, width}, k_layout(seed));
    v = Tensor<T>({1, 1, kKeys, value_width}, k_layout(seed / 2));
    q.fill(integers(seed, 8));
    k.fill(
        [&](Index b, Index h, Index n, Index d) { return integers(seed + 1, 8)(b, h, n, d) / 8; });
    v.fill(
        [&](Index b, Index h, Index n, Index d) { return integers(seed + 2, 99)(b, h, n, d) / 7; });
  }
  static Layout k_layout(std::uint64_t seed) {
    Layout layout;
    layout.innermost = seed % 4 == 3 ? 2 : 1;
    layout.gap = static_cast<Index>(seed % 3);
    return layout;
  }

  Index width;
  Index value_width;
  Tensor<T> q, k, v;
};

/// A score map and what it points to, and a sink.
template <class T>
struct Options {
  fovea::ScoreMap<T> map;
  std::optional<T> sink = {};
  Index first_position = 0;
};

template <class T>
struct Written {
  std::vector<T> out;  // [kQueries, Dv]
  std::vector<T> lse;  // [kQueries]
};

template <class T>
Written<T> call(const Block& block, const Data<T>& data, Guard guard,
                const Options<T>& options = {}) {
  Written<T> written;
  written.out.assign(as_size(kQueries * data.value_width), T{77});
  written.lse.assign(as_size(kQueries), T{77});
  const Index scratch =
      fovea::softmax_block_scratch(block.block.count, data.width, data.value_width);
  const Index padded = (scratch + 15) / 16 * 16;  // so that either end is aligned to 64 bytes
  const GuardedBytes bytes(as_size(padded) * sizeof(T), guard);
  T* const first = reinterpret_cast<T*>(bytes.data());
  std::fill_n(first, padded, std::numeric_limits<T>::quiet_NaN());

  const auto matrix = [](const Tensor<T>& x) {
    const View<T> view = x.view();
    return Matrix<const T>{view.data(), view.strides()[2],
                           view.width() == 1 ? 1 : view.strides()[3]};
  };
  fovea::SoftmaxBlockArgs<T> args;
  args.q = stored(matrix(data.q));
  args.k = stored(matrix(data.k));
  args.v = stored(matrix(data.v));
  args.out = {written.out.data(), data.value_width, 1};
  args.lse = {written.lse.data(), 1, 1};
  args.width = data.width;
  args.value_width = data.value_width;
  args.scale = T{0.25};
  args.map = options.map;
  args.sink = options.sink ? &*options.sink : nullptr;
  args.first_position = options.first_position;
  args.key_end = block.key_end;
  args.block = block.block;
  args.block.runs = block.runs.data();
  args.block.run_count = static_cast<Index>(block.runs.size());
  args.scratch = first;
  fovea::kernels<T>().softmax_block(args);
  return written;
}

/// Row r of a block in what was written, out then lse.
template <class T>
std::vector<T> row_of(const Written<T>& written, const Data<T>& data, const Block& block, Index r) {
  const Index row = block.block.first + block.block.step * r;
  const auto from = written.out.begin() + row * data.value_width;
  std::vector<T> all(from, from + data.value_width);
  all.push_back(written.lse[as_size(row)]);
  return all;
}

/// The oracle's rows of a block, in order.
template <class T>
Expected<T> oracle_of(const Block& block, const Data<T>& data) {
  const View<T> q = data.q.view();
  const View<const T> rows(&q(0, 0, block.block.first, 0), {1, 1, block.block.count, data.width},
                           {0, 0, q.strides()[2] * block.block.step, q.strides()[3]});
  return softmax_oracle(fovea::Inputs<T>{rows, data.k.view(), data.v.view()}, Wide<T>{0.25},
                        [&](Index, Index, Index r, Index j) { return block.sees(r, j); });
}

template <class T>
void expect_block(std::uint64_t seed) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  const Block block = draw_block(seed);
  const Data<T> data(seed);
  const Expected<T> expected = oracle_of(block, data);
  std::optional<Written<T>> fused;  // of the first level with fused multiply-add
  at_each_level([&] {
    const Written<T> written = call(block, data, seed % 2 == 0 ? Guard::before : Guard::behind);
    Written<T> rows;
    for (Index r = 0; r < block.block.count; ++r) {
      const std::vector<T> row = row_of(written, data, block, r);
      rows.out.insert(rows.out.end(), row.begin(), row.end() - 1);
      rows.lse.push_back(row.back());
      if (r % 5 != 0) continue;
      const Block alone = block.alone(r);
      const Written<T> one = call(alone, data, Guard::behind);
      EXPECT_TRUE(same_bits(row, row_of(one, data, alone, 0))) << "row " << r << " alone";
    }
    EXPECT_TRUE(within_ratio(rows.out, expected.out, 16));
    EXPECT_TRUE(within_ratio(rows.lse, expected.lse, 8));
    const auto untouched = std::count(written.lse.begin(), written.lse.end(), T{77});
    EXPECT_EQ(untouched, kQueries - block.block.count);
    if (fovea::isa_level() == IsaLevel::baseline) return;
    if (!fused) fused = written;
    EXPECT_TRUE(same_bits(fused->out, written.out));
    EXPECT_TRUE(same_bits(fused->lse, written.lse));
  });
}

template <class T>
class SoftmaxBlock : public testing::Test {};
using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(SoftmaxBlock, Scalars);

TYPED_TEST(SoftmaxBlock, AnyBlockFollowsTheOracle) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) expect_block<TypeParam>(seed);
}

/// Every option at once, for rows and keys that lie apart: what a row of a block should be.
template <class T>
class MappedBlock {
 public:
  explicit MappedBlock(std::uint64_t seed) : block(draw_block(seed)), data(seed) {
    block.block.most_keys = fovea::kUnboundedKeys;
    Draw draw(seed + 1);
    bias_ = Tensor<T>({1, 1, kQueries, kKeys}, Data<T>::k_layout(seed));
    mask_ = Tensor<bool>({1, 1, kQueries, kKeys}, Data<T>::k_layout(seed / 2));
    bias_.fill([=](Index, Index, Index i, Index j) {
      const std::uint64_t bits = hash(seed, 1, 0, i, j);
      return bits % 5 == 0 ? -std::numeric_limits<double>::infinity() : 2 * uniform(bits);
    });
    mask_.fill([=](Index, Index, Index i, Index j) {
      return hash(seed, 2, 0, i, j) % (i % 3 == 0 ? 40 : 3) == 1 ? 0 : 1;
    });
    options.map.soft_cap = draw(0, 1) == 0 ? T{1.5} : T{0};
    options.map.alibi_slope = draw(0, 1) == 0 ? T{0.0078125} : T{0};
    options.map.bias = matrix(bias_);
    options.map.mask = matrix(mask_);
    if (draw(0, 1) == 0) options.map.dropout = {0.25, seed, 3, 4};
    if (draw(0, 1) == 0) options.sink = T{0.5};
    options.first_position = draw(-100, 100);
  }

  /// Row r of the block, out then lse, with gauges.
  Reference<T> expected(Index r) const {
    using W = Wide<T>;
    const fovea::ScoreMap<T>& map = options.map;
    const Index row = block.block.first + block.block.step * r;
    const Index position = row + options.first_position;
    W sum = options.sink ? std::exp(W{*options.sink}) : 0;
    W largest = 0;
    Reference<T> made = zero_reference<T>({1, 1, 1, data.value_width + 1});
    bool any = false;
    for (Index j = 0; j < kKeys; ++j) {
      const W bias = bias_(0, 0, row, j);
      if (!block.sees(r, j) || std::isinf(bias) || !mask_(0, 0, row, j)) continue;
      any = true;
      W z = 0;
      for (Index c = 0; c < data.width; ++c) {
        z += W{0.25} * W{data.q(0, 0, row, c)} * W{data.k(0, 0, j, c)};
        largest = std::max(largest, std::abs(z));
      }
      if (map.soft_cap != 0) z = W{map.soft_cap} * std::tanh(z / W{map.soft_cap});
      const auto distance = static_cast<W>(std::abs(position - j));
      const W weight = std::exp(z + bias - W{map.alibi_slope} * distance);
      largest = std::max(largest, std::abs(bias) + W{map.alibi_slope} * distance);
      sum += weight;
      const bool dropped = map.drops() && fovea::uniform_draw<T>(
                                              map.dropout.seed, map.dropout.batch, map.dropout.head,
                                              position, j) < map.dropout.probability;
      const W kept = dropped ? 0 : weight / static_cast<W>(1 - map.dropout.probability);
      for (Index c = 0; c < data.value_width; ++c) {
        made.value[as_size(c)] += kept * W{data.v(0, 0, j, c)};
        made.gauge[as_size(c)] += kept * std::abs(W{data.v(0, 0, j, c)});
      }
    }
    for (W& x : made.value) x = any ? x / sum : 0;
    for (W& x : made.gauge) x = any ? x / sum * (2 + 2 * largest) : 0;
    made.value.back() = any ? std::log(sum) : -std::numeric_limits<W>::infinity();
    made.gauge.back() = 2 + 2 * largest + std::abs(made.value.back());
    return made;
  }

  Block block;
  Data<T> data;
  Options<T> options;

 private:
  template <class X>
  static Matrix<const X> matrix(const Tensor<X>& x) {
    return {x.view().data(), x.view().strides()[2], x.view().strides()[3]};
  }

  Tensor<T> bias_;
  Tensor<bool> mask_;
};

TYPED_TEST(SoftmaxBlock, OptionsFollowTheirFormulas) {
  using T = TypeParam;
  for (std::uint64_t seed = 200; seed < 225; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const MappedBlock<T> mapped(seed);
    const Block& block = mapped.block;
    std::optional<Written<T>> fused;  // of the first level with fused multiply-add
    at_each_level([&] {
      const Guard guard = seed % 2 == 0 ? Guard::before : Guard::behind;
      const Written<T> written = call(block, mapped.data, guard, mapped.options);
      for (Index r = 0; r < block.block.count; ++r) {
        const std::vector<T> row = row_of(written, mapped.data, block, r);
        EXPECT_TRUE(within_ratio(row, mapped.expected(r), 16)) << "row " << r;
        if (r % 5 != 0) continue;
        const Block alone = block.alone(r);
        const Written<T> one = call(alone, mapped.data, guard, mapped.options);
        EXPECT_TRUE(same_bits(row, row_of(one, mapped.data, alone, 0))) << "row " << r << " alone";
      }
      if (fovea::isa_level() == IsaLevel::baseline) return;
      if (!fused) fused = written;
      EXPECT_TRUE(same_bits(fused->out, written.out));
      EXPECT_TRUE(same_bits(fused->lse, written.lse));
    });
  }
}

/// Rows across a segment's end that begin at different keys, each against itself alone.
TYPED_TEST(SoftmaxBlock, TilesAndSegmentsLieAtAbsoluteKeys) {
  const Data<TypeParam> data(1);
  Block block;
  block.block = {7, 1, 40, nullptr, 0};
  block.bounds.resize(2);
  for (Index r = 0; r < 40; ++r) {
    block.bounds[0].push_back(r * 53);
    block.bounds[1].push_back(fovea::kKeySegment - 300 + r * 20);
  }
  block.runs = {{0, 1, kKeys, block.bounds[0].data(), block.bounds[1].data()}};
  at_each_level([&] {
    const Written<TypeParam> together = call(block, data, Guard::behind);
    for (Index r = 0; r < 40; ++r) {
      const Block alone = block.alone(r);
      EXPECT_TRUE(same_bits(row_of(together, data, block, r),
                            row_of(call(alone, data, Guard::behind), data, alone, 0)))
          << "row " << r;
    }
  });
}

/// Keys that no row, or some rows, see may hold anything.
TYPED_TEST(SoftmaxBlock, InvisibleKeysChangeNoBit) {
  using T = TypeParam;
  at_each_level([] {
    for (std::uint64_t seed = 100; seed < 140; ++seed) {
      const Block block = draw_block(seed);
      const Data<T> data(seed);
      const Written<T> clean = call(block, data, Guard::behind);
      Draw draw(seed);
      std::set<Index> poisoned;
      const T bad[] = {std::numeric_limits<T>::quiet_NaN(), std::numeric_limits<T>::infinity(),
                       std::numeric_limits<T>::max()};
      const Index period = draw(0, 1) == 0 ? 2 : 50;
      for (Index j = 0; j < kKeys; ++j) {
        bool seen = false;
        for (Index r = 0; r < block.block.count && !seen; ++r) seen = block.sees(r, j);
        if (seen && draw(0, period) != 0) continue;
        poisoned.insert(j);
        for (Index c = 0; c < data.width; ++c) data.k(0, 0, j, c) = bad[j % 3];
        for (Index c = 0; c < data.value_width; ++c) data.v(0, 0, j, c) = bad[(j + 1) % 3];
      }
      const Written<T> dirty = call(block, data, Guard::behind);
      for (Index r = 0; r < block.block.count; ++r) {
        const bool blind = std::none_of(poisoned.begin(), poisoned.end(),
                                        [&](Index j) { return block.sees(r, j); });
        if (!blind) continue;
        EXPECT_TRUE(same_bits(row_of(clean, data, block, r), row_of(dirty, data, block, r)))
            << "seed " << seed << ", row " << r;
      }
    }
  });
}

}  // namespace
}  // namespace fovea_test
