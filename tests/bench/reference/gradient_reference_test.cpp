// SPDX-License-Identifier: MIT
// The benchmarks' truth for gradients of softmax attention against the oracle of the tests, also
// where several query heads read one key head.
// fovea_test(LINK fovea_bench_truth)
#include "bench/reference/gradient_reference.hpp"

#include <gtest/gtest.h>

#include "attention/reference_masks.hpp"
#include "bench/entries/softmax_entry.hpp"
#include "bench/reference/problem.hpp"
#include "fovea/attention/full.hpp"
#include "fovea/attention/strided.hpp"

namespace fovea_test::bench_reference_gradient_reference {

using namespace bench_reference;

/// Each key head is read by one query head, and by three.
template <class Op>
void expect_gradients_of(const Op& op, const ReferenceMask& reference_mask) {
  for (const Index group : {1, 3}) {
    const Problem problem(kRows, group);
    const auto oracle = [&](const bench::AllInputs<T>& in, const View<const T>& d_out) {
      return softmax_grad_oracle(in, OracleOperator<T>::of({}, reference_mask, kWidth), d_out);
    };
    const auto mask = bench::reference_mask(op, fovea::shape_of(problem.inputs));
    expect_gradients(problem.inputs, oracle, [&](const auto& d_out, const auto& grads) {
      return softmax_gradient_error(mask, problem.inputs, d_out, grads, kRows);
    });
  }
}

TEST(GradientReference, WithSharedKeyHeads) {
  expect_gradients_of(fovea::FullAttention{}, all_pairs);
  expect_gradients_of(fovea::FullAttention{{.causal = true}}, band(kAllKeys, 0));
}

/// The heads of a group may differ in what they see.
TEST(GradientReference, WithPatternsByHead) {
  constexpr Index stride = 4;
  const ReferenceMask reference_mask = [](const Pair& p) {
    const Index back = p.i() - p.j;
    return back >= 0 && (p.h % 2 == 0 ? back <= stride : back % stride == 0);
  };
  expect_gradients_of(fovea::StridedAttention({.stride = stride}), reference_mask);
}

}  // namespace fovea_test::bench_reference_gradient_reference
