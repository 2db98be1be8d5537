// SPDX-License-Identifier: MIT
// How far a result is from the truth, also where it was rounded to 16 bits.
// fovea_test(LINK fovea_bench_truth)
#include "bench/reference/row_reference.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "bench/entries/stored.hpp"

namespace fovea_test::bench_reference_row_reference {

using bench::Error;
using bench::Index;
using bench::Rounding;
using fovea::View;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(RowReference, OnlyErrorsBeyondRoundingCount) {
  const Rounding half = bench::rounding_to<Eigen::half, float>();
  Error error;
  error.add(0x1p-11, 1, 0x1p-24, half);
  EXPECT_EQ(error.ratio, 0);
  error.add(2 * 0x1p-11, 1, 0x1p-24, half);
  EXPECT_NEAR(error.ratio, 0.99 * 0x1p13, 1e-3 * 0x1p13);
  Error tiny;
  tiny.add(0x1p-25, 0, 0x1p-60, half);  // half of the least number
  EXPECT_EQ(tiny.ratio, 0);
  Error exact;
  exact.add(1e-9, 1, 1e-8, bench::rounding_to<float, float>());
  EXPECT_DOUBLE_EQ(exact.ratio, 0.1);
}

TEST(RowReference, NanIsAnErrorHoweverItIsRounded) {
  for (const Rounding& rounding : {Rounding{}, bench::rounding_to<Eigen::bfloat16, float>()}) {
    Error error;
    error.add(std::nan(""), 1, 1, rounding);
    EXPECT_EQ(error.ratio, kInfinity);
    EXPECT_EQ(error.absolute, kInfinity);
  }
}

/// One key: the output is its value.
template <class S>
void expect_rounded_value() {
  const std::vector<float> q = {1, 2}, k = {0.5F, 1}, v = {1 / 3.0F, -70};
  const fovea::Shape shape = {1, 1, 1, 2};
  bench::AllInputs<float> in;
  in.q = View<const float>(q.data(), shape);
  in.k = View<const float>(k.data(), shape);
  in.v = View<const float>(v.data(), shape);
  const auto truth = bench::softmax_of_all<float>(2);
  std::vector<float> out(2);
  const bench::StoredCall<S, float> call(in, View<float>(out.data(), shape));
  EXPECT_EQ(call.inputs.v.shape(), shape);
  for (Index c = 0; c < 2; ++c) call.out(0, 0, 0, c) = call.inputs.v(0, 0, 0, c);
  call.widen();
  const View<const float> got(out.data(), shape);
  const auto error = [&](const Rounding& rounding) {
    return bench::softmax_error(truth, in, got, 1, rounding).ratio;
  };
  EXPECT_EQ(error(bench::rounding_to<S, float>()), 0);
  EXPECT_GT(error({}), bench::kErrorLimit);  // 1/3 is not of 16 bits
  out[0] = std::nanf("");
  EXPECT_EQ(error(bench::rounding_to<S, float>()), kInfinity);
}

TEST(StoredCall, RoundsInputsAndWidensWhatIsStored) {
  expect_rounded_value<Eigen::half>();
  expect_rounded_value<Eigen::bfloat16>();
}

TEST(StoredCall, OfTheArithmeticTypeUsesTensorsInPlace) {
  std::vector<float> x = {1, 2};
  const View<float> view(x.data(), {1, 1, 1, 2});
  bench::AllInputs<float> in;
  in.q = view;
  const bench::StoredCall<float, float> call(in, view);
  EXPECT_EQ(call.inputs.q.data(), x.data());
  EXPECT_EQ(call.out.data(), x.data());
}

/// A row whose largest weight has a value of 0: the result is e^-150, which is not representable in
/// float.
TEST(RowReference, WeightsBelowTheSmallestFloatAreIgnored) {
  const std::vector<float> q = {1};
  const std::vector<float> k = {0, -150};
  const std::vector<float> v = {0, 1};
  const fovea::Shape two = {1, 1, 2, 1};
  const bench::AllInputs<float> in{View<const float>(q.data(), {1, 1, 1, 1}),
                                   View<const float>(k.data(), two),
                                   View<const float>(v.data(), two)};
  const auto truth = bench::softmax_of_all<float>(1);
  float out = 0;
  const View<const float> view(&out, {1, 1, 1, 1});
  EXPECT_LE(bench::softmax_error(truth, in, view, 1).ratio, 1);
  out = 1e-30f;
  EXPECT_GT(bench::softmax_error(truth, in, view, 1).ratio, bench::kErrorLimit);
}

}  // namespace fovea_test::bench_reference_row_reference
