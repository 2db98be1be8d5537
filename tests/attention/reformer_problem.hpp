// SPDX-License-Identifier: MIT
/// \file
/// Calls of Reformer attention for tests: what they read, and what that should give.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "attention/call_problem.hpp"
#include "fovea/attention/reformer.hpp"
#include "support/oracle/reformer.hpp"

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

/// Every combination of what hides and what corrects.
inline std::vector<ReformerOptions> reformer_options(Index chunk, Index rounds, Index buckets) {
  std::vector<ReformerOptions> all;
  for (const FirstChunk before : {FirstChunk::wrap, FirstChunk::none, FirstChunk::previous_round}) {
    for (int bits = 0; bits < 8; ++bits) {
      ReformerOptions options{.chunk = chunk, .rounds = rounds, .buckets = buckets};
      options.before_first = before;
      options.causal = (bits & 1) != 0;
      options.across_buckets = (bits & 2) == 0;
      options.correct_duplicates = (bits & 4) != 0;
      if (bits % 3 == 0) options.scale = -0.7;
      options.seed = 0x123456789abcdef;
      all.push_back(options);
    }
  }
  return all;
}

/// The extent ? is 1 if the projection is given.
template <>
struct CallForm<ReformerAttention> {
  static constexpr const char* name = "reformer";
  static inline const std::vector<TensorAxes> inputs = {
      {"qk", "bHqd"}, {"v", "bHqv"}, {"projection", "?rdg"}};
  static inline const std::vector<TensorAxes> saved = {{"round_lse", "bHqr"}};
  static constexpr const char* hidden = "qk";
  static constexpr bool is_cut = true;

  static void complete(const ReformerAttention& op, Extents& e) {
    e.emplace('?', 0);
    e['r'] = op.options.rounds;
    e['g'] = op.options.buckets / 2;
  }

  template <class T>
  static std::vector<ExpectedTensor<T>> expected(const CallProblem<ReformerAttention, T>& p) {
    const auto of = reformer_oracle(p.inputs(), p.op.options);
    const auto grads = reformer_grad_oracle(p.inputs(), p.op.options, p.d_out.view());
    return {{"out", of.out, 16},
            {"lse", of.lse, 8},
            {"round_lse", of.round_lse, 8, true},
            {"d_qk", grads.qk, 32},
            {"d_v", grads.v, 16}};
  }
};

template <class T>
using ReformerProblem = CallProblem<ReformerAttention, T>;

template <>
struct CallCases<ReformerAttention> {
  using Cases = std::vector<CallCase<ReformerAttention>>;
  static constexpr double tolerance = 1e-7;

  static Cases conforming() {
    Cases all;
    const auto add = [&](const std::vector<ReformerOptions>& options, const AttentionShape& shape,
                         const Extents& more = {}, const std::vector<Index>& lengths = {}) {
      for (const ReformerOptions& o : options) {
        all.push_back({ReformerAttention(o), shape, more, lengths});
      }
    };
    for (const auto& [rows, chunk, rounds, buckets] :
         std::vector<std::array<Index, 4>>{{1, 1, 1, 2},
                                           {6, 1, 2, 4},
                                           {12, 4, 3, 4},
                                           {16, 16, 2, 4},
                                           {60, 20, 2, 6},
                                           {96, 16, 4, 8},
                                           {130, 65, 2, 4}}) {
      add(reformer_options(chunk, rounds, buckets), of_tokens(rows));
    }
    // Chunks of more rows than the kernels take at once, and more chunks than a task has.
    add({{.chunk = 300, .rounds = 2, .buckets = 2}}, of_tokens(600, 3, 2));
    for (const Index rows : {132, 128, 4 * 17}) {
      for (const FirstChunk before :
           {FirstChunk::wrap, FirstChunk::none, FirstChunk::previous_round}) {
        ReformerOptions options{.chunk = 4, .rounds = 2, .buckets = 8};
        options.before_first = before;
        add({options}, of_tokens(rows, 3));
      }
    }
    for (const Index width : {0, 1, 4, 7, 16, 33, 64, 80}) {
      const ReformerOptions options{.chunk = 8, .rounds = 2, .buckets = 2 + 2 * (width % 20)};
      add({options}, of_tokens(48, width, 81 - width));
      add({options}, of_tokens(48, width, width));
    }
    add(reformer_options(8, 3, 6), {6, 2, 2, 40, 40, 8, 5}, {{'?', 1}}, {40, 0, 1, 8, 29, 32});
    // Rows of any length: so short that it is not what they are divided by, 0, and huge.
    for (const double size : {0.0, 1e-30, 1e-14, 1e-5, 30.0, 1e4}) {
      add({{.chunk = 4, .rounds = 2, .buckets = 4, .causal = true}}, of_tokens(24));
      all.back().fills = {{"qk", gaussian(3, size)}};
    }
    return all;
  }
  static Cases large() {
    Cases all;
    for (const ReformerOptions& o : reformer_options(10, 3, 10)) {
      all.push_back({ReformerAttention(o), {2, 2, 2, 400, 400, 19, 17}, {}, {400, 211}});
    }
    return all;
  }
  static Cases batches() {
    Cases all;
    for (const ReformerOptions& o : reformer_options(8, 2, 6)) {
      all.push_back({ReformerAttention(o), {2, 3, 3, 64, 64, 8, 5}, {}, {64, 40}});
    }
    // Chunks of whole cache lines, whose tables have no gaps.
    all.push_back(
        {ReformerAttention({.chunk = 8, .rounds = 1, .buckets = 2, .across_buckets = false}),
         of_tokens(32, 16, 16)});
    return all;
  }
  static Cases small() {
    Cases all;
    for (const ReformerOptions& o : reformer_options(4, 2, 4)) {
      all.push_back({ReformerAttention(o), of_tokens(12, 3, 2)});
    }
    return all;
  }
};

}  // namespace fovea_test
