// SPDX-License-Identifier: MIT
/// \file
/// Tests of kernels/softmax_grad.hpp for blocks that no window makes: blocks of keys with steps,
/// several runs, bounds of any kind, part of the rows.
#include "fovea/kernels/softmax/grad.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "fovea/core/workspace.hpp"
#include "fovea/kernels/softmax/table.hpp"
#include "kernels/softmax/shows.hpp"
#include "support/compare.hpp"
#include "support/fences.hpp"
#include "support/fill.hpp"
#include "support/levels.hpp"

namespace fovea_test::kernels_softmax_grad {

using fovea::GradKeys;
using fovea::KeyRun;
using fovea::kGradTile;
using fovea::Matrix;
using fovea::QueryBlock;

constexpr Index kQueries = 420;
constexpr Index kKeys = 700;

/// A block of queries, the storage of its bounds, and a block of keys.
struct Blocks {
  QueryBlock block;
  GradKeys keys;
  std::vector<KeyRun> runs;
  std::vector<std::vector<Index>> bounds;  // lower and upper of each run, or empty
  Index key_end = kKeys;

  Index query(Index r) const { return block.first + block.step * r; }
  Index key(Index n) const { return keys.first + keys.step * n; }
  bool sees(Index r, Index n) const { return key(n) < key_end && shows(runs, r, key(n)); }
};

enum class Bounds { none, stairs, band, any };

/// Gives run n bounds.
void set_bounds(Blocks& blocks, std::size_t n, Bounds kind, std::uint64_t seed) {
  if (kind == Bounds::none) return;
  KeyRun& run = blocks.runs[n];
  for (Index r = 0; r < blocks.block.count; ++r) {
    Index low = 0;
    Index high = std::min(run.count, r + 1 + static_cast<Index>(seed % 7));
    if (kind == Bounds::band) low = std::clamp<Index>(r - 40, 0, run.count);
    if (kind == Bounds::any) {
      const auto count = static_cast<std::uint64_t>(run.count + 1);
      low = static_cast<Index>(hash(seed, 0, 0, r, 0) % count);
      high = static_cast<Index>(hash(seed, 0, 0, r, 1) % count);
    }
    blocks.bounds[2 * n].push_back(low);
    blocks.bounds[2 * n + 1].push_back(std::max(low, high));
  }
  run.lower = blocks.bounds[2 * n].data();
  run.upper = blocks.bounds[2 * n + 1].data();
}

/// \param step of the block of keys
Blocks make_blocks(Index rows, Index row_step, Index step, Bounds kind, std::uint64_t seed) {
  Blocks made;
  made.block = {static_cast<Index>(seed % 5), row_step, rows, nullptr, 0};
  made.keys = {static_cast<Index>(seed % 9), step, 150};
  // Keys before, in and after the block; the second run has other keys, the third a longer step.
  const Index first = made.keys.first;
  made.runs = {{first, step, 70}, {first + 70 * step, step, 130}, {first + 205 * step, step, 2}};
  if (step > 1) made.runs.push_back({first + 1, step, 60});  // of another residue
  if (seed % 2 == 0) {
    made.runs[1].step = 2 * step;
    made.runs[1].count = 60;
  }
  made.bounds.resize(2 * made.runs.size());
  for (std::size_t n = 0; n < made.runs.size(); ++n) set_bounds(made, n, kind, seed + n);
  made.block.runs = made.runs.data();
  made.block.run_count = static_cast<Index>(made.runs.size());
  if (seed % 3 == 0) made.key_end = first + 90 * step;
  return made;
}

/// Rows of numbers, [rows, width].
template <class T>
struct Rows {
  Index width;
  std::vector<T> at;

  Rows(Index rows, Index w, std::uint64_t seed) : width(w), at(static_cast<std::size_t>(rows * w)) {
    const Fill fill = gaussian(seed);
    for (Index i = 0; i < rows * w; ++i) (*this)(i / w, i % w) = T(fill(0, 0, i / w, i % w));
  }
  T& operator()(Index i, Index c) { return at[static_cast<std::size_t>(i * width + c)]; }
  T operator()(Index i, Index c) const { return at[static_cast<std::size_t>(i * width + c)]; }
  Matrix<const T> matrix(Index first = 0, Index step = 1) const {
    return {at.data() + first * width, step * width, 1};
  }
};

/// Inputs of any values: the kernel's reference mask needs no softmax that made out and lse.
template <class T>
struct Problem {
  Rows<T> q, k, v, out, d_out, lse;
  T soft_cap = 0;

