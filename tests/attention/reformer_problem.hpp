// SPDX-License-Identifier: MIT
/// \file
/// Calls of Reformer attention for tests: what they read, and what they write.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "fovea/attention/reformer.hpp"
#include "support/compare.hpp"
#include "support/executors.hpp"
#include "support/fill.hpp"
#include "support/oracle/reformer.hpp"
#include "support/tensor.hpp"

namespace fovea_test {

using fovea::FirstChunk;
using fovea::ReformerAttention;
using fovea::ReformerOptions;

struct ReformerSizes {
  Index batch = 1;
  Index heads = 1;
  Index rows = 0;
  Index width = 8;
  Index value_width = 5;
};

/// What one call reads, Gaussian, in one layout.
template <class T>
struct ReformerProblem {
  explicit ReformerProblem(const ReformerSizes& s, std::uint64_t seed = 1,
                           const Layout& layout = {})
      : qk({s.batch, s.heads, s.rows, s.width}, layout),
        v({s.batch, s.heads, s.rows, s.value_width}, layout),
        d_out({s.batch, s.heads, s.rows, s.value_width}, layout) {
    qk.fill(gaussian(seed));
    v.fill(gaussian(seed + 1));
    d_out.fill(gaussian(seed + 2));
  }

  fovea::ReformerInputs<T> inputs() const {
    fovea::ReformerInputs<T> in{qk.view(), v.view(), key_lengths};
    if (projection) in.projection = projection->view();
    return in;
  }

  Tensor<T> qk, v, d_out;
  std::optional<Tensor<T>> projection;
  std::vector<Index> key_lengths;
};

/// What one call writes, in logical order.
template <class T>
struct ReformerResult {
  std::vector<T> out, lse, round_lse, d_qk, d_v;
};

/// Runs forward and backward into NaN; what stands between the elements must stay.
template <class T>
ReformerResult<T> run_reformer(const ReformerAttention& op, const ReformerProblem<T>& p,
                               AnyExecutor* executor = nullptr, const Layout& layout = {},
                               bool saves_rounds = true) {
  const Shape& s = p.qk.shape();
  const Tensor<T> out(p.d_out.shape(), layout);
  const Tensor<T> lse({s[0], s[1], s[2], 1}, layout);
  const Tensor<T> round_lse({s[0], s[1], s[2], op.options.rounds}, layout);
  const Tensor<T> d_qk(s, layout);
  const Tensor<T> d_v(p.v.shape(), layout);
  const fovea::ReformerSaved<T> saved{lse.view(), round_lse.view()};
  fovea::ReformerSaved<T> for_backward;
  if (saves_rounds) for_backward = saved;
  const fovea::ReformerGrads<T> grads{d_qk.view(), d_v.view()};
  if (executor == nullptr) {
    op.forward(p.inputs(), out.view(), saved);
    op.backward(p.inputs(), out.view(), for_backward, p.d_out.view(), grads);
  } else {
    op.forward(p.inputs(), out.view(), saved, *executor);
    op.backward(p.inputs(), out.view(), for_backward, p.d_out.view(), grads, *executor);
  }
  EXPECT_EQ(out.changed_gaps() + lse.changed_gaps() + round_lse.changed_gaps() +
                d_qk.changed_gaps() + d_v.changed_gaps(),
            0);
  return {out.values(), lse.values(), round_lse.values(), d_qk.values(), d_v.values()};
}

template <class T>
testing::AssertionResult same_bits(const ReformerResult<T>& a, const ReformerResult<T>& b) {
  for (const auto& [name, x, y] : {std::tuple{"out", &a.out, &b.out},
                                   {"lse", &a.lse, &b.lse},
                                   {"round_lse", &a.round_lse, &b.round_lse},
                                   {"d_qk", &a.d_qk, &b.d_qk},
                                   {"d_v", &a.d_v, &b.d_v}}) {
    if (testing::AssertionResult same = same_bits(*x, *y); !same)
      return same << " (" << name << ")";
  }
  return testing::AssertionSuccess();
}

}  // namespace fovea_test
