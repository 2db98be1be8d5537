// SPDX-License-Identifier: MIT
/// \file
/// Helpers for tests of the decoders of linear attention, FMM attention and the delta rule.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "attention/conformance.hpp"
#include "attention/pieces.hpp"

namespace fovea_test {

using fovea::DecoderShape;
using fovea::DeltaRule;
using fovea::DeltaRuleAttention;
using fovea::EluPlusOne;
using fovea::FmmAttention;
using fovea::LinearAttention;

/// A sequence and a decoder's results for it.
template <class T>
struct Stream {
  Problem<T> problem;
  Tensor<T> out;

  Stream(const AttentionShape& shape, bool has_beta, const Fills& fills = gaussian_fills(1))
      : problem(make_problem(case_with(has_beta), shape, 1, fills)), out(problem.out_shape()) {}

  DecoderShape decoder_shape() const { return fovea_test::decoder_shape(problem.shape); }

  AllInputs<T> tokens(Index first, Index count) const {
    return rows_with_keys(problem.inputs(), first, count, first);
  }

  /// Tokens up to `end`, in pieces of this length.
  template <class D>
  void decode(D& decoder, Index end, Index piece = 1) const {
    while (decoder.length() < end) {
      const Index first = decoder.length();
      const Index count = std::min(piece, end - first);
      decoder.step(tokens(first, count), cut(out.view(), 2, first, count));
    }
  }

  /// All rows by `forward`.
  template <class Op>
  Tensor<T> forward(const Op& op) const {
    Tensor<T> expected(out.shape());
    op.forward(tokens(0, problem.shape.keys), expected.view());
    return expected;
  }

  /// Whether rows [first, last) have the bits of `expected`.
  testing::AssertionResult has_rows(const Tensor<T>& expected, Index first, Index last) const {
    const auto rows = [&](const Tensor<T>& x) {
      std::vector<T> values;
      for_each_index(x.shape(), [&](Index b, Index h, Index n, Index d) {
        if (first <= n && n < last) values.push_back(x(b, h, n, d));
      });
      return values;
    };
    return same_bits(rows(out), rows(expected));
  }

 private:
  static Case<T> case_with(bool beta) {
    Case<T> made;
    made.extras.beta = beta;
    return made;
  }
};

/// Calls f(op, whether it reads beta) with causal operators of every kind.
template <class F>
void for_each_operator(F&& f) {
  f(LinearAttention<EluPlusOne>{{.causal = true}}, false);
  f(LinearAttention<EluPlusOne, fovea::TanhPlusOne>{{.causal = true}}, false);
  f(FmmAttention<EluPlusOne>{{.band = {.left = 4}, .causal = true}}, false);
  f(FmmAttention<EluPlusOne, DeltaRule<EluPlusOne>>{{.band = {.left = 40}}}, true);
  f(DeltaRuleAttention<EluPlusOne>{}, true);
}

inline constexpr AttentionShape kShape{2, 4, 2, 200, 200, 9, 7};

}  // namespace fovea_test
