// SPDX-License-Identifier: MIT
// fovea_test(HEAP)
/// \file
/// Longformer with separate projections for global rows: these rows are softmax attention over the
/// separate projections, and other rows are as without them. Compared with the oracle and by bits;
/// invisible inputs, failing allocations, refusals.
#include <algorithm>
#include <limits>

#include "attention/longformer_problem.hpp"
#include "fovea/core/thread_pool.hpp"
#include "support/refusal.hpp"
#include "support/same_everywhere.hpp"
#include "support/scalars.hpp"

namespace fovea_test::attention_longformer_projections {

template <class T>
class LongformerProjections : public testing::Test {
 public:
  static void expect_oracle(const LongformerProblem<T>& of) {
    const auto judge = longformer_judge(of);
    at_each_level([&] { judge(of.run(), "longformer_projections"); });
  }
};
TYPED_TEST_SUITE(LongformerProjections, Scalars);

std::vector<LongformerOptions> all_options() {
  return {{.left = 9, .right = 5, .first_global = 3},
          {.left = 9, .right = 5, .first_global = 2, .global = {7, 8, 40}},
          {.left = 9, .global = {0, 5, 44}, .causal = true},
          {.left = 3, .right = 2},
          {.left = 3, .right = 2, .first_global = 1000}};
}

TYPED_TEST(LongformerProjections, FollowTheirDefinition) {
  for (const LongformerOptions& options : all_options()) {
    for (const Index n : {45, 130}) {
      this->expect_oracle(LongformerProblem<TypeParam>({2, 4, 2, n, n, 6, 5}, options));
    }
    this->expect_oracle(
        LongformerProblem<TypeParam>({3, 2, 2, 70, 70, 6, 5}, options, {70, 46, 3}));
    this->expect_oracle(LongformerProblem<TypeParam>({1, 2, 1, 3, 45, 6, 5}, options));
    this->expect_oracle(LongformerProblem<TypeParam>({1, 2, 1, 40, 60, 6, 5}, options));
  }
}

TYPED_TEST(LongformerProjections, OfPackedSequences) {
  LongformerProblem<TypeParam> of({1, 2, 1, 120, 120, 6, 5},
                                  {.left = 5, .right = 5, .first_global = 2, .global = {9}});
  of.cu_seqlens = {0, 50, 50, 51, 120};
  this->expect_oracle(of);
}

/// Whichever allocation fails, everything is written or nothing; all memory is between guard pages.
TYPED_TEST(LongformerProjections, FailedAllocations) {
  using T = TypeParam;
  const LongformerOptions options = {.left = 9, .right = 5, .first_global = 2, .global = {7, 40}};
  const LongformerProblem<T> of({2, 4, 2, 60, 60, 6, 5}, options);
  const auto expected = of.run();
  between_fences([&] {
    EXPECT_TRUE(same_bits(expected, LongformerProblem<T>({2, 4, 2, 60, 60, 6, 5}, options).run()));
  });
  expect_all_or_nothing_of(LongformerAttention(options), of);
}

/// The projections of all rows in their place change nothing.
TYPED_TEST(LongformerProjections, EqualProjectionsDoNotChangeBits) {
  using T = TypeParam;
  for (const LongformerOptions& options : all_options()) {
    LongformerProblem<T> of({2, 4, 2, 100, 100, 6, 5}, options);
    for (const auto& [to, from] :
         {std::pair{&of.global_q, &of.q}, {&of.global_k, &of.k}, {&of.global_v, &of.v}}) {
      to->fill([&, x = from](Index b, Index h, Index n, Index d) { return (*x)(b, h, n, d); });
    }
    const auto got = of.run();
    const Tensor<T> out(of.d_out.shape());
    LongformerAttention(options).forward({of.q.view(), of.k.view(), of.v.view()}, out.view());
    EXPECT_TRUE(same_bits(got["out"], out.values()));
  }
}

TYPED_TEST(LongformerProjections, BitsDoNotDependOnThreadsLevelsAndStrides) {
  using T = TypeParam;
  const LongformerOptions options{.left = 30, .right = 9, .first_global = 2, .global = {70, 200}};
  expect_same_bits_everywhere(
      [&](const Layout& layout) {
        return LongformerProblem<T>({2, 4, 2, 260, 260, 9, 6}, options, {260, 201}, layout);
      },
      [](const LongformerProblem<T>& of, AnyExecutor* executor, const Layout& layout) {
        return of.run(executor, layout);
      });
}

/// q of global rows and global_q of the others are not read; nor is anything beyond the lengths.
TYPED_TEST(LongformerProjections, UnusedRowsDoNotChangeBits) {
  using T = TypeParam;
  const LongformerOptions options{.left = 9, .right = 5, .first_global = 3, .global = {40}};
  const std::vector<Index> lengths = {70, 50};
  const AttentionShape shape{2, 2, 2, 70, 70, 6, 5};
  const LongformerProblem<T> of(shape, options, lengths);
  const auto expected = of.run();
  constexpr T nan = std::numeric_limits<T>::quiet_NaN();
  for_each_index(of.q.shape(), [&](Index b, Index h, Index i, Index c) {
    (is_global(of.options, i) ? of.q : of.global_q)(b, h, i, c) = nan;
    if (i < lengths[as_size(b)]) return;
    of.k(b, h, i, c) = of.global_k(b, h, i, c) = nan;
    if (c < 5) of.v(b, h, i, c) = of.global_v(b, h, i, c) = nan;
  });
  EXPECT_TRUE(same_bits(of.run(), expected));
}

/// An arena of the stated size is sufficient.
TYPED_TEST(LongformerProjections, InAnArena) {
  using T = TypeParam;
  const LongformerOptions options{.left = 30, .right = 9, .first_global = 2, .global = {70}};
  const AttentionShape shape{2, 2, 2, 140, 140, 9, 6};
  const LongformerProblem<T> of(shape, options);
  const auto expected = of.run();
  const LongformerAttention op(options);
  for (const int workers : {1, 3}) {
    const fovea::ThreadPool pool(workers);
    fovea::Arena arena(std::max(op.global_workspace_bytes<T>(shape, workers),
                                op.global_backward_workspace_bytes<T>(shape, workers)));
    AnyExecutor executor = AnyExecutor::of(pool, &arena);
    EXPECT_TRUE(same_bits(of.run(&executor), expected));
  }
}

TEST(LongformerProjectionsBadInput, IsReported) {
  const LongformerProblem<float> of({1, 2, 1, 9, 9, 4, 3},
                                    {.left = 2, .right = 2, .first_global = 1});
  const LongformerAttention op(of.options);
  const Tensor<float> out(of.d_out.shape());
  const Tensor<float> lse({1, 2, 9, 1});
  lse.fill(constant(0));
  out.fill(constant(7));
  const auto message = [&](const LongformerInputs<float>& in) {
    const std::string text = refusal([&] { op.forward(in, out.view()); });
    for (const float x : out.values()) EXPECT_EQ(x, 7.0F);
    return text;
  };
  const std::string name = "LongformerAttention: ";
  LongformerInputs<float> in = of.inputs();
  in.global_k = {};
  EXPECT_EQ(message(in),
            name + "global_k is required: global_q, global_k and global_v belong together");
  in.global_v = {};  // one of the three alone
  EXPECT_EQ(message(in),
            name + "global_k is required: global_q, global_k and global_v belong together");
  in.global_q = {};
  in.global_k = of.inputs().global_k;
  EXPECT_EQ(message(in),
            name + "global_q is required: global_q, global_k and global_v belong together");
  in.global_k = {};
  in.global_v = of.inputs().global_v;
  EXPECT_EQ(message(in),
            name + "global_q is required: global_q, global_k and global_v belong together");
  in = of.inputs();
  in.global_q = in.global_k;
  EXPECT_EQ(message(in), name + "global_q has shape 1x1x9x4; expected 1x2x9x4, the shape of q");
  in = of.inputs();
  in.global_v = in.global_k;
  EXPECT_EQ(message(in), name + "global_v has shape 1x1x9x4; expected 1x1x9x3, the shape of v");
  EXPECT_EQ(refusal([&] { op.forward(of.inputs(), View<float>(of.global_v.view())); }),
            name + "out has shape 1x1x9x3; expected 1x2x9x3, to match the inputs");
  const Tensor<float> bias({1, 1, 1, 9});
  bias.fill(constant(0));
  in = of.inputs();
  in.bias = bias.view();
  const Tensor<float> d_bias(bias.shape());
  EXPECT_EQ(refusal([&] {
              op.backward(in, out.view(), {lse.view()}, of.d_out.view(), {.bias = d_bias.view()});
            }),
            name + "the gradient of bias must not be given: it is not defined with global_q");
  in = of.inputs();
  in.global_q = in.global_k = in.global_v = {};
  const Tensor<float> d_global(of.q.shape());
  EXPECT_EQ(refusal([&] {
              op.backward(in, out.view(), {lse.view()}, of.d_out.view(),
                          {.global_q = d_global.view()});
            }),
            name + "the gradient of global_q must not be given: the inputs have no global_q");
  auto decoder = op.decoder<float>({.query_heads = 2, .width = 4, .value_width = 3});
  EXPECT_EQ(refusal([&] { decoder.step(of.inputs(), out.view()); }),
            name + "global_q must not be given: a decoder keeps one set of keys and values");
}

TEST(LongformerProjectionsDifferences, OfEveryInput) {
  const LongformerProblem<double> of(
      {2, 2, 1, 7, 7, 2, 2}, {.left = 1, .right = 1, .first_global = 1, .global = {4}}, {7, 5});
  expect_differences(LongformerAttention(of.options), of, 1e-8);
}

}  // namespace fovea_test::attention_longformer_projections
