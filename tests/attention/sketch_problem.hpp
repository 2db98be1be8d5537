// SPDX-License-Identifier: MIT
/// \file
/// Tensors of one call of Smart Bird attention, for its tests.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "bench/entries/all_inputs.hpp"
#include "fovea/attention/smart_bird.hpp"
#include "support/executors.hpp"
#include "support/fill.hpp"
#include "support/levels.hpp"
#include "support/oracle/sketch.hpp"
#include "support/tensor.hpp"

namespace fovea_test {

using bench::AllInputs;
using bench::AllSaved;
using fovea::IndexTensor;
using fovea::SmartBirdAttention;
using fovea::SmartBirdOptions;

inline constexpr std::array kPolicies = {SamplingPolicy::squared_inverse_log,
                                         SamplingPolicy::inverse_log, SamplingPolicy::raw,
                                         SamplingPolicy::top_k, SamplingPolicy::random};

/// The name of a test's policy.
inline std::string policy_name(const testing::TestParamInfo<SamplingPolicy>& policy) {
  constexpr std::array names = {"squared_inverse_log", "inverse_log", "raw", "top_k", "random"};
  return names[static_cast<std::size_t>(policy.param)];
}

/// Sizes of a call.
struct BirdSizes {
  Index batch = 1;
  Index heads = 3;
  Index key_heads = 3;
  Index queries = 50;
  Index keys = 50;
  Index width = 16;
  Index value_width = 12;
  Index sketch_width = 4;
};

template <class T>
struct BirdProblem {
  explicit BirdProblem(const BirdSizes& s, double deviation = 1, std::uint64_t seed = 1)
      : sizes(s),
        q({s.batch, s.heads, s.queries, s.width}),
        k({s.batch, s.key_heads, s.keys, s.width}),
        v({s.batch, s.key_heads, s.keys, s.value_width}),
        sketch_q({s.batch, 1, s.queries, s.sketch_width}),
        sketch_k({s.batch, 1, s.keys, s.sketch_width}) {
    q.fill(gaussian(seed));
    k.fill(gaussian(seed + 100));
    v.fill(gaussian(seed + 200));
    sketch_q.fill(gaussian(seed + 300, deviation));
    sketch_k.fill(gaussian(seed + 400));
  }

  AllInputs<T> inputs() const {
    AllInputs<T> in{q.view(), k.view(), v.view(), key_lengths, cu_q, cu_k, first_positions};
    in.sketch_q = sketch_q.view();
    in.sketch_k = sketch_k.view();
    if (draws) in.draws = draws->view();
    return in;
  }
  /// The same in another layout.
  BirdProblem in(const Layout& layout) const {
    BirdProblem other(*this, layout);
    if (draws) other.draws = draws->in(layout);
    return other;
  }
  Shape out_shape() const { return {sizes.batch, sizes.heads, sizes.queries, sizes.value_width}; }
  Shape row_shape() const { return {sizes.batch, sizes.heads, sizes.queries, 1}; }

  BirdSizes sizes;
  Tensor<T> q, k, v, sketch_q, sketch_k;
  std::optional<Tensor<T>> draws = {};
  std::vector<Index> key_lengths, cu_q, cu_k, first_positions;

 private:
  BirdProblem(const BirdProblem& of, const Layout& layout)
      : sizes(of.sizes),
        q(of.q.in(layout)),
        k(of.k.in(layout)),
        v(of.v.in(layout)),
        sketch_q(of.sketch_q.in(layout)),
        sketch_k(of.sketch_k.in(layout)),
        key_lengths(of.key_lengths),
        cu_q(of.cu_q),
        cu_k(of.cu_k),
        first_positions(of.first_positions) {}
};

/// The outputs of both passes of one call, in logical order.
template <class T>
struct BirdResult {
  std::vector<T> out, lse, d_q, d_k, d_v;
  std::vector<Index> indices;  // or none

  /// Calls f(name, numbers) for each.
  template <class F>
  void for_each(F&& f) const {
    f("out", out), f("lse", lse);
    f("d_q", d_q), f("d_k", d_k), f("d_v", d_v);
  }
};

/// Both passes into NaN. \param saves whether the chosen keys are saved for the backward pass
template <class T>
BirdResult<T> run_bird(const SmartBirdAttention& op, const BirdProblem<T>& p,
                       const Tensor<T>& d_out, AnyExecutor* executor = nullptr,
                       const Layout& layout = {}, bool saves = false) {
  const AllInputs<T> in = p.inputs();
  const Tensor<T> out(p.out_shape(), layout), lse(p.row_shape(), layout);
  const Tensor<T> d_q(p.q.shape(), layout), d_k(p.k.shape(), layout), d_v(p.v.shape(), layout);
  Shape of_lists = p.row_shape();
  of_lists[3] = op.options.keys_per_row;
  const Tensor<Index> indices(saves ? of_lists : Shape{}, layout);
  AllSaved<T> saved{lse.view()};
  if (saves) saved.indices = indices.view();
  on_executor(executor, [&](auto&& on) {
    op.forward(in, out.view(), saved, on);
    op.backward(in, View<const T>(out.view()), saved, View<const T>(d_out.view()),
                bench::AllGrads<T>{d_q.view(), d_k.view(), d_v.view()}, on);
  });
  for (const Tensor<T>* x : {&out, &lse, &d_q, &d_k, &d_v}) EXPECT_EQ(x->changed_gaps(), 0);
  return {out.values(), lse.values(), d_q.values(), d_k.values(), d_v.values(), indices.values()};
}

/// The keys of one row of a list.
inline std::vector<Index> keys_of(const View<const Index>& indices, Index b, Index h, Index i) {
  std::vector<Index> keys;
  for (Index n = 0; n < indices.width(); ++n) {
    if (indices(b, h, i, n) >= 0) keys.push_back(indices(b, h, i, n));
  }
  return keys;
}

inline std::vector<Index> values_of(const View<const Index>& x) {
  std::vector<Index> all;
  for_each_index(x.shape(),
                 [&](Index b, Index h, Index n, Index d) { all.push_back(x(b, h, n, d)); });
  return all;
}

/// Both ways to search for the keys of a sketch choose the same keys, at every level.
template <class T>
void expect_same_choice(const BirdProblem<T>& problem, SmartBirdOptions options,
                        const View<const T>& draws = {}) {
  AllInputs<T> in = problem.inputs();
  in.draws = draws;
  options.search = fovea::SketchSearch::exhaustive;
  const IndexTensor all = SmartBirdAttention(options).select(in.sketch(), problem.sizes.heads);
  options.search = fovea::SketchSearch::blocks;
  at_each_level([&] {
    const IndexTensor some = SmartBirdAttention(options).select(in.sketch(), problem.sizes.heads);
    EXPECT_EQ(values_of(all.view()), values_of(some.view()));
  });
}

}  // namespace fovea_test
