// SPDX-License-Identifier: MIT
// fovea_test(OPTIMISED HEAP)
/// \file
/// Nystroem attention against its oracle, whose gradients are those of dual numbers, and central
/// differences; bits; key lengths; how it nears full attention.
#include "fovea/attention/nystroem.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "attention/mixed_oracles.hpp"
#include "support/scalars.hpp"

namespace fovea_test::attention_nystroem {

using fovea::NystroemAttention;
using fovea::NystroemOptions;
using fovea::NystroemScale;

static_assert(fovea::DifferentiableAttention<NystroemAttention, float>);
static_assert(fovea::DifferentiableAttention<NystroemAttention, double>);

template <class T>
class Nystroem : public testing::Test {};
TYPED_TEST_SUITE(Nystroem, Scalars);

NystroemAttention with(Index landmarks, Index iterations = 6,
                       NystroemScale scale = NystroemScale::matrix) {
  NystroemOptions options;
  options.landmarks = landmarks;
  options.iterations = iterations;
  options.first_scale = scale;
  return NystroemAttention(options);
}

template <class T>
void expect_conforms(const NystroemAttention& op, const MixedProblem<T>& p, bool gradients = true) {
  const auto judge = nystroem_judge(op.options, p, gradients);
  at_each_level([&] { judge(run_call(op, p), "nystroem"); });
}

TYPED_TEST(Nystroem, MatchesTheOracle) {
  using T = TypeParam;
  std::uint64_t seed = 1;
  for (const NystroemScale scale : {NystroemScale::matrix, NystroemScale::batch_max}) {
    for (const Index steps : {0, 1, 6}) {
      const MixedProblem<T> small({.queries = 8, .keys = 8, .width = 3, .value_width = 2}, seed++);
      expect_conforms(with(4, steps, scale), small);
      const MixedProblem<T> p({.queries = 60, .keys = 60}, seed++);
      expect_conforms(with(4, steps, scale), p, false);
    }
  }
  for (const Index landmarks : {1, 2, 5, 16, 40}) {
    const MixedProblem<T> p({.queries = 80, .keys = 80, .width = 8, .landmarks = landmarks},
                            seed++);
    expect_conforms(with(landmarks, 6), p, false);
  }
  const MixedSizes wide{
      .batch = 1, .queries = 260, .keys = 260, .width = 64, .value_width = 70, .landmarks = 65};
  expect_conforms(with(65), MixedProblem<T>(wide, seed++), false);
}

/// As many queries as landmarks, other numbers of queries and keys, one token, none.
TYPED_TEST(Nystroem, Sizes) {
  using T = TypeParam;
  expect_conforms(with(4), MixedProblem<T>({.queries = 4, .keys = 12, .width = 2}, 31));
  expect_conforms(with(4), MixedProblem<T>({.queries = 12, .keys = 4, .width = 2}, 32));
  expect_conforms(with(1), MixedProblem<T>({.queries = 1, .keys = 1, .landmarks = 1}, 33));
  expect_conforms(
      with(2),
      MixedProblem<T>(
          {.heads = 6, .key_heads = 3, .queries = 4, .keys = 4, .value_width = 1, .landmarks = 2},
          34));
  const MixedProblem<T> none({.queries = 0, .keys = 8}, 35);
  const CallResult<T> got = run_call(with(4), none);
  for (const T x : got["d_k"]) EXPECT_EQ(x, 0);
  const CallResult<T> empty = run_call(with(4), MixedProblem<T>({.keys = 0}, 36));
  for (const T x : empty["out"]) EXPECT_EQ(x, 0);
}

TYPED_TEST(Nystroem, KeyLengths) {
  using T = TypeParam;
  for (const NystroemScale scale : {NystroemScale::matrix, NystroemScale::batch_max}) {
    MixedProblem<T> p(
        {.batch = 3, .heads = 2, .key_heads = 1, .queries = 12, .keys = 12, .width = 3}, 41);
    p.key_lengths = {0, 8, 12};
    expect_conforms(with(4, 6, scale), p);
    const CallResult<T> got = run_call(with(4, 6, scale), p);
    EXPECT_FALSE(std::signbit(got["out"][0]));
    EXPECT_EQ(got["lse"][0], -std::numeric_limits<T>::infinity());
  }
}

/// Tokens from the length on change no bit, and the others have those of a shorter sequence.
TYPED_TEST(Nystroem, InvisibleInputsDoNotChangeBits) {
  using T = TypeParam;
  MixedProblem<T> p({.queries = 40, .keys = 40}, 42);
  p.key_lengths = {20, 36};
  at_each_level([&] {
    const CallResult<T> expected = run_call(with(4), p);
    for (const T poison : {std::numeric_limits<T>::quiet_NaN(), std::numeric_limits<T>::infinity(),
                           std::numeric_limits<T>::max()}) {
      const MixedProblem<T> other = p.in({});
      for_each_index({2, 4, 40, 3}, [&](Index b, Index h, Index n, Index d) {
        if (n < p.key_lengths[as_size(b)]) return;
        other.q(b, h, n, d) = other.k(b, h / 2, n, d) = other.v(b, h / 2, n, d) = poison;
        other.d_out(b, h, n, d) = poison;
      });
      EXPECT_TRUE(same_bits(expected, run_call(with(4), other))) << poison;
      EXPECT_TRUE(same_bits(expected, run_call(with(4), other, nullptr, {}, false))) << poison;
    }
    MixedProblem<T> cut({.batch = 1, .queries = 20, .keys = 20}, 42);
    const CallResult<T> shorter = run_call(with(4), cut);
    for_each_index({1, 4, 20, 3}, [&](Index, Index h, Index n, Index d) {
      EXPECT_EQ(expected["out"][place_of(p.d_out.shape(), 0, h, n, d)],
                shorter["out"][place_of(cut.d_out.shape(), 0, h, n, d)]);
    });
  });
}

TYPED_TEST(Nystroem, VisibleNaNReachesItsHeads) {
  using T = TypeParam;
  for (const NystroemScale scale : {NystroemScale::matrix, NystroemScale::batch_max}) {
    const MixedProblem<T> p({}, 43);
    p.k(1, 0, 3, 2) = std::numeric_limits<T>::quiet_NaN();
    const CallResult<T> got = run_call(with(4, 6, scale), p);
    for_each_index(p.d_out.shape(), [&](Index b, Index h, Index n, Index d) {
      const bool is_hit = scale == NystroemScale::batch_max || (b == 1 && h < 2);
      EXPECT_EQ(std::isnan(got["out"][place_of(p.d_out.shape(), b, h, n, d)]), is_hit) << b << h;
    });
  }
}

/// Equal keys: every column of A has the sum 1, and the first one takes the gradient.
TYPED_TEST(Nystroem, TiesOfTheNorm) {
  using T = TypeParam;
  const MixedProblem<T> p({.queries = 8, .keys = 8, .width = 2}, 44);
  p.k.fill(constant(0.5));
  for (const Index steps : {0, 1, 3}) expect_conforms(with(4, steps), p);
}

TYPED_TEST(Nystroem, ThreadsDoNotChangeBits) {
  using T = TypeParam;
  MixedProblem<T> p({.batch = 3, .queries = 260, .keys = 260, .landmarks = 20}, 45);
  expect_same_bits_on_threads(with(20), p);
  p.key_lengths = {260, 0, 100};
  expect_same_bits_on_threads(with(20, 3, NystroemScale::batch_max), p);
}

/// Of the two tensors of landmarks one alone is not read: both are computed again.
TYPED_TEST(Nystroem, OneSavedTensorDoesNotChangeBits) {
  using T = TypeParam;
  const MixedProblem<T> p({.queries = 40, .keys = 40}, 50);
  const NystroemAttention op = with(4);
  const CallResult<T> expected = run_call(op, p);
  for (const bool keeps_lse : {true, false}) {
    const WrittenTensors<NystroemAttention, MixedProblem<T>> to(op, p);
    fovea::NystroemSaved<T> saved = to.saved();
    (keeps_lse ? saved.landmark_values : saved.landmark_lse) = {};
    op.forward(p.inputs(), to.out().view(), saved);
    op.backward(p.inputs(), to.out().view(), saved, p.d_out.view(), to.grads());
    const CallResult<T> got = to.result();
    for (const char* name : {"d_q", "d_k", "d_v"}) {
      EXPECT_TRUE(same_bits(got[name], expected[name])) << name;
    }
  }
}

TYPED_TEST(Nystroem, LayoutsDoNotChangeBits) {
  using T = TypeParam;
  MixedProblem<T> p({.queries = 140, .keys = 140, .landmarks = 10}, 46);
  expect_same_bits_in_layouts(with(10), p);
  expect_levels_agree([&] { return run_call(with(10), p); });
}

TYPED_TEST(Nystroem, BatchAndHeadsDoNotChangeBits) {
  expect_same_bits_alone(with(4), MixedProblem<TypeParam>({.queries = 60, .keys = 60}, 47));
}

TYPED_TEST(Nystroem, AllocatesTheStatedMemory) {
  using T = TypeParam;
  MixedProblem<T> p({.queries = 160, .keys = 160, .landmarks = 8}, 48);
  expect_serves_in_arena(with(8), p, p.sizes.common());
  p.key_lengths = {80, 160};
  expect_serves_in_arena(with(8, 2, NystroemScale::batch_max), p, p.sizes.common());
  const MixedProblem<T> wide({.width = 200, .landmarks = 8}, 49, 30);
  expect_serves_in_arena(with(8), wide, wide.sizes.common());
}

TYPED_TEST(Nystroem, FailedAllocations) {
  MixedProblem<TypeParam> p({.queries = 80, .keys = 80, .landmarks = 8}, 53);
  p.key_lengths = {80, 40};
  for (const NystroemScale scale : {NystroemScale::matrix, NystroemScale::batch_max}) {
    expect_all_or_nothing_of(with(8, 2, scale), p);
  }
}

/// With a landmark for each token and enough steps it is full attention, and with fewer it is
/// further away.
TEST(NystroemLimit, ApproachesFullAttention) {
  const MixedProblem<double> p(
      {.batch = 1, .heads = 2, .key_heads = 2, .queries = 16, .keys = 16, .width = 8}, 50, 1.5);
  const Tensor<double> full(p.d_out.shape());
  fovea::FullAttention{}.forward(p.inputs(), full.view());
  const auto distance = [&](Index landmarks, Index steps) {
    const Tensor<double> out(p.d_out.shape());
    with(landmarks, steps).forward(p.inputs(), out.view(), AllSaved<double>{});
    double sum = 0;
    for_each_index(out.shape(), [&](Index b, Index h, Index n, Index d) {
      sum += std::pow(out(b, h, n, d) - full(b, h, n, d), 2);
    });
    return std::sqrt(sum);
  };
  EXPECT_LT(distance(16, 40), 1e-6);
  EXPECT_LT(distance(16, 12), distance(16, 2));
  EXPECT_LT(distance(16, 40), distance(4, 40));
}

TEST(NystroemDifferences, OfEveryInput) {
  MixedProblem<double> p({.queries = 8, .keys = 12, .width = 3, .value_width = 2}, 51);
  for (const NystroemScale scale : {NystroemScale::matrix, NystroemScale::batch_max}) {
    for (const Index steps : {0, 1, 6}) expect_differences(with(4, steps, scale), p, 1e-6);
  }
  MixedProblem<double> cut({.queries = 12, .keys = 12, .width = 3, .value_width = 2}, 52);
  cut.key_lengths = {4, 8};
  expect_differences(with(4), cut, 1e-6);
}

}  // namespace fovea_test::attention_nystroem