  Problem(Index d, Index dv)
      : q(kQueries, d, 1),
        k(kKeys, d, 2),
        v(kKeys, dv, 3),
        out(kQueries, dv, 4),
        d_out(kQueries, dv, 5),
        lse(kQueries, 1, 6) {
    for (T& x : lse.at) x += 5;
  }
};

/// The results of one call, with dense rows.
template <class T>
struct Sums {
  std::vector<T> q, k, v;
};

constexpr double kScale = 0.3;

/// Rows [begin, end) of the block. \param add begin from accumulators of 1
/// \param lse_low low parts of lse, or null
template <class T>
Sums<T> run(const Problem<T>& p, const Blocks& blocks, Index begin, Index end, bool add,
            const T* lse_low = nullptr) {
  const Index d = p.q.width;
  const Index dv = p.v.width;
  const Index count = blocks.keys.count;
  fovea::Workspace scratch(fovea::softmax_grad_scratch(count, d, dv) * Index{sizeof(T)});
  const auto size = [](Index rows, Index width) {
    return static_cast<std::size_t>(rows * fovea::padded_size(width));
  };
  const T start = add ? T{1} : std::numeric_limits<T>::quiet_NaN();
  std::vector<T> d_q(size(end - begin, d), std::numeric_limits<T>::quiet_NaN());
  std::vector<T> d_k(size(count, d), start);
  std::vector<T> d_v(size(count, dv), start);
  fovea::SoftmaxGradArgs<T> args;
  args.head.q = p.q.matrix();
  args.head.out = p.out.matrix();
  args.head.d_out = p.d_out.matrix();
  args.head.lse = p.lse.matrix();
  args.head.lse_low = lse_low;
  args.head.width = d;
  args.head.value_width = dv;
  args.head.scale = static_cast<T>(kScale);
  args.head.map.soft_cap = p.soft_cap;
  args.head.key_end = blocks.key_end;
  args.block = blocks.block;
  args.row_begin = begin;
  args.row_end = end;
  args.keys = blocks.keys;
  args.k = p.k.matrix(blocks.keys.first, blocks.keys.step);
  args.v = p.v.matrix(blocks.keys.first, blocks.keys.step);
  args.d_q = d_q.data();
  args.d_k = d_k.data();
  args.d_v = d_v.data();
  args.add = add;
  args.scratch = scratch.data<T>();
  fovea::SoftmaxGradKernels<T>{}.grad(args);
  const auto unpadded = [](const std::vector<T>& x, Index width) {
    std::vector<T> rows;
    const auto padded = static_cast<std::size_t>(fovea::padded_size(width));
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (i % padded < static_cast<std::size_t>(width)) rows.push_back(x[i]);
    }
    return rows;
  };
  return {unpadded(d_q, d), unpadded(d_k, d), unpadded(d_v, dv)};
}

/// The reference mask, pair by pair.
template <class T>
struct Expected {
  Reference<T> q, k, v;

  Expected(const Problem<T>& p, const Blocks& blocks, Index begin, Index end, bool add) {
    const Index d = p.q.width;
    const Index dv = p.v.width;
    const Index count = blocks.keys.count;
    for (auto* x : {&q, &k, &v}) x->shape = {1, 1, x == &q ? end - begin : count, x == &v ? dv : d};
    for (auto* x : {&q, &k, &v}) {
      const auto size = static_cast<std::size_t>(x->shape[2] * x->shape[3]);
      x->value.assign(size, add && x != &q ? 1 : 0);
      x->gauge.assign(size, add && x != &q ? 1 : 0);
    }
    for (Index r = begin; r < end; ++r) {
      for (Index n = 0; n < count; ++n) {
        if (blocks.sees(r, n)) add_pair(p, blocks, r, n, r - begin);
      }
    }
  }

 private:
  using W = Wide<T>;

  void add_pair(const Problem<T>& p, const Blocks& blocks, Index r, Index n, Index row) {
    const Index i = blocks.query(r);
    const Index j = blocks.key(n);
    W logit = 0, product = 0, delta = 0, size = 1;
    for (Index c = 0; c < p.q.width; ++c) {
      logit += W{p.q(i, c)} * W{p.k(j, c)};
      size += std::abs(W{p.q(i, c)} * W{p.k(j, c)});
    }
    W products = 0;
    for (Index c = 0; c < p.v.width; ++c) {
      product += W{p.d_out(i, c)} * W{p.v(j, c)};
      delta += W{p.d_out(i, c)} * W{p.out(i, c)};
      products += std::abs(W{p.d_out(i, c)}) * (std::abs(W{p.v(j, c)}) + std::abs(W{p.out(i, c)}));
    }
    W bent = W{static_cast<T>(kScale)} * logit;
    W slope = 1;
    if (p.soft_cap != 0) {
      const W ratio = std::tanh(bent / W{p.soft_cap});
      bent = W{p.soft_cap} * ratio;
      slope = 1 - ratio * ratio;
    }
    const W weight = std::exp(bent - W{p.lse(i, 0)});
    const W d_logit = weight * slope * (product - delta);
    for (Index c = 0; c < p.q.width; ++c) {
      put(q, row * p.q.width + c, d_logit * W{p.k(j, c)}, weight * products * size * W{p.k(j, c)});
      put(k, n * p.q.width + c, d_logit * W{p.q(i, c)}, weight * products * size * W{p.q(i, c)});
    }
    for (Index c = 0; c < p.v.width; ++c) {
      put(v, n * p.v.width + c, weight * W{p.d_out(i, c)}, weight * size * W{p.d_out(i, c)});
    }
  }
  static void put(Reference<T>& to, Index at, W value, W gauge) {
    to.value[static_cast<std::size_t>(at)] += value;
    to.gauge[static_cast<std::size_t>(at)] += std::abs(gauge);
  }
};

