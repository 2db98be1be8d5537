// SPDX-License-Identifier: MIT
/// \file
/// Longformer whose rows of global positions have projections of their own: such rows are softmax
/// attention of these alone, and all others are as without them. Against the oracle, by bits, with
/// what is not visible, without memory, and what it refuses.
#include <algorithm>
#include <limits>

#include "attention/gradients.hpp"
#include "fovea/attention/longformer.hpp"
#include "fovea/core/thread_pool.hpp"
#include "support/central_differences.hpp"
#include "support/failing_allocations.hpp"
#include "support/refusal.hpp"

namespace fovea_test::attention_longformer_projections {

using fovea::LongformerAttention;
using fovea::LongformerInputs;
using fovea::LongformerOptions;

/// The six tensors, and the two calls of softmax attention that they amount to.
template <class T>
struct Projections {
  Projections(const AttentionShape& shape, const LongformerOptions& o,
              std::vector<Index> lengths = {}, const Layout& layout = {})
      : options(o),
        key_lengths(std::move(lengths)),
        q({shape.batch, shape.query_heads, shape.queries, shape.width}, layout),
        k({shape.batch, shape.key_heads, shape.keys, shape.width}, layout),
        v({shape.batch, shape.key_heads, shape.keys, shape.value_width}, layout),
        global_q(q.shape(), layout),
        global_k(k.shape(), layout),
        global_v(v.shape(), layout),
        d_out({shape.batch, shape.query_heads, shape.queries, shape.value_width}) {
    std::uint64_t seed = 1;
    for (Tensor<T>* x : {&q, &k, &v, &global_q, &global_k, &global_v, &d_out}) {
      x->fill(gaussian(seed++));
    }
  }

  LongformerInputs<T> inputs() const {
    return {.q = q.view(),
            .k = k.view(),
            .v = v.view(),
            .key_lengths = key_lengths,
            .cu_seqlens_q = cu_seqlens,
            .global_q = global_q.view(),
            .global_k = global_k.view(),
            .global_v = global_v.view()};
  }

  bool is_global(Index i) const {
    return (0 <= i && i < options.first_global) || std::ranges::count(options.global, i) > 0;
  }
  /// What rows of one kind see.
  OracleOperator<T> oracle(bool of_global) const {
    const Law law = [this, of_global](const Pair& p) {
      const Index i = p.i();
      if (is_global(i) != of_global || (options.causal && p.j > i)) return false;
      const bool near = i - options.left <= p.j && p.j <= i + options.right;
      return near || is_global(i) || is_global(p.j);
    };
    return OracleOperator<T>::of({.alignment = options.alignment}, law, q.shape()[3]);
  }
  AllInputs<T> all_inputs(bool of_global) const {
    if (of_global) {
      return {global_q.view(), global_k.view(), global_v.view(), key_lengths, cu_seqlens};
    }
    return {q.view(), k.view(), v.view(), key_lengths, cu_seqlens};
  }

  struct Result {
    std::vector<T> out, lse;
    std::vector<std::vector<T>> grads;  // q, k, v, global_q, global_k, global_v
  };

  template <class E = fovea::Serial>
  Result run(E&& executor = {}, const Layout& layout = {}) const {
    const Tensor<T> out(d_out.shape(), layout);
    const Tensor<T> lse({d_out.shape()[0], d_out.shape()[1], d_out.shape()[2], 1}, layout);
    const Tensor<T> to[] = {Tensor<T>(q.shape(), layout), Tensor<T>(k.shape(), layout),
                            Tensor<T>(v.shape(), layout), Tensor<T>(q.shape(), layout),
                            Tensor<T>(k.shape(), layout), Tensor<T>(v.shape(), layout)};
    const LongformerAttention op(options);
    op.forward(inputs(), out.view(), {lse.view()}, executor);
    op.backward(inputs(), out.view(), {lse.view()}, d_out.view(),
                {.q = to[0].view(),
                 .k = to[1].view(),
                 .v = to[2].view(),
                 .global_q = to[3].view(),
                 .global_k = to[4].view(),
                 .global_v = to[5].view()},
                executor);
    Result made{out.values(), lse.values(), {}};
    for (const Tensor<T>& x : to) {
      made.grads.push_back(x.values());
      EXPECT_EQ(x.changed_gaps(), 0);
    }
    return made;
  }

