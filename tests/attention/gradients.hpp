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
    if (wanted.q) made.q = q.view();
    if (wanted.k) made.k = k.view();
    if (wanted.v) made.v = v.view();
    if (wanted.bias && !in.bias.empty()) made.bias = bias.view();
    if (wanted.sink) made.sink = sink;
    if (wanted.beta && !in.beta.empty()) made.beta = beta.view();
    if (wanted.near_logits && !in.near_logits.empty()) made.near_logits = near_logits.view();
    if (wanted.far_logits && !in.far_logits.empty()) made.far_logits = far_logits.view();
    if (wanted.projection && !in.projection.empty()) made.projection = projection.view();
    return made;
  }

  Index changed_gaps() const {
    Index changed = 0;
    for (const auto* x : {&q, &k, &v, &bias, &beta, &near_logits, &far_logits, &projection}) {
      changed += x->changed_gaps();
    }
    return changed;
  }
};

/// Runs forward, then backward with outputs initialised to NaN; out, lse and the gradients have
/// `layout`, and memory between their elements must not change.
/// \param d_lse if it is given, op has backward_through_lse, and the executor is not used backwards
template <class T>
Gradients<T> run_backward(const Case<T>& op, const AllInputs<T>& in, const View<const T>& d_out,
                          AnyExecutor* executor = nullptr, const Layout& layout = {},
                          const Wanted& wanted = {}, const View<const T>& d_lse = {}) {
  const Tensor<T> out(d_out.shape(), layout);
  const Tensor<T> lse(op.is_softmax ? Shape{in.q.batch(), in.q.heads(), in.q.rows(), 1} : Shape{},
                      layout);
  const AllSaved<T> saved = op.is_softmax ? AllSaved<T>{lse.view()} : AllSaved<T>{};
  op.forward(in, out.view(), saved, executor);
  GradStorage<T> to(in, layout);
  if (d_lse.empty()) {
    op.backward(in, out.view(), saved, d_out, to.grads(in, wanted), executor);
  } else {
    op.backward_through_lse(in, out.view(), saved, {d_out, d_lse}, to.grads(in, wanted));
  }
  EXPECT_EQ(to.changed_gaps(), 0);
  Gradients<T> made;
  made.shape = fovea::shape_of(in);
  if (wanted.q) made.q = to.q.values();
  if (wanted.k) made.k = to.k.values();
  if (wanted.v) made.v = to.v.values();
  if (wanted.bias) made.bias = to.bias.values();
  if (wanted.sink) made.sink = to.sink;
  if (wanted.beta) made.beta = to.beta.values();
  if (wanted.near_logits) made.near_logits = to.near_logits.values();
  if (wanted.far_logits) made.far_logits = to.far_logits.values();
  if (wanted.projection) made.projection = to.projection.values();
  return made;
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
  const auto compare = [](const char* name, const std::vector<T>& x, const std::vector<T>& y) {
    testing::AssertionResult same = same_bits(x, y);
    return same ? same : same << " (gradient of " << name << ")";
  };
  testing::AssertionResult same = testing::AssertionSuccess();
  if (wanted.q && same) same = compare("q", a.q, b.q);
  if (wanted.k && same) same = compare("k", a.k, b.k);
  if (wanted.v && same) same = compare("v", a.v, b.v);
  if (wanted.bias && same) same = compare("bias", a.bias, b.bias);
  if (wanted.sink && same) same = compare("sink", a.sink, b.sink);
  if (wanted.beta && same) same = compare("beta", a.beta, b.beta);
  if (wanted.near_logits && same) same = compare("near_logits", a.near_logits, b.near_logits);
  if (wanted.far_logits && same) same = compare("far_logits", a.far_logits, b.far_logits);
  if (wanted.projection && same) same = compare("projection", a.projection, b.projection);
  return same;
}

/// Gradients against their oracle. \param data names a separate row in the table of worst errors
template <class T>
void expect_within(const Case<T>& op, const Gradients<T>& got, const ExpectedGrads<T>& expected,
                   const std::string& data = "") {
  const auto judge = [&](const char* name, const std::vector<T>& values,
                         const Reference<T>& reference, double bound) {
    EXPECT_TRUE(within_ratio(values, reference, bound, {op.name + data, std::string("d_") + name}))
        << "(gradient of " << name << ")";
  };
  judge("q", got.q, expected.q, kGradBound);
  judge("k", got.k, expected.k, kGradBound);
  // Under the delta rule that of v comes by a recurrence too.
  judge("v", got.v, expected.v, op.extras.beta ? kGradBound : kValueGradBound);
  if (!op.extras.bias.empty()) judge("bias", got.bias, expected.bias, kGradBound);
  if (op.extras.sink) judge("sink", got.sink, expected.sink, kGradBound);
  if (op.extras.beta) judge("beta", got.beta, expected.beta, kGradBound);
  if (!op.extras.near_logits.empty()) {
    judge("near_logits", got.near_logits, expected.near_logits, kGradBound);
  }
  if (!op.extras.far_logits.empty()) {
    judge("far_logits", got.far_logits, expected.far_logits, kGradBound);
  }
  if (op.extras.features > 0) judge("projection", got.projection, expected.projection, kGradBound);
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

}  // namespace fovea_test
