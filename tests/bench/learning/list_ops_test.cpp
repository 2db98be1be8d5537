// SPDX-License-Identifier: MIT
// Expressions of ListOps: an evaluator of their tokens that shares nothing with the generator, the
// shares of the grammar, and lengths that are refused.
#include "bench/learning/list_ops.hpp"

#include <gtest/gtest.h>

#include <iterator>
#include <map>
#include <set>

namespace fovea_test::bench_learning_list_ops {

using learning::Draws;
using learning::Index;
using learning::ListOps;

/// The value of the tree that begins at `at`, which is moved behind it; its depth and the largest
/// number of arguments are noted.
struct Evaluator {
  const std::vector<Index>& tokens;
  std::size_t at = 0;
  Index depth = 0, deepest = 0;
  std::size_t fewest = 99, most = 0;

  Index value() {
    deepest = std::max(deepest, ++depth);
    const Index first = tokens.at(at++);
    Index result = first;
    if (first >= 10) {
      EXPECT_LE(first, 13);
      std::multiset<Index> arguments;
      while (tokens.at(at) != 14) arguments.insert(value());
      ++at;
      fewest = std::min(fewest, arguments.size());
      most = std::max(most, arguments.size());
      result = made_of(first, arguments);
    }
    --depth;
    return result;
  }

  static Index made_of(Index op, const std::multiset<Index>& arguments) {
    if (op == 10) return *arguments.begin();
    if (op == 11) return *arguments.rbegin();
    Index sum = 0;
    for (const Index argument : arguments) sum += argument;
    if (op == 13) return sum % 10;
    const auto n = std::ssize(arguments);
    const Index low = *std::next(arguments.begin(), (n - 1) / 2);
    const Index high = *std::next(arguments.begin(), n / 2);
    return (low + high) / 2;
  }
};

TEST(ListOps, ValueAndShapeMatchTheTokens) {
  const ListOps trees(20, 300);
  std::map<Index, int> operators;
  Index deepest = 0;
  std::size_t fewest = 99, most = 0;
  for (Index sequence = 0; sequence < 300; ++sequence) {
    Draws draws(5, 7, sequence);
    std::vector<Index> tokens;
    const Index value = trees.draw(draws, tokens);
    ASSERT_GE(std::ssize(tokens), 20);
    ASSERT_LE(std::ssize(tokens), 300);
    Evaluator evaluator{tokens};
    ASSERT_EQ(evaluator.value(), value);
    ASSERT_EQ(evaluator.at, tokens.size());
    deepest = std::max(deepest, evaluator.deepest);
    fewest = std::min(fewest, evaluator.fewest);
    most = std::max(most, evaluator.most);
    for (const Index token : tokens) operators[token] += token >= 10 && token < 14 ? 1 : 0;
  }
  EXPECT_LE(deepest, 10);
  EXPECT_GE(deepest, 6);
  EXPECT_EQ(fewest, 2U);
  EXPECT_EQ(most, 10U);
  for (Index op = 10; op < 14; ++op) EXPECT_GT(operators[op], 1000) << op;
}

TEST(ListOps, EvaluatesOperators) {
  EXPECT_EQ(ListOps::apply(ListOps::kMin, {4, 2, 9}), 2);
  EXPECT_EQ(ListOps::apply(ListOps::kMax, {4, 2, 9}), 9);
  EXPECT_EQ(ListOps::apply(ListOps::kMedian, {9, 2, 4}), 4);
  EXPECT_EQ(ListOps::apply(ListOps::kMedian, {9, 2, 4, 5}), 4);  // 4.5, rounded down
  EXPECT_EQ(ListOps::apply(ListOps::kSumModulo, {9, 2, 4}), 5);
}

TEST(ListOps, DrawsDependOnTheNumbersOnly) {
  const ListOps trees(20, 300);
  const auto tokens = [&](std::uint64_t seed, Index batch, Index sequence) {
    Draws draws(seed, batch, sequence);
    std::vector<Index> all;
    trees.draw(draws, all);
    return all;
  };
  EXPECT_EQ(tokens(1, 2, 3), tokens(1, 2, 3));
  EXPECT_NE(tokens(1, 2, 3), tokens(2, 2, 3));
  EXPECT_NE(tokens(1, 2, 3), tokens(1, 3, 3));
  EXPECT_NE(tokens(1, 2, 3), tokens(1, 2, 4));
}

TEST(ListOps, RefusesImpossibleLengths) {
  EXPECT_THROW(ListOps(0, 10), std::invalid_argument);
  EXPECT_THROW(ListOps(10, 9), std::invalid_argument);
  EXPECT_THROW(ListOps(1, 3), std::invalid_argument);
  EXPECT_THROW(ListOps(5000, 6000), std::invalid_argument);
}

}  // namespace fovea_test::bench_learning_list_ops