  LongformerOptions options;
  std::vector<Index> key_lengths;
  std::vector<Index> cu_seqlens = {};
  Tensor<T> q, k, v, global_q, global_k, global_v, d_out;
};

template <class T>
void expect_same(const typename Projections<T>::Result& a,
                 const typename Projections<T>::Result& b) {
  EXPECT_TRUE(same_bits(a.out, b.out));
  EXPECT_TRUE(same_bits(a.lse, b.lse));
  for (std::size_t n = 0; n < a.grads.size(); ++n) {
    EXPECT_TRUE(same_bits(a.grads[n], b.grads[n])) << n;
  }
}

/// The sum of two references, of which one is 0 wherever the other is not.
template <class T>
Reference<T> either(const Reference<T>& a, const Reference<T>& b) {
  Reference<T> made = a;
  for (std::size_t i = 0; i < a.value.size(); ++i) {
    const bool first = a.gauge[i] != 0;
    made.value[i] = first ? a.value[i] : b.value[i];
    made.gauge[i] = first ? a.gauge[i] : b.gauge[i];
  }
  return made;
}

template <class T>
class LongformerProjections : public testing::Test {
 public:
  static void expect_oracle(const Projections<T>& of) {
    const Expected<T> rows = softmax_oracle(of.all_inputs(false), of.oracle(false));
    const Expected<T> global = softmax_oracle(of.all_inputs(true), of.oracle(true));
    const View<const T> d_out = of.d_out.view();
    const auto row_grads = softmax_grad_oracle(of.all_inputs(false), of.oracle(false), d_out);
    const auto global_grads = softmax_grad_oracle(of.all_inputs(true), of.oracle(true), d_out);
    at_each_level([&] {
      const auto got = of.run();
      EXPECT_TRUE(within_ratio(got.out, either(rows.out, global.out), kOutBound,
                               {"longformer_projections", "out"}));
      for (std::size_t i = 0; i < got.lse.size(); ++i) {
        const bool own = std::isfinite(rows.lse.value[i]);
        EXPECT_LE(error_ratio(got.lse[i], own ? rows.lse : global.lse, i), kLseBound) << i;
      }
      const auto judge = [&](const char* result, std::size_t n, const Reference<T>& expected,
                             double bound) {
        EXPECT_TRUE(within_ratio(got.grads[n], expected, bound, {"longformer_projections", result}))
            << result;
      };
      judge("d_q", 0, row_grads.q, kGradBound);
      judge("d_k", 1, row_grads.k, kGradBound);
      judge("d_v", 2, row_grads.v, kValueGradBound);
      judge("d_global_q", 3, global_grads.q, kGradBound);
      judge("d_global_k", 4, global_grads.k, kGradBound);
      judge("d_global_v", 5, global_grads.v, kValueGradBound);
    });
  }
};
using Scalars = testing::Types<float, double>;
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
      this->expect_oracle(Projections<TypeParam>({2, 4, 2, n, n, 6, 5}, options));
    }
    this->expect_oracle(Projections<TypeParam>({3, 2, 2, 70, 70, 6, 5}, options, {70, 46, 3}));
    this->expect_oracle(Projections<TypeParam>({1, 2, 1, 3, 45, 6, 5}, options));
    this->expect_oracle(Projections<TypeParam>({1, 2, 1, 40, 60, 6, 5}, options));
  }
}

TYPED_TEST(LongformerProjections, OfPackedSequences) {
  Projections<TypeParam> of({1, 2, 1, 120, 120, 6, 5},
                            {.left = 5, .right = 5, .first_global = 2, .global = {9}});
  of.cu_seqlens = {0, 50, 50, 51, 120};
  this->expect_oracle(of);
}

