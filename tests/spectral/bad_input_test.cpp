// SPDX-License-Identifier: MIT
// fovea_test(NEEDS fftw)
/// \file
/// Refusals of HiddenStateCross and FftPlan: exact messages, before anything is written or planned.
#include <gtest/gtest.h>

#include <algorithm>
#include <new>
#include <vector>

#include "fovea/spectral/hidden_state_cross.hpp"
#include "fovea/spectral/plan_cache.hpp"
#include "support/fill.hpp"
#include "support/refusal.hpp"
#include "support/tensor.hpp"

namespace fovea_test::spectral_bad_input {

using fovea::CrossGrads;
using fovea::CrossInputs;
using fovea::HiddenStateCross;

class CrossBadInput : public testing::Test {
 protected:
  CrossBadInput() {
    f1_.fill(gaussian(1));
    f2_.fill(gaussian(2));
    out_.fill(constant(7));
  }

  std::string forward(const CrossInputs<float>& inputs, const View<float>& out) const {
    const std::string message = refusal([&] { HiddenStateCross().forward(inputs, out); });
    const auto values = out_.values();
    EXPECT_EQ(std::count(values.begin(), values.end(), 7.0F), 24) << "written before the refusal";
    return message;
  }
  std::string backward(const CrossInputs<float>& inputs, const View<const float>& d_out,
                       const CrossGrads<float>& grads) const {
    return refusal([&] { HiddenStateCross().backward(inputs, d_out, grads); });
  }

