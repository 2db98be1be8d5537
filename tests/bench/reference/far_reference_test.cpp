// SPDX-License-Identifier: MIT
// The references of the benchmarks, linear in N, against the oracles of the tests, which are not.
// fovea_test(LINK fovea_bench_truth)
#include "bench/reference/far_reference.hpp"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "attention/reference_masks.hpp"
#include "bench/entries/far_entry.hpp"
#include "bench/reference/problem.hpp"
#include "support/oracle/fmm.hpp"

namespace fovea_test::bench_reference_far_reference {

using namespace bench_reference;

constexpr double kRoundoff = 0x1p-53;

/// Oracles in the shape of FMM attention; the near field only where the operator has one.
OracleFmm<T> oracle_of(bool causal, Index left, Index right) {
  OracleFmm<T> oracle;
  const ReferenceMask near_field = fovea_test::band(left, right);
  oracle.near_field = OracleOperator<T>::of({}, near_field, kWidth);
  oracle.linear.reference_mask =
      causal ? fovea_test::band(fovea_test::kAllKeys, 0) : fovea_test::all_pairs;
  return oracle;
}

/// All rows of the oracle are right, and an error is measured in the oracle's gauge.
template <class Op>
void expect_rows(const Op& op, const bench::AllInputs<T>& in, const Reference<T>& want) {
  std::vector<T> out = rounded(want);
  const View<const T> view(out.data(), want.shape);
  const auto model = bench::far_model(op);
  const auto error = [&] { return far_error(model, in, kRows, view, kRows).ratio; };
  EXPECT_LE(error(), 1.001);
  for (const std::size_t i : {std::size_t{3}, out.size() / 2, out.size() - 1}) {
    const T right = out[i];
    out[i] += 1e6 * kRoundoff * static_cast<T>(want.gauge[i]);
    EXPECT_NEAR(error(), 1e6, 1e3) << "element " << i;
    out[i] = right;
  }
}

/// \param oracle the gradients for those inputs and a gradient of the output
template <class Op, class Oracle>
void expect_gradients_of(const Op& op, const bench::AllInputs<T>& in, const Oracle& oracle) {
  expect_gradients(in, oracle, [&](const View<const T>& d_out, const bench::AllGrads<T>& grads) {
    return far_gradient_error(bench::far_model(op), in, d_out, grads, kRows);
  });
}

/// Query heads that read one key head.
constexpr std::array<Index, 2> kGroups = {1, 3};

void expect_linear(bool causal, Index group) {
  const Problem problem(kRows, group);
  const fovea::LinearAttention<fovea::EluPlusOne, fovea::TanhPlusOne> op({.causal = causal});
  OracleFmm<T> oracle = oracle_of(causal, 0, 0);
  oracle.linear.maps = {fovea_test::elu_plus_one<T>(), fovea_test::tanh_plus_one<T>()};
  expect_rows(op, problem.inputs, linear_oracle(problem.inputs, oracle.linear));
  expect_gradients_of(op, problem.inputs, [&](const auto& in, const auto& d_out) {
    return linear_grad_oracle(in, oracle.linear, d_out);
  });
}

TEST(FarReference, LinearAttention) {
  for (const Index group : kGroups) {
    SCOPED_TRACE(group);
    expect_linear(false, group);
    expect_linear(true, group);
  }
}

TEST(FarReference, DeltaRule) {
  for (const Index group : kGroups) {
    SCOPED_TRACE(group);
    const Problem problem(kRows, group);
    const fovea::DeltaRuleAttention<> op;
    const bench::FarData<T> data(problem.inputs, op);
    const fovea_test::OracleDelta<T> oracle{fovea_test::elu_plus_one<T>()};
    expect_rows(op, data.inputs, delta_oracle(data.inputs, oracle));
    expect_gradients_of(op, data.inputs, [&](const auto& in, const auto& d_out) {
      return delta_grad_oracle(in, oracle, d_out);
    });
  }
}

void expect_fmm(bool causal, Index group) {
  const Problem problem(kRows, group);
  const fovea::FmmTwoKernels op({.band = {.left = 4, .right = 2}, .causal = causal});
  const bench::FarData<T> data(problem.inputs, op);
  OracleFmm<T> oracle = oracle_of(causal, 4, causal ? 0 : 2);
  oracle.linear.maps = {fovea_test::elu_plus_one<T>(), fovea_test::elu_plus_one<T>(-1)};
  expect_rows(op, data.inputs, fmm_oracle(data.inputs, oracle));
  expect_gradients_of(op, data.inputs, [&](const auto& in, const auto& d_out) {
    return fmm_grad_oracle(in, oracle, d_out);
  });
}

TEST(FarReference, FmmAttention) {
  for (const Index group : kGroups) {
    SCOPED_TRACE(group);
    expect_fmm(false, group);
    expect_fmm(true, group);
  }
}

/// Fewer queries than tokens, and tokens that come again: two rounds of k and v, three rows of q.
TEST(FarReference, DecodedTokens) {
  const Problem problem(3);
  const fovea::FmmFastWeight op({.band = {.left = 4}});
  const bench::FarData<T> data(problem.inputs, op);
  const auto twice = [](const View<const T>& x) {
    std::vector<T> rows;
    for (Index h = 0; h < kHeads; ++h) {
      for (Index n = 0; n < 2 * kRows; ++n) {
        for (Index c = 0; c < x.width(); ++c) rows.push_back(x(0, h, n % kRows, c));
      }
    }
    return rows;
  };
  const auto k = twice(data.inputs.k);
  const auto v = twice(data.inputs.v);
  const auto beta = twice(data.inputs.beta);
  bench::AllInputs<T> all = data.inputs;
  all.k = View<const T>(k.data(), shape_of_rows(2 * kRows, kWidth));
  all.v = View<const T>(v.data(), shape_of_rows(2 * kRows, kValueWidth));
  all.beta = View<const T>(beta.data(), shape_of_rows(2 * kRows, 1));
  OracleFmm<T> oracle = oracle_of(true, 4, 0);
  oracle.deltas = {{fovea_test::elu_plus_one<T>()}};
  const Reference<T> want = fmm_oracle(all, oracle);
  const std::vector<T> out = rounded(want);
  const auto model = bench::far_model(op);
  EXPECT_LE(
      far_error(model, data.inputs, 2 * kRows, View<const T>(out.data(), want.shape), 3).ratio,
      1.001);
}

}  // namespace fovea_test::bench_reference_far_reference