/// Whichever allocation fails, all is written or nothing; and all memory stands between fences.
TYPED_TEST(LongformerProjections, OfFailedAllocations) {
  using T = TypeParam;
  const LongformerOptions options = {.left = 9, .right = 5, .first_global = 2, .global = {7, 40}};
  const Projections<T> of({2, 4, 2, 60, 60, 6, 5}, options);
  const auto expected = of.run();
  between_fences([&] {
    expect_same<T>(expected, Projections<T>({2, 4, 2, 60, 60, 6, 5}, options).run());
  });
  const LongformerAttention op(options);
  const Tensor<T> out(of.d_out.shape()), lse({2, 4, 60, 1});
  expect_all_or_nothing<T>({&out, &lse}, [&](AnyExecutor* executor) {
    on_executor(executor,
                [&](auto&& on) { op.forward(of.inputs(), out.view(), {lse.view()}, on); });
  });
  const Tensor<T> q(of.q.shape()), k(of.k.shape()), v(of.v.shape()), global_q(of.q.shape()),
      global_k(of.k.shape()), global_v(of.v.shape());
  expect_all_or_nothing<T>({&q, &k, &v, &global_q, &global_k, &global_v},
                           [&](AnyExecutor* executor) {
                             on_executor(executor, [&](auto&& on) {
                               op.backward(of.inputs(), out.view(), {lse.view()}, of.d_out.view(),
                                           {.q = q.view(),
                                            .k = k.view(),
                                            .v = v.view(),
                                            .global_q = global_q.view(),
                                            .global_k = global_k.view(),
                                            .global_v = global_v.view()},
                                           on);
                             });
                           });
}

/// The projections of all rows in their place change nothing.
TYPED_TEST(LongformerProjections, TheSameOnesChangeNoBit) {
  using T = TypeParam;
  for (const LongformerOptions& options : all_options()) {
    Projections<T> of({2, 4, 2, 100, 100, 6, 5}, options);
    for (const auto& [to, from] :
         {std::pair{&of.global_q, &of.q}, {&of.global_k, &of.k}, {&of.global_v, &of.v}}) {
      to->fill([&, x = from](Index b, Index h, Index n, Index d) { return (*x)(b, h, n, d); });
    }
    const auto got = of.run();
    const Tensor<T> out(of.d_out.shape());
    LongformerAttention(options).forward({of.q.view(), of.k.view(), of.v.view()}, out.view());
    EXPECT_TRUE(same_bits(got.out, out.values()));
  }
}

TYPED_TEST(LongformerProjections, ThreadsAndStridesChangeNoBit) {
  using T = TypeParam;
  fovea::ThreadPool pool(3);
  Backwards backwards;
  Shuffled shuffled;
  const LongformerOptions options{.left = 30, .right = 9, .first_global = 2, .global = {70, 200}};
  const AttentionShape shape{2, 4, 2, 260, 260, 9, 6};
  const Projections<T> of(shape, options, {260, 201});
  const auto expected = of.run();
  expect_same<T>(of.run(pool), expected);
  expect_same<T>(of.run(backwards), expected);
  expect_same<T>(of.run(shuffled), expected);
  const Layout apart{.order = {3, 1, 0, 2}, .innermost = 2, .gap = 3};
  expect_same<T>(Projections<T>(shape, options, {260, 201}, apart).run(), expected);
  expect_same<T>(of.run(fovea::Serial{}, apart), expected);
}

TYPED_TEST(LongformerProjections, LevelsWithFmaHaveTheSameBits) {
  if (!has_level(IsaLevel::v4) || !has_level(IsaLevel::v3)) {
    GTEST_SKIP() << "no v4 and v3 to compare";
  }
  const Projections<TypeParam> of({2, 4, 2, 140, 140, 9, 6},
                                  {.left = 30, .right = 9, .first_global = 2, .global = {70}});
  const auto at = [&](IsaLevel level) {
    const AtLevel scope(level);
    return of.run();
  };
  expect_same<TypeParam>(at(IsaLevel::v3), at(IsaLevel::v4));
}

/// q of global rows and global_q of the others are not read; nor is anything beyond the lengths.
TYPED_TEST(LongformerProjections, WhatIsNotReadChangesNoBit) {
  using T = TypeParam;
  const LongformerOptions options{.left = 9, .right = 5, .first_global = 3, .global = {40}};
  const std::vector<Index> lengths = {70, 50};
  const AttentionShape shape{2, 2, 2, 70, 70, 6, 5};
  const Projections<T> of(shape, options, lengths);
  const auto expected = of.run();
  constexpr T nan = std::numeric_limits<T>::quiet_NaN();
  for_each_index(of.q.shape(), [&](Index b, Index h, Index i, Index c) {
    (of.is_global(i) ? of.q : of.global_q)(b, h, i, c) = nan;
    if (i < lengths[as_size(b)]) return;
    of.k(b, h, i, c) = of.global_k(b, h, i, c) = nan;
    if (c < 5) of.v(b, h, i, c) = of.global_v(b, h, i, c) = nan;
  });
  expect_same<T>(of.run(), expected);
}

