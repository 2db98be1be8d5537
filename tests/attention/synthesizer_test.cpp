// SPDX-License-Identifier: MIT
// fovea_test(OPTIMISED)
/// \file
/// The three forms of the Synthesizer beyond the conformance suite: what is not visible, what NaN
/// reaches, tensors of 16 bits.
#include <cmath>
#include <limits>

#include "attention/synthesizer_problem.hpp"
#include "fovea/core/eigen.hpp"
#include "support/levels.hpp"
#include "support/scalars.hpp"

namespace fovea_test::attention_synthesizer {

/// Of a kind of CallProblem.
template <class P>
class Synthesizer : public testing::Test {};
using Forms = OfEachScalar<RandomProblem, FactorisedProblem, DenseProblem>;
TYPED_TEST_SUITE(Synthesizer, Forms);

/// Keys after a causal row and columns that are not read may contain anything.
TYPED_TEST(Synthesizer, InvisibleInputsDoNotChangeBits) {
  using T = typename TypeParam::Scalar;
  for (const bool causal : {false, true}) {
    const auto make = [causal] {
      TypeParam made(typename TypeParam::Op({.causal = causal}), {2, 2, 1, 150, 150, 3, 5},
                     {{'x', 9}});
      made.key_lengths = {140, 67};
      return made;
    };
    const auto clean = make();
    for (const T poison :
         {std::numeric_limits<T>::quiet_NaN(), std::numeric_limits<T>::infinity()}) {
      const auto problem = make();
      problem.hide(poison);
      const auto hide = [&](const char* name, auto&& is_hidden) {
        const View<T> x = problem.view(name);
        if (x.empty()) return;
        for_each_index(x.shape(), [&](Index b, Index h, Index n, Index d) {
          if (is_hidden(n, d)) x(b, h, n, d) = poison;
        });
      };
      hide("r", [&](Index n, Index d) { return causal && d > n; });
      hide("w2", [&](Index, Index d) { return d >= 140; });
      hide("b2", [&](Index, Index d) { return d >= 140; });
      at_each_level([&] { EXPECT_TRUE(same_bits(problem.run(), clean.run())); });
    }
  }
}

/// A NaN in a row's inputs reaches that row and no other.
TYPED_TEST(Synthesizer, VisibleInputsChangeResults) {
  using T = typename TypeParam::Scalar;
  const TypeParam problem({}, {1, 1, 1, 40, 40, 3, 5});
  for (const char* name : {"r", "r1", "x"}) {
    const View<T> x = problem.view(name);
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
  const RandomProblem<float> problem({}, {1, 1, 1, 20, 20, 3, 5});
  const View<float> r = problem.view("r");
  for (Index j = 0; j < 20; ++j) r(0, 0, 3, j) = -std::numeric_limits<float>::infinity();
  const auto got = problem.run();
  for (Index c = 0; c < 5; ++c) EXPECT_EQ(got["out"][as_size(15 + c)], 0);
  EXPECT_EQ(got["lse"][3], -std::numeric_limits<float>::infinity());
  for (Index j = 0; j < 20; ++j) EXPECT_EQ(got["d_r"][as_size(60 + j)], 0);
}

/// Tensors of 16 bits give what their values give in float, rounded.
TEST(SynthesizerStorage, Of16Bits) {
  const AttentionShape shape{1, 2, 2, 50, 50, 3, 5};
  const FactorisedProblem<float> wide({}, shape);
  Eigen::Tensor<Eigen::bfloat16, 4> r1(1, 2, 50, 3), r2(1, 2, 50, 3), v(1, 2, 50, 5);
  Eigen::Tensor<Eigen::bfloat16, 4> out(1, 2, 50, 5), of_r(1, 2, 50, 5);
  for (auto& [name, to] : {std::pair{"r1", &r1}, std::pair{"r2", &r2}, std::pair{"v", &v}}) {
    const View<float> from = wide.view(name);
    for_each_index(from.shape(), [&, x = to](Index b, Index h, Index n, Index d) {
      (*x)(b, h, n, d) = Eigen::bfloat16(from(b, h, n, d));
      from(b, h, n, d) = static_cast<float>((*x)(b, h, n, d));
    });
  }
  const RandomProblem<float> product({}, shape);
  const View<float> from = wide.view("v");
  for_each_index(from.shape(), [&](Index b, Index h, Index n, Index d) {
    product.view("v")(b, h, n, d) = from(b, h, n, d);
  });
  const auto factorised = wide.run();
  const auto random = product.run();
  fovea::FactorisedSynthesizerAttention{}.forward({.r1 = r1, .r2 = r2, .v = v}, out);
  fovea::RandomSynthesizerAttention{}.forward({.r = product.view("r"), .v = v}, of_r);
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
