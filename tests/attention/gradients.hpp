// SPDX-License-Identifier: MIT
/// \file
/// Helpers for properties of backward passes: problems with a d_out, runs, comparisons.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "attention/conformance.hpp"

namespace fovea_test {

inline constexpr double kValueGradBound = 16;  // tests/README.md, "How results are judged"
inline constexpr double kGradBound = 32;

/// A set of gradients.
struct Wanted {
  bool q = true;
  bool k = true;
  bool v = true;
  bool bias = true;
  bool sink = true;
  bool beta = true;
  bool near_logits = true;
  bool far_logits = true;
  bool projection = true;
};

/// Calls f(name, members...) for each gradient, with the members of these structs that have its
/// name.
template <class F, class... Of>
void for_each_gradient(const F& f, Of&... of) {
  f("q", of.q...);
  f("k", of.k...);
  f("v", of.v...);
  f("bias", of.bias...);
  f("sink", of.sink...);
  f("beta", of.beta...);
  f("near_logits", of.near_logits...);
  f("far_logits", of.far_logits...);
  f("projection", of.projection...);
}

/// The gradients of one backward pass, in logical order; empty if not requested.
template <class T>
struct Gradients {
  AttentionShape shape;
  std::vector<T> q, k, v;
  std::vector<T> bias;
  std::vector<T> sink;
  std::vector<T> beta;
  std::vector<T> near_logits, far_logits;
  std::vector<T> projection;

  const T* q_row(Index b, Index h, Index n) const {
    return q.data() + ((b * shape.query_heads + h) * shape.queries + n) * shape.width;
  }
  const T* k_row(Index b, Index h, Index n) const {
    return k.data() + ((b * shape.key_heads + h) * shape.keys + n) * shape.width;
  }
  const T* v_row(Index b, Index h, Index n) const {
    return v.data() + ((b * shape.key_heads + h) * shape.keys + n) * shape.value_width;
  }
};

/// The gradient of the loss by the output, normal data.
template <class T>
Tensor<T> make_d_out(const Problem<T>& problem) {
  Tensor<T> d_out(problem.out_shape());
  d_out.fill(gaussian(problem.seed + 600));
  return d_out;
}

/// Gradients that begin as NaN.
template <class T>
struct GradStorage {
  Tensor<T> q, k, v, bias;
  std::vector<T> sink;
  Tensor<T> beta, near_logits, far_logits, projection;

  GradStorage(const AllInputs<T>& in, const Layout& layout)
      : q(in.q.shape(), layout),
        k(in.k.shape(), layout),
        v(in.v.shape(), layout),
        bias(in.bias.shape(), layout),
        sink(in.sink.size(), std::numeric_limits<T>::quiet_NaN()),
        beta(in.beta.shape(), layout),
        near_logits(in.near_logits.shape(), layout),
        far_logits(in.far_logits.shape(), layout),
        projection(in.projection.shape(), layout) {}

  AllGrads<T> grads(const AllInputs<T>& in, const Wanted& wanted) {
    AllGrads<T> made;
    for_each_gradient(
        [](const char* /*name*/, auto& to, auto& own, const auto& from, bool is_wanted) {
          if (is_wanted && !from.empty()) to = view_of(own);
        },
        made, *this, in, wanted);
    return made;
  }

  /// The numbers of those that were wanted.
  Gradients<T> values(const AttentionShape& shape, const Wanted& wanted = {}) const {
    Gradients<T> made;
    made.shape = shape;
    for_each_gradient(
        [](const char* /*name*/, auto& to, const auto& own, bool is_wanted) {
          if (is_wanted) to = values_of(own);
        },
        made, *this, wanted);
    return made;
  }

  void fill(double x) {
    for_each_gradient([&](const char* /*name*/, auto& own) { fill(own, x); }, *this);
  }
  /// Whether all numbers are x.
  bool holds(double x) const {
    bool all = true;
    for_each_gradient(
        [&](const char* /*name*/, const auto& own) {
          for (const T got : values_of(own)) all = all && got == static_cast<T>(x);
        },
        *this);
    return all;
  }
  Index changed_gaps() const {
    Index changed = 0;
    for (const auto* x : {&q, &k, &v, &bias, &beta, &near_logits, &far_logits, &projection}) {
      changed += x->changed_gaps();
    }
    return changed;
  }