/// An arena of the size that the operator tells serves.
TYPED_TEST(LongformerProjections, InAnArena) {
  using T = TypeParam;
  const LongformerOptions options{.left = 30, .right = 9, .first_global = 2, .global = {70}};
  const AttentionShape shape{2, 2, 2, 140, 140, 9, 6};
  const Projections<T> of(shape, options);
  const auto expected = of.run();
  const LongformerAttention op(options);
  for (const int workers : {1, 3}) {
    const fovea::ThreadPool pool(workers);
    fovea::Arena arena(std::max(op.global_workspace_bytes<T>(shape, workers),
                                op.global_backward_workspace_bytes<T>(shape, workers)));
    AnyExecutor executor = AnyExecutor::of(pool, &arena);
    expect_same<T>(of.run(executor), expected);
  }
}

TEST(LongformerProjectionsBadInput, IsNamed) {
  const Projections<float> of({1, 2, 1, 9, 9, 4, 3}, {.left = 2, .right = 2, .first_global = 1});
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
  EXPECT_EQ(message(in), name + "global_k is missing; expected one of batch 1, as of k");
  in = of.inputs();
  in.global_q = in.global_k;
  EXPECT_EQ(message(in), name + "heads of global_q is 1; expected 2, as of q");
  in = of.inputs();
  in.global_v = in.global_k;
  EXPECT_EQ(message(in), name + "width of global_v is 4; expected 3, as of v");
  EXPECT_EQ(refusal([&] { op.forward(of.inputs(), View<float>(of.global_v.view())); }),
            name + "heads of out is 1; expected 2, as the inputs make it 1x2x9x3");
  const Tensor<float> bias({1, 1, 1, 9});
  bias.fill(constant(0));
  in = of.inputs();
  in.bias = bias.view();
  const Tensor<float> d_bias(bias.shape());
  EXPECT_EQ(refusal([&] {
              op.backward(in, out.view(), {lse.view()}, of.d_out.view(), {.bias = d_bias.view()});
            }),
            name + "the gradient of bias is asked for; expected none, since global_q is given");
  in = of.inputs();
  in.global_q = in.global_k = in.global_v = {};
  const Tensor<float> d_global(of.q.shape());
  EXPECT_EQ(refusal([&] {
              op.backward(in, out.view(), {lse.view()}, of.d_out.view(),
                          {.global_q = d_global.view()});
            }),
            name + "the gradient of global_q is asked for; expected a global_q");
  auto decoder = op.decoder<float>({.query_heads = 2, .width = 4, .value_width = 3});
  EXPECT_EQ(refusal([&] { decoder.step(of.inputs(), out.view()); }),
            name +
                "global_q is given; expected none in a decoder, which keeps one set of keys and "
                "values");
}

/// Every gradient by central differences.
TEST(LongformerProjectionsGradients, AreCentralDifferences) {
  const Projections<double> of({2, 2, 1, 7, 7, 2, 2},
                               {.left = 1, .right = 1, .first_global = 1, .global = {4}}, {7, 5});
  const auto got = of.run();
  const auto loss = [&] {
    const Tensor<double> out(of.d_out.shape());
    LongformerAttention(of.options).forward(of.inputs(), out.view());
    double sum = 0;
    for_each_index(out.shape(), [&](Index b, Index h, Index n, Index d) {
      sum += out(b, h, n, d) * of.d_out(b, h, n, d);
    });
    return sum;
  };
  const Tensor<double>* inputs[] = {&of.q, &of.k, &of.v, &of.global_q, &of.global_k, &of.global_v};
  for (std::size_t n = 0; n < 6; ++n) {
    for_each_difference(*inputs[n], 1e-5, loss, [&](std::size_t at, double difference) {
      EXPECT_NEAR(got.grads[n][at], difference, 1e-8) << n;
    });
  }
}

}  // namespace fovea_test::attention_longformer_projections
