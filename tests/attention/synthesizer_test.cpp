// SPDX-License-Identifier: MIT
// fovea_test(OPTIMISED HEAP)
/// \file
/// The three forms of the Synthesizer: against their oracle at every level, by central differences,
/// by bits over threads, strides, batch and levels; what is not visible; arenas and failing
/// allocations.
#include <cmath>
#include <limits>

#include "attention/synthesizer_problem.hpp"
#include "fovea/core/eigen.hpp"
#include "fovea/core/thread_pool.hpp"
#include "support/central_differences.hpp"
#include "support/failing_allocations.hpp"
#include "support/levels.hpp"
#include "support/refusal.hpp"
#include "support/scalars.hpp"

namespace fovea_test::attention_synthesizer {

using fovea::Arena;

template <class Form>
class Synthesizer : public testing::Test {
 public:
  using Problem = SynthesizerProblem<Form>;
  using Number = typename Form::Scalar;

  void expect_oracle(const Problem& problem) {
    const auto judge = synthesizer_judge(problem);
    at_each_level([&] { judge(problem.run(), "synthesizer"); });
  }
};
using Forms = OfEachScalar<RandomForm, FactorisedForm, DenseForm>;
TYPED_TEST_SUITE(Synthesizer, Forms);

template <class Form>
using Problem = SynthesizerProblem<Form>;

TYPED_TEST(Synthesizer, Sizes) {
  for (const bool causal : {false, true}) {
    for (const Index rows : {1, 2, 5, 17, 31, 64, 65, 129, 200}) {
      SCOPED_TRACE(rows);
      this->expect_oracle(
          Problem<TypeParam>({.batch = 2, .heads = 2, .key_heads = 2, .rows = rows}, causal));
    }
    this->expect_oracle(
        Problem<TypeParam>({.rows = 300, .width = 16, .value_width = 64, .hidden = 33}, causal));
  }
}

TYPED_TEST(Synthesizer, WidthsAndHeads) {
  for (const Index width : {0, 1, 8, 17}) {
    for (const Index hidden : {0, 1, 15, 16, 40}) {
      SCOPED_TRACE(std::to_string(width) + ", " + std::to_string(hidden));
      this->expect_oracle(Problem<TypeParam>({.batch = 3,
                                              .heads = 4,
                                              .key_heads = 2,
                                              .rows = 40,
                                              .width = width,
                                              .value_width = width + 1,
                                              .hidden = hidden,
                                              .columns = 3}));
    }
  }
}

TYPED_TEST(Synthesizer, LengthsAndWeightsOfEachSequence) {
  for (const bool causal : {false, true}) {
    for (const bool is_shared : {false, true}) {
      for (const bool has_biases : {false, true}) {
        SCOPED_TRACE(std::to_string(causal) + std::to_string(is_shared));
        this->expect_oracle(Problem<TypeParam>({.batch = 4,
                                                .heads = 2,
                                                .key_heads = 1,
                                                .rows = 70,
                                                .columns = 5,
                                                .is_shared = is_shared,
                                                .has_biases = has_biases,
                                                .has_token_heads = has_biases},
                                               causal, {70, 0, 1, 33}));
      }
    }
  }
}

TYPED_TEST(Synthesizer, EmptyTensors) {
  for (const SynthesizerSizes& s :
       {SynthesizerSizes{.batch = 0, .rows = 5},
        SynthesizerSizes{.heads = 0, .key_heads = 0, .rows = 5}, SynthesizerSizes{.rows = 0},
        SynthesizerSizes{.rows = 5, .value_width = 0}}) {
    const Problem<TypeParam> problem(s);
    const auto got = problem.run();
    // The sum over no sequences.
    if (s.batch != 0) continue;
    for (const auto& grad : got.grads) {
      for (const auto x : grad) EXPECT_EQ(x, 0);
    }
  }
}

TYPED_TEST(Synthesizer, ThreadsAndStridesDoNotChangeBits) {
  const SynthesizerSizes sizes{
      .batch = 3, .heads = 4, .key_heads = 2, .rows = 210, .width = 9, .hidden = 20, .columns = 7};
  fovea::ThreadPool pool(3);
  Backwards backwards;
  Shuffled shuffled;
  const Layout apart{.order = {3, 1, 0, 2}, .innermost = 2, .gap = 3};
  const Layout columns{.order = {0, 1, 3, 2}, .gap = 1};
  for (const bool causal : {false, true}) {
    const std::vector<Index> lengths = {210, 100, 7};
    const Problem<TypeParam> problem(sizes, causal, lengths);
    const auto expected = problem.run();
    EXPECT_TRUE(same_bits(problem.run(pool), expected));
    EXPECT_TRUE(same_bits(problem.run(backwards), expected));
    EXPECT_TRUE(same_bits(problem.run(shuffled), expected));
    for (const Layout& layout : {apart, columns}) {
      EXPECT_TRUE(same_bits(problem.run(fovea::Serial{}, layout), expected));
      EXPECT_TRUE(same_bits(Problem<TypeParam>(sizes, causal, lengths, layout).run(), expected));
    }
  }
}

TYPED_TEST(Synthesizer, LevelsWithFmaHaveTheSameBits) {
  if (!has_level(IsaLevel::v4) || !has_level(IsaLevel::v3)) {
    GTEST_SKIP() << "no v4 and v3 to compare";
  }
  for (const Index rows : {1, 40, 131, 257}) {
    const Problem<TypeParam> problem({.batch = 2, .heads = 2, .rows = rows, .hidden = 19}, true);
    const auto at = [&](IsaLevel level) {
      const AtLevel scope(level);
      return problem.run();
    };
    EXPECT_TRUE(same_bits(at(IsaLevel::v3), at(IsaLevel::v4))) << rows;
  }
}

/// Equal weights given for each sequence have the results of shared weights, so a sequence has the
/// same bits alone.
TYPED_TEST(Synthesizer, ASequenceHasTheSameBitsAlone) {
  using T = typename TypeParam::Scalar;
  SynthesizerSizes sizes{.batch = 3, .heads = 2, .rows = 90, .hidden = 20};
  const Problem<TypeParam> together(sizes, true, {90, 50, 8});
  const auto all = together.run();
  sizes.batch = 1;
  for (Index b = 0; b < 3; ++b) {
    const Problem<TypeParam> alone(sizes, true, {together.key_lengths[as_size(b)]});
    for (const char* name : {"v", "x"}) {
      const View<T> from = together.tensors[name];
      const View<T> to = alone.tensors[name];
      for_each_index(to.shape(),
                     [&](Index, Index h, Index n, Index d) { to(0, h, n, d) = from(b, h, n, d); });
    }
    alone.d_out.fill([&](Index, Index h, Index n, Index d) { return together.d_out(b, h, n, d); });
    const auto one = alone.run();
    const auto part = [&](const std::vector<T>& x) {
      const auto size = static_cast<std::ptrdiff_t>(x.size() / 3);
      return std::vector<T>(x.begin() + b * size, x.begin() + (b + 1) * size);
    };
    EXPECT_TRUE(same_bits(part(all.out), one.out));
    EXPECT_TRUE(same_bits(part(all.lse), one.lse));
    EXPECT_TRUE(same_bits(part(all.grads.back()), one.grads.back())) << "gradient of v";
  }
}

/// Keys beyond all lengths, keys after a causal row and columns that are not read may contain
/// anything.
TYPED_TEST(Synthesizer, InvisibleInputsDoNotChangeBits) {
  using T = typename TypeParam::Scalar;
  const SynthesizerSizes sizes{.batch = 2, .heads = 2, .key_heads = 1, .rows = 150, .columns = 9};
  const std::vector<Index> lengths = {140, 67};
  for (const bool causal : {false, true}) {
    const auto expected = Problem<TypeParam>(sizes, causal, lengths).run();
    for (const T poison :
         {std::numeric_limits<T>::quiet_NaN(), std::numeric_limits<T>::infinity()}) {
      const Problem<TypeParam> problem(sizes, causal, lengths);
      const auto hide = [&](const char* name, auto&& is_hidden) {
        const View<T> x = problem.tensors[name];
        if (x.empty()) return;
        for_each_index(x.shape(), [&](Index b, Index h, Index n, Index d) {
          if (is_hidden(b, n, d)) x(b, h, n, d) = poison;
        });
      };
      hide("v", [&](Index b, Index n, Index) { return n >= lengths[as_size(b)]; });
      hide("r", [&](Index, Index n, Index d) { return d >= 140 || (causal && d > n); });
      hide("r2", [&](Index, Index n, Index) { return n >= 140; });
      hide("w2", [&](Index, Index, Index d) { return d >= 140; });
      hide("b2", [&](Index, Index, Index d) { return d >= 140; });
      at_each_level([&] {
        const auto clean = Problem<TypeParam>(sizes, causal, lengths).run();
        EXPECT_TRUE(same_bits(problem.run(), clean));
      });
      EXPECT_TRUE(same_bits(problem.run(), expected));
    }
  }
}

/// A NaN in a row's inputs reaches that row and no other.
TYPED_TEST(Synthesizer, VisibleInputsChangeResults) {
  using T = typename TypeParam::Scalar;
  const SynthesizerSizes sizes{.rows = 40};
  const auto clean = Problem<TypeParam>(sizes).run();
  const Problem<TypeParam> problem(sizes);
  for (const char* name : {"r", "r1", "x"}) {
    const View<T> x = problem.tensors[name];
    if (!x.empty()) x(0, 0, 7, 1) = std::numeric_limits<T>::quiet_NaN();
  }
  at_each_level([&] {
    const auto got = problem.run();
    for (std::size_t i = 0; i < got.out.size(); ++i) {
      EXPECT_EQ(std::isnan(got.out[i]), i / 5 == 7) << i;
    }
    EXPECT_TRUE(std::isnan(got.lse[7]));
  });
}

/// Rows of R that are -infinity everywhere see no key.
TEST(RandomSynthesizer, MinusInfinityHides) {
  const SynthesizerProblem<RandomForm<float>> problem({.rows = 20});
  const View<float> r = problem.tensors["r"];
  for (Index j = 0; j < 20; ++j) r(0, 0, 3, j) = -std::numeric_limits<float>::infinity();
  const auto got = problem.run();
  for (Index c = 0; c < 5; ++c) EXPECT_EQ(got.out[as_size(15 + c)], 0);
  EXPECT_EQ(got.lse[3], -std::numeric_limits<float>::infinity());
  for (Index j = 0; j < 20; ++j) EXPECT_EQ(got.grads[0][as_size(60 + j)], 0);
}

/// The factorised form is full attention of the scale 1.
TEST(FactorisedSynthesizer, EqualsTheRandomFormOfTheProduct) {
  const SynthesizerProblem<FactorisedForm<double>> factors(
      {.heads = 2, .key_heads = 2, .rows = 30});
  const SynthesizerProblem<RandomForm<double>> product({.heads = 2, .key_heads = 2, .rows = 30});
  const View<double> r = product.tensors["r"];
  const View<double> r1 = factors.tensors["r1"];
  const View<double> r2 = factors.tensors["r2"];
  for_each_index(r.shape(), [&](Index b, Index h, Index i, Index j) {
    r(b, h, i, j) = 0;
    for (Index c = 0; c < 3; ++c) r(b, h, i, j) += r1(b, h, i, c) * r2(b, h, j, c);
  });
  const auto a = factors.run();
  const auto b = product.run();
  for (std::size_t i = 0; i < a.out.size(); ++i) EXPECT_NEAR(a.out[i], b.out[i], 1e-14);
}

/// The derivative of <d_out, forward> in every element of every input.
template <class Form>
void expect_central_differences(const SynthesizerSizes& sizes, bool causal,
                                const std::vector<Index>& lengths) {
  const SynthesizerProblem<Form> problem(sizes, causal, lengths);
  const auto got = problem.run();
  const auto loss = [&] {
    const Tensor<double> out(problem.shape_of_out());
    problem.op().forward(problem.inputs(), out.view());
    double sum = 0;
    for_each_index(out.shape(), [&](Index b, Index h, Index n, Index d) {
      sum += out(b, h, n, d) * problem.d_out(b, h, n, d);
    });
    return sum;
  };
  for (std::size_t n = 0; n < got.grads.size(); ++n) {
    const auto& [name, x] = problem.tensors.all()[n];
    for_each_difference(x, 1e-5, loss,
                        [&, own = name, grads = got.grads[n]](std::size_t at, double difference) {
                          EXPECT_NEAR(grads[at], difference, 2e-8) << own << " " << at;
                        });
  }
}

template <class Form>
void expect_all_central_differences() {
  for (const bool is_shared : {true, false}) {
    const SynthesizerSizes sizes{.batch = 2,
                                 .heads = 2,
                                 .key_heads = 1,
                                 .rows = 6,
                                 .columns = 2,
                                 .is_shared = is_shared,
                                 .has_token_heads = is_shared};
    expect_central_differences<Form>(sizes, false, {6, 4});
    expect_central_differences<Form>(sizes, true, {});
  }
}

TEST(SynthesizerGradients, MatchCentralDifferences) {
  expect_all_central_differences<RandomForm<double>>();
  expect_all_central_differences<FactorisedForm<double>>();
  expect_all_central_differences<DenseForm<double>>();
}

/// One gradient alone has the bits that it has among the others.
TYPED_TEST(Synthesizer, SingleGradients) {
  using T = typename TypeParam::Scalar;
  const Problem<TypeParam> problem({.batch = 2, .heads = 2, .rows = 70, .hidden = 9}, true);
  const auto expected = problem.run();
  const Tensor<T> out(problem.shape_of_out());
  const Tensor<T> lse({2, 2, 70, 1});
  problem.op().forward(problem.inputs(), out.view(), {lse.view()});
  for (std::size_t n = 0; n < expected.grads.size(); ++n) {
    const NamedTensors<T> to = problem.tensors.blank({});
    NamedTensors<T> one;
    const auto& [name, x] = to.all()[n];
    one.add(name, x.shape(), {}, 1);
    problem.op().backward(problem.inputs(), out.view(), {lse.view()}, problem.d_out.view(),
                          TypeParam::grads(one));
    EXPECT_TRUE(same_bits(one.all()[0].second.values(), expected.grads[n])) << n;
  }
}

/// An arena of the stated size is sufficient, and nothing large is allocated elsewhere.
TYPED_TEST(Synthesizer, InAnArena) {
  using T = typename TypeParam::Scalar;
  for (const bool is_shared : {true, false}) {
    const SynthesizerSizes sizes{
        .batch = 2, .heads = 2, .key_heads = 2, .rows = 190, .hidden = 20, .is_shared = is_shared};
    const Problem<TypeParam> problem(sizes, true);
    const auto expected = problem.run();
    for (const int workers : {1, 2, 4}) {
      const fovea::ThreadPool pool(workers);
      const auto shape = TypeParam::shape(sizes);
      const Index bytes =
          std::max(problem.op().template workspace_bytes<T>(shape, workers),
                   problem.op().template backward_workspace_bytes<T>(shape, workers));
      Arena arena(bytes);
      AnyExecutor executor = AnyExecutor::of(pool, &arena);
      EXPECT_TRUE(same_bits(problem.run(executor), expected)) << workers;
      Arena small(64);
      AnyExecutor refused = AnyExecutor::of(pool, &small);
      const Tensor<T> out(problem.shape_of_out());
      out.fill(constant(kUntouched));
      EXPECT_NE(refusal([&] { problem.op().forward(problem.inputs(), out.view(), refused); }),
                "accepted");
      EXPECT_TRUE(is_untouched(out.values()));
    }
  }
}

TYPED_TEST(Synthesizer, FailedAllocations) {
  using T = typename TypeParam::Scalar;
  const Problem<TypeParam> problem({.batch = 2, .heads = 2, .rows = 70, .hidden = 9}, true);
  const Tensor<T> out(problem.shape_of_out());
  const Tensor<T> lse({2, 2, 70, 1});
  const NamedTensors<T> to = problem.tensors.blank({});
  expect_all_or_nothing<T>({&out, &lse}, [&](AnyExecutor* executor) {
    on_executor(executor, [&](auto&& e) {
      problem.op().forward(problem.inputs(), out.view(), {lse.view()}, e);
    });
  });
  std::vector<const Tensor<T>*> grads;
  for (const auto& [name, x] : to.all()) grads.push_back(&x);
  expect_all_or_nothing<T>(grads, [&](AnyExecutor* executor) {
    on_executor(executor, [&](auto&& e) {
      problem.op().backward(problem.inputs(), out.view(), {lse.view()}, problem.d_out.view(),
                            TypeParam::grads(to), e);
    });
  });
}

/// Tensors of 16 bits give what their values give in float, rounded.
TEST(SynthesizerStorage, Of16Bits) {
  const SynthesizerProblem<FactorisedForm<float>> wide({.heads = 2, .key_heads = 2, .rows = 50});
  Eigen::Tensor<Eigen::bfloat16, 4> r1(1, 2, 50, 3), r2(1, 2, 50, 3), v(1, 2, 50, 5);
  Eigen::Tensor<Eigen::bfloat16, 4> out(1, 2, 50, 5), of_r(1, 2, 50, 5);
  for (auto& [name, to] : {std::pair{"r1", &r1}, std::pair{"r2", &r2}, std::pair{"v", &v}}) {
    const View<float> from = wide.tensors[name];
    for_each_index(from.shape(), [&, x = to](Index b, Index h, Index n, Index d) {
      (*x)(b, h, n, d) = Eigen::bfloat16(from(b, h, n, d));
      from(b, h, n, d) = static_cast<float>((*x)(b, h, n, d));
    });
  }
  const SynthesizerProblem<RandomForm<float>> product({.heads = 2, .key_heads = 2, .rows = 50});
  const View<float> from = wide.tensors["v"];
  for_each_index(from.shape(), [&](Index b, Index h, Index n, Index d) {
    product.tensors["v"](b, h, n, d) = from(b, h, n, d);
  });
  const auto factorised = wide.run();
  const auto random = product.run();
  fovea::FactorisedSynthesizerAttention{}.forward({.r1 = r1, .r2 = r2, .v = v}, out);
  fovea::RandomSynthesizerAttention{}.forward({.r = product.tensors["r"], .v = v}, of_r);
  std::size_t at = 0;
  for_each_index({1, 2, 50, 5}, [&](Index b, Index h, Index n, Index d) {
    EXPECT_EQ(static_cast<float>(out(b, h, n, d)),
              static_cast<float>(Eigen::bfloat16(factorised.out[at])));
    EXPECT_EQ(static_cast<float>(of_r(b, h, n, d)),
              static_cast<float>(Eigen::bfloat16(random.out[at])));
    ++at;
  });
}

}  // namespace fovea_test::attention_synthesizer
