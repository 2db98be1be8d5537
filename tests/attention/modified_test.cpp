// SPDX-License-Identifier: MIT
/// \file
/// The arguments that a user's score modifier gets for each pair: every kernel passes the position,
/// head and sequence that a full bias has. (The conformance suite has an operator with a modifier;
/// here the modifier depends on the pair.)
#include "fovea/attention/modified.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <vector>

#include "fovea/attention/full.hpp"
#include "fovea/attention/local.hpp"
#include "fovea/attention/strided.hpp"
#include "fovea/core/thread_pool.hpp"
#include "support/fill.hpp"
#include "support/levels.hpp"
#include "support/scalars.hpp"
#include "support/tensor.hpp"

namespace fovea_test::attention_modified {

using fovea::ModifiedAttention;
using fovea::ScorePair;

constexpr Index kHeads = 2;
constexpr Index kWidth = 5;

std::atomic<int> pairs_outside{0};

/// Adds a function of the positions.
struct ByPosition {
  template <class T>
  T value(T z, ScorePair p) const noexcept {
    return static_cast<T>((7 * p.query + 3 * p.key + 5 * p.head + 11 * p.batch) % 13) / 4 + z;
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

/// Inputs, and the bias that adds what the modifier adds.
template <class T>
struct Pairs {
  Index batch;
  Tensor<T> q, k, v, d_out, bias;

  Pairs(Index sequences, Index queries, Index keys, Index first_position, const ByPair& by)
      : batch(sequences),
        q({sequences, kHeads, queries, kWidth}),
        k({sequences, kHeads, keys, kWidth}),
        v({sequences, kHeads, keys, kWidth}),
        d_out({sequences, kHeads, queries, kWidth}),
        bias({sequences, kHeads, queries, keys}) {
    std::uint64_t seed = 0;
    for (Tensor<T>* x : {&q, &k, &v, &d_out}) x->fill(gaussian(++seed));
    for_each_index(bias.shape(), [&](Index b, Index h, Index i, Index j) {
      bias(b, h, i, j) = static_cast<T>(by.added({b, h, i + first_position, j, i}));
    });
  }
  fovea::SoftmaxInputs<T> inputs() const { return {q.view(), k.view(), v.view()}; }
  fovea::SoftmaxInputs<T> with_bias() const {
    auto all = inputs();
    all.bias = bias.view();
    return all;
  }
};

/// Output and gradients.
template <class T, class Op>
std::vector<Tensor<T>> run(const Op& op, const fovea::SoftmaxInputs<T>& in, const Pairs<T>& p) {
  std::vector<Tensor<T>> all;
  for (const Tensor<T>* x : {&p.q, &p.q, &p.k, &p.v}) all.emplace_back(x->shape());
  const Tensor<T> lse({p.batch, kHeads, p.q.shape()[2], 1});
  op.forward(in, all[0].view(), {.lse = lse.view()});
  op.backward(in, all[0].view(), {.lse = lse.view()}, p.d_out.view(),
              {.q = all[1].view(), .k = all[2].view(), .v = all[3].view()});
  return all;
}

template <class T>
void expect_near(const std::vector<Tensor<T>>& modified, const std::vector<Tensor<T>>& biased) {
  const double tolerance = sizeof(T) == 4 ? 2e-5 : 1e-13;
  for (std::size_t n = 0; n < modified.size(); ++n) {
    for_each_index(modified[n].shape(), [&](Index b, Index h, Index i, Index c) {
      const double expected = static_cast<double>(biased[n](b, h, i, c));
      ASSERT_NEAR(static_cast<double>(modified[n](b, h, i, c)), expected,
                  tolerance * (1 + std::abs(expected)))
          << "tensor " << n << ", row " << i;
    });
  }
}

template <class T, class Op>
void expect_as_a_bias(const Op& op, Index queries, Index keys, Index first_position) {
  SCOPED_TRACE(std::to_string(queries) + " queries, " + std::to_string(keys) + " keys");
  const ByPair by{first_position, queries, keys};
  const Pairs<T> pairs(3, queries, keys, first_position, by);
  expect_near(run(ModifiedAttention(op, by), pairs.inputs(), pairs),
              run(op, pairs.with_bias(), pairs));
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
  using T = TypeParam;
  const Index first[] = {12, 12, 12};
  at_each_level([&] {
    for (const Index queries : {4, 40}) {
      const ByPair by{12, queries, 18};
      const Pairs<T> pairs(3, queries, 18, 12, by);
      auto in = pairs.inputs();
      in.first_positions = first;
      auto with_bias = pairs.with_bias();
      with_bias.first_positions = first;
      const fovea::FullAttention op{{.causal = true}};
      expect_near(run(ModifiedAttention(op, by), in, pairs), run(op, with_bias, pairs));
    }
  });
  EXPECT_EQ(pairs_outside, 0);
}

TYPED_TEST(Modified, TheDecoderAndThreadsMatchOneCallBitwise) {
  using T = TypeParam;
  constexpr Index n = 70;
  // A step has its own row numbers, so only positions are compared.
  const ByPosition by;
  const Pairs<T> pairs(3, n, n, 0, ByPair{0, n, n});
  const ModifiedAttention op(fovea::FullAttention{{.causal = true}}, by);
  at_each_level([&] {
    const Tensor<T> all(pairs.q.shape());
    op.forward(pairs.inputs(), all.view());
    fovea::ThreadPool pool(3);
    const Tensor<T> by_threads(pairs.q.shape());
    op.forward(pairs.inputs(), by_threads.view(), pool);
    auto decoder = op.template decoder<T>({.batch = 3,
                                           .query_heads = kHeads,
                                           .key_heads = kHeads,
                                           .width = kWidth,
                                           .value_width = kWidth});
    const Tensor<T> out({3, kHeads, 1, kWidth});
    for (Index i = 0; i < n; ++i) {
      const auto row = [&](const Tensor<T>& x) {
        return fovea::View<const T>(&x(0, 0, i, 0), {3, kHeads, 1, kWidth},
                                    {kHeads * n * kWidth, n * kWidth, kWidth, 1});
      };
      decoder.step({row(pairs.q), row(pairs.k), row(pairs.v)}, out.view());
      for_each_index(out.shape(), [&](Index b, Index h, Index, Index c) {
        ASSERT_EQ(out(b, h, 0, c), all(b, h, i, c)) << i;
        ASSERT_EQ(by_threads(b, h, i, c), all(b, h, i, c)) << i;
      });
    }
  });
}

/// Counts the logits that are not those of the pairs they come with.
template <class T>
struct ByLogit {
  const Pairs<T>* pairs;
  std::atomic<int>* asked;
  std::atomic<int>* others;

  void compare(T z, ScorePair p) const noexcept {
    double expected = 0;
    for (Index c = 0; c < kWidth; ++c) {
      expected += static_cast<double>(pairs->q(p.batch, p.head, p.query, c)) *
                  static_cast<double>(pairs->k(p.batch, p.head, p.key, c));
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
  const Pairs<T> pairs(1, n, n, 0, {0, n, n});
  std::atomic<int> asked = 0;
  std::atomic<int> others = 0;
  const ByLogit<T> by{&pairs, &asked, &others};
  at_each_level([&] {
    const auto ask = [&](const auto& op) { run(ModifiedAttention(op, by), pairs.inputs(), pairs); };
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
  const ByPair by{0, 9, 9};
  const Pairs<float> pairs(1, 9, 9, 0, by);
  const Tensor<float> out(pairs.q.shape());
  const Tensor<float> plain(pairs.q.shape());
  const ModifiedAttention op(fovea::FullAttention{}, Squared{});
  static_assert(fovea::ScoreModifier<Squared, float>);
  static_assert(!fovea::DifferentiableScoreModifier<Squared, float>);
  op.forward(pairs.inputs(), out.view());
  // Squares of logits that are all 0 are 0.
  fovea::FullAttention{{.scale = 0}}.forward(pairs.inputs(), plain.view());
  const ModifiedAttention zero(fovea::FullAttention{{.scale = 0}}, Squared{});
  zero.forward(pairs.inputs(), out.view());
  for_each_index(out.shape(), [&](Index b, Index h, Index i, Index c) {
    EXPECT_EQ(out(b, h, i, c), plain(b, h, i, c));
  });
}

}  // namespace fovea_test::attention_modified
