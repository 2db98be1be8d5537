// SPDX-License-Identifier: MIT
/// \file
/// The arguments that a user's score modifier gets for each pair: every kernel passes the position,
/// head and sequence that a full bias has. (The conformance suite has an operator with a modifier;
/// here the modifier depends on the pair.)
#include "fovea/attention/modified.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <string>
#include <vector>

#include "attention/gradients.hpp"
#include "attention/pieces.hpp"
#include "fovea/core/thread_pool.hpp"

namespace fovea_test::attention_modified {

using fovea::ModifiedAttention;
using fovea::ScorePair;

std::atomic<int> pairs_outside{0};

/// Adds a function of the positions.
struct ByPosition {
  template <class T>
  T value(T z, ScorePair p) const noexcept {
    return static_cast<T>((7 * p.query + 3 * p.key + 5 * p.head + 11 * p.batch) % 13) / 4 + z;
  }
  template <class T>
  T derivative(T /*z*/, ScorePair /*p*/) const noexcept {
    return 1;
  }
};

/// Adds a function of the pair to the logit. Pairs outside the sequences are counted.
struct ByPair {
  Index first_position;  // of row 0
  Index queries;
  Index keys;

  double added(ScorePair p) const noexcept {
    const bool inside = 0 <= p.row && p.row < queries && p.query == p.row + first_position &&
                        0 <= p.key && p.key < keys;
    if (!inside) ++pairs_outside;
    const Index told = 7 * p.query + 2 * p.row + 3 * p.key + 5 * p.head + 11 * p.batch;
    return static_cast<double>((told % 13 + 13) % 13) / 4 - 1;
  }
  template <class T>
  T value(T z, ScorePair p) const noexcept {
    return static_cast<T>(added(p)) + z;
  }
  template <class T>
  T derivative(T /*z*/, ScorePair /*p*/) const noexcept {
    return 1;
  }
};

template <class T>
void expect_near(const std::vector<T>& modified, const std::vector<T>& biased) {
  const double tolerance = sizeof(T) == 4 ? 2e-5 : 1e-13;
  ASSERT_EQ(modified.size(), biased.size());
  for (std::size_t n = 0; n < modified.size(); ++n) {
    const auto expected = static_cast<double>(biased[n]);
    ASSERT_NEAR(static_cast<double>(modified[n]), expected, tolerance * (1 + std::abs(expected)))
        << "element " << n;
  }
}

/// Output and gradients are those with a bias that adds what the modifier adds.
/// \param first_positions of the inputs, or none
template <class T, class Op>
void expect_as_a_bias(const Op& op, Index queries, Index keys, Index first_position,
                      const std::vector<Index>& first_positions = {}) {
  SCOPED_TRACE(std::to_string(queries) + " queries, " + std::to_string(keys) + " keys");
  const ByPair by{first_position, queries, keys};
  const Case<T> modified = make_case<T>("modified", ModifiedAttention(op, by), all_pairs);
  const Case<T> biased = make_case<T>("biased", op, all_pairs);
  const Problem<T> problem = make_problem(biased, {3, 2, 2, queries, keys, 5, 5});
  const Tensor<T> bias({3, 2, queries, keys});
  bias.fill([&](Index b, Index h, Index i, Index j) {
    return by.added({b, h, i + first_position, j, i});
  });
  AllInputs<T> in = problem.inputs();
  in.first_positions = first_positions;
  AllInputs<T> with_bias = in;
  with_bias.bias = bias.view();
  const Tensor<T> d = make_d_out(problem);
  const View<const T> d_out = d.view();
  const auto [out, grads] = run_both(modified, in, d_out);
  const auto [expected, expected_grads] =
      run_both(biased, with_bias, d_out, nullptr, {}, {.bias = false});
  expect_near(out.out, expected.out);
  expect_near(grads.q, expected_grads.q);
  expect_near(grads.k, expected_grads.k);
  expect_near(grads.v, expected_grads.v);
}

template <class T>
class Modified : public testing::Test {};
TYPED_TEST_SUITE(Modified, Scalars);

TYPED_TEST(Modified, GetsThePositionsOfAllPairs) {
  using T = TypeParam;
  at_each_level([] {
    expect_as_a_bias<T>(fovea::FullAttention{}, 70, 150, 80);
    expect_as_a_bias<T>(fovea::FullAttention{{.causal = true}}, 90, 90, 0);
    expect_as_a_bias<T>(fovea::FullAttention{{.causal = true}}, 3, 300, 297);  // few queries
    expect_as_a_bias<T>(fovea::FullAttention{{.causal = true}}, 1, 33, 32);
    expect_as_a_bias<T>(
        fovea::FullAttention{{.causal = true, .alignment = fovea::CausalAlignment::top_left}}, 40,
        60, 0);
    expect_as_a_bias<T>(fovea::LocalAttention{{.left = 3, .right = 2}}, 100, 100, 0);  // a band
    expect_as_a_bias<T>(fovea::StridedAttention{{.stride = 8}}, 130, 130, 0);
    expect_as_a_bias<T>(fovea::StridedAttention{{.stride = 8}}, 2, 130, 128);
    // More queries than keys: the first rows are before position 0, or the last ones after the last
    // key.
    expect_as_a_bias<T>(fovea::FullAttention{}, 8, 6, -2);
    expect_as_a_bias<T>(fovea::FullAttention{{.causal = true}}, 70, 50, -20);
    expect_as_a_bias<T>(fovea::LocalAttention{{.left = 3, .right = 9}}, 40, 30, -10);
    expect_as_a_bias<T>(fovea::FullAttention{{.alignment = fovea::CausalAlignment::top_left}}, 70,
                        50, 0);
  });
  EXPECT_EQ(pairs_outside, 0);
}

/// Rows at given positions, forward and backward.
TYPED_TEST(Modified, GetsThePositionsInTheInputs) {
  at_each_level([] {
    for (const Index queries : {4, 40}) {
      expect_as_a_bias<TypeParam>(fovea::FullAttention{{.causal = true}}, queries, 18, 12,
                                  {12, 12, 12});
    }
  });
  EXPECT_EQ(pairs_outside, 0);
}

TYPED_TEST(Modified, TheDecoderAndThreadsMatchOneCallBitwise) {
  using T = TypeParam;
  constexpr Index n = 70;
  // A step has its own row numbers, so only positions are compared.
  const Case<T> op = make_case<T>(
      "by position", ModifiedAttention(fovea::FullAttention{{.causal = true}}, ByPosition{}),
      band(kAllKeys, 0));
  const Problem<T> problem = make_problem(op, {3, 2, 2, n, n, 5, 5});
  at_each_level([&] {
    const Result<T> all = run(op, problem);
    fovea::ThreadPool pool(3);
    AnyExecutor threads = AnyExecutor::of(pool);
    EXPECT_TRUE(same_bits(all, run(op, problem, &threads)));
    const AnyDecoder<T> decoder = op.decoder(decoder_shape(problem.shape));
    const Tensor<T> out(problem.out_shape());
    for (Index i = 0; i < n; ++i) {
      decoder.step(rows_with_keys(problem.inputs(), i, 1, i), cut(out.view(), 2, i, 1), {});
    }
    EXPECT_TRUE(same_bits(all.out, out.values()));
  });
}

/// Counts the logits that are not those of the pairs they come with.
template <class T>
struct ByLogit {
  const Problem<T>* problem;
  std::atomic<int>* asked;
  std::atomic<int>* others;

