// SPDX-License-Identifier: MIT
/// \file
/// Calls of operators whose keys are mixtures of tokens, Linformer and Nystroem attention, for
/// tests: what they read, and what that should give.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "attention/call_problem.hpp"
#include "fovea/attention/linformer.hpp"
#include "fovea/attention/nystroem.hpp"
#include "support/oracle/linformer.hpp"
#include "support/oracle/nystroem.hpp"

namespace fovea_test {

using fovea::LinformerAttention;
using fovea::NystroemAttention;

/// P keys are projected; e and f are the heads of the projections of keys and of values.
template <>
struct CallForm<LinformerAttention> {
  static constexpr const char* name = "linformer";
  static inline const std::vector<TensorAxes> inputs = {{"q", "bHqd"},
                                                        {"k", "bhkd"},
                                                        {"v", "bhkv"},
                                                        {"key_projection", "1ePk"},
                                                        {"value_projection", "1fPk"}};
  static inline const std::vector<TensorAxes> saved = {{"projected_keys", "bhPd"},
                                                       {"projected_values", "bhPv"}};
  static constexpr const char* hidden = "k";
  static constexpr bool is_cut = true;

  static void complete(const LinformerAttention& /*op*/, Extents& e) { e.emplace('P', 7); }

  /// Projections that make keys of the size of tokens.
  template <class P>
  static void fill(const P& p, std::uint64_t seed) {
    const double size = 1 / std::sqrt(static_cast<double>(std::max<Index>(1, p.extents.at('k'))));
    p["key_projection"].fill(gaussian(seed + 3, size));
    p["value_projection"].fill(gaussian(seed + 4, size));
  }

  template <class T>
  static std::vector<ExpectedTensor<T>> expected(const CallProblem<LinformerAttention, T>& p) {
    const auto of =
        linformer_oracle(p.all_inputs(), p.op.options.scale, View<const T>(p.d_out.view()));
    return {{"out", of.out, 16},
            {"lse", of.lse, 8},
            {"d_q", of.q, 32},
            {"d_k", of.k, 32},
            {"d_v", of.v, 32},
            {"d_key_projection", of.key_projection, 32},
            {"d_value_projection", of.value_projection, 32}};
  }
};

template <>
struct CallForm<NystroemAttention> {
  static constexpr const char* name = "nystroem";
  static inline const std::vector<TensorAxes> inputs = {
      {"q", "bHqd"}, {"k", "bhkd"}, {"v", "bhkv"}};
  static inline const std::vector<TensorAxes> saved = {{"landmark_values", "bHmv"},
                                                       {"landmark_lse", "bHm1"}};
  static constexpr const char* hidden = "qk";
  static constexpr bool is_cut = true;

  static void complete(const NystroemAttention& op, Extents& e) { e['m'] = op.options.landmarks; }

  /// Of gradients only in small problems: their oracle computes the call again for each number that
  /// is read, with products of matrices of all landmarks.
  template <class T>
  static std::vector<ExpectedTensor<T>> expected(const CallProblem<NystroemAttention, T>& p) {
    constexpr Index most = 6000;
    Index read = 0;
    for (const char* x : {"q", "k", "v"}) read += p[x].view().size();
    const bool gradients = read * std::max<Index>(4, p.op.options.landmarks) <= most;
    const auto of =
        NystroemOracle<T>(p.all_inputs(), p.op.options, p.d_out.view()).expected(gradients);
    if (!gradients) return {{"out", of.out, 16}};
    return {{"out", of.out, 16}, {"d_q", of.q, 32}, {"d_k", of.k, 32}, {"d_v", of.v, 32}};
  }
};

template <class T>
using LinformerProblem = CallProblem<LinformerAttention, T>;
template <class T>
using NystroemProblem = CallProblem<NystroemAttention, T>;

template <>
struct CallCases<NystroemAttention> {
  using Cases = std::vector<CallCase<NystroemAttention>>;
  static constexpr double tolerance = 1e-6;
  static constexpr auto kScales = {fovea::NystroemScale::matrix, fovea::NystroemScale::batch_max};

  static NystroemAttention with(Index landmarks, Index iterations = 6,
                                fovea::NystroemScale scale = fovea::NystroemScale::matrix) {
    fovea::NystroemOptions options;
    options.landmarks = landmarks;
    options.iterations = iterations;
    options.first_scale = scale;
    return NystroemAttention(options);
  }

