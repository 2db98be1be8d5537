// SPDX-License-Identifier: MIT
/// \file
/// The near field that FMM attention saves, and that its backward pass reads it.
#include <gtest/gtest.h>

#include <tuple>
#include <vector>

#include "attention/gradients.hpp"
#include "attention/linear_case.hpp"
#include "fovea/core/eigen.hpp"
#include "support/levels.hpp"
#include "support/refusal.hpp"

namespace fovea_test::attention_fmm_saved {

using fovea::FmmSaved;

using Fmm = fovea::FmmTwoKernels;
constexpr fovea::Band kBand{3, 2};

/// Operators that see all keys and that are causal, on sizes with heads in groups.
template <class F>
void for_each_problem(F&& f) {
  for (const bool causal : {false, true}) {
    const Fmm op{
        {.band = kBand, .causal = causal, .denominator = fovea::Denominator::signed_floor(0.5)}};
    const Case<float> plain = softmax_case<float>("full", fovea::FullAttention{}, all_pairs);
    for (const auto& [queries, keys] : {std::array<Index, 2>{150, 150}, {70, 170}, {5, 3}}) {
      f(op, make_problem(plain, {2, 4, 2, queries, keys, 6, 17}));
    }
  }
}

/// Room for what is saved, with gaps between elements.
struct Room {
  explicit Room(const Problem<float>& problem)
      : out(problem.out_shape(), {.gap = 2}), lse(problem.row_shape(), {.gap = 2}) {}

  FmmSaved<float> saved() { return {out.view(), lse.view()}; }

