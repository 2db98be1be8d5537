// SPDX-License-Identifier: MIT
/// \file
/// Calls of FSAT attention: tensors, what they give, and what they should give.
#pragma once

#include <string>
#include <vector>

#include "attention/case.hpp"
#include "attention/dominant_fill.hpp"
#include "fovea/attention/fsat.hpp"
#include "support/compare.hpp"
#include "support/fill.hpp"
#include "support/oracle/fsat.hpp"
#include "support/tensor.hpp"

namespace fovea_test {

using fovea::FsatAttention;
using fovea::FsatOptions;

template <class T>
struct FsatProblem {
  explicit FsatProblem(const FsatSizes& s, std::uint64_t seed = 1, const Layout& layout = {})
      : FsatProblem(s, dominant_fill(seed + 3, static_cast<double>(s.tokens)), seed, layout) {}

  FsatProblem(const FsatSizes& s, const Fill& dominants, std::uint64_t seed = 1,
              const Layout& layout = {})
      : q({s.batch, s.heads, s.tokens, s.width}, layout),
        k({s.batch, s.key_heads, s.tokens, s.width}, layout),
        v({s.batch, s.key_heads, s.tokens, s.value_width}, layout),
        dominant({s.batch, s.heads, s.tokens, s.slots_per_key}, layout),
        d_out({s.batch, s.heads, s.tokens, s.value_width}, layout) {
    q.fill(gaussian(seed));
    k.fill(gaussian(seed + 1));
    v.fill(gaussian(seed + 2));
    dominant.fill(dominants);
    d_out.fill(gaussian(seed + 4));
  }

  AllInputs<T> inputs() const {
    AllInputs<T> in{q.view(), k.view(), v.view(), key_lengths, cu_seqlens};
    in.dominant = dominant.view();
    return in;
  }

  Tensor<T> q, k, v, dominant, d_out;
  std::vector<Index> key_lengths = {};
  std::vector<Index> cu_seqlens = {};
};

/// The outputs of one call of each pass.
template <class T>
struct FsatResult {
  std::vector<T> out, lse, d_q, d_k, d_v, d_dominant;

  /// Calls f(name, numbers) for each.
  template <class F>
  void for_each(F&& f) const {
    f("out", out), f("lse", lse);
    f("d_q", d_q), f("d_k", d_k), f("d_v", d_v), f("d_dominant", d_dominant);
  }
};

/// Both passes into NaN.
template <class T>
FsatResult<T> run_fsat(const FsatAttention& op, const FsatProblem<T>& p,
                       AnyExecutor* executor = nullptr, const Layout& layout = {}) {
  const AllInputs<T> in = p.inputs();
  const Tensor<T> out(p.d_out.shape(), layout);
  const Tensor<T> lse({in.q.batch(), in.q.heads(), in.q.rows(), 1}, layout);
  const Tensor<T> d_q(in.q.shape(), layout), d_k(in.k.shape(), layout), d_v(in.v.shape(), layout);
  const Tensor<T> d_dominant(in.dominant.shape(), layout);
  const AllSaved<T> saved{lse.view()};
  AllGrads<T> grads{d_q.view(), d_k.view(), d_v.view()};
  grads.dominant = d_dominant.view();
  on_executor(executor, [&](auto&& on) {
    op.forward(in, out.view(), saved, on);
    op.backward(in, out.view(), saved, p.d_out.view(), grads, on);
  });
  EXPECT_EQ(out.changed_gaps() + lse.changed_gaps() + d_q.changed_gaps() + d_k.changed_gaps() +
                d_v.changed_gaps() + d_dominant.changed_gaps(),
            0);
  return {out.values(), lse.values(), d_q.values(),
          d_k.values(), d_v.values(), d_dominant.values()};
}

/// Returns judge(result, name), which compares results of the call with its oracle. \param name in
/// the table of worst errors
template <class T>
auto fsat_judge(const FsatOptions& options, const FsatProblem<T>& p) {
  return [expected = fsat_oracle(p.inputs(), options),
          grads = fsat_grad_oracle(p.inputs(), options, p.d_out.view())](const FsatResult<T>& got,
                                                                         const std::string& name) {
    EXPECT_TRUE(within_ratio(got.out, expected.out, 16, {name, "out"})) << "(out)";
    EXPECT_TRUE(within_ratio(got.lse, expected.lse, 8, {name, "lse"})) << "(lse)";
    EXPECT_TRUE(within_ratio(got.d_q, grads.softmax.q, 32, {name, "d_q"})) << "(d_q)";
    EXPECT_TRUE(within_ratio(got.d_k, grads.softmax.k, 32, {name, "d_k"})) << "(d_k)";
    EXPECT_TRUE(within_ratio(got.d_v, grads.softmax.v, 16, {name, "d_v"})) << "(d_v)";
    EXPECT_TRUE(within_ratio(got.d_dominant, grads.dominant, 32, {name, "d_dominant"}))
        << "(d_dominant)";
  };
}

}  // namespace fovea_test
