// SPDX-License-Identifier: MIT
// The benchmarks' truth for gradients of softmax attention against the oracle of the tests, also
// where several query heads read one key head.
// fovea_test(LINK fovea_bench_truth)
#include "bench/reference/gradient_reference.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "attention/reference_masks.hpp"
#include "bench/entries/softmax_entry.hpp"
#include "bench/io/gaussian.hpp"
#include "fovea/attention/full.hpp"
#include "fovea/attention/strided.hpp"
#include "support/oracle/softmax_grad.hpp"

namespace fovea_test::bench_reference_gradient_reference {

using bench::Error;
using bench::Index;
using bench::View;
using fovea::Shape;
using fovea_test::ExpectedGrads;
using fovea_test::OracleOperator;
using fovea_test::ReferenceMask;
using T = double;

constexpr Index kKeyHeads = 2;
constexpr Index kRows = 23;
constexpr Index kWidth = 5;
constexpr Index kValueWidth = 6;

/// Correct results, and the error that the reference finds in them.
struct Problem {
  std::vector<T> q, k, v, d_out, d_q, d_k, d_v;
  bench::AllInputs<T> inputs;
  View<const T> d_out_view;
  bench::AllGrads<T> grads;

  Problem(Index heads, const ReferenceMask& reference_mask)
      : q(bench::gaussians<T>(7, 0, heads * kRows * kWidth)),
        k(bench::gaussians<T>(7, 1, kKeyHeads * kRows * kWidth)),
        v(bench::gaussians<T>(7, 2, kKeyHeads * kRows * kValueWidth)),
        d_out(bench::gaussians<T>(7, 3, heads * kRows * kValueWidth)),
        inputs{View<const T>(q.data(), {1, heads, kRows, kWidth}),
               View<const T>(k.data(), {1, kKeyHeads, kRows, kWidth}),
               View<const T>(v.data(), {1, kKeyHeads, kRows, kValueWidth})},
        d_out_view(d_out.data(), {1, heads, kRows, kValueWidth}) {
    const auto oracle = OracleOperator<T>::of({}, reference_mask, kWidth);
    const ExpectedGrads<T> want = softmax_grad_oracle(inputs, oracle, d_out_view);
    const auto written = [](const auto& x, std::vector<T>& to) {
      to.assign(x.value.begin(), x.value.end());
      return View<T>(to.data(), x.shape);
    };
    grads = {.q = written(want.q, d_q), .k = written(want.k, d_k), .v = written(want.v, d_v)};
  }
  Problem(const Problem&) = delete;
  Problem& operator=(const Problem&) = delete;

  template <class Op>
  double ratio(const Op& op) const {
    const auto mask = bench::reference_mask(op, fovea::shape_of(inputs));
    return softmax_gradient_error(mask, inputs, d_out_view, grads, kRows).ratio;
  }
};

/// The oracle's gradients are right, and a wrong element anywhere is found.
template <class Op>
void expect_gradients(const Op& op, Index heads, const ReferenceMask& reference_mask) {
  Problem problem(heads, reference_mask);
  EXPECT_LE(problem.ratio(op), 1) << heads << " heads on " << kKeyHeads;
  for (std::vector<T>* x : {&problem.d_q, &problem.d_k, &problem.d_v}) {
    for (const std::size_t i : {x->size() / 4, x->size() * 3 / 4}) {
      const T right = (*x)[i];
      (*x)[i] = right * (1 + 1e-6);
      EXPECT_GT(problem.ratio(op), bench::kErrorLimit) << heads << " heads, element " << i;
      (*x)[i] = right;
    }
  }
}

TEST(GradientReference, WithSharedKeyHeads) {
  for (const Index heads : {Index{2}, Index{6}}) {
    expect_gradients(fovea::FullAttention{}, heads, fovea_test::all_pairs);
    expect_gradients(fovea::FullAttention{{.causal = true}}, heads,
                     fovea_test::band(fovea_test::kAllKeys, 0));
  }
}

/// The heads of a group may differ in what they see.
TEST(GradientReference, WithPatternsByHead) {
  constexpr Index stride = 4;
  const ReferenceMask reference_mask = [](const fovea_test::Pair& p) {
    const Index back = p.i() - p.j;
    return back >= 0 && (p.h % 2 == 0 ? back <= stride : back % stride == 0);
  };
  for (const Index heads : {Index{2}, Index{6}}) {
    expect_gradients(fovea::StridedAttention({.stride = stride}), heads, reference_mask);
  }
}

/// A row whose largest weight has a value of 0: the result is e^-150, which is not representable in
/// float.
TEST(RowReference, WeightsBelowTheSmallestFloatAreIgnored) {
  const std::vector<float> q = {1};
  const std::vector<float> k = {0, -150};
  const std::vector<float> v = {0, 1};
  const Shape two = {1, 1, 2, 1};
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

}  // namespace fovea_test::bench_reference_gradient_reference
