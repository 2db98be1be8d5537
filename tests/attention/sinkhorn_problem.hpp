// SPDX-License-Identifier: MIT
/// \file
/// Calls of Sinkhorn attention for tests: what they read, and what that should give.
#pragma once

#include <array>
#include <vector>

#include "attention/call_problem.hpp"
#include "fovea/attention/sinkhorn.hpp"
#include "support/oracle/sinkhorn.hpp"

namespace fovea_test {

using fovea::SinkhornAttention;
using fovea::SinkhornOptions;

template <>
struct CallForm<SinkhornAttention> {
  static constexpr const char* name = "sinkhorn";
  static inline const std::vector<TensorAxes> inputs = {
      {"q", "bHqd"}, {"k", "bhkd"}, {"v", "bhkv"}, {"sorting", "bhuu"}};
  static inline const std::vector<TensorAxes> saved = {};
  static constexpr const char* hidden = "qk";
  static constexpr bool is_cut = true;

  static void complete(const SinkhornAttention& op, Extents& e) {
    e['u'] = e['k'] / op.options.block;
  }

  template <class T>
  static std::vector<ExpectedTensor<T>> expected(const CallProblem<SinkhornAttention, T>& p) {
    const auto of = sinkhorn_oracle(p.inputs(), p.op.options, p.d_out.view());
    return {{"out", of.out, 16}, {"lse", of.lse, 8}, {"d_q", of.q, 32},
            {"d_k", of.k, 32},   {"d_v", of.v, 16},  {"d_sorting", of.sorting, 32}};
  }
};

template <class T>
using SortProblem = CallProblem<SinkhornAttention, T>;

template <>
struct CallCases<SinkhornAttention> {
  using Cases = std::vector<CallCase<SinkhornAttention>>;
  static constexpr double tolerance = 1e-7;

  static SinkhornAttention with(Index block, Index iterations) {
    SinkhornOptions options{.block = block, .iterations = iterations};
    if (iterations == 2) options.scale = -0.7;
    return SinkhornAttention(options);
  }

  static Cases conforming() {
    Cases all;
    for (const auto& [rows, block] : std::vector<std::array<Index, 2>>{
             {1, 1}, {5, 1}, {6, 6}, {12, 4}, {60, 20}, {96, 8}, {130, 65}, {70, 1}}) {
      for (const Index iterations : {0, 1, 2, 7}) {
        all.push_back({with(block, iterations), of_tokens(rows)});
      }
    }
    // Blocks of more rows than the kernels take at once.
    all.push_back({with(530, 1), of_tokens(1060, 2, 2)});
    for (const Index width : {0, 1, 4, 7, 16, 33, 64, 80}) {
      all.push_back({with(4, 2), of_tokens(20, width, width)});
      all.push_back({with(4, 2), of_tokens(20, width, 81 - width)});
    }
    all.push_back({with(4, 3), {4, 6, 2, 24, 24, 8, 5}, {}, {24, 0, 4, 16}});
    for (const double size : {0.0, 10.0, 60.0}) {
      all.push_back({with(4, 2), of_tokens(24), {}, {}, {}, {{"q", gaussian(3, size)}}});
      all.push_back({with(4, 4), of_tokens(24), {}, {}, {}, {{"sorting", gaussian(3, size)}}});
    }
    return all;
  }
  static Cases large() {
    Cases all;
    for (const Index block : {1, 7, 42}) {
      all.push_back({with(block, 3), {2, 4, 2, 126, 126, 19, 17}, {}, {126, 84}});
    }
    return all;
  }
  static Cases batches() {
    return {{with(8, 3), {2, 3, 3, 64, 64, 8, 5}, {}, {64, 40}},
            {with(10, 3), {2, 4, 2, 100, 100, 8, 5}, {}, {100, 60}},
            {with(8, 2), of_tokens(32, 16, 16)}};
  }
  static Cases small() {
    Cases all;
    for (const Index iterations : {0, 1, 3}) {
      all.push_back({with(2, iterations), {1, 2, 1, 6, 6, 3, 2}});
    }
    return all;
  }
};

}  // namespace fovea_test