template <class F>
void for_each_blocks(F&& f) {
  std::uint64_t seed = 1;
  for (const Index rows : {1, 37, 64, 130}) {
    for (const Bounds kind : {Bounds::none, Bounds::stairs, Bounds::band, Bounds::any}) {
      for (const Index step : {1, 3}) {
        const Blocks blocks = make_blocks(rows, 1 + static_cast<Index>(seed % 3), step, kind, seed);
        SCOPED_TRACE(testing::Message() << rows << " rows, step " << step << ", seed " << seed);
        f(blocks, seed++);
      }
    }
  }
}

template <class T>
class SoftmaxGrad : public testing::Test {};
using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(SoftmaxGrad, Scalars);

TYPED_TEST(SoftmaxGrad, MatchesTheReferenceMask) {
  using T = TypeParam;
  for (const Index width : {5, 70}) {
    Problem<T> problem(width, 75 - width);
    for_each_blocks([&](const Blocks& blocks, std::uint64_t seed) {
      problem.soft_cap = seed % 3 == 0 ? T{3} : T{0};
      const bool add = seed % 2 == 0;
      const Index begin = blocks.block.count > 64 && seed % 5 == 0 ? 64 : 0;
      const Index end = blocks.block.count - static_cast<Index>(seed % 4 == 3 ? 1 : 0);
      if (begin >= end) return;
      const Expected<T> expected(problem, blocks, begin, end, add);
      at_each_level([&] {
        const Sums<T> got = run(problem, blocks, begin, end, add);
        EXPECT_TRUE(within_ratio(got.q, expected.q, 16)) << "d_q";
        EXPECT_TRUE(within_ratio(got.k, expected.k, 16)) << "d_k";
        EXPECT_TRUE(within_ratio(got.v, expected.v, 16)) << "d_v";
      });
    });
  }
}

/// A tile with few keys, which only late rows see: the first such row is after the last key. The
/// preceding tile leaves gradients of logits in scratch beyond this tile's keys, within the block
/// of keys.
TYPED_TEST(SoftmaxGrad, AddsNothingBeyondTheLastKeyOfATile) {
  using T = TypeParam;
  constexpr Index keys = 20;
  Blocks blocks;
  blocks.block = {0, 1, kGradTile, nullptr, 2};
  blocks.keys = {0, 1, 2 * kGradTile};
  blocks.runs = {{0, 1, kGradTile}, {kGradTile, 1, keys}};
  blocks.bounds.resize(4);
  for (Index r = 0; r < kGradTile; ++r) {
    blocks.bounds[2].push_back(0);
    blocks.bounds[3].push_back(std::min(r / 2 + 1, keys));
  }
  blocks.runs[1].lower = blocks.bounds[2].data();
  blocks.runs[1].upper = blocks.bounds[3].data();
  blocks.block.runs = blocks.runs.data();
  const Problem<T> problem(16, 20);
  const Expected<T> expected(problem, blocks, 0, kGradTile, false);
  at_each_level([&] {
    const Sums<T> got = run(problem, blocks, 0, kGradTile, false);
    EXPECT_TRUE(within_ratio(got.q, expected.q, 16)) << "d_q";
    EXPECT_TRUE(within_ratio(got.k, expected.k, 16)) << "d_k";
    EXPECT_TRUE(within_ratio(got.v, expected.v, 16)) << "d_v";
  });
}

