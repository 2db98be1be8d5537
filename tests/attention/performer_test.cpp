// SPDX-License-Identifier: MIT
// fovea_test(OPTIMISED)
/// \file
/// Performer attention beyond the conformance suite: against its oracle with logits of the map that
/// rise and fall by hundreds; tokens that raise references and are rolled back; random and
/// degenerate projections, and NaN in them. (fuzz/operators_test.cpp draws numbers of features.)
#include "fovea/attention/performer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "attention/gradients.hpp"
#include "attention/performer_case.hpp"
#include "fovea/core/eigen.hpp"
#include "support/scalars.hpp"

namespace fovea_test::attention_performer {

using fovea::PerformerAttention;

static_assert(fovea::DifferentiableAttention<PerformerAttention, double>);
static_assert(fovea::IncrementalAttention<PerformerAttention, float>);

/// With a random projection.
template <class T>
Problem<T> performer_problem(const AttentionShape& s, Index features, const Fill& q,
                             const Fill& k) {
  const Case<T> op = performer_case<T>("performer", {}, features);
  Problem<T> made = make_problem(op, s, 4, {q, k, gaussian(3)});
  fovea::draw_projection(5, made.projection->view());
  return made;
}

/// Forward and backward against the oracle, causal and not.
template <class T>
void expect_oracle(const Problem<T>& p) {
  const Index features = p.projection->shape()[2];
  expect_both_conform(performer_case<T>("performer", {}, features), p);
  expect_both_conform(performer_case<T>("performer", {.causal = true}, features), p);
}

template <class T>
std::vector<T> out_of(const PerformerAttention& op, const Problem<T>& p) {
  const Tensor<T> out(p.out_shape());
  op.forward(p.inputs(), out.view());
  return out.values();
}

/// Normally distributed rows; row n is scaled by size(n).
template <class F>
Fill sized(std::uint64_t seed, F size) {
  const Fill normal = gaussian(seed);
  return [=](Index b, Index h, Index n, Index d) { return size(n) * normal(b, h, n, d); };
}

template <class T>
class Performer : public testing::Test {};
TYPED_TEST_SUITE(Performer, Scalars);

TYPED_TEST(Performer, LogitsThatRiseAndFall) {
  using T = TypeParam;
  // |xh|^2 / 2 of a row of 8 normal numbers times s is about 1.4 s^2.
  const auto rises = [](Index n) { return 12 - 0.08 * static_cast<double>(n); };
  const auto falls = [](Index n) { return 0.5 + 0.08 * static_cast<double>(n); };
  const auto jumps = [](Index n) { return n % 37 == 0 ? 0.1 : 12.0; };
  const auto late = [](Index n) { return n == 139 ? 0.0 : 14.0; };
  for (const Fill& k : {sized(2, rises), sized(2, falls), sized(2, jumps), sized(2, late)}) {
    expect_oracle(performer_problem<T>({1, 2, 1, 140, 140, 8, 5}, 9, gaussian(1), k));
    expect_oracle(performer_problem<T>({1, 2, 1, 140, 140, 8, 5}, 9, gaussian(1, 20), k));
  }
}

/// Features that are large for keys may be small for queries.
TYPED_TEST(Performer, FeaturesThatAreFarApart) {
  using T = TypeParam;
  const Problem<T> p = performer_problem<T>({1, 1, 1, 40, 40, 2, 3}, 2, gaussian(1), gaussian(2));
  const auto at = [&](Index r, Index c, double x) {
    (*p.projection)(0, 0, r, c) = static_cast<T>(x);
  };
  at(0, 0, 100);
  at(0, 1, 0);
  at(1, 0, -100);
  at(1, 1, 1);
  for (Index n = 0; n < 40; ++n) {
    p.q(0, 0, n, 0) = static_cast<T>(2.5);
    p.k(0, 0, n, 0) = static_cast<T>(-2.5 + 0.01 * static_cast<double>(n % 7));
  }
  expect_oracle(p);
}

/// A token that raises references, and others after it, are taken back: the rows that follow have
/// the bits of the forward pass without them.
TYPED_TEST(Performer, RollsBackTokensThatRaiseReferences) {
  using T = TypeParam;
  // Logits grow from about -560 to -90, so that tokens raise references now and then, too; those
  // that are taken back raise them to 0 where their size is 0.
  const auto falls = [](Index n) { return 20 - 0.12 * static_cast<double>(n); };
  const Problem<T> p =
      performer_problem<T>({1, 4, 2, 100, 100, 8, 5}, 9, gaussian(1), sized(2, falls));
  const PerformerAttention op({.causal = true});
  const std::vector<T> expected = out_of(op, p);
  auto decoder = op.template decoder<T>({1, 4, 2, 8, 5, 0, 0, 9});
  const Tensor<T> wrong_k({1, 2, 20, 8}), wrong_v({1, 2, 20, 5});
  wrong_k.fill(sized(8, [](Index n) { return n % 3 == 1 ? 0.0 : 30.0; }));
  wrong_v.fill(constant(1e6));
  Draw draw(9);
  const View<const T> projection = p.projection->view();
  for (Index n = 0; n < 100; ++n) {
    const Index room = n == 0 ? 0 : 31 - (n - 1) % 32;
    for (Index wrong = std::min(room, draw(0, 5)); wrong > 0;) {
      decoder.append(cut(View<const T>(wrong_k.view()), 2, draw(0, 10), wrong),
                     cut(View<const T>(wrong_v.view()), 2, 0, wrong), projection);
      const Index left = draw(0, wrong - 1);  // in one step or in several
      decoder.rollback(n + left);
      if (left > 0) decoder.rollback(n);
      wrong = 0;
    }
    const Tensor<T> row({1, 4, 1, 5});
    fovea::PerformerInputs<T> in{cut(View<const T>(p.q.view()), 2, n, 1),
                                 cut(View<const T>(p.k.view()), 2, n, 1),
                                 cut(View<const T>(p.v.view()), 2, n, 1)};
    in.projection = projection;
    decoder.step(in, row.view());
    for (Index h = 0; h < 4; ++h) {
      ASSERT_TRUE(
          same_bits(&row(0, h, 0, 0), &expected[as_size((h * 100 + n) * 5)], 5, {1, 1, 1, 5}))
          << "row " << n;
    }
  }
}

TYPED_TEST(Performer, ZeroRowsAndNaNOfTheProjection) {
  using T = TypeParam;
  const Problem<T> p = performer_problem<T>({1, 1, 1, 50, 50, 4, 3}, 3, gaussian(1), gaussian(2));
  for (Index c = 0; c < 4; ++c) (*p.projection)(0, 0, 1, c) = 0;
  expect_oracle(p);
  (*p.projection)(0, 0, 2, 1) = std::numeric_limits<T>::quiet_NaN();
  for (const bool causal : {false, true}) {
    for (const T x : out_of(PerformerAttention({.causal = causal}), p)) EXPECT_TRUE(std::isnan(x));
  }
}

TEST(DrawProjection, RowsAreOrthogonalAndChiDistributed) {
  constexpr Index kWidth = 16, kFeatures = 1600;
  const Tensor<double> w({1, 1, kFeatures, kWidth});
  const Tensor<float> rounded(w.shape());
  fovea::draw_projection(11, w.view());
  fovea::draw_projection(11, rounded.view());
  double squares = 0, fourths = 0, sum = 0;
  for (Index r = 0; r < kFeatures; ++r) {
    const auto product = [&](Index s) {
      double x = 0;
      for (Index c = 0; c < kWidth; ++c) x += w(0, 0, r, c) * w(0, 0, s, c);
      return x;
    };
    for (Index s = r / kWidth * kWidth; s < r; ++s) EXPECT_LT(std::abs(product(s)), 1e-12);
    squares += product(r) / kFeatures;
    fourths += product(r) * product(r) / kFeatures;
    for (Index c = 0; c < kWidth; ++c) {
      sum += w(0, 0, r, c);
      EXPECT_EQ(rounded(0, 0, r, c), static_cast<float>(w(0, 0, r, c)));
    }
  }
  // Mean and variance of chi squared are D and 2 D; within 4 standard deviations of their means.
  EXPECT_NEAR(squares, kWidth, 4 * std::sqrt(2.0 * kWidth / kFeatures));
  EXPECT_NEAR(fourths - squares * squares, 2 * kWidth, 8);
  EXPECT_NEAR(sum / (kFeatures * kWidth), 0, 4 / std::sqrt(1.0 * kFeatures * kWidth));
}

TEST(DrawProjection, PrefixesAndSeeds) {
  const Tensor<double> few({1, 1, 5, 4}), more({1, 1, 11, 4}), other({1, 1, 5, 4});
  fovea::draw_projection(1, few.view());
  fovea::draw_projection(1, more.view());
  fovea::draw_projection(2, other.view());
  for (Index r = 0; r < 5; ++r) {
    for (Index c = 0; c < 4; ++c) {
      EXPECT_EQ(few(0, 0, r, c), more(0, 0, r, c));
      EXPECT_NE(few(0, 0, r, c), other(0, 0, r, c));
    }
  }
  Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor> matrix(5, 4);
  fovea::draw_projection(1, matrix);
  EXPECT_EQ(matrix(3, 2), static_cast<float>(few(0, 0, 3, 2)));
}

/// The projection of a seed never changes between versions: element [r, c] of the first block of a
/// projection of one column is the length of its row, which one normal draw gives.
TEST(DrawProjection, MatchesTheDocumentedDraws) {
  const Tensor<double> column({1, 1, 3, 1});
  fovea::draw_projection(9, column.view());
  for (Index r = 0; r < 3; ++r) {
    const double u = fovea::uniform_draw<double>(9, r, 0, 0, 2);
    const double angle = fovea::uniform_draw<double>(9, r, 0, 0, 3);
    const double length =
        std::abs(std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * angle));
    EXPECT_NEAR(std::abs(column(0, 0, r, 0)), length, 1e-15 * length) << r;
  }
}

TEST(DrawProjection, WithoutColumns) {
  const Tensor<double> none({1, 1, 3, 0});
  fovea::draw_projection(9, none.view());
  EXPECT_EQ(none.changed_gaps(), 0);
}

/// The mean over many features of <phi(q), phi(k)> is exp(<q, k> / sqrt(D)), so this is nearly
/// softmax attention.
TEST(PerformerFeatures, ApproximateSoftmax) {
  const AttentionShape shape{1, 1, 1, 20, 20, 8, 4};
  const Problem<double> p =
      performer_problem<double>(shape, 20000, gaussian(1, 0.3), gaussian(2, 0.3));
  const Tensor<double> exact(p.out_shape());
  fovea::FullAttention{{.causal = true}}.forward(p.inputs(), exact.view());
  const std::vector<double> got = out_of(PerformerAttention({.causal = true}), p);
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], exact.values()[i], 0.05);
}

}  // namespace fovea_test::attention_performer