  static Cases conforming() {
    Cases all;
    for (const fovea::NystroemScale scale : kScales) {
      for (const Index steps : {0, 1, 6}) {
        all.push_back({with(4, steps, scale), {2, 4, 2, 8, 8, 3, 2}});
        all.push_back({with(4, steps, scale), {2, 4, 2, 60, 60, 5, 3}});
      }
      all.push_back({with(4, 6, scale), {3, 2, 1, 12, 12, 3, 3}, {}, {0, 8, 12}});
    }
    for (const Index landmarks : {1, 2, 5, 16, 40}) {
      all.push_back({with(landmarks), {2, 4, 2, 80, 80, 8, 3}});
    }
    all.push_back({with(65), {1, 4, 2, 260, 260, 64, 70}});
    // As many queries as landmarks, other numbers of queries and keys, one token, none.
    all.push_back({with(4), {2, 4, 2, 4, 12, 2, 3}});
    all.push_back({with(4), {2, 4, 2, 12, 4, 2, 3}});
    all.push_back({with(1), {2, 4, 2, 1, 1, 5, 3}});
    all.push_back({with(2), {2, 6, 3, 4, 4, 5, 1}});
    all.push_back({with(4), {2, 4, 2, 0, 8, 5, 3}});
    all.push_back({with(4), {2, 4, 2, 24, 0, 5, 3}});
    // Equal keys: every column of A has the sum 1, and the first one takes the gradient.
    for (const Index steps : {0, 1, 3}) {
      all.push_back({with(4, steps), {2, 4, 2, 8, 8, 2, 3}, {}, {}, {}, {{"k", constant(0.5)}}});
    }
    return all;
  }
  static Cases large() {
    const Fill wide = gaussian(49, 30);
    return {{with(20), {3, 4, 2, 260, 260, 5, 3}},
            {with(20, 3, fovea::NystroemScale::batch_max),
             {3, 4, 2, 260, 260, 5, 3},
             {},
             {260, 0, 100}},
            {with(8), {2, 4, 2, 24, 24, 200, 3}, {}, {}, {}, {{"q", wide}, {"k", wide}}}};
  }
  static Cases batches() {
    return {{with(4), {2, 4, 2, 40, 40, 5, 3}, {}, {20, 36}},
            {with(8, 2), {2, 4, 2, 80, 80, 5, 3}, {}, {80, 40}}};
  }
  static Cases small() {
    Cases all;
    for (const fovea::NystroemScale scale : kScales) {
      for (const Index steps : {0, 1, 6}) {
        all.push_back({with(4, steps, scale), {2, 4, 2, 8, 12, 3, 2}});
      }
    }
    all.push_back({with(4), {2, 4, 2, 12, 12, 3, 2}, {}, {4, 8}});
    return all;
  }
};

template <>
struct CallCases<LinformerAttention> {
  using Cases = std::vector<CallCase<LinformerAttention>>;
  static constexpr double tolerance = 1e-7;

  static Cases conforming() {
    const LinformerAttention op;
    Cases all;
    for (const Index projected : {1, 3, 64, 97, 200}) {
      for (const auto& [queries, keys] : std::vector<std::array<Index, 2>>{
               {24, 24}, {1, 1}, {0, 5}, {3, 70}, {70, 3}, {65, 300}}) {
        all.push_back({op, {2, 4, 2, queries, keys, 5, 3}, {{'P', projected}, {'f', 2}}});
      }
    }
    all.push_back({op, {2, 4, 2, 5, 1300, 5, 3}, {{'P', 130}, {'f', 2}}});
    all.push_back({LinformerAttention({.scale = -0.3}), {2, 4, 2, 40, 50, 64, 80}, {{'f', 2}}});
    all.push_back({op, {2, 4, 2, 24, 24, 5, 3}, {{'e', 2}}});
    all.push_back({op, {3, 6, 6, 24, 24, 5, 3}, {{'f', 6}}});
    all.push_back({op, {2, 4, 2, 24, 24, 1, 1}, {{'f', 2}}});
    for (const Index keys : {40, 300}) {
      all.push_back({op, {5, 4, 2, 30, keys, 5, 3}, {{'f', 2}}, {0, 1, keys / 2, keys - 1, keys}});
    }
    for (const double spread : {8.0, 60.0}) {
      const Fill wide = gaussian(9, spread);
      all.push_back({op, {2, 4, 2, 24, 24, 5, 3}, {{'f', 2}}, {}, {}, {{"q", wide}, {"k", wide}}});
    }
    return all;
  }
  static Cases large() {
    const Fill wide = gaussian(17, 60);
    return {{{}, {3, 4, 2, 70, 530, 5, 3}, {{'P', 140}, {'f', 2}}, {530, 300, 1}},
            {{}, {2, 4, 2, 24, 24, 200, 3}, {{'f', 2}}, {}, {}, {{"q", wide}, {"k", wide}}}};
  }
  static Cases batches() {
    return {{{}, {2, 4, 2, 24, 70, 5, 3}, {{'e', 2}, {'f', 2}}, {20, 45}},
            {{}, {2, 4, 2, 24, 80, 5, 3}, {{'P', 70}}, {67, 80}},
            // More keys than are multiplied at once, by projections that all heads share.
            {{}, {2, 4, 2, 5, 1300, 5, 3}, {{'P', 3}}}};
  }
  static Cases small() {
    return {{{}, {2, 4, 2, 5, 9, 3, 2}, {{'f', 2}}, {6, 9}},
            {LinformerAttention({.scale = 0.7}),
             {2, 4, 2, 4, 3, 5, 3},
             {{'P', 8}, {'e', 2}, {'f', 2}}}};
  }
};

}  // namespace fovea_test
