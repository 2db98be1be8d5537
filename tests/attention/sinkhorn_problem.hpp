// SPDX-License-Identifier: MIT
/// \file
/// Calls of Sinkhorn attention for tests: what they read, what they write, and what that should be.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "fovea/attention/sinkhorn.hpp"
#include "support/compare.hpp"
#include "support/executors.hpp"
#include "support/fill.hpp"
#include "support/oracle/sinkhorn.hpp"
#include "support/tensor.hpp"

namespace fovea_test {

using fovea::SinkhornAttention;
using fovea::SinkhornOptions;

struct SortSizes {
  Index batch = 1;
  Index heads = 1;
  Index key_heads = 1;
  Index rows = 0;
  Index width = 8;
  Index value_width = 5;
  Index block = 1;
};

/// The inputs of one call, Gaussian, in one layout.
template <class T>
struct SortProblem {
  explicit SortProblem(const SortSizes& s, std::uint64_t seed = 1, const Layout& layout = {})
      : q({s.batch, s.heads, s.rows, s.width}, layout),
        k({s.batch, s.key_heads, s.rows, s.width}, layout),
        v({s.batch, s.key_heads, s.rows, s.value_width}, layout),
        sorting({s.batch, s.key_heads, s.rows / s.block, s.rows / s.block}, layout),
        d_out({s.batch, s.heads, s.rows, s.value_width}, layout) {
    for (const Tensor<T>* x : {&q, &k, &v, &sorting, &d_out}) x->fill(gaussian(seed++));
  }

  fovea::SinkhornInputs<T> inputs() const {
    return {q.view(), k.view(), v.view(), key_lengths, sorting.view()};
  }

  Tensor<T> q, k, v, sorting, d_out;
  std::vector<Index> key_lengths;
};

/// The outputs of one call, initialised to NaN in one layout.
template <class T>
struct SortWritten {
  explicit SortWritten(const SortProblem<T>& p, const Layout& layout = {})
      : out(p.d_out.shape(), layout),
        lse({p.q.shape()[0], p.q.shape()[1], p.q.shape()[2], 1}, layout),
        d_q(p.q.shape(), layout),
        d_k(p.k.shape(), layout),
        d_v(p.v.shape(), layout),
        d_sorting(p.sorting.shape(), layout) {}

  fovea::SinkhornGrads<T> grads() const {
    return {d_q.view(), d_k.view(), d_v.view(), d_sorting.view()};
  }

  Tensor<T> out, lse, d_q, d_k, d_v, d_sorting;
};

/// The same in logical order.
template <class T>
struct SortResult {
  std::vector<T> out, lse, d_q, d_k, d_v, d_sorting;

  /// Calls f(name, numbers) for each.
  template <class F>
  void for_each(F&& f) const {
    f("out", out), f("lse", lse);
    f("d_q", d_q), f("d_k", d_k), f("d_v", d_v), f("d_sorting", d_sorting);
  }
};

/// Runs forward and backward with outputs initialised to NaN; memory between the elements must not
/// change.
template <class T>
SortResult<T> run_sort(const SinkhornOptions& options, const SortProblem<T>& p,
                       AnyExecutor* executor = nullptr, const Layout& layout = {}) {
  const SinkhornAttention op(options);
  const SortWritten<T> to(p, layout);
  on_executor(executor, [&](auto&& on) {
    op.forward(p.inputs(), to.out.view(), {to.lse.view()}, on);
    op.backward(p.inputs(), to.out.view(), {to.lse.view()}, p.d_out.view(), to.grads(), on);
  });
  for (const Tensor<T>* x : {&to.out, &to.lse, &to.d_q, &to.d_k, &to.d_v, &to.d_sorting}) {
    EXPECT_EQ(x->changed_gaps(), 0);
  }
  return {to.out.values(), to.lse.values(), to.d_q.values(),
          to.d_k.values(), to.d_v.values(), to.d_sorting.values()};
}

/// Returns judge(result, name), which compares results of the call with its oracle. \param name in
/// the table of worst errors
template <class T>
auto sinkhorn_judge(const SinkhornOptions& options, const SortProblem<T>& p) {
  return [expected = sinkhorn_oracle(p.inputs(), options, p.d_out.view())](
             const SortResult<T>& got, const std::string& name) {
    EXPECT_TRUE(within_ratio(got.out, expected.out, 16, {name, "out"})) << "(out)";
    EXPECT_TRUE(within_ratio(got.lse, expected.lse, 8, {name, "lse"})) << "(lse)";
    EXPECT_TRUE(within_ratio(got.d_q, expected.q, 32, {name, "d_q"})) << "(d_q)";
    EXPECT_TRUE(within_ratio(got.d_k, expected.k, 32, {name, "d_k"})) << "(d_k)";
    EXPECT_TRUE(within_ratio(got.d_v, expected.v, 16, {name, "d_v"})) << "(d_v)";
    EXPECT_TRUE(within_ratio(got.d_sorting, expected.sorting, 32, {name, "d_sorting"}))
        << "(d_sorting)";
  };
}

}  // namespace fovea_test
