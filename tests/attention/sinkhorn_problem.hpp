// SPDX-License-Identifier: MIT
/// \file
/// Calls of Sinkhorn attention for tests: what they read, what they write, and what that should be.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "attention/operator_call.hpp"
#include "fovea/attention/sinkhorn.hpp"
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
  using Scalar = T;

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

  Shape saved_shape(const SinkhornAttention& /*op*/, const std::string& /*lse*/) const {
    return {q.shape()[0], q.shape()[1], q.shape()[2], 1};
  }

  Tensor<T> q, k, v, sorting, d_out;
  std::vector<Index> key_lengths;
};

/// Returns judge(result, name), which compares results of the call with its oracle. \param name in
/// the table of worst errors
template <class T>
auto sinkhorn_judge(const SinkhornOptions& options, const SortProblem<T>& p) {
  const auto expected = sinkhorn_oracle(p.inputs(), options, p.d_out.view());
  return judge_of<T>({{"out", expected.out, 16},
                      {"lse", expected.lse, 8},
                      {"d_q", expected.q, 32},
                      {"d_k", expected.k, 32},
                      {"d_v", expected.v, 16},
                      {"d_sorting", expected.sorting, 32}});
}

}  // namespace fovea_test