/// A key that contains NaN reaches the gradients of the rows that see it, and its own, and no
/// others; the tiles around it take the slow path, with the same bits.
TYPED_TEST(SoftmaxGrad, NaNReachesOnlyRowsThatSeeIt) {
  using T = TypeParam;
  const Problem<T> problem(16, 20);
  for_each_blocks([&](const Blocks& blocks, std::uint64_t seed) {
    const Index count = blocks.block.count;
    const Index poisoned = static_cast<Index>(hash(seed, 1, 2, 3, 4) % 150);
    Problem<T> with_nan = problem;
    with_nan.k(blocks.key(poisoned), 3) = std::numeric_limits<T>::quiet_NaN();
    with_nan.v(blocks.key(poisoned), 7) = std::numeric_limits<T>::quiet_NaN();
    at_each_level([&] {
      const Sums<T> clean = run(problem, blocks, 0, count, true);
      const Sums<T> got = run(with_nan, blocks, 0, count, true);
      bool seen = false;
      for (Index r = 0; r < count; ++r) {
        const bool sees = blocks.sees(r, poisoned);
        seen = seen || sees;
        const auto at = static_cast<std::size_t>(r * 16);
        if (sees) {
          EXPECT_TRUE(std::isnan(got.q[at])) << "row " << r;
        } else {
          EXPECT_TRUE(same_bits(&clean.q[at], &got.q[at], 16, {1, 1, 1, 16})) << "row " << r;
        }
      }
      for (Index n = 0; n < blocks.keys.count; ++n) {
        if (n == poisoned && seen) {
          EXPECT_TRUE(std::isnan(got.k[static_cast<std::size_t>(n * 16)]));
          EXPECT_TRUE(std::isnan(got.v[static_cast<std::size_t>(n * 20)]));
          continue;
        }
        const auto k = static_cast<std::size_t>(n * 16);
        const auto v = static_cast<std::size_t>(n * 20);
        EXPECT_TRUE(same_bits(&clean.k[k], &got.k[k], 16, {1, 1, 1, 16})) << "key " << n;
        EXPECT_TRUE(same_bits(&clean.v[v], &got.v[v], 20, {1, 1, 1, 20})) << "key " << n;
      }
    });
  });
}

/// Rows that are left out of a call change no bit of the others.
TYPED_TEST(SoftmaxGrad, RowsOfABlockMayBeTakenInParts) {
  using T = TypeParam;
  const Problem<T> problem(16, 20);
  for_each_blocks([&](const Blocks& blocks, std::uint64_t) {
    const Index count = blocks.block.count;
    if (count <= 64) return;
    at_each_level([&] {
      const Sums<T> whole = run(problem, blocks, 0, count, false);
      const Sums<T> first = run(problem, blocks, 0, 64, false);
      const Sums<T> rest = run(problem, blocks, 64, count, false);
      EXPECT_TRUE(same_bits(whole.q.data(), first.q.data(), 64 * 16, {1, 1, 64, 16}));
      EXPECT_TRUE(same_bits(whole.q.data() + 64 * 16, rest.q.data(), rest.q.size(),
                            {1, 1, count - 64, 16}));
    });
  });
}

/// The low parts of lse end with the block's last row, and a guard page follows.
TYPED_TEST(SoftmaxGrad, ReadsOnlyLowPartsOfItsRows) {
  using T = TypeParam;
  const Problem<T> problem(16, 20);
  for_each_blocks([&](const Blocks& blocks, std::uint64_t) {
    const Index count = blocks.block.count;
    const auto rows = static_cast<std::size_t>(blocks.query(count - 1) + 1);
    auto* const low = static_cast<T*>(FencedHeap::allocate(rows * sizeof(T), alignof(T)));
    const T tiny = std::numeric_limits<T>::epsilon();
    std::fill_n(low, rows, tiny);
    std::vector<T> with_more(low, low + rows);
    with_more.resize(rows + 64, tiny);
    at_each_level([&] {
      const Sums<T> expected = run(problem, blocks, 0, count, false, with_more.data());
      const Sums<T> got = run(problem, blocks, 0, count, false, static_cast<const T*>(low));
      EXPECT_TRUE(same_bits(expected.q, got.q));
      EXPECT_TRUE(same_bits(expected.k, got.k));
      EXPECT_TRUE(same_bits(expected.v, got.v));
    });
    FencedHeap::release(low);
  });
}

TYPED_TEST(SoftmaxGrad, LevelsWithFusedMultiplyAddAgree) {
  using T = TypeParam;
  if (!has_level(IsaLevel::v4)) GTEST_SKIP() << "no v4 to compare with v3";
  for (const Index width : {16, 70}) {
    const Problem<T> problem(width, 75 - width);
    for_each_blocks([&](const Blocks& blocks, std::uint64_t) {
      const auto at = [&](IsaLevel level) {
        const AtLevel use(level);
        return run(problem, blocks, 0, blocks.block.count, true);
      };
      const Sums<T> v3 = at(IsaLevel::v3);
      const Sums<T> v4 = at(IsaLevel::v4);
      EXPECT_TRUE(same_bits(v3.q, v4.q));
      EXPECT_TRUE(same_bits(v3.k, v4.k));
      EXPECT_TRUE(same_bits(v3.v, v4.v));
    });
  }
}

}  // namespace fovea_test::kernels_softmax_grad
