// SPDX-License-Identifier: MIT
/// \file
/// Causal linear attention with more threads than key heads: these share its tokens, and every bit
/// stays.
#include <gtest/gtest.h>

#include <array>
#include <stdexcept>
#include <string>
#include <vector>

#include "fovea/attention.hpp"
#include "fovea/core/arena.hpp"
#include "fovea/core/eigen.hpp"
#include "support/compare.hpp"
#include "support/executors.hpp"
#include "support/fill.hpp"
#include "support/levels.hpp"
#include "support/tensor.hpp"

namespace fovea_test::attention_shared_stream {

using fovea::Denominator;

constexpr Index kSegment = fovea::kStateSegment;
/// The tokens that are summed before rows read.
constexpr Index kTogether = fovea::kSharedSegments * kSegment;

/// Runs an operator on one thread and with odd schedules of several, and compares the bits.
/// \param sizes batch, query heads, key heads, queries, keys, D, Dv
template <class T, class Op>
void expect_same_bits(const Op& op, const std::array<Index, 7>& sizes,
                      const std::vector<Index>& key_lengths = {}) {
  const auto [batch, heads, key_heads, queries, keys, width, value_width] = sizes;
  SCOPED_TRACE(std::to_string(queries) + " queries, " + std::to_string(keys) + " keys");
  const auto drawn = [](std::uint64_t seed, const Shape& shape) {
    Tensor<T> x(shape);
    const Fill value = gaussian(seed);
    x.fill([&](Index b, Index h, Index n, Index d) { return static_cast<T>(value(b, h, n, d)); });
    return x;
  };
  const Tensor<T> q = drawn(1, {batch, heads, queries, width});
  const Tensor<T> k = drawn(2, {batch, key_heads, keys, width});
  const Tensor<T> v = drawn(3, {batch, key_heads, keys, value_width});
  const Shape of_out = {batch, heads, queries, value_width};
  const auto run = [&](auto&& executor) {
    const Tensor<T> out(of_out);
    op.forward({.q = q.view(), .k = k.view(), .v = v.view(), .key_lengths = key_lengths},
               out.view(), {}, executor);
    std::vector<float> values;
    for (const T x : out.values()) values.push_back(static_cast<float>(x));
    return values;
  };
  const std::vector<float> alone = run(fovea::Serial{});
  EXPECT_TRUE(same_bits(alone, run(Backwards{})));
  EXPECT_TRUE(same_bits(alone, run(Shuffled{})));
}

using Linear = fovea::LinearAttention<fovea::EluPlusOne>;
using TwoMaps = fovea::LinearAttention<fovea::EluPlusOne, fovea::Tanh>;

/// Lengths around chunks, segments, and the segments that are summed together.
TEST(SharedStream, MatchesOneThreadBitwise) {
  const Linear op{{.causal = true}};
  for (const Index n : {2 * kSegment, 2 * kSegment + 1, 3 * kSegment - 31, kTogether - 1, kTogether,
                        kTogether + 1, kTogether + kSegment + 33, 2 * kTogether + 40}) {
    expect_same_bits<float>(op, {1, 1, 1, n, n, 8, 9});
  }
  at_each_level([&] { expect_same_bits<float>(op, {1, 1, 1, 1500, 1500, 64, 64}); });
  expect_same_bits<double>(op, {1, 1, 1, 1100, 1100, 20, 33});
  expect_same_bits<Eigen::bfloat16>(op, {1, 1, 1, 1100, 1100, 16, 16});
}

/// Rows before and after the tokens, sequences of several lengths, and grouped heads.
TEST(SharedStream, MatchesAtAnyPosition) {
  const Linear op{{.causal = true}};
  const Linear top{{.causal = true, .alignment = fovea::CausalAlignment::top_left}};
  const Linear end{{.causal = true, .alignment = fovea::CausalAlignment::key_length}};
  expect_same_bits<float>(end, {2, 2, 1, 700, 2000, 8, 8}, {2000, 1200});
  expect_same_bits<float>(end, {2, 2, 1, 2000, 1100, 8, 8}, {800, 800});
  expect_same_bits<float>(op, {1, 2, 1, 5, 2000, 8, 8});
  expect_same_bits<float>(op, {1, 2, 1, 3000, 1100, 8, 8});
  expect_same_bits<float>(top, {1, 2, 1, 3000, 1100, 8, 8});
  expect_same_bits<float>(top, {1, 2, 1, 700, 2000, 8, 8});
  expect_same_bits<float>(op, {3, 2, 1, 1300, 1300, 8, 8}, {1300, 0, 600});
  expect_same_bits<float>(op, {2, 4, 2, 1100, 1100, 8, 8}, {1, 1024});
  expect_same_bits<float>(op, {2, 1, 1, kTogether + 50, kTogether + 50, 4, 4},
                          {kTogether + 50, kTogether});
}

/// Several maps, policies for denominators, and a near field.
TEST(SharedStream, MatchesWithEveryFarField) {
  const TwoMaps maps{{.causal = true, .denominator = Denominator::signed_floor(0.25)}};
  expect_same_bits<float>(maps, {1, 2, 1, 1700, 1700, 12, 17});
  const fovea::FmmTwoKernels fmm{
      {.band = {3, 2}, .causal = true, .denominator = Denominator::signed_floor(0.5)}};
  expect_same_bits<float>(fmm, {1, 2, 2, 1700, 1700, 12, 17});
  expect_same_bits<float>(fmm, {1, 2, 1, 1200, 1500, 12, 17});
  expect_same_bits<Eigen::half>(fmm, {1, 1, 1, 1100, 1100, 16, 16});
}

/// One head is divided among threads, and as many heads as there are threads are not.
TEST(SharedStream, DividesFewHeads) {
  const auto calls = [](const auto& op, Index heads, Index n) {
    const Tensor<float> x({1, heads, n, 4}, {});
    x.fill([](Index, Index, Index, Index) { return 0.5F; });
    const Tensor<float> out(x.shape());
    Index most = 0;
    op.forward({x.view(), x.view(), x.view()}, out.view(), {}, CountsTasks{most});
    return most;
  };
  const Linear op{{.causal = true}};
  EXPECT_EQ(calls(op, 1, 4 * kSegment), 6);
  EXPECT_EQ(calls(op, 1, kSegment), 0);  // a single task does not use the executor
  EXPECT_EQ(calls(op, 2, kSegment), 2);
  const fovea::FmmTwoKernels fmm{
      {.band = {3, 2}, .causal = true, .denominator = Denominator::signed_floor(0.5)}};
  EXPECT_EQ(calls(fmm, 1, 4 * kSegment), 6);
}

/// workspace_bytes counts the sums that threads share.
TEST(SharedStream, FitsAnArenaOfItsSize) {
  const fovea::FmmTwoKernels op{
      {.band = {3, 2}, .causal = true, .denominator = Denominator::signed_floor(0.5)}};
  const fovea::AttentionShape shape{1, 2, 1, 1200, 1200, 12, 17};
  const Tensor<float> q({1, 2, 1200, 12}), k({1, 1, 1200, 12}), v({1, 1, 1200, 17});
  for (const Tensor<float>* x : {&q, &k, &v}) {
    x->fill([](Index, Index, Index n, Index d) { return static_cast<float>(n % 7 + d % 3); });
  }
  const Tensor<float> out({1, 2, 1200, 17}), again({1, 2, 1200, 17});
  Backwards executor;
  op.forward({q.view(), k.view(), v.view()}, out.view(), {}, executor);
  const Index bytes = op.workspace_bytes<float>(shape, Backwards::concurrency());
  fovea::Arena arena(bytes);
  op.forward({q.view(), k.view(), v.view()}, again.view(), {}, arena.on(executor));
  EXPECT_TRUE(same_bits(out.values(), again.values(), out.shape()));
  fovea::Arena small(bytes - 4096);
  EXPECT_THROW(op.forward({q.view(), k.view(), v.view()}, again.view(), {}, small.on(executor)),
               std::invalid_argument);
}

}  // namespace fovea_test::attention_shared_stream
