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
#include "support/levels.hpp"
#include "support/same_everywhere.hpp"
#include "support/scalars.hpp"

namespace fovea_test::attention_synthesizer {

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
    got.for_each([](const char* /*name*/, const auto& numbers) {
      for (const auto x : numbers) EXPECT_EQ(x, 0);
    });
  }
}

TYPED_TEST(Synthesizer, BitsDoNotDependOnThreadsLevelsAndStrides) {
  const SynthesizerSizes sizes{
      .batch = 3, .heads = 4, .key_heads = 2, .rows = 257, .width = 9, .hidden = 20, .columns = 7};
  const Layout columns{.order = {0, 1, 3, 2}, .gap = 1};
  for (const bool causal : {false, true}) {
    const auto make = [&](const Layout& layout) {
      return Problem<TypeParam>(sizes, causal, {257, 100, 7}, layout);
    };
    expect_same_bits_everywhere(
        make, [](const auto& problem, AnyExecutor* executor, const Layout& layout) {
          return problem.run(executor, layout);
        });
    EXPECT_TRUE(same_bits(make(columns).run(nullptr, columns), make({}).run()));
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
      const View<T> from = together.tensors.view(name);
      const View<T> to = alone.tensors.view(name);
      for_each_index(to.shape(),
                     [&](Index, Index h, Index n, Index d) { to(0, h, n, d) = from(b, h, n, d); });
    }
    alone.d_out.fill([&](Index, Index h, Index n, Index d) { return together.d_out(b, h, n, d); });
    const auto one = alone.run();
    const auto part = [&](const std::vector<T>& x) {
      const auto size = static_cast<std::ptrdiff_t>(x.size() / 3);
      return std::vector<T>(x.begin() + b * size, x.begin() + (b + 1) * size);
    };
    for (const char* name : {"out", "lse", "d_v"}) {
      EXPECT_TRUE(same_bits(part(all[name]), one[name])) << name;
    }
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
        const View<T> x = problem.tensors.view(name);
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
    const View<T> x = problem.tensors.view(name);
    if (!x.empty()) x(0, 0, 7, 1) = std::numeric_limits<T>::quiet_NaN();
  }
  at_each_level([&] {
    const auto got = problem.run();
    for (std::size_t i = 0; i < got["out"].size(); ++i) {
      EXPECT_EQ(std::isnan(got["out"][i]), i / 5 == 7) << i;
    }
    EXPECT_TRUE(std::isnan(got["lse"][7]));
  });
}

/// Rows of R that are -infinity everywhere see no key.
TEST(RandomSynthesizer, MinusInfinityHides) {
  const SynthesizerProblem<RandomForm<float>> problem({.rows = 20});
  const View<float> r = problem.tensors.view("r");
  for (Index j = 0; j < 20; ++j) r(0, 0, 3, j) = -std::numeric_limits<float>::infinity();
  const auto got = problem.run();
  for (Index c = 0; c < 5; ++c) EXPECT_EQ(got["out"][as_size(15 + c)], 0);
  EXPECT_EQ(got["lse"][3], -std::numeric_limits<float>::infinity());
  for (Index j = 0; j < 20; ++j) EXPECT_EQ(got["d_r"][as_size(60 + j)], 0);
}

