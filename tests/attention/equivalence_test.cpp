// SPDX-License-Identifier: MIT
// fovea_test(OPTIMISED)
/// \file
/// Equivalent calls have equal results, forward and backward: within the bounds of the simpler
/// call's oracle, and by bits where the arithmetic is the same. (What a bias, a mask, slopes and a
/// sink are equivalent to otherwise, the oracle of the conformance suite knows.)
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "attention/gradients.hpp"
#include "support/scalars.hpp"

namespace fovea_test::attention_equivalence {

using fovea::FullAttention;
using fovea::LocalAttention;

template <class T>
class Equivalence : public testing::Test {
 protected:
  static Case<T> full() { return softmax_case<T>("full", FullAttention{}, all_pairs); }
  static Case<T> causal() {
    return softmax_case<T>("causal", FullAttention{{.causal = true}}, band(kAllKeys, 0));
  }
  static Case<T> local(Index left, Index right) {
    return softmax_case<T>("local", LocalAttention{{.left = left, .right = right}},
                           band(left, right));
  }

  /// Calls f(problem) with problems that have neither bias nor mask.
  template <class F>
  static void for_each_problem(const Case<T>& op, F&& f) {
    for (const auto& [queries, keys] :
         {std::array<Index, 2>{40, 40}, {150, 170}, {70, 30}, {3, 2100}}) {
      f(make_problem(op, {2, 2, 1, queries, keys, 6, 5}));
    }
  }

  /// `op` on `in` gives what the plain operator gives on the problem.
  static void expect_same(const Case<T>& plain, const Problem<T>& problem, const Case<T>& op,
                          const AllInputs<T>& in) {
    SCOPED_TRACE(describe(problem));
    const Tensor<T> d_out = make_d_out(problem);
    const Expected<T> out = plain.oracle(problem.inputs());
    const ExpectedGrads<T> grads = plain.grad_oracle(problem.inputs(), d_out.view());
    at_each_level([&] {
      const Result<T> got = run(op, in);
      EXPECT_TRUE(within_ratio(got.out, out.out, kOutBound));
      EXPECT_TRUE(within_ratio(got.lse, out.lse, kLseBound));
      const Gradients<T> got_grads = run_backward(op, in, View<const T>(d_out.view()));
      EXPECT_TRUE(within_ratio(got_grads.q, grads.q, kGradBound));
      EXPECT_TRUE(within_ratio(got_grads.k, grads.k, kGradBound));
      EXPECT_TRUE(within_ratio(got_grads.v, grads.v, kValueGradBound));
    });
  }

  /// The same by bits.
  static void expect_same_bits(const Case<T>& op, const Problem<T>& problem,
                               const AllInputs<T>& in) {
    at_each_level([&] {
      EXPECT_TRUE(same_bits(run(op, problem), run(op, in))) << describe(problem);
      const Tensor<T> d_out = make_d_out(problem);
      const Wanted inputs{.bias = false, .sink = false};
      EXPECT_TRUE(same_bits(run_backward(op, problem, d_out),
                            run_backward(op, in, View<const T>(d_out.view())), inputs))
          << describe(problem);
    });
  }

