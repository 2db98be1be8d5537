// SPDX-License-Identifier: MIT
/// \file
/// Calls of Reformer attention for tests: what they read, and what they write.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>
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

/// The outputs of one call, initialised to NaN in one layout.
template <class T>
struct ReformerWritten {
  ReformerWritten(const ReformerAttention& op, const ReformerProblem<T>& p,
                  const Layout& layout = {})
      : out(p.d_out.shape(), layout),
        lse({p.qk.shape()[0], p.qk.shape()[1], p.qk.shape()[2], 1}, layout),
        round_lse({p.qk.shape()[0], p.qk.shape()[1], p.qk.shape()[2], op.options.rounds}, layout),
        d_qk(p.qk.shape(), layout),
        d_v(p.v.shape(), layout) {}

  fovea::ReformerSaved<T> saved() const { return {lse.view(), round_lse.view()}; }
  fovea::ReformerGrads<T> grads() const { return {d_qk.view(), d_v.view()}; }

  Tensor<T> out, lse, round_lse, d_qk, d_v;
};

/// The same in logical order.
template <class T>
struct ReformerResult {
  std::vector<T> out, lse, round_lse, d_qk, d_v;

  /// Calls f(name, numbers) for each.
  template <class F>
  void for_each(F&& f) const {
    f("out", out), f("lse", lse), f("round_lse", round_lse);
    f("d_qk", d_qk), f("d_v", d_v);
  }
};

/// Runs forward and backward with outputs initialised to NaN; memory between the elements must not
/// change.
template <class T>
ReformerResult<T> run_reformer(const ReformerAttention& op, const ReformerProblem<T>& p,
                               AnyExecutor* executor = nullptr, const Layout& layout = {},
                               bool saves_rounds = true) {
  const ReformerWritten<T> to(op, p, layout);
  const fovea::ReformerSaved<T> kept = saves_rounds ? to.saved() : fovea::ReformerSaved<T>{};
  on_executor(executor, [&](auto&& on) {
    op.forward(p.inputs(), to.out.view(), to.saved(), on);
    op.backward(p.inputs(), to.out.view(), kept, p.d_out.view(), to.grads(), on);
  });
  for (const Tensor<T>* x : {&to.out, &to.lse, &to.round_lse, &to.d_qk, &to.d_v}) {
    EXPECT_EQ(x->changed_gaps(), 0);
  }
  return {to.out.values(), to.lse.values(), to.round_lse.values(), to.d_qk.values(),
          to.d_v.values()};
}

/// Returns judge(result, name), which compares results of the call with its oracle. \param name in
/// the table of worst errors
template <class T>
auto reformer_judge(const ReformerOptions& options, const ReformerProblem<T>& p) {
  return [expected = reformer_oracle(p.inputs(), options),
          grads = reformer_grad_oracle(p.inputs(), options, p.d_out.view())](
             const ReformerResult<T>& got, const std::string& name) {
    EXPECT_TRUE(within_ratio(got.out, expected.out, 16, {name, "out"})) << "(out)";
    EXPECT_TRUE(within_ratio(got.lse, expected.lse, 8, {name, "lse"})) << "(lse)";
    EXPECT_TRUE(within_ratio(got.round_lse, expected.round_lse, 8, {name, "round_lse"}))
        << "(round_lse)";
    EXPECT_TRUE(within_ratio(got.d_qk, grads.qk, 32, {name, "d_qk"})) << "(d_qk)";
    EXPECT_TRUE(within_ratio(got.d_v, grads.v, 16, {name, "d_v"})) << "(d_v)";
  };
}

}  // namespace fovea_test
