// SPDX-License-Identifier: MIT
// fovea_test(HEAP)
/// \file
/// Tests of kernels/softmax_block.hpp: a block in passes, and keys in a compact cache.
#include <gtest/gtest.h>

#include "kernels/softmax/drawn_block.hpp"
#include "support/levels.hpp"

namespace fovea_test::kernels_softmax_passes {

template <class T>
class CarriedSoftmaxTest : public testing::Test {};
using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(CarriedSoftmaxTest, Scalars);

/// The rows of a block in three passes, each with its own blocks of rows.
template <class T>
Written<T> call_in_passes(const Block& block, const Data<T>& data, const Options<T>& options,
                          bool in_out) {
  Written<T> written = nothing_written(data);
  const Index row = 2 * data.value_width + 3;
  std::vector<T> values(as_size(kQueries * row), T{77});
  std::vector<T> rows(as_size(3 * kQueries), T{77});
  fovea::SoftmaxBlockArgs<T> args = args_of(data, options, written);
  args.carry.acc = in_out ? Matrix<T>{written.out.data(), data.value_width, 1}
                          : Matrix<T>{values.data(), row, 2};
  args.carry.rows = rows.data();
  const Index runs = static_cast<Index>(block.runs.size());
  const Index begins[] = {0, runs / 3, runs - runs / 3, runs};
  for (Index pass = 0; pass < 3; ++pass) {
    args.carry.resumes = pass > 0;
    args.carry.suspends = pass < 2;
    const Index step = std::min(pass + 1, block.block.count);
    for (Index first = 0; first < step; ++first) {
      call(block.part(first, step, begins[pass], begins[pass + 1]), Guard::behind, args);
    }
  }
  return written;
}

template <class T>
void expect_passes_as_one(const Block& block, const Data<T>& data, const Options<T>& options) {
  at_each_level([&] {
    const Written<T> one = call(block, data, Guard::behind, options);
    for (const bool in_out : {false, true}) {
      const Written<T> passes = call_in_passes(block, data, options, in_out);
      EXPECT_TRUE(same_bits(one.out, passes.out));
      EXPECT_TRUE(same_bits(one.lse, passes.lse));
    }
  });
}

TYPED_TEST(CarriedSoftmaxTest, AreOneListOfRuns) {
  using T = TypeParam;
  Index blind = 0;
  Index several = 0;
  for (std::uint64_t seed = 300; seed < 360; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Block block = draw_block(seed);
    block.block.most_keys = fovea::kUnboundedKeys;  // passes have no band
    const Data<T> data(seed);
    Options<T> options;
    if (seed % 3 == 0) options.sink = T{0.5};
    expect_passes_as_one(block, data, options);
    const std::vector<T> lse = call(block, data, Guard::behind, options).lse;
    blind += std::count(lse.begin(), lse.end(), -std::numeric_limits<T>::infinity());
    several += block.runs.size() > 2 ? 1 : 0;
  }
  EXPECT_GT(blind, 20) << "rows that see nothing";
  EXPECT_GT(several, 5);
}

TYPED_TEST(CarriedSoftmaxTest, CarryWhatOptionsHide) {
  for (std::uint64_t seed = 400; seed < 415; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const MappedBlock<TypeParam> mapped(seed);
    expect_passes_as_one(mapped.block, mapped.data, mapped.options);
  }
}

/// Keys as in a compact cache, and all keys: some columns of every `stride` keys.
template <class T>
void expect_compact_keys(Index stride, std::uint64_t seed) {
  SCOPED_TRACE("stride " + std::to_string(stride) + ", seed " + std::to_string(seed));
  Draw draw(seed);
  fovea::KeyRows rows;
  rows.stride = stride;
  rows.width = draw(1, stride);
  rows.first = draw(0, stride - rows.width);
  const Index dropped = draw(0, 2);  // groups that the cache has no more
  rows.base = dropped * rows.width;

  Block block;
  block.block.count = draw(0, 1) == 0 ? 400 : draw(1, 40);
  block.block.first = draw(0, kQueries - block.block.count);
  const Index groups = kKeys / stride - dropped;
  const bool band = draw(0, 2) == 0;
  const Index runs = band ? 1 : std::min<Index>(rows.width, 3);
  block.bounds.resize(as_size(2 * runs));
  for (Index n = 0; n < runs; ++n) {
    KeyRun run;
    const Index apart = draw(1, 2);
    run.step = stride * apart;
    run.first = stride * dropped + rows.first + n;
    run.count = std::min<Index>(groups / apart, band ? fovea::kBandKeys : 500);
    std::vector<Index>& lower = block.bounds[as_size(2 * n)];
    std::vector<Index>& upper = block.bounds[as_size(2 * n + 1)];
    draw_bounds(draw, block.block.count, run.count, lower, upper);
    run.lower = lower.data();
    run.upper = upper.data();
    block.runs.push_back(run);
  }
  if (band) block.block.most_keys = fovea::kBandKeys;

  const Data<T> data(4 * seed);
  const Index compact_rows = groups * rows.width;
  Tensor<T> k({1, 1, compact_rows, data.width});
  Tensor<T> v({1, 1, compact_rows, data.value_width});
  const auto key_of = [&](Index row) {
    return (row / rows.width + dropped) * stride + rows.first + row % rows.width;
  };
  k.fill([&](Index, Index, Index n, Index c) { return data.k(0, 0, key_of(n), c); });
  v.fill([&](Index, Index, Index n, Index c) { return data.v(0, 0, key_of(n), c); });
  at_each_level([&] {
    const Written<T> full = call(block, data, Guard::behind);
    Written<T> compact = nothing_written(data);
    fovea::SoftmaxBlockArgs<T> args = args_of(data, Options<T>{}, compact);
    args.k = stored(matrix_of(k));
    args.v = stored(matrix_of(v));
    args.key_rows = rows;
    call(block, Guard::behind, args);
    EXPECT_TRUE(same_bits(full.out, compact.out));
    EXPECT_TRUE(same_bits(full.lse, compact.lse));
  });
}

TYPED_TEST(CarriedSoftmaxTest, CompactKeysGiveTheSameBits) {
  for (std::uint64_t seed = 1; seed < 8; ++seed) {
    // With the last stride, rows are so far apart that tiles are packed.
    for (const Index stride : {1, 2, 5, 150}) expect_compact_keys<TypeParam>(stride, seed);
  }
}

}  // namespace fovea_test::kernels_softmax_passes
