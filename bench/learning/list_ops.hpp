// SPDX-License-Identifier: MIT
/// \file
/// Expressions of ListOps (Nangia and Bowman 2018) by the grammar of the Long Range Arena (Tay et
/// al. 2020). Test: tests/bench/learning/list_ops_test.cpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <fovea/core/philox.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace learning {

using fovea::Index;

/// Successive draws for one sequence; they depend on these numbers only.
class Draws {
 public:
  Draws(std::uint64_t seed, Index batch, Index sequence)
      : seed_(seed), batch_(batch), sequence_(sequence) {}

  /// In [0, 1).
  double uniform() { return fovea::uniform_draw<double>(seed_, batch_, 0, sequence_, next_++); }
  /// In [0, n).
  Index below(Index n) { return static_cast<Index>(uniform() * static_cast<double>(n)); }

 private:
  std::uint64_t seed_;
  Index batch_, sequence_, next_ = 0;
};

/// A tree is an operator with 2 to 10 subtrees with probability 1/4, otherwise a digit; at depth 10
/// it is a digit. Trees are drawn until the number of tokens is between both bounds. Tokens are the
/// ten digits, the operators with their opening bracket, and the closing bracket.
struct ListOps {
  static constexpr Index kMin = 10, kMax = 11, kMedian = 12, kSumModulo = 13, kEnd = 14;
  static constexpr Index kVocabulary = 15;
  static constexpr Index kMaxDepth = 10, kMaxArguments = 10;
  static constexpr double kOperatorShare = 0.25;

  Index shortest;  ///< tokens at least
  Index longest;   ///< tokens at most

  /// \throws std::invalid_argument if no tree can have such a number of tokens
  ListOps(Index least, Index most) : shortest(least), longest(most) {
    if (least < 1 || most < 4 || least > most || least > 4000) {
      throw std::invalid_argument("list_ops: lengths are " + std::to_string(least) + " to " +
                                  std::to_string(most) +
                                  "; expected the first from 1 to 4000, and the second at least "
                                  "that and at least 4");
    }
  }

  /// Writes the tokens, and returns the value.
  Index draw(Draws& draws, std::vector<Index>& tokens) const {
    while (true) {
      tokens.clear();
      const Index value = tree(draws, 1, tokens);
      const auto count = static_cast<Index>(tokens.size());
      if (count >= shortest && count <= longest) return value;
    }
  }

  /// The result of an operator: the median of an even number of arguments is the mean of the middle
  /// two, rounded down.
  static Index apply(Index op, std::vector<Index> values) {
    std::sort(values.begin(), values.end());
    if (op == kMin) return values.front();
    if (op == kMax) return values.back();
    const std::size_t n = values.size();
    if (op == kMedian) return (values[(n - 1) / 2] + values[n / 2]) / 2;
    Index sum = 0;
    for (const Index value : values) sum += value;
    return sum % 10;
  }

 private:
  /// Returns the value; a tree that is already too long is left where it is.
  Index tree(Draws& draws, Index depth, std::vector<Index>& tokens) const {
    if (depth == kMaxDepth || draws.uniform() >= kOperatorShare) {
      tokens.push_back(draws.below(10));
      return tokens.back();
    }
    const Index op = kMin + draws.below(4);
    tokens.push_back(op);
    std::vector<Index> values(static_cast<std::size_t>(2 + draws.below(kMaxArguments - 1)));
    for (Index& value : values) {
      if (static_cast<Index>(tokens.size()) > longest) return 0;
      value = tree(draws, depth + 1, tokens);
    }
    tokens.push_back(kEnd);
    return apply(op, values);
  }
};

}  // namespace learning
