// SPDX-License-Identifier: MIT
/// \file
/// Calls of operators whose keys are mixtures of tokens, Linformer and Nystroem attention: tensors,
/// what both passes give, and the properties that both operators have.
#pragma once

#include <string>
#include <vector>

#include "attention/case.hpp"
#include "attention/operator_call.hpp"
#include "fovea/core/thread_pool.hpp"
#include "support/fill.hpp"
#include "support/levels.hpp"
#include "support/same_everywhere.hpp"
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
  using Scalar = T;

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

  template <class Op>
  Shape saved_shape(const Op& /*op*/, const std::string& name) const {
    if (name == "lse") return {sizes.batch, sizes.heads, sizes.queries, 1};
    const bool projects = name.starts_with("projected");
    const Index width = name == "landmark_lse" ? 1 : sizes.value_width;
    return {sizes.batch, projects ? sizes.key_heads : sizes.heads,
            projects ? sizes.projected : sizes.landmarks,
            name == "projected_keys" ? sizes.width : width};
  }

  MixedSizes sizes;
  Tensor<T> q, k, v, e, f, d_out;
  std::vector<Index> key_lengths = {};
};

/// Threads, odd schedules, and what was saved, change no bit.
template <class T, class Op>
void expect_same_bits_on_threads(const Op& op, const MixedProblem<T>& p) {
  at_each_level([&] {
    const CallResult<T> expected = run_call(op, p);
    EXPECT_TRUE(same_bits(expected, run_call(op, p, nullptr, {}, false)))
        << "without saved tensors";
    for (const int threads : {2, 3, 7}) {
      fovea::ThreadPool pool(threads);
      AnyExecutor executor = AnyExecutor::of(pool);
      EXPECT_TRUE(same_bits(expected, run_call(op, p, &executor))) << threads;
      EXPECT_TRUE(same_bits(expected, run_call(op, p, &executor, {}, false))) << threads;
    }
  });
}

/// Every order of axes, strided columns, gaps, and inputs with negative strides.
template <class T, class Op>
void expect_same_bits_in_layouts(const Op& op, const MixedProblem<T>& p) {
  at_each_level([&] {
    const CallResult<T> expected = run_call(op, p);
    for (const auto& order : all_axis_orders()) {
      const Layout layout{.order = order, .offset = 3, .gap = 2};
      EXPECT_TRUE(same_bits(expected, run_call(op, p.in(layout), nullptr, layout)));
    }
    const Layout apart{.innermost = 3};
    EXPECT_TRUE(same_bits(expected, run_call(op, p.in(apart), nullptr, apart)));
    EXPECT_TRUE(same_bits(expected, run_call(op, p.in(apart), nullptr, apart, false)));
    const Layout turned{.reversed = {true, true, true, true}};
    EXPECT_TRUE(same_bits(expected, run_call(op, p.in(turned))));
    for (const Guard guard : {Guard::before, Guard::behind}) {
      const Layout guarded{.guard = guard};
      EXPECT_TRUE(same_bits(expected, run_call(op, p.in(guarded), nullptr, guarded)));
    }
  });
}

/// A sequence alone, with key heads of its own, has the bits that it has among others.
template <class T, class Op>
void expect_same_bits_alone(const Op& op, const MixedProblem<T>& p) {
  const CallResult<T> all = run_call(op, p);
  MixedSizes sizes = p.sizes;
  sizes.batch = sizes.heads = sizes.key_heads = 1;
  for_each_index({p.sizes.batch, p.sizes.heads, 1, 1}, [&](Index b, Index h, Index, Index) {
    MixedProblem<T> one(sizes);
    const Index key_head = h / (p.sizes.heads / p.sizes.key_heads);
    one.q.fill([&](Index, Index, Index n, Index d) { return p.q(b, h, n, d); });
    one.k.fill([&](Index, Index, Index n, Index d) { return p.k(b, key_head, n, d); });
    one.v.fill([&](Index, Index, Index n, Index d) { return p.v(b, key_head, n, d); });
    one.d_out.fill([&](Index, Index, Index n, Index d) { return p.d_out(b, h, n, d); });
    one.e = p.e.in({});
    one.f = p.f.in({});
    const CallResult<T> got = run_call(op, one);
    for (const char* name : {"out", "lse", "d_q"}) {
      const auto size = static_cast<std::ptrdiff_t>(got[name].size());
      const auto begin = all[name].begin() + size * (b * p.sizes.heads + h);
      EXPECT_TRUE(same_bits(std::vector<T>(begin, begin + size), got[name])) << name;
    }
  });
}

}  // namespace fovea_test