  void compare(T z, ScorePair p) const noexcept {
    double expected = 0;
    for (Index c = 0; c < 5; ++c) {
      expected += static_cast<double>(problem->q(p.batch, p.head, p.query, c)) *
                  static_cast<double>(problem->k(p.batch, p.head, p.key, c));
    }
    ++*asked;
    if (!(std::abs(static_cast<double>(z) - expected / 2) < 1e-4)) ++*others;
  }
  T value(T z, ScorePair p) const noexcept {
    compare(z, p);
    return z;
  }
  T derivative(T z, ScorePair p) const noexcept {
    compare(z, p);
    return 1;
  }
};

TYPED_TEST(Modified, IsCalledForHiddenPairsToo) {
  using T = TypeParam;
  constexpr Index n = 200;
  const Problem<T> problem = make_problem(Case<T>{}, {1, 2, 2, n, n, 5, 5});
  std::atomic<int> asked = 0;
  std::atomic<int> others = 0;
  const ByLogit<T> by{&problem, &asked, &others};
  at_each_level([&] {
    const auto ask = [&](const auto& op) {
      run_both(make_case<T>("asked", ModifiedAttention(op, by), all_pairs), problem);
    };
    ask(fovea::FullAttention{{.causal = true, .scale = 0.5}});
    ask(fovea::LocalAttention{{.left = 3, .right = 2, .scale = 0.5}});
    ask(fovea::StridedAttention{{.stride = 8, .scale = 0.5}});
  });
  EXPECT_GT(asked, 0);
  EXPECT_EQ(others, 0) << "of " << asked;
}

/// A modifier may be without a derivative: forward compiles.
struct Squared {
  float value(float z, ScorePair /*pair*/) const noexcept { return z * z; }
};

TEST(Modified, ForwardNeedsNoDerivative) {
  const Problem<float> problem = make_problem(Case<float>{}, {1, 2, 2, 9, 9, 5, 5});
  const Tensor<float> out(problem.out_shape()), plain(problem.out_shape());
  const ModifiedAttention op(fovea::FullAttention{}, Squared{});
  static_assert(fovea::ScoreModifier<Squared, float>);
  static_assert(!fovea::DifferentiableScoreModifier<Squared, float>);
  op.forward(problem.inputs(), out.view());
  // Squares of logits that are all 0 are 0.
  fovea::FullAttention{{.scale = 0}}.forward(problem.inputs(), plain.view());
  const ModifiedAttention zero(fovea::FullAttention{{.scale = 0}}, Squared{});
  zero.forward(problem.inputs(), out.view());
  for_each_index(out.shape(), [&](Index b, Index h, Index i, Index c) {
    EXPECT_EQ(out(b, h, i, c), plain(b, h, i, c));
  });
}

}  // namespace fovea_test::attention_modified
