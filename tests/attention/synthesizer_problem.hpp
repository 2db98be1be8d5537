// SPDX-License-Identifier: MIT
/// \file
/// Calls of the three forms of the Synthesizer for tests: what they read, and what that should
/// give. The extent w is 1, for weights of all sequences, or b.
#pragma once

#include <vector>

#include "attention/call_problem.hpp"
#include "fovea/attention/dense_synthesizer.hpp"
#include "fovea/attention/factorised_synthesizer.hpp"
#include "fovea/attention/random_synthesizer.hpp"
#include "support/oracle/synthesizer.hpp"

namespace fovea_test {

using fovea::DenseSynthesizerAttention;
using fovea::FactorisedSynthesizerAttention;
using fovea::RandomSynthesizerAttention;

/// What all forms have.
struct SynthesizerForm {
  static constexpr const char* name = "synthesizer";
  static inline const std::vector<TensorAxes> saved = {};
  static constexpr const char* hidden = "k";
  static constexpr bool is_cut = false;

  static AttentionShape shape(const Extents& e) {
    return {e.at('b'), e.at('H'), e.at('h'), e.at('q'), e.at('k'), e.at('d'), e.at('v')};
  }

 protected:
  /// \param add add(all, grads) adds what is expected of the gradients
  template <class T, class P, class F>
  static std::vector<ExpectedTensor<T>> expected_with(const P& p, const F& add) {
    const auto in = p.inputs();
    const auto of = synthesizer_oracle<T>(in, p.op.options.causal);
    std::vector<ExpectedTensor<T>> all = {{"out", of.out, 16}, {"lse", of.lse, 8}};
    add(all, synthesizer_grads(in, p.op.options.causal, p.d_out.view()));
    return all;
  }
};

template <>
struct CallForm<RandomSynthesizerAttention> : SynthesizerForm {
  static inline const std::vector<TensorAxes> inputs = {{"r", "wHqk", 2}, {"v", "bhkv"}};

  static void complete(const RandomSynthesizerAttention& /*op*/, Extents& /*e*/) {}
  template <class T>
  static auto expected(const CallProblem<RandomSynthesizerAttention, T>& p) {
    return expected_with<T>(p, [](auto& all, const RandomGrads<T>& of) {
      all.insert(all.end(), {{"d_r", of.r, 32}, {"d_v", of.v, 32}});
    });
  }
};

template <>
struct CallForm<FactorisedSynthesizerAttention> : SynthesizerForm {
  static inline const std::vector<TensorAxes> inputs = {
      {"r1", "wHqd"}, {"r2", "whkd"}, {"v", "bhkv"}};

  static void complete(const FactorisedSynthesizerAttention& /*op*/, Extents& /*e*/) {}
  template <class T>
  static auto expected(const CallProblem<FactorisedSynthesizerAttention, T>& p) {
    return expected_with<T>(p, [](auto& all, const FactorisedGrads<T>& of) {
      all.insert(all.end(), {{"d_r1", of.r1, 32}, {"d_r2", of.r2, 32}, {"d_v", of.v, 32}});
    });
  }
};

/// M hidden units; N = k + x positions; ? is 1 with biases; t is 1 for tokens of all heads.
template <>
struct CallForm<DenseSynthesizerAttention> : SynthesizerForm {
  static inline const std::vector<TensorAxes> inputs = {{"x", "btqd"},       {"w1", "wHdM", 0.7},
                                                        {"b1", "wH?M", 0.5}, {"w2", "whMN", 0.7},
                                                        {"b2", "wh?N", 0.5}, {"v", "bhkv"}};

  static DenseSynthesizerAttention::Shape shape(const Extents& e) {
    return {e.at('b'), e.at('H'), e.at('h'), e.at('q'), e.at('k'), e.at('d'), e.at('v'), e.at('M')};
  }
  static void complete(const DenseSynthesizerAttention& /*op*/, Extents& e) {
    e.insert({{'M', 4}, {'x', 0}, {'?', 1}});
    e['N'] = e['k'] + e['x'];
  }
  template <class T>
  static auto expected(const CallProblem<DenseSynthesizerAttention, T>& p) {
    return expected_with<T>(p, [](auto& all, const DenseGrads<T>& of) {
      all.insert(all.end(), {{"d_x", of.x, 32},
                             {"d_w1", of.w1, 32},
                             {"d_b1", of.b1, 32},
                             {"d_w2", of.w2, 32},
                             {"d_b2", of.b2, 32},
                             {"d_v", of.v, 32}});
    });
  }
};

template <class T>
using RandomProblem = CallProblem<RandomSynthesizerAttention, T>;
template <class T>
using FactorisedProblem = CallProblem<FactorisedSynthesizerAttention, T>;
template <class T>
using DenseProblem = CallProblem<DenseSynthesizerAttention, T>;

/// Those of one form of the Synthesizer.
template <class Op>
struct SynthesizerCases {
  using Cases = std::vector<CallCase<Op>>;
  static constexpr double tolerance = 2e-8;

  static Cases conforming() {
    Cases all;
    for (const bool causal : {false, true}) {
      const Op op({.causal = causal});
      for (const Index rows : {1, 2, 5, 17, 31, 64, 65, 129, 200}) {
        all.push_back({op, {2, 2, 2, rows, rows, 3, 5}});
      }
      all.push_back({op, of_tokens(300, 16, 64), {{'M', 33}}});
      for (const Index w : {1, 4}) {
        for (const Index biases : {0, 1}) {
          all.push_back({op,
                         {4, 2, 1, 70, 70, 3, 5},
                         {{'x', 5}, {'w', w}, {'?', biases}, {'t', 1 + biases}},
                         {70, 0, 1, 33}});
        }
      }
    }
    for (const Index width : {0, 1, 8, 17}) {
      for (const Index hidden : {0, 1, 15, 16, 40}) {
        all.push_back({{}, {3, 4, 2, 40, 40, width, width + 1}, {{'M', hidden}, {'x', 3}}});
      }
    }
    return all;
  }
  static Cases large() {
    Cases all;
    for (const Index w : {1, 3}) {
      for (const bool causal : {false, true}) {
        all.push_back({Op({.causal = causal}),
                       {3, 4, 2, 257, 257, 9, 5},
                       {{'M', 20}, {'x', 7}, {'w', w}},
                       {257, 100, 7}});
      }
    }
    return all;
  }
  static Cases batches() {
    Cases all;
    for (const bool causal : {false, true}) {
      const Op op({.causal = causal});
      all.push_back({op, {2, 2, 1, 150, 150, 3, 5}, {{'x', 9}}, {140, 67}});
      all.push_back({op, {3, 2, 1, 90, 90, 3, 5}, {{'M', 20}, {'w', 3}, {'t', 1}}, {90, 50, 8}});
    }
    return all;
  }
  static Cases small() {
    Cases all;
    for (const Index w : {1, 2}) {
      const Extents more = {{'x', 2}, {'w', w}, {'t', 3 - w}};
      all.push_back({{}, {2, 2, 1, 6, 6, 3, 5}, more, {6, 4}});
      all.push_back({Op({.causal = true}), {2, 2, 1, 6, 6, 3, 5}, more});
    }
    return all;
  }
};
template <>
struct CallCases<RandomSynthesizerAttention> : SynthesizerCases<RandomSynthesizerAttention> {};
template <>
struct CallCases<FactorisedSynthesizerAttention>
    : SynthesizerCases<FactorisedSynthesizerAttention> {};
template <>
struct CallCases<DenseSynthesizerAttention> : SynthesizerCases<DenseSynthesizerAttention> {};

}  // namespace fovea_test
