// SPDX-License-Identifier: MIT
/// \file
/// Calls of Reformer attention for tests: what they read, and what they write.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "attention/operator_call.hpp"
#include "fovea/attention/reformer.hpp"
#include "support/fill.hpp"
#include "support/oracle/reformer.hpp"
#include "support/tensor.hpp"

namespace fovea_test {

using fovea::FirstChunk;
using fovea::ReformerAttention;
using fovea::ReformerOptions;

inline std::string describe(const ReformerOptions& o) {
  return "chunk " + std::to_string(o.chunk) + ", rounds " + std::to_string(o.rounds) +
         ", before_first " + std::to_string(static_cast<int>(o.before_first)) +
         (o.causal ? ", causal" : "") + (o.across_buckets ? "" : ", within buckets") +
         (o.correct_duplicates ? ", corrected" : "");
}

struct ReformerSizes {
  Index batch = 1;
  Index heads = 1;
  Index rows = 0;
  Index width = 8;
  Index value_width = 5;
};

/// The inputs of one call, Gaussian, in one layout.
template <class T>
struct ReformerProblem {
  using Scalar = T;

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

  Shape saved_shape(const ReformerAttention& op, const std::string& name) const {
    const Shape& s = qk.shape();
    return {s[0], s[1], s[2], name == "lse" ? 1 : op.options.rounds};
  }

  Tensor<T> qk, v, d_out;
  std::optional<Tensor<T>> projection;
  std::vector<Index> key_lengths;
};

/// Returns judge(result, name), which compares results of the call with its oracle. \param name in
/// the table of worst errors
template <class T>
auto reformer_judge(const ReformerOptions& options, const ReformerProblem<T>& p) {
  const auto expected = reformer_oracle(p.inputs(), options);
  const auto grads = reformer_grad_oracle(p.inputs(), options, p.d_out.view());
  return judge_of<T>({{"out", expected.out, 16},
                      {"lse", expected.lse, 8},
                      {"round_lse", expected.round_lse, 8, true},
                      {"d_qk", grads.qk, 32},
                      {"d_v", grads.v, 16}});
}

}  // namespace fovea_test
