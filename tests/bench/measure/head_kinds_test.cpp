// SPDX-License-Identifier: MIT
// Heads whose logits were made to look near, at the first keys, or far.
#include "bench/measure/head_kinds.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace {

using bench::HeadKind;
using bench::Index;
using bench::WeightShares;
using fovea::View;

constexpr Index kRows = 512;

/// q = (1, 0) and k_j = (logit of j, 0): every row has the same logits.
WeightShares shares_of(double (*logit)(Index j), Index step = 1) {
  std::vector<float> q(kRows * 4), k(kRows * 4);
  for (Index j = 0; j < kRows; ++j) {
    q[static_cast<std::size_t>(4 * j)] = 2;  // 1/sqrt(4) is taken off
    k[static_cast<std::size_t>(4 * j)] = static_cast<float>(logit(j));
  }
  const fovea::Shape shape = {1, 1, kRows, 4};
  bench::AllInputs<float> in;
  in.q = View<const float>(q.data(), shape);
  in.k = View<const float>(k.data(), shape);
  in.v = in.k;
  return bench::weight_shares(in, 0, step);
}

TEST(WeightShares, AreThoseOfUniformWeights) {
  const WeightShares shares = shares_of([](Index) { return 0.0; });
  double sink = 0;
  double near = 0;
  for (Index row = 256; row < kRows; ++row) {
    sink += 4.0 / static_cast<double>(row + 1) / 256;
    near += 64.0 / static_cast<double>(row + 1) / 256;
  }
  EXPECT_NEAR(shares.sink, sink, 1e-9);
  EXPECT_NEAR(shares.near, near, 1e-9);
  EXPECT_NEAR(shares.sink + shares.near + shares.far, 1, 1e-9);
  EXPECT_EQ(shares.kind(), HeadKind::far);
}

TEST(WeightShares, TellTheKinds) {
  const auto sink = shares_of([](Index j) { return j < 4 ? 9.0 : 0.0; });
  EXPECT_GT(sink.sink, 0.9);
  EXPECT_EQ(sink.kind(), HeadKind::sink);
  const auto local = shares_of([](Index j) { return 0.1 * static_cast<double>(j); });
  EXPECT_GT(local.near, 0.9);
  EXPECT_EQ(local.kind(), HeadKind::local);
  const auto far = shares_of([](Index j) { return j > 8 && j < 40 ? 9.0 : 0.0; }, 8);
  EXPECT_GT(far.far, 0.9);
  EXPECT_EQ(far.kind(), HeadKind::far);
}

}  // namespace