  /// [1, 1, Nq, Nk] of f(row, key).
  template <class U, class F>
  static Tensor<U> logits_of(const Problem<T>& problem, F&& f) {
    Tensor<U> made({1, 1, problem.shape.queries, problem.shape.keys});
    made.fill([&](Index, Index, Index row, Index j) { return f(row, j); });
    return made;
  }
};

TYPED_TEST_SUITE(Equivalence, Scalars);

TYPED_TEST(Equivalence, AFullMaskHasNoEffect) {
  for (const Case<TypeParam>& op : {this->full(), this->causal(), this->local(4, 3)}) {
    this->for_each_problem(op, [&](const Problem<TypeParam>& problem) {
      const auto mask = this->template logits_of<bool>(problem, [](Index, Index) { return true; });
      AllInputs<TypeParam> in = problem.inputs();
      in.mask = mask.view();
      this->expect_same(op, problem, op, in);
      if (op.name != "local")
        this->expect_same_bits(op, problem, in);  // a band has a separate kernel
    });
  }
}

TYPED_TEST(Equivalence, ABiasOfMinusInfinityCanReplaceAPattern) {
  for (const Case<TypeParam>& op : {this->causal(), this->local(4, 3), this->local(90, 30)}) {
    this->for_each_problem(op, [&](const Problem<TypeParam>& problem) {
      const auto bias = this->template logits_of<TypeParam>(problem, [&](Index row, Index j) {
        const bool seen = op.sees(problem.shape, 0, 0, row, j);
        return seen ? TypeParam{0} : -std::numeric_limits<TypeParam>::infinity();
      });
      AllInputs<TypeParam> in = problem.inputs();
      in.bias = bias.view();
      this->expect_same(op, problem, this->full(), in);
    });
  }
}

TYPED_TEST(Equivalence, ASinkOfMinusInfinityHasNoEffect) {
  for (const Case<TypeParam>& op : {this->full(), this->local(4, 3)}) {
    this->for_each_problem(op, [&](const Problem<TypeParam>& problem) {
      const std::vector<TypeParam> sink(2, -std::numeric_limits<TypeParam>::infinity());
      AllInputs<TypeParam> in = problem.inputs();
      in.sink = sink;
      this->expect_same(op, problem, op, in);
    });
  }
}

/// The seed of a dropout that drops nothing is nothing; another seed drops others.
TYPED_TEST(Equivalence, DropoutOfProbabilityZeroHasNoEffect) {
  const auto with = [](double p, std::uint64_t seed) {
    return softmax_case<TypeParam>(
        "dropout", FullAttention{{.dropout = {.probability = p, .seed = seed}}}, all_pairs);
  };
  const Problem<TypeParam> problem = make_problem(this->full(), {2, 2, 1, 40, 170, 6, 5});
  at_each_level([&] {
    EXPECT_TRUE(same_bits(run(this->full(), problem), run(with(0, 99), problem)));
    EXPECT_TRUE(same_bits(run_backward(this->full(), problem), run_backward(with(0, 99), problem)));
    EXPECT_FALSE(same_bits(run(with(0.5, 1), problem), run(with(0.5, 2), problem)));
    EXPECT_FALSE(same_bits(run(with(0.5, 1), problem), run(with(0.5, 1ull << 32), problem)));
  });
}

/// A bias and a mask with columns up to the longest sequence only, followed by a guard page, equal
/// those for all keys.
TYPED_TEST(Equivalence, BiasAndMaskOfTheVisibleKeys) {
  using T = TypeParam;
  for (const auto& [queries, keys, visible] :
       {std::array<Index, 3>{40, 40, 21}, {150, 170, 130}, {3, 300, 129}, {3, 40, 1}}) {
    for (const std::string dims : {"k", "qk", "bhqk"}) {
      const Case<T> op = softmax_case<T>("full", FullAttention{}, all_pairs,
                                         {.bias = dims, .mask = dims, .alibi = queries == 40});
      Problem<T> wide = make_problem(op, {2, 2, 1, queries, keys, 6, 5});
      wide.key_lengths = {visible, visible / 2};
      Problem<T> narrow = wide.in({}, {}, {}, {});
      const auto cut = [&, v = visible]<class U>(const Tensor<U>& x) {
        const Shape& s = x.shape();
        Tensor<U> made({s[0], s[1], s[2], v}, {.guard = Guard::behind});
        made.fill([&](Index b, Index h, Index n, Index d) { return x(b, h, n, d); });
        return made;
      };
      narrow.bias = cut(*wide.bias);
      narrow.mask = cut(*wide.mask);
      const Tensor<T> d_out = make_d_out(wide);
      SCOPED_TRACE(describe(wide));
      at_each_level([&] {
        EXPECT_TRUE(same_bits(run(op, wide), run(op, narrow)));
        const Gradients<T> expected = run_backward(op, wide, d_out);
        const Gradients<T> got = run_backward(op, narrow, d_out);
        EXPECT_TRUE(same_bits(expected, got, {.bias = false}));
        std::vector<T> cut_bias;
        for (std::size_t n = 0; n < expected.bias.size(); ++n) {
          if (static_cast<Index>(n) % keys < visible) cut_bias.push_back(expected.bias[n]);
        }
        if (visible > 1) {
          EXPECT_TRUE(same_bits(cut_bias, got.bias));
        }
      });
    }
  }
}

}  // namespace fovea_test::attention_equivalence
