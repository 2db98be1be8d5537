// SPDX-License-Identifier: MIT
/// \file
/// Calls of FSAT attention: tensors, what they give, and what they should give.
#pragma once

#include <string>
#include <vector>

#include "attention/case.hpp"
#include "attention/dominant_fill.hpp"
#include "attention/operator_call.hpp"
#include "fovea/attention/fsat.hpp"
#include "support/fill.hpp"
#include "support/oracle/fsat.hpp"
#include "support/tensor.hpp"

namespace fovea_test {

using fovea::FsatAttention;
using fovea::FsatOptions;

template <class T>
struct FsatProblem {
  using Scalar = T;

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

  Shape saved_shape(const FsatAttention& /*op*/, const std::string& /*lse*/) const {
    return {q.shape()[0], q.shape()[1], q.shape()[2], 1};
  }

  Tensor<T> q, k, v, dominant, d_out;
  std::vector<Index> key_lengths = {};
  std::vector<Index> cu_seqlens = {};
};

/// Returns judge(result, name), which compares results of the call with its oracle. \param name in
/// the table of worst errors
template <class T>
auto fsat_judge(const FsatOptions& options, const FsatProblem<T>& p) {
  const auto expected = fsat_oracle(p.inputs(), options);
  const auto grads = fsat_grad_oracle(p.inputs(), options, p.d_out.view());
  return judge_of<T>({{"out", expected.out, 16},
                      {"lse", expected.lse, 8},
                      {"d_q", grads.softmax.q, 32},
                      {"d_k", grads.softmax.k, 32},
                      {"d_v", grads.softmax.v, 16},
                      {"d_dominant", grads.dominant, 32}});
}

}  // namespace fovea_test
