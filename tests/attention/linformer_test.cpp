// SPDX-License-Identifier: MIT
// fovea_test(OPTIMISED HEAP)
/// \file
/// Linformer attention against its oracle and central differences; bits; what is not visible;
/// E and F of one head or of each.
#include "fovea/attention/linformer.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "attention/mixed_oracles.hpp"
#include "support/scalars.hpp"

namespace fovea_test::attention_linformer {

using fovea::LinformerAttention;

static_assert(fovea::DifferentiableAttention<LinformerAttention, float>);
static_assert(fovea::DifferentiableAttention<LinformerAttention, double>);

template <class T>
class Linformer : public testing::Test {};
TYPED_TEST_SUITE(Linformer, Scalars);

template <class T>
void expect_conforms(const MixedProblem<T>& p, std::optional<double> scale = {}) {
  const LinformerAttention op({.scale = scale});
  const auto judge = linformer_judge(scale, p);
  at_each_level([&] { judge(run_call(op, p), "linformer"); });
}

TYPED_TEST(Linformer, MatchesTheOracle) {
  using T = TypeParam;
  std::uint64_t seed = 1;
  for (const Index projected : {1, 3, 64, 97, 200}) {
    for (const auto& [queries, keys] :
         {std::array<Index, 2>{24, 24}, {1, 1}, {0, 5}, {3, 70}, {70, 3}, {65, 300}}) {
      expect_conforms(
          MixedProblem<T>({.queries = queries, .keys = keys, .projected = projected}, seed++));
    }
  }
  expect_conforms(MixedProblem<T>({.queries = 5, .keys = 1300, .projected = 130}, 3));
  expect_conforms(MixedProblem<T>({.queries = 40, .keys = 50, .width = 64, .value_width = 80}, 4),
                  -0.3);
  expect_conforms(MixedProblem<T>({.key_sharing = 2, .value_sharing = 1}, 5));
  expect_conforms(MixedProblem<T>({.batch = 3, .heads = 6, .key_heads = 6, .value_sharing = 6}, 6));
  expect_conforms(MixedProblem<T>({.width = 1, .value_width = 1}, 7));
}

TYPED_TEST(Linformer, KeyLengths) {
  using T = TypeParam;
  for (const Index keys : {40, 300}) {
    MixedProblem<T> p({.batch = 5, .queries = 30, .keys = keys}, 8);
    p.key_lengths = {0, 1, keys / 2, keys - 1, keys};
    expect_conforms(p);
    const CallResult<T> got = run_call(LinformerAttention{}, p);
    // No keys: P keys of 0, equal weights, values of 0.
    EXPECT_EQ(got["out"][0], 0);
    EXPECT_FALSE(std::signbit(got["out"][0]));
    EXPECT_NEAR(static_cast<double>(got["lse"][0]), std::log(7.0), 1e-6);
  }
}

TYPED_TEST(Linformer, LargeLogits) {
  using T = TypeParam;
  for (const double spread : {8.0, 60.0}) expect_conforms(MixedProblem<T>({}, 9, spread));
}

/// Rows of k and v from the key length on, and the columns of E and F beyond all lengths.
TYPED_TEST(Linformer, InvisibleInputsDoNotChangeBits) {
  using T = TypeParam;
  MixedProblem<T> p({.keys = 70, .key_sharing = 2}, 10);
  p.key_lengths = {20, 45};
  at_each_level([&] {
    const CallResult<T> expected = run_call(LinformerAttention{}, p);
    for (const T poison : {std::numeric_limits<T>::quiet_NaN(), std::numeric_limits<T>::infinity(),
                           std::numeric_limits<T>::max()}) {
      MixedProblem<T> other = p.in({});
      for_each_index(other.k.shape(), [&](Index b, Index h, Index n, Index d) {
        if (n < p.key_lengths[as_size(b)]) return;
        other.k(b, h, n, d) = poison;
        if (d < 3) other.v(b, h, n, d) = poison;
      });
      for_each_index(other.e.shape(), [&](Index b, Index h, Index n, Index d) {
        if (d >= 45) other.e(b, h, n, d) = other.f(b, h, n, d) = poison;
      });
      EXPECT_TRUE(same_bits(expected, run_call(LinformerAttention{}, other))) << poison;
      EXPECT_TRUE(same_bits(expected, run_call(LinformerAttention{}, other, nullptr, {}, false)));
    }
  });
}

/// A key length equals a shorter sequence with the first columns of the projections.
TYPED_TEST(Linformer, AKeyLengthEqualsAShorterSequence) {
  using T = TypeParam;
  MixedProblem<T> p({.batch = 1, .keys = 150}, 11);
  p.key_lengths = {67};
  MixedProblem<T> cut({.batch = 1, .keys = 67}, 11);
  cut.e.fill([&](Index b, Index h, Index n, Index d) { return p.e(b, h, n, d); });
  cut.f.fill([&](Index b, Index h, Index n, Index d) { return p.f(b, h, n, d); });
  const CallResult<T> a = run_call(LinformerAttention{}, p);
  const CallResult<T> b = run_call(LinformerAttention{}, cut);
  EXPECT_TRUE(same_bits(a["out"], b["out"]));
  EXPECT_TRUE(same_bits(a["lse"], b["lse"]));
  EXPECT_TRUE(same_bits(a["d_q"], b["d_q"]));
  EXPECT_EQ(a["d_key_projection"][66], b["d_key_projection"][66]);
  EXPECT_EQ(a["d_key_projection"][67], 0);
}

TYPED_TEST(Linformer, VisibleNaNReachesItsHeads) {
  using T = TypeParam;
  const MixedProblem<T> p({}, 12);
  p.k(1, 0, 3, 2) = std::numeric_limits<T>::quiet_NaN();
  p.v(0, 1, 3, 1) = std::numeric_limits<T>::infinity();
  const CallResult<T> got = run_call(LinformerAttention{}, p);
  for_each_index(p.d_out.shape(), [&](Index b, Index h, Index n, Index d) {
    const T x = got["out"][place_of(p.d_out.shape(), b, h, n, d)];
    const bool is_hit = (b == 1 && h < 2) || (b == 0 && h >= 2 && d == 1);
    EXPECT_EQ(std::isfinite(x), !is_hit) << b << h << n << d;
  });
}

TYPED_TEST(Linformer, ThreadsDoNotChangeBits) {
  using T = TypeParam;
  MixedProblem<T> p({.batch = 3, .queries = 70, .keys = 530, .projected = 140}, 13);
  p.key_lengths = {530, 300, 1};
  expect_same_bits_on_threads(LinformerAttention{}, p);
}

/// More keys than are multiplied at once, by projections that all heads share.
TYPED_TEST(Linformer, StaysWithinItsTensors) {
  between_fences([] {
    run_call(LinformerAttention{},
             MixedProblem<TypeParam>({.queries = 5, .keys = 1300, .projected = 3}));
  });
}

TYPED_TEST(Linformer, LayoutsDoNotChangeBits) {
  using T = TypeParam;
  MixedProblem<T> p({.queries = 20, .keys = 290, .projected = 70}, 14);
  p.key_lengths = {270, 290};
  expect_same_bits_in_layouts(LinformerAttention{}, p);
  expect_levels_agree([&] { return run_call(LinformerAttention{}, p); });
}

/// One projection that is broadcast along its rows or columns.
TYPED_TEST(Linformer, BroadcastProjections) {
  using T = TypeParam;
  const MixedProblem<T> p({.keys = 90, .projected = 70}, 15);
  for (const std::array<bool, 4> broadcast :
       {std::array<bool, 4>{false, false, true, false}, {false, false, false, true}}) {
    MixedProblem<T> flat = p.in({});
    flat.e = p.e.in({.broadcast = broadcast});
    MixedProblem<T> whole = p.in({});
    whole.e.fill([&](Index b, Index h, Index n, Index d) { return flat.e(b, h, n, d); });
    EXPECT_TRUE(
        same_bits(run_call(LinformerAttention{}, whole), run_call(LinformerAttention{}, flat)));
  }
}

TYPED_TEST(Linformer, BatchAndHeadsDoNotChangeBits) {
  expect_same_bits_alone(
      LinformerAttention{},
      MixedProblem<TypeParam>({.keys = 80, .projected = 70, .value_sharing = 1}, 16));
}

TYPED_TEST(Linformer, AllocatesTheStatedMemory) {
  using T = TypeParam;
  for (const MixedProblem<T>& p :
       {MixedProblem<T>({.queries = 150, .keys = 150, .projected = 40}, 17),
        MixedProblem<T>({.width = 200}, 17, 60)}) {
    expect_serves_in_arena(LinformerAttention{}, p,
                           fovea::shape_of(fovea::LinformerInputs<T>(p.inputs())));
  }
}

TYPED_TEST(Linformer, FailedAllocations) {
  MixedProblem<TypeParam> p({.queries = 70, .keys = 150, .projected = 70}, 21);
  p.key_lengths = {150, 90};
  expect_all_or_nothing_of(LinformerAttention{}, p);
}

/// A projection that picks keys is full attention over these.
TYPED_TEST(Linformer, UnitProjectionsSelectKeys) {
  using T = TypeParam;
  const MixedProblem<T> p({.keys = 60, .projected = 60, .value_sharing = 1}, 18);
  p.e.fill([](Index, Index, Index n, Index d) { return n == d ? 1 : 0; });
  p.f.fill([](Index, Index, Index n, Index d) { return n == d ? 1 : 0; });
  const Tensor<T> out(p.d_out.shape());
  fovea::FullAttention{}.forward({p.q.view(), p.k.view(), p.v.view()}, out.view());
  EXPECT_TRUE(same_bits(run_call(LinformerAttention{}, p)["out"], out.values()));
}

TEST(LinformerDifferences, OfEveryInput) {
  MixedProblem<double> p({.queries = 5, .keys = 9, .width = 3, .value_width = 2}, 19);
  p.key_lengths = {6, 9};
  expect_differences(LinformerAttention{}, p);
  MixedProblem<double> more({.queries = 4, .keys = 3, .projected = 8, .key_sharing = 2}, 20);
  expect_differences(LinformerAttention({.scale = 0.7}), more);
}

}  // namespace fovea_test::attention_linformer
