// SPDX-License-Identifier: MIT
// Heads whose logits were made to look near, at the first keys, or far; and those of the tensors
// that the project keeps.
#include "bench/measure/head_kinds.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <vector>

#include "bench/io/compare_input.hpp"

namespace fovea_test::bench_measure_head_kinds {

using bench::HeadKind;
using bench::Index;
using bench::WeightShares;
using fovea::View;

constexpr Index kRows = 512;

/// q = (1, 0) and k_j = (logit of j, 0): every row has the same logits.
WeightShares shares_of(double (*logit)(Index j), Index step = 1, bool causal = true) {
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
  return bench::weight_shares(in, 0, causal, step);
}

TEST(WeightShares, MatchUniformWeights) {
  const WeightShares shares = shares_of([](Index) { return 0.0; });
  double sink = 0;
  double nearby = 0;
  for (Index row = 256; row < kRows; ++row) {
    sink += 4.0 / static_cast<double>(row + 1) / 256;
    nearby += 64.0 / static_cast<double>(row + 1) / 256;
  }
  EXPECT_NEAR(shares.sink, sink, 1e-9);
  EXPECT_NEAR(shares.nearby, nearby, 1e-9);
  EXPECT_NEAR(shares.sink + shares.nearby + shares.distant, 1, 1e-9);
  EXPECT_EQ(shares.kind(), HeadKind::distant);
}

TEST(WeightShares, AreOfBothSidesIfNotCausal) {
  const WeightShares shares = shares_of([](Index) { return 0.0; }, 1, false);
  double nearby = 0;
  for (Index row = 256; row < kRows; ++row) {
    nearby += static_cast<double>(64 + std::min<Index>(63, kRows - 1 - row)) / kRows / 256;
  }
  EXPECT_NEAR(shares.sink, 4.0 / kRows, 1e-9);
  EXPECT_NEAR(shares.nearby, nearby, 1e-9);
  EXPECT_NEAR(shares.sink + shares.nearby + shares.distant, 1, 1e-9);
}

TEST(WeightShares, DistinguishTheKinds) {
  const auto sink = shares_of([](Index j) { return j < 4 ? 9.0 : 0.0; });
  EXPECT_GT(sink.sink, 0.9);
  EXPECT_EQ(sink.kind(), HeadKind::sink);
  const auto local = shares_of([](Index j) { return 0.1 * static_cast<double>(j); });
  EXPECT_GT(local.nearby, 0.9);
  EXPECT_EQ(local.kind(), HeadKind::local);
  const auto distant = shares_of([](Index j) { return j > 8 && j < 40 ? 9.0 : 0.0; }, 8);
  EXPECT_GT(distant.distant, 0.9);
  EXPECT_EQ(distant.kind(), HeadKind::distant);
}

TEST(KeptTensors, HaveHeadsOfEachKind) {
  bench::CompareArguments arguments;
  arguments.lengths = {512, 2048, 65536};
  std::string what;
  const bench::HeadTensors tensors = bench::tensors_of_directory(arguments, FOVEA_SOURCE_DIR, what);
  EXPECT_EQ(arguments.lengths, (std::vector<Index>{512, 2048}));
  EXPECT_EQ(tensors.q_shape, (fovea::Shape{1, 9, 2048, 64}));
  EXPECT_EQ(tensors.v_shape, (fovea::Shape{1, 3, 2048, 64}));
  for (Index h = 0; h < 9; ++h) {
    const HeadKind kind = bench::weight_shares(tensors.first(2048), h, true, 64).kind();
    EXPECT_EQ(kind, h < 3 ? HeadKind::local : h < 6 ? HeadKind::sink : HeadKind::distant) << h;
  }
}

TEST(KeptTensors, AreSmall) {
  namespace fs = std::filesystem;
  std::uintmax_t bytes = 0;
  for (const auto& file : fs::directory_iterator(fs::path(FOVEA_SOURCE_DIR) / "bench/data")) {
    bytes += file.file_size();
  }
  EXPECT_LE(bytes, 4000000u);
}

TEST(KeptTensors, AreReportedIfMissing) {
  bench::CompareArguments arguments;
  arguments.lengths = {512};
  std::string what;
  try {
    bench::tensors_of_directory(arguments, "/nowhere", what);
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(),
                 "/nowhere/bench/data: the tensors of this build's source tree no longer exist; "
                 "give --qkv DIR or --text FILE");
  }
}

}  // namespace fovea_test::bench_measure_head_kinds