/// The factorised form is full attention of the scale 1.
TEST(FactorisedSynthesizer, EqualsTheRandomFormOfTheProduct) {
  const SynthesizerProblem<FactorisedForm<double>> factors(
      {.heads = 2, .key_heads = 2, .rows = 30});
  const SynthesizerProblem<RandomForm<double>> product({.heads = 2, .key_heads = 2, .rows = 30});
  const View<double> r = product.tensors.view("r");
  const View<double> r1 = factors.tensors.view("r1");
  const View<double> r2 = factors.tensors.view("r2");
  for_each_index(r.shape(), [&](Index b, Index h, Index i, Index j) {
    r(b, h, i, j) = 0;
    for (Index c = 0; c < 3; ++c) r(b, h, i, j) += r1(b, h, i, c) * r2(b, h, j, c);
  });
  const auto a = factors.run();
  const auto b = product.run();
  for (std::size_t i = 0; i < a["out"].size(); ++i) EXPECT_NEAR(a["out"][i], b["out"][i], 1e-14);
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
    for (const SynthesizerProblem<Form>& problem :
         {SynthesizerProblem<Form>(sizes, false, {6, 4}), SynthesizerProblem<Form>(sizes, true)}) {
      expect_differences(problem.op(), problem, 2e-8);
    }
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
  using Grads = fovea::GradsOf<typename TypeParam::Op, T>;
  const Problem<TypeParam> problem({.batch = 2, .heads = 2, .rows = 70, .hidden = 9}, true);
  const auto expected = problem.run();
  const WrittenTensors to(problem.op(), problem);
  problem.op().forward(problem.inputs(), to.out().view(), to.saved());
  problem.tensors.for_each([&](const std::string& wanted, const Tensor<T>& x) {
    const Tensor<T> one(x.shape());
    const auto grads = made_of_tensors<Grads>([&](const std::string& name, auto& member) {
      if (name == wanted) member = one.view();
    });
    problem.op().backward(problem.inputs(), to.out().view(), to.saved(), problem.d_out.view(),
                          grads);
    EXPECT_TRUE(same_bits(one.values(), expected["d_" + wanted])) << wanted;
  });
}

/// An arena of the stated size is sufficient, and nothing large is allocated elsewhere.
TYPED_TEST(Synthesizer, InAnArena) {
  for (const bool is_shared : {true, false}) {
    const SynthesizerSizes sizes{
        .batch = 2, .heads = 2, .key_heads = 2, .rows = 190, .hidden = 20, .is_shared = is_shared};
    const Problem<TypeParam> problem(sizes, true);
    expect_serves_in_arena(problem.op(), problem, TypeParam::shape(sizes));
  }
}

TYPED_TEST(Synthesizer, FailedAllocations) {
  const Problem<TypeParam> problem({.batch = 2, .heads = 2, .rows = 70, .hidden = 9}, true);
  expect_all_or_nothing_of(problem.op(), problem);
}

/// Tensors of 16 bits give what their values give in float, rounded.
TEST(SynthesizerStorage, Of16Bits) {
  const SynthesizerProblem<FactorisedForm<float>> wide({.heads = 2, .key_heads = 2, .rows = 50});
  Eigen::Tensor<Eigen::bfloat16, 4> r1(1, 2, 50, 3), r2(1, 2, 50, 3), v(1, 2, 50, 5);
  Eigen::Tensor<Eigen::bfloat16, 4> out(1, 2, 50, 5), of_r(1, 2, 50, 5);
  for (auto& [name, to] : {std::pair{"r1", &r1}, std::pair{"r2", &r2}, std::pair{"v", &v}}) {
    const View<float> from = wide.tensors.view(name);
    for_each_index(from.shape(), [&, x = to](Index b, Index h, Index n, Index d) {
      (*x)(b, h, n, d) = Eigen::bfloat16(from(b, h, n, d));
      from(b, h, n, d) = static_cast<float>((*x)(b, h, n, d));
    });
  }
  const SynthesizerProblem<RandomForm<float>> product({.heads = 2, .key_heads = 2, .rows = 50});
  const View<float> from = wide.tensors.view("v");
  for_each_index(from.shape(), [&](Index b, Index h, Index n, Index d) {
    product.tensors.view("v")(b, h, n, d) = from(b, h, n, d);
  });
  const auto factorised = wide.run();
  const auto random = product.run();
  fovea::FactorisedSynthesizerAttention{}.forward({.r1 = r1, .r2 = r2, .v = v}, out);
  fovea::RandomSynthesizerAttention{}.forward({.r = product.tensors.view("r"), .v = v}, of_r);
  std::size_t at = 0;
  for_each_index({1, 2, 50, 5}, [&](Index b, Index h, Index n, Index d) {
    EXPECT_EQ(static_cast<float>(out(b, h, n, d)),
              static_cast<float>(Eigen::bfloat16(factorised["out"][at])));
    EXPECT_EQ(static_cast<float>(of_r(b, h, n, d)),
              static_cast<float>(Eigen::bfloat16(random["out"][at])));
    ++at;
  });
}

}  // namespace fovea_test::attention_synthesizer
