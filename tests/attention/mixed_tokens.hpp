// SPDX-License-Identifier: MIT
/// \file
/// Calls of operators whose keys are mixtures of tokens, Linformer and Nystroem attention: tensors,
/// what both passes give, and the properties that both operators have.
#pragma once

#include <string>
#include <vector>

#include "attention/case.hpp"
#include "fovea/core/thread_pool.hpp"
#include "support/central_differences.hpp"
#include "support/compare.hpp"
#include "support/failing_allocations.hpp"
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

/// The results of both passes, in logical order.
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

/// The outputs of both passes of `Op`, initialised to NaN in one layout.
template <class T, class Op>
struct MixedWritten {
  static constexpr bool kProjects = requires(typename Op::template Grads<T> g) {
    g.key_projection;
  };

  explicit MixedWritten(const MixedProblem<T>& p, const Layout& layout = {})
      : out(p.d_out.shape(), layout),
        lse({p.sizes.batch, p.sizes.heads, p.sizes.queries, 1}, layout),
        keys({p.sizes.batch, p.sizes.key_heads, p.sizes.projected, p.sizes.width}, layout),
        values({p.sizes.batch, p.sizes.key_heads, p.sizes.projected, p.sizes.value_width}, layout),
        mark_lse({p.sizes.batch, p.sizes.heads, p.sizes.landmarks, 1}, layout),
        marks({p.sizes.batch, p.sizes.heads, p.sizes.landmarks, p.sizes.value_width}, layout),
        d_q(p.q.shape(), layout),
        d_k(p.k.shape(), layout),
        d_v(p.v.shape(), layout),
        d_e(p.e.shape(), layout),
        d_f(p.f.shape(), layout) {}

  /// \param all whether it keeps what the backward pass would compute again
  AllSaved<T> saved(bool all = true) const {
    AllSaved<T> made{lse.view()};
    if (!all) return made;
    made.projected_keys = keys.view();
    made.projected_values = values.view();
    made.landmark_lse = mark_lse.view();
    made.landmark_values = marks.view();
    return made;
  }
  AllGrads<T> grads() const {
    AllGrads<T> made{d_q.view(), d_k.view(), d_v.view()};
    if (kProjects) {
      made.key_projection = d_e.view();
      made.value_projection = d_f.view();
    }
    return made;
  }

  std::vector<const Tensor<T>*> of_forward() const {
    if (kProjects) return {&out, &lse, &keys, &values};
    return {&out, &lse, &mark_lse, &marks};
  }
  std::vector<const Tensor<T>*> of_backward() const {
    if (kProjects) return {&d_q, &d_k, &d_v, &d_e, &d_f};
    return {&d_q, &d_k, &d_v};
  }

  Tensor<T> out, lse, keys, values, mark_lse, marks, d_q, d_k, d_v, d_e, d_f;
};

/// Runs both passes with outputs initialised to NaN; memory between elements must not change.
/// \param saves whether the forward pass keeps what the backward pass would compute again
template <class T, class Op>
MixedResult<T> run_mixed(const Op& op, const MixedProblem<T>& p, AnyExecutor* executor = nullptr,
                         bool saves = true, const Layout& layout = {}) {
  const MixedWritten<T, Op> to(p, layout);
  const AllSaved<T> saved = to.saved(saves);
  on_executor(executor, [&](auto&& on) {
    op.forward(p.inputs(), to.out.view(), saved, on);
    op.backward(p.inputs(), to.out.view(), saved, p.d_out.view(), to.grads(), on);
  });
  for (const auto& tensors : {to.of_forward(), to.of_backward()}) {
    for (const Tensor<T>* x : tensors) EXPECT_EQ(x->changed_gaps(), 0);
  }
  MixedResult<T> result{
      to.out.values(), to.lse.values(), to.d_q.values(), to.d_k.values(), to.d_v.values(), {}, {}};
  if (to.kProjects) {
    result.d_e = to.d_e.values();
    result.d_f = to.d_f.values();
  }
  return result;
}

/// Whichever allocation fails, each pass writes all or nothing.
template <class T, class Op>
void expect_mixed_of_failed_allocations(const Op& op, const MixedProblem<T>& p) {
  const MixedWritten<T, Op> to(p);
  for (const bool saves : {true, false}) {
    expect_all_or_nothing<T>(
        saves ? to.of_forward() : std::vector<const Tensor<T>*>{&to.out, &to.lse},
        [&](AnyExecutor* executor) {
          on_executor(executor, [&](auto&& on) {
            op.forward(p.inputs(), to.out.view(), to.saved(saves), on);
          });
        });
    expect_all_or_nothing<T>(to.of_backward(), [&](AnyExecutor* executor) {
      on_executor(executor, [&](auto&& on) {
        op.backward(p.inputs(), to.out.view(), to.saved(saves), p.d_out.view(), to.grads(), on);
      });
    });
  }
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

/// Every order of axes, strided columns, gaps, and inputs with negative strides.
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

/// workspace_bytes is sufficient, and a byte less is refused.
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
    double largest = 0;
    for_each_difference(x, 1e-5, loss, [&](std::size_t n, double difference) {
      largest = std::max(largest, std::abs(difference));
      EXPECT_NEAR(gradient[n], difference, tolerance * (1 + std::abs(difference)))
          << name << " " << n;
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
