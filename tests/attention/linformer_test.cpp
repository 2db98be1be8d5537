// SPDX-License-Identifier: MIT
// fovea_test(OPTIMISED)
/// \file
/// Linformer attention beyond the conformance suite: what NaN reaches, and projections that are
/// broadcast.
#include "fovea/attention/linformer.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "attention/mixed_problems.hpp"
#include "support/scalars.hpp"

namespace fovea_test::attention_linformer {

static_assert(fovea::DifferentiableAttention<LinformerAttention, float>);
static_assert(fovea::DifferentiableAttention<LinformerAttention, double>);

template <class T>
class Linformer : public testing::Test {};
TYPED_TEST_SUITE(Linformer, Scalars);

TYPED_TEST(Linformer, VisibleNaNReachesItsHeads) {
  using T = TypeParam;
  const LinformerProblem<T> p({}, {2, 4, 2, 24, 24, 5, 3}, {{'f', 2}});
  p["k"](1, 0, 3, 2) = std::numeric_limits<T>::quiet_NaN();
  p["v"](0, 1, 3, 1) = std::numeric_limits<T>::infinity();
  const CallResult<T> got = p.run();
  for_each_index(p.d_out.shape(), [&](Index b, Index h, Index n, Index d) {
    const T x = got["out"][place_of(p.d_out.shape(), b, h, n, d)];
    const bool is_hit = (b == 1 && h < 2) || (b == 0 && h >= 2 && d == 1);
    EXPECT_EQ(std::isfinite(x), !is_hit) << b << h << n << d;
  });
}

/// One projection that is broadcast along its rows or columns.
TYPED_TEST(Linformer, BroadcastProjections) {
  using T = TypeParam;
  const auto make = [] {
    return LinformerProblem<T>({}, {2, 4, 2, 24, 90, 5, 3}, {{'P', 70}, {'f', 2}});
  };
  for (const std::array<bool, 4> broadcast :
       {std::array<bool, 4>{false, false, true, false}, {false, false, false, true}}) {
    const Tensor<T> thin = make()["key_projection"].in({.broadcast = broadcast});
    const LinformerProblem<T> whole = make();
    whole["key_projection"].fill(
        [&](Index b, Index h, Index n, Index d) { return thin(b, h, n, d); });
    const LinformerProblem<T> p = make();
    auto in = p.inputs();
    in.key_projection = thin.view();
    const Tensor<T> out(p.d_out.shape());
    p.op.forward(in, out.view());
    EXPECT_TRUE(same_bits(whole.run()["out"], out.values()));
  }
}

}  // namespace fovea_test::attention_linformer