 private:
  static View<T> view_of(Tensor<T>& x) { return x.view(); }
  static std::vector<T>& view_of(std::vector<T>& x) { return x; }
  static std::vector<T> values_of(const Tensor<T>& x) { return x.values(); }
  static const std::vector<T>& values_of(const std::vector<T>& x) { return x; }
  static void fill(Tensor<T>& to, double x) { to.fill(constant(x)); }
  static void fill(std::vector<T>& to, double x) { to.assign(to.size(), static_cast<T>(x)); }
};

/// What both passes of a call write.
template <class T>
struct BothResults {
  Result<T> forward;
  Gradients<T> backward;
};

/// Runs forward, then backward with outputs initialised to NaN; out, lse and the gradients have
/// `layout`, and memory between their elements must not change.
/// \param d_lse if it is given, op has backward_through_lse, and the executor is not used backwards
template <class T>
BothResults<T> run_both(const Case<T>& op, const AllInputs<T>& in, const View<const T>& d_out,
                        AnyExecutor* executor = nullptr, const Layout& layout = {},
                        const Wanted& wanted = {}, const View<const T>& d_lse = {}) {
  const Written<T> written(op, d_out.shape(), layout);
  const View<T> out = written.out.view();
  const AllSaved<T> saved = written.saved();
  op.forward(in, out, saved, executor);
  GradStorage<T> to(in, layout);
  if (d_lse.empty()) {
    op.backward(in, out, saved, d_out, to.grads(in, wanted), executor);
  } else {
    op.backward_through_lse(in, out, saved, {d_out, d_lse}, to.grads(in, wanted));
  }
  EXPECT_EQ(written.changed_gaps() + to.changed_gaps(), 0);
  return {written.result(), to.values(fovea::shape_of(in), wanted)};
}

template <class T>
BothResults<T> run_both(const Case<T>& op, const Problem<T>& problem, const Tensor<T>& d_out,
                        AnyExecutor* executor = nullptr, const Layout& layout = {}) {
  return run_both(op, problem.inputs(), View<const T>(d_out.view()), executor, layout);
}

/// With the d_out of make_d_out.
template <class T>
BothResults<T> run_both(const Case<T>& op, const Problem<T>& problem,
                        AnyExecutor* executor = nullptr) {
  return run_both(op, problem, make_d_out(problem), executor);
}

/// The gradients of run_both.
template <class T>
Gradients<T> run_backward(const Case<T>& op, const AllInputs<T>& in, const View<const T>& d_out,
                          AnyExecutor* executor = nullptr, const Layout& layout = {},
                          const Wanted& wanted = {}, const View<const T>& d_lse = {}) {
  return run_both(op, in, d_out, executor, layout, wanted, d_lse).backward;
}

template <class T>
Gradients<T> run_backward(const Case<T>& op, const Problem<T>& problem, const Tensor<T>& d_out,
                          AnyExecutor* executor = nullptr, const Layout& layout = {},
                          const Wanted& wanted = {}) {
  return run_backward(op, problem.inputs(), View<const T>(d_out.view()), executor, layout, wanted);
}

/// With the d_out of make_d_out.
template <class T>
Gradients<T> run_backward(const Case<T>& op, const Problem<T>& problem,
                          AnyExecutor* executor = nullptr) {
  return run_backward(op, problem, make_d_out(problem), executor);
}

/// Whether two results are the same bits. \param wanted the gradients that are compared
template <class T>
testing::AssertionResult same_bits(const Gradients<T>& a, const Gradients<T>& b,
                                   const Wanted& wanted = {}) {
  testing::AssertionResult same = testing::AssertionSuccess();
  for_each_gradient(
      [&](const char* name, const auto& x, const auto& y, bool is_wanted) {
        if (!is_wanted || !same) return;
        same = same_bits(x, y);
        if (!same) same << " (gradient of " << name << ")";
      },
      a, b, wanted);
  return same;
}

template <class T>
testing::AssertionResult same_bits(const BothResults<T>& a, const BothResults<T>& b) {
  testing::AssertionResult forward = same_bits(a.forward, b.forward);
  return forward ? same_bits(a.backward, b.backward) : forward;
}

/// Gradients against their oracle. \param data names a separate row in the table of worst errors
template <class T>
void expect_within(const Case<T>& op, const Gradients<T>& got, const ExpectedGrads<T>& expected,
                   const std::string& data = "") {
  for_each_gradient(
      [&](const std::string& name, const std::vector<T>& values, const Reference<T>& reference) {
        if (values.empty() && reference.value.empty()) return;
        // Under the delta rule that of v comes by a recurrence too.
        const bool is_sum_of_values = name == "v" && !op.extras.beta;
        EXPECT_TRUE(within_ratio(values, reference, is_sum_of_values ? kValueGradBound : kGradBound,
                                 {op.name + data, "d_" + name}))
            << "(gradient of " << name << ")";
      },
      got, expected);
}

/// Gradients against the oracle, at every level.
template <class T>
void expect_grads_conform(const Case<T>& op, const Problem<T>& problem, const Tensor<T>& d_out,
                          const std::string& data = "") {
  SCOPED_TRACE(describe(problem));
  const ExpectedGrads<T> expected = op.grad_oracle(problem.inputs(), d_out.view());
  at_each_level([&] { expect_within(op, run_backward(op, problem, d_out), expected, data); });
}

template <class T>
void expect_grads_conform(const Case<T>& op, const Problem<T>& problem,
                          const std::string& data = "") {
  expect_grads_conform(op, problem, make_d_out(problem), data);
}

/// Both passes against their oracles, at every level.
template <class T>
void expect_both_conform(const Case<T>& op, const Problem<T>& problem) {
  SCOPED_TRACE(op.name);
  expect_conforms(op, problem);
  expect_grads_conform(op, problem);
}

}  // namespace fovea_test
