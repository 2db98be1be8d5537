// SPDX-License-Identifier: MIT
/// \file
/// Calls of operators whose keys are mixtures of tokens, Linformer and Nystroem attention: tensors,
/// what both passes give, and the properties that both operators have.
#pragma once

#include <string>
#include <vector>

#include "attention/case.hpp"
#include "fovea/core/thread_pool.hpp"
#include "support/compare.hpp"
#include "support/fill.hpp"
#include "support/levels.hpp"
#include "support/tensor.hpp"

namespace fovea_test {

struct MixedSizes {
  Index batch = 2;
  Index heads = 4;
  Index key_heads = 2;
  Index queries = 24;
  Index keys = 24;
  Index width = 5;
  Index value_width = 3;
  Index projected = 7;    // P, of Linformer
  Index key_sharing = 1;  // heads of E, and of F
  Index value_sharing = 2;
  Index landmarks = 4;  // m, of Nystroem

  AttentionShape common() const {
    return {batch, heads, key_heads, queries, keys, width, value_width};
  }
};

/// Normal data; that of the projections makes keys of the size of tokens.
template <class T>
struct MixedProblem {
  explicit MixedProblem(const MixedSizes& s, std::uint64_t seed = 1, double spread = 1)
      : sizes(s),
        q({s.batch, s.heads, s.queries, s.width}),
        k({s.batch, s.key_heads, s.keys, s.width}),
        v({s.batch, s.key_heads, s.keys, s.value_width}),
        e({1, s.key_sharing, s.projected, s.keys}),
        f({1, s.value_sharing, s.projected, s.keys}),
        d_out({s.batch, s.heads, s.queries, s.value_width}) {
    q.fill(gaussian(seed, spread));
    k.fill(gaussian(seed + 1, spread));
    v.fill(gaussian(seed + 2));
    const double size = 1 / std::sqrt(static_cast<double>(std::max<Index>(1, s.keys)));
    e.fill(gaussian(seed + 3, size));
    f.fill(gaussian(seed + 4, size));
    d_out.fill(gaussian(seed + 5));
  }

  AllInputs<T> inputs() const {
    AllInputs<T> in{q.view(), k.view(), v.view(), key_lengths};
    in.key_projection = e.view();
    in.value_projection = f.view();
    return in;
  }
  /// The same in another layout.
  MixedProblem in(const Layout& layout) const {
    MixedProblem other(sizes);
    other.key_lengths = key_lengths;
    for (Tensor<T> MixedProblem::*x : {&MixedProblem::q, &MixedProblem::k, &MixedProblem::v,
                                       &MixedProblem::e, &MixedProblem::f, &MixedProblem::d_out}) {
      other.*x = (this->*x).in(layout);
    }
    return other;
  }

  MixedSizes sizes;
  Tensor<T> q, k, v, e, f, d_out;
  std::vector<Index> key_lengths = {};
};

/// What both passes write.
template <class T>
struct MixedResult {
  std::vector<T> out, lse, d_q, d_k, d_v, d_e, d_f;

