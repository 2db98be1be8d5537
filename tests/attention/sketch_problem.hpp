// SPDX-License-Identifier: MIT
/// \file
/// Tensors of one call of Smart Bird attention, for its tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "attention/operator_call.hpp"
#include "bench/entries/all_inputs.hpp"
#include "fovea/attention/smart_bird.hpp"
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

/// A problem of operator_call.hpp.
template <class T>
struct BirdProblem {
  using Scalar = T;

  explicit BirdProblem(const BirdSizes& s, double deviation = 1, std::uint64_t seed = 1)
      : sizes(s),
        q({s.batch, s.heads, s.queries, s.width}),
        k({s.batch, s.key_heads, s.keys, s.width}),
        v({s.batch, s.key_heads, s.keys, s.value_width}),
        sketch_q({s.batch, 1, s.queries, s.sketch_width}),
        sketch_k({s.batch, 1, s.keys, s.sketch_width}),
        d_out(out_shape()) {
    q.fill(gaussian(seed));
    k.fill(gaussian(seed + 100));
    v.fill(gaussian(seed + 200));
    sketch_q.fill(gaussian(seed + 300, deviation));
    sketch_k.fill(gaussian(seed + 400));
    d_out.fill(gaussian(seed + 500));
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
  /// Of lse, or of the lists of chosen keys.
  Shape saved_shape(const SmartBirdAttention& op, const std::string& name) const {
    Shape shape = row_shape();
    if (name != "lse") shape[3] = op.options.keys_per_row;
    return shape;
  }

  BirdSizes sizes;
  Tensor<T> q, k, v, sketch_q, sketch_k, d_out;
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
        d_out(of.d_out.in({})),
        key_lengths(of.key_lengths),
        cu_q(of.cu_q),
        cu_k(of.cu_k),
        first_positions(of.first_positions) {}
};

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

/// How many rows of how many the oracle leaves to rounding.
struct Share {
  Index undecided = 0;
  Index rows = 0;
};

/// Chosen keys against the oracle, row by row, and their form.
template <class T>
Share expect_choice(const SmartBirdOptions& options, const View<const Index>& chosen,
                    const AllInputs<T>& in) {
  Share share;
  for (const OracleSequence& s : oracle_sequences(in)) {
    for (Index h = 0; h < chosen.heads(); ++h) {
      for (Index row = 0; row < s.queries; ++row) {
        const OracleChoice expected = oracle_choice(in, options, s, h, row);
        const std::vector<Index> got = keys_of(chosen, s.batch, h, s.first_query + row);
        ++share.rows;
        EXPECT_EQ(got.size(), expected.keys.size());
        EXPECT_TRUE(std::is_sorted(got.begin(), got.end()));
        for (std::size_t n = 0; n < as_size(options.keys_per_row); ++n) {
          const Index j = chosen(s.batch, h, s.first_query + row, static_cast<Index>(n));
          EXPECT_EQ(j == -1, n >= got.size()) << "-1 stands behind the last key alone";
        }
        if (!expected.is_decided) {
          ++share.undecided;
        } else {
          EXPECT_EQ(got, expected.keys)
              << "sequence " << s.index << " head " << h << " row " << row;
        }
        if (testing::Test::HasFailure()) return share;
      }
    }
  }
  return share;
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