  Tensor<float> out, lse;
};

TEST(FmmSaved, EqualsLocalAttention) {
  for_each_problem([](const Fmm& op, const Problem<float>& problem) {
    SCOPED_TRACE(describe(problem));
    const AllInputs<float> in = problem.inputs();
    Room room(problem);
    const Tensor<float> plain(problem.out_shape()), out(problem.out_shape());
    op.forward(in, plain.view());
    op.forward(in, out.view(), room.saved());
    EXPECT_TRUE(same_bits(plain.values(), out.values(), out.shape()));
    const Tensor<float> near_field(problem.out_shape()), lse(problem.row_shape());
    op.near_field().forward(in, near_field.view(), {lse.view()});
    EXPECT_TRUE(same_bits(near_field.values(), room.out.values(), near_field.shape()));
    EXPECT_TRUE(same_bits(lse.values(), room.lse.values(), lse.shape()));
    EXPECT_EQ(room.out.changed_gaps() + room.lse.changed_gaps(), 0);
  });
}

Gradients<float> gradients(const Fmm& op, const Problem<float>& problem, const AllInputs<float>& in,
                           const FmmSaved<float>& saved) {
  const Tensor<float> out(problem.out_shape());  // is not read
  GradStorage<float> to(in, {});
  op.backward(in, out.view(), saved, make_d_out(problem).view(), to.grads(in, {}));
  return to.values(problem.shape);
}

/// The problem's inputs with logits for each head, or without.
AllInputs<float> with_logits(const Problem<float>& problem, const std::vector<float>& logits) {
  AllInputs<float> in = problem.inputs();
  if (!logits.empty()) {
    const View<const float> of_heads(logits.data(), {1, in.q.heads(), 1, 1});
    in.near_logits = of_heads;
    in.far_logits = of_heads;
  }
  return in;
}

TEST(FmmSaved, DoesNotChangeBitsOfBackward) {
  for_each_problem([](const Fmm& op, const Problem<float>& problem) {
    SCOPED_TRACE(describe(problem));
    for (const std::vector<float>& logits : {std::vector<float>{}, {-1, 0, 0.5f, 2}}) {
      const AllInputs<float> in = with_logits(problem, logits);
      Room room(problem);
      const Tensor<float> out(problem.out_shape());
      op.forward(in, out.view(), room.saved());
      const Gradients<float> computed = gradients(op, problem, in, {});
      EXPECT_TRUE(same_bits(computed, gradients(op, problem, in, room.saved())));
      EXPECT_TRUE(same_bits(computed, gradients(op, problem, in, {room.out.view(), {}})))
          << "one alone";
      room.lse.fill([](Index, Index, Index, Index) { return 1.0f; });
      EXPECT_FALSE(same_bits(computed, gradients(op, problem, in, room.saved())))
          << "lse is not read";
    }
  });
}

TEST(FmmSaved, DecodersSaveTheSame) {
  for_each_problem([](const Fmm& op, const Problem<float>& problem) {
    if (!op.options.causal || problem.shape.queries != problem.shape.keys) return;
    const AllInputs<float> in = problem.inputs();
    Room room(problem), steps(problem);
    const Tensor<float> out(problem.out_shape());
    op.forward(in, out.view(), room.saved());
    auto decoder = op.decoder<float>(
        {.batch = 2, .query_heads = 4, .key_heads = 2, .width = 6, .value_width = 17});
    for (Index n = 0; n < in.q.rows(); n += 7) {
      const Index count = std::min<Index>(7, in.q.rows() - n);
      decoder.step(
          {.q = cut(in.q, 2, n, count), .k = cut(in.k, 2, n, count), .v = cut(in.v, 2, n, count)},
          cut(out.view(), 2, n, count),
          FmmSaved<float>{cut(steps.out.view(), 2, n, count), cut(steps.lse.view(), 2, n, count)});
    }
    EXPECT_TRUE(same_bits(room.out.values(), steps.out.values(), room.out.shape()));
    EXPECT_TRUE(same_bits(room.lse.values(), steps.lse.values(), room.lse.shape()));
  });
}

/// Tensors of 16 bits save numbers of the type of the arithmetic, before they are rounded, and
/// decoders compute the same ones: of a band of few keys and of many, D of which fills no register.
TEST(FmmSaved, SixteenBitsAreNotRounded) {
  using Eigen::bfloat16;
  constexpr Index kRows = 70;
  Tensor<bfloat16> x({1, 2, kRows, 6});
  x.fill([draw = gaussian(3)](Index b, Index h, Index n, Index c) {
    return bfloat16(static_cast<float>(draw(b, h, n, c)));
  });
  for (const Index left : {3, 50}) {
    const fovea::FmmOneKernel op{{.band = {.left = left}, .causal = true}};
    const Tensor<bfloat16> out(x.shape()), rounded(x.shape()), stepped(x.shape());
    const Tensor<float> near_field(x.shape()), lse({1, 2, kRows, 1});
    op.forward({x.view(), x.view(), x.view()}, out.view(), {near_field.view(), lse.view()});
    op.near_field().forward({x.view(), x.view(), x.view()}, rounded.view());
    Index wider = 0;  // than 16 bits
    for_each_index(near_field.shape(), [&](Index b, Index h, Index n, Index c) {
      const float value = near_field.view()(b, h, n, c);
      EXPECT_EQ(bfloat16(value), rounded.view()(b, h, n, c));
      wider += static_cast<float>(bfloat16(value)) != value;
    });
    EXPECT_GT(wider, 100);

    const Tensor<float> near_of_steps(x.shape()), lse_of_steps(lse.shape());
    auto decoder = op.decoder<bfloat16>(
        {.batch = 1, .query_heads = 2, .key_heads = 2, .width = 6, .value_width = 6});
    for (Index n = 0; n < kRows; ++n) {
      const View<const bfloat16> row = cut(View<const bfloat16>(x.view()), 2, n, 1);
      decoder.step({.q = row, .k = row, .v = row}, cut(stepped.view(), 2, n, 1),
                   fovea::FmmSaved<bfloat16>{cut(near_of_steps.view(), 2, n, 1),
                                             cut(lse_of_steps.view(), 2, n, 1)});
    }
    EXPECT_TRUE(same_bits(near_field.values(), near_of_steps.values(), near_field.shape())) << left;
    EXPECT_TRUE(same_bits(lse.values(), lse_of_steps.values(), lse.shape())) << left;
    EXPECT_TRUE(same_bits(out.values(), stepped.values(), out.shape())) << left;
  }
}

/// The keys of a decoder are floats, whose products at v4_bf16 are those of v4.
TEST(FmmSaved, SixteenBitsAreNotMultipliedInPairs) {
  using Eigen::bfloat16;
  Tensor<bfloat16> x({1, 2, 70, 6});
  x.fill([draw = gaussian(3)](Index b, Index h, Index n, Index c) {
    return bfloat16(static_cast<float>(draw(b, h, n, c)));
  });
  for (const Index left : {3, 50}) {
    const fovea::FmmOneKernel op{{.band = {.left = left}, .causal = true}};
    const auto results = [&](IsaLevel level) {
      const AtLevel at(level);
      const Tensor<bfloat16> out(x.shape());
      const Tensor<float> near_field(x.shape()), lse({1, 2, 70, 1});
      op.forward({x.view(), x.view(), x.view()}, out.view(), {near_field.view(), lse.view()});
      return std::tuple(out.values(), near_field.values(), lse.values());
    };
    EXPECT_EQ(results(IsaLevel::v4_bf16), results(IsaLevel::v4)) << left;
  }
}

TEST(FmmSaved, RefusesMismatches) {
  const Fmm op{{.band = kBand, .denominator = fovea::Denominator::signed_floor(0.5)}};
  const Tensor<float> x({1, 2, 5, 4}), out(x.shape()), rows({1, 2, 5, 1}), wrong({1, 2, 4, 1});
  const auto forward = [&](const FmmSaved<float>& saved) {
    return refusal([&] { op.forward({x.view(), x.view(), x.view()}, out.view(), saved); });
  };
  EXPECT_EQ(forward({rows.view(), {}}),
            "FmmAttention: near_out has shape 1x2x5x1; expected 1x2x5x4, to match the inputs");
  EXPECT_EQ(forward({{}, wrong.view()}),
            "FmmAttention: near_lse has shape 1x2x4x1; expected 1x2x5x1, to match the inputs");
  EXPECT_NE(forward({out.view(), {}}), "");
  EXPECT_NE(forward({x.view(), {}}), "");
  const Tensor<float> d(x.shape());
  EXPECT_EQ(refusal([&] {
              op.backward({x.view(), x.view(), x.view()}, out.view(), {{}, wrong.view()}, x.view(),
                          {.q = d.view()});
            }),
            "FmmAttention: near_lse has shape 1x2x4x1; expected 1x2x5x1, to match the inputs");
  EXPECT_NE(refusal([&] {
              op.backward({x.view(), x.view(), x.view()}, out.view(), {d.view(), {}}, x.view(),
                          {.q = d.view()});
            }),
            "");
}

}  // namespace fovea_test::attention_fmm_saved
