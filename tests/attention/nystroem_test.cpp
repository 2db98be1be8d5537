// SPDX-License-Identifier: MIT
// fovea_test(OPTIMISED)
/// \file
/// Nystroem attention beyond the conformance suite: what NaN reaches, tensors that were not saved,
/// and how it nears full attention.
#include "fovea/attention/nystroem.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "attention/mixed_problems.hpp"
#include "support/scalars.hpp"

namespace fovea_test::attention_nystroem {

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

TYPED_TEST(Nystroem, VisibleNaNReachesItsHeads) {
  using T = TypeParam;
  for (const NystroemScale scale : {NystroemScale::matrix, NystroemScale::batch_max}) {
    const NystroemProblem<T> p(with(4, 6, scale), {2, 4, 2, 24, 24, 5, 3});
    p["k"](1, 0, 3, 2) = std::numeric_limits<T>::quiet_NaN();
    const CallResult<T> got = p.run();
    for_each_index(p.d_out.shape(), [&](Index b, Index h, Index n, Index d) {
      const bool is_hit = scale == NystroemScale::batch_max || (b == 1 && h < 2);
      EXPECT_EQ(std::isnan(got["out"][place_of(p.d_out.shape(), b, h, n, d)]), is_hit) << b << h;
    });
  }
}

/// Of the two tensors of landmarks one alone is not read: both are computed again.
TYPED_TEST(Nystroem, OneSavedTensorDoesNotChangeBits) {
  using T = TypeParam;
  const NystroemAttention op = with(4);
  const NystroemProblem<T> p(op, {2, 4, 2, 40, 40, 5, 3});
  const CallResult<T> expected = p.run();
  for (const bool keeps_lse : {true, false}) {
    const WrittenTensors<NystroemAttention, NystroemProblem<T>> to(op, p);
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

/// With a landmark for each token and enough steps it is full attention, and with fewer it is
/// further away.
TEST(NystroemLimit, ApproachesFullAttention) {
  const NystroemProblem<double> p(with(16), {1, 2, 2, 16, 16, 8, 3});
  for (const char* x : {"q", "k"}) p[x].fill(gaussian(50, 1.5));
  const Tensor<double> full(p.d_out.shape());
  fovea::FullAttention{}.forward(p.all_inputs(), full.view());
  const auto distance = [&](Index landmarks, Index steps) {
    const Tensor<double> out(p.d_out.shape());
    with(landmarks, steps).forward(p.inputs(), out.view());
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

}  // namespace fovea_test::attention_nystroem
