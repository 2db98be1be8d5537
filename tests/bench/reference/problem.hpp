// SPDX-License-Identifier: MIT
/// \file
/// A problem for the truths of benchmarks, and correct results for them to judge.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "bench/entries/all_inputs.hpp"
#include "bench/io/gaussian.hpp"
#include "bench/reference/row_reference.hpp"
#include "support/oracle/softmax_grad.hpp"

namespace fovea_test::bench_reference {

using bench::Index;
using bench::View;
using fovea::Shape;
using T = double;

constexpr Index kHeads = 2;  // of k and v
constexpr Index kRows = 37;
constexpr Index kWidth = 5;
constexpr Index kValueWidth = 6;

constexpr Shape shape_of_rows(Index rows, Index width, Index group = 1) {
  return {1, kHeads * group, rows, width};
}

/// q, k and v; an operator's other inputs are in FarData.
struct Problem {
  std::vector<T> q, k, v;
  bench::AllInputs<T> inputs;

  /// \param group query heads that read one key head
  explicit Problem(Index queries, Index group = 1)
      : q(bench::gaussians<T>(7, 0, group * kHeads * queries * kWidth)),
        k(bench::gaussians<T>(7, 1, kHeads * kRows * kWidth)),
        v(bench::gaussians<T>(7, 2, kHeads * kRows * kValueWidth)),
        inputs{View<const T>(q.data(), shape_of_rows(queries, kWidth, group)),
               View<const T>(k.data(), shape_of_rows(kRows, kWidth)),
               View<const T>(v.data(), shape_of_rows(kRows, kValueWidth))} {}
};

inline std::vector<T> rounded(const Reference<T>& x) { return {x.value.begin(), x.value.end()}; }

/// The gradients of an oracle as an operator would have written them.
struct Written {
  std::vector<T> q, k, v, beta;
  bench::AllGrads<T> grads;

  explicit Written(const ExpectedGrads<T>& want)
      : q(rounded(want.q)), k(rounded(want.k)), v(rounded(want.v)), beta(rounded(want.beta)) {
    grads.q = View<T>(q.data(), want.q.shape);
    grads.k = View<T>(k.data(), want.k.shape);
    grads.v = View<T>(v.data(), want.v.shape);
    if (!beta.empty()) grads.beta = View<T>(beta.data(), want.beta.shape);
  }
};

/// The gradients of an oracle are right, and a wrong element anywhere is found.
/// \param oracle the gradients for those inputs and a gradient of the output
/// \param judge judge(d_out, grads): the error that the truth finds
template <class Oracle, class Judge>
void expect_gradients(const bench::AllInputs<T>& in, const Oracle& oracle, const Judge& judge) {
  const Shape shape = {1, in.q.heads(), kRows, kValueWidth};
  const std::vector<T> d_out_data = bench::gaussians<T>(8, 0, shape[1] * shape[2] * shape[3]);
  const View<const T> d_out(d_out_data.data(), shape);
  Written written(oracle(in, d_out));
  EXPECT_LE(judge(d_out, written.grads).ratio, 1.001);
  for (std::vector<T>* x : {&written.q, &written.k, &written.v, &written.beta}) {
    for (const std::size_t i : {x->size() / 4, x->size() * 3 / 4}) {
      if (x->empty()) continue;
      const T right = (*x)[i];
      (*x)[i] *= 1 + 1e-6;
      EXPECT_GT(judge(d_out, written.grads).ratio, bench::kErrorLimit) << "element " << i;
      (*x)[i] = right;
    }
  }
}

}  // namespace fovea_test::bench_reference