  template <class F>
  void for_each(F&& f) const {
    f("out", out);
    f("lse", lse);
    f("d_q", d_q);
    f("d_k", d_k);
    f("d_v", d_v);
    f("d_e", d_e);
    f("d_f", d_f);
  }
};

template <class T>
testing::AssertionResult same_bits(const MixedResult<T>& a, const MixedResult<T>& b) {
  testing::AssertionResult all = testing::AssertionSuccess();
  std::vector<const std::vector<T>*> others;
  b.for_each([&](const char*, const std::vector<T>& x) { others.push_back(&x); });
  std::size_t n = 0;
  a.for_each([&](const char* name, const std::vector<T>& x) {
    const testing::AssertionResult same = same_bits(x, *others[n++]);
    if (!same && all) all = testing::AssertionFailure() << same.message() << " (" << name << ")";
  });
  return all;
}

/// Runs both passes into NaN; what stands between elements must stay.
/// \param saves whether the forward pass keeps what the backward pass would compute again
template <class T, class Op>
MixedResult<T> run_mixed(const Op& op, const MixedProblem<T>& p, AnyExecutor* executor = nullptr,
                         bool saves = true, const Layout& layout = {}) {
  const AllInputs<T> in = p.inputs();
  const MixedSizes& s = p.sizes;
  const auto made = [&](const Shape& shape) { return Tensor<T>(shape, layout); };
  const Tensor<T> out = made(p.d_out.shape()), lse = made({s.batch, s.heads, s.queries, 1});
  const Tensor<T> keys = made({s.batch, s.key_heads, s.projected, s.width});
  const Tensor<T> values = made({s.batch, s.key_heads, s.projected, s.value_width});
  const Tensor<T> mark_lse = made({s.batch, s.heads, s.landmarks, 1});
  const Tensor<T> marks = made({s.batch, s.heads, s.landmarks, s.value_width});
  const Tensor<T> d_q = made(in.q.shape()), d_k = made(in.k.shape()), d_v = made(in.v.shape());
  const Tensor<T> d_e = made(p.e.shape()), d_f = made(p.f.shape());
  AllSaved<T> saved{lse.view()};
  if (saves) {
    saved.projected_keys = keys.view();
    saved.projected_values = values.view();
    saved.landmark_lse = mark_lse.view();
    saved.landmark_values = marks.view();
  }
  AllGrads<T> grads{d_q.view(), d_k.view(), d_v.view()};
  constexpr bool projects = requires(typename Op::template Grads<T> g) { g.key_projection; };
  if (projects) {
    grads.key_projection = d_e.view();
    grads.value_projection = d_f.view();
  }
  if (executor == nullptr) {
    op.forward(in, out.view(), saved);
    op.backward(in, out.view(), saved, p.d_out.view(), grads);
  } else {
    op.forward(in, out.view(), saved, *executor);
    op.backward(in, out.view(), saved, p.d_out.view(), grads, *executor);
  }
  EXPECT_EQ(out.changed_gaps() + lse.changed_gaps() + keys.changed_gaps() + values.changed_gaps() +
                marks.changed_gaps() + d_q.changed_gaps() + d_k.changed_gaps() +
                d_v.changed_gaps() + d_e.changed_gaps() + d_f.changed_gaps(),
            0);
  MixedResult<T> result{
      out.values(), lse.values(), d_q.values(), d_k.values(), d_v.values(), {}, {}};
  if (projects) {
    result.d_e = d_e.values();
    result.d_f = d_f.values();
  }
  return result;
}

/// Threads, odd schedules, and what was saved, change no bit.
template <class T, class Op>
void expect_same_bits_on_threads(const Op& op, const MixedProblem<T>& p) {
  at_each_level([&] {
    const MixedResult<T> expected = run_mixed(op, p);
    EXPECT_TRUE(same_bits(expected, run_mixed(op, p, nullptr, false))) << "without saved tensors";
    for (const int threads : {2, 3, 7}) {
      fovea::ThreadPool pool(threads);
      AnyExecutor executor = AnyExecutor::of(pool);
      EXPECT_TRUE(same_bits(expected, run_mixed(op, p, &executor))) << threads;
      EXPECT_TRUE(same_bits(expected, run_mixed(op, p, &executor, false))) << threads;
    }
  });
}

/// Every order of axes, columns that lie apart, gaps, and inputs with negative strides.
template <class T, class Op>
void expect_same_bits_in_layouts(const Op& op, const MixedProblem<T>& p) {
  at_each_level([&] {
    const MixedResult<T> expected = run_mixed(op, p);
    for (const auto& order : all_axis_orders()) {
      const Layout layout{.order = order, .offset = 3, .gap = 2};
      EXPECT_TRUE(same_bits(expected, run_mixed(op, p.in(layout), nullptr, true, layout)));
    }
    const Layout apart{.innermost = 3};
    EXPECT_TRUE(same_bits(expected, run_mixed(op, p.in(apart), nullptr, true, apart)));
    EXPECT_TRUE(same_bits(expected, run_mixed(op, p.in(apart), nullptr, false, apart)));
    const Layout turned{.reversed = {true, true, true, true}};
    EXPECT_TRUE(same_bits(expected, run_mixed(op, p.in(turned))));
    for (const Guard guard : {Guard::before, Guard::behind}) {
      const Layout guarded{.guard = guard};
      EXPECT_TRUE(same_bits(expected, run_mixed(op, p.in(guarded), nullptr, true, guarded)));
    }
  });
}

/// The levels with fused multiply-adds agree.
template <class T, class Op>
void expect_levels_agree(const Op& op, const MixedProblem<T>& p) {
  std::vector<MixedResult<T>> results;
  at_each_level([&] {
    if (has_fma(fovea::isa_level())) results.push_back(run_mixed(op, p));
  });
  for (const MixedResult<T>& result : results) EXPECT_TRUE(same_bits(results[0], result));
}

/// The memory that the operator says it takes is enough, and a byte less is refused.
template <class T, class Op>
void expect_serves_in_arena(const Op& op, const MixedProblem<T>& p) {
  const MixedResult<T> expected = run_mixed(op, p);
  const auto shape = bench::shape_for<Op>(p.sizes.common(), p.sizes.projected);
  for (const int threads : {1, 3}) {
    fovea::ThreadPool pool(threads);
    fovea::Arena arena(std::max(op.template workspace_bytes<T>(shape, threads),
                                op.template backward_workspace_bytes<T>(shape, threads)));
    AnyExecutor executor = AnyExecutor::of(pool, &arena);
    EXPECT_TRUE(same_bits(expected, run_mixed(op, p, &executor, true)));
    EXPECT_TRUE(same_bits(expected, run_mixed(op, p, &executor, false)));
    fovea::Arena none(0);
    AnyExecutor without = AnyExecutor::of(pool, &none);
    const Tensor<T> out(p.d_out.shape());
    EXPECT_THROW(op.forward(p.inputs(), out.view(), AllSaved<T>{}, without), std::invalid_argument);
    EXPECT_TRUE(std::isnan(out(0, 0, 0, 0)));
  }
}

/// Holds every gradient to central differences of <out, d_out>.
template <class Op>
void expect_mixed_differences(const Op& op, MixedProblem<double>& p, double tolerance = 1e-7) {
  const MixedResult<double> got = run_mixed(op, p);
  const Tensor<double> out(p.d_out.shape());
  const auto loss = [&] {
    op.forward(p.inputs(), out.view(), AllSaved<double>{});
    double sum = 0;
    for_each_index(out.shape(), [&](Index b, Index h, Index n, Index d) {
      sum += out(b, h, n, d) * p.d_out(b, h, n, d);
    });
    return sum;
  };
  const auto expect = [&](const char* name, const Tensor<double>& x,
                          const std::vector<double>& gradient) {
    if (gradient.empty()) return;
    std::size_t at = 0;
    double largest = 0;
    for_each_index(x.shape(), [&](Index b, Index h, Index n, Index d) {
      double& element = x(b, h, n, d);
      const double before = element;
      constexpr double step = 1e-5;
      element = before + step;
      const double above = loss();
      element = before - step;
      const double below = loss();
      element = before;
      const double difference = (above - below) / (2 * step);
      largest = std::max(largest, std::abs(difference));
      EXPECT_NEAR(gradient[at], difference, tolerance * (1 + std::abs(difference)))
          << name << " [" << b << ", " << h << ", " << n << ", " << d << "]";
      ++at;
    });
    EXPECT_GT(largest, 1e-3) << name;
  };
  expect("q", p.q, got.d_q);
  expect("k", p.k, got.d_k);
  expect("v", p.v, got.d_v);
  expect("e", p.e, got.d_e);
  expect("f", p.f, got.d_f);
}

}  // namespace fovea_test