  Tensor<float> f1_{{2, 1, 4, 3}};
  Tensor<float> f2_{{2, 1, 4, 3}};
  Tensor<float> out_{{2, 1, 4, 3}};
};

TEST_F(CrossBadInput, Shapes) {
  const Tensor<float> heads({2, 2, 4, 3});
  EXPECT_EQ(forward({heads.view(), heads.view()}, out_.view()),
            "HiddenStateCross: f1 has 2 heads; expected 1: the cross has no heads");
  const Tensor<float> longer({2, 1, 5, 3});
  EXPECT_EQ(forward({f1_.view(), longer.view()}, out_.view()),
            "HiddenStateCross: f2 has shape 2x1x5x3; expected 2x1x4x3, the shape of f1");
  EXPECT_EQ(forward({f1_.view(), f2_.view()}, longer.view()),
            "HiddenStateCross: out has shape 2x1x5x3; expected 2x1x4x3, the shape of f1");
  EXPECT_EQ(forward({{}, f2_.view()}, out_.view()),
            "HiddenStateCross: f1 is required: it was not given, or was passed without memory");
  EXPECT_EQ(forward({f1_.view(), {}}, out_.view()),
            "HiddenStateCross: f2 is required: it was not given, or was passed without memory");
  EXPECT_EQ(forward({f1_.view(), f2_.view()}, {}),
            "HiddenStateCross: out is empty: it was passed without memory; expected 2x1x4x3, the "
            "shape of f1");
  const Tensor<float> narrow({2, 1, 4, 2});
  EXPECT_EQ(backward({f1_.view(), f2_.view()}, narrow.view(), {out_.view()}),
            "HiddenStateCross: d_out has shape 2x1x4x2; expected 2x1x4x3, the shape of f1");
  EXPECT_EQ(
      backward({f1_.view(), f2_.view()}, f1_.view(), {.f2 = narrow.view()}),
      "HiddenStateCross: the gradient of f2 has shape 2x1x4x2; expected 2x1x4x3, the shape of f1");
}

TEST_F(CrossBadInput, KeyLengths) {
  const std::vector<Index> one = {4};
  EXPECT_EQ(forward({f1_.view(), f2_.view(), one}, out_.view()),
            "HiddenStateCross: the number of key_lengths is 1; expected 2, the batch of f1, or 0");
  for (const Index length : {Index{-1}, Index{5}}) {
    const std::vector<Index> lengths = {4, length};
    EXPECT_EQ(forward({f1_.view(), f2_.view(), lengths}, out_.view()),
              "HiddenStateCross: key_lengths[1] is " + std::to_string(length) +
                  "; expected 0 to 4, the rows of f1");
  }
}

TEST_F(CrossBadInput, OverlappingMemory) {
  EXPECT_EQ(forward({f1_.view(), f2_.view()}, f2_.view()),
            "HiddenStateCross: out overlaps f2; outputs must not alias inputs or each other");
  EXPECT_EQ(backward({f1_.view(), f2_.view()}, out_.view(), {out_.view()}),
            "HiddenStateCross: the gradient of f1 overlaps d_out; outputs must not alias inputs or "
            "each other");
  const Tensor<float> d_out(f1_.shape());
  EXPECT_EQ(backward({f1_.view(), f2_.view()}, d_out.view(), {out_.view(), out_.view()}),
            "HiddenStateCross: the gradient of f2 overlaps the gradient of f1; outputs must not "
            "alias inputs or each other");
  const View<float> broadcast(&out_(0, 0, 0, 0), {2, 1, 4, 3}, {12, 0, 0, 1});
  EXPECT_EQ(forward({f1_.view(), f2_.view()}, broadcast),
            "HiddenStateCross: out has strides [12, 0, 0, 1] for 2x1x4x3; the elements of an "
            "output need different addresses");
  const View<float> descending(&out_(0, 0, 3, 0), {1, 1, 4, 3}, {12, 0, -3, 1});
  const View<const float> first(&f1_(0, 0, 0, 0), {1, 1, 4, 3});
  const View<const float> second(&f2_(0, 0, 0, 0), {1, 1, 4, 3});
  EXPECT_EQ(forward({first, second}, descending),
            "HiddenStateCross: stride of rows of out is -3; expected at least 0 in an output");
}

/// Inputs may be the same tensor, may be broadcast, and may have negative strides.
TEST_F(CrossBadInput, InputsMayShareMemory) {
  const Tensor<float> out(f1_.shape());
  EXPECT_EQ(refusal([&] {
              HiddenStateCross().forward(CrossInputs<float>{f1_.view(), f1_.view()}, out.view());
            }),
            "accepted");
}

/// Nothing of that size is accessed, allocated or planned.
TEST_F(CrossBadInput, TooLongForFftw) {
  float one = 0;
  const Index rows = (Index{1} << 30) + 1;
  const View<const float> endless(&one, {1, 1, rows, 1}, {0, 0, 0, 0});
  const View<float> out(&one + 1, {1, 1, rows, 1});
  const std::size_t plans = fovea::fft_plans<float>().size();
  EXPECT_EQ(
      refusal([&] {
        HiddenStateCross().check(CrossInputs<float>{endless, endless}, out);
      }),
      "HiddenStateCross: f1 has 1073741825 rows; expected at most 1073741824, the limit of FFTW");
  EXPECT_EQ(
      refusal([&] {
        HiddenStateCross().forward(CrossInputs<float>{endless, endless}, out);
      }),
      "HiddenStateCross: f1 has 1073741825 rows; expected at most 1073741824, the limit of FFTW");
  EXPECT_EQ(fovea::fft_plans<float>().size(), plans);
  EXPECT_EQ(refusal([] { fovea::FftPlan<float>({Index{1} << 31}); }),
            "FftPlan: size is 2147483648; expected 1 to 2147483647, the sizes that FFTW supports");
  EXPECT_EQ(refusal([] { fovea::FftPlan<double>({0}); }),
            "FftPlan: size is 0; expected 1 to 2147483647, the sizes that FFTW supports");
}

TEST(CrossEmpty, NoRowsAndNoChannels) {
  for (const Shape& shape : {Shape{0, 1, 4, 3}, Shape{2, 1, 0, 3}, Shape{2, 1, 4, 0}}) {
    const Tensor<double> f(shape);
    const Tensor<double> out(shape);
    const Tensor<double> d_f1(shape);
    const CrossInputs<double> inputs{f.view(), f.view()};
    HiddenStateCross().forward(inputs, out.view());
    HiddenStateCross().backward(inputs, out.view(), {d_f1.view()});
  }
  HiddenStateCross().forward(CrossInputs<float>{View<const float>(nullptr, {0, 1, 0, 0}),
                                                View<const float>(nullptr, {0, 1, 0, 0})},
                             View<float>(nullptr, {0, 1, 0, 0}));
}

}  // namespace fovea_test::spectral_bad_input
