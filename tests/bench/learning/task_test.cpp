// SPDX-License-Identifier: MIT
// The copy task and labelled texts: targets, held-out data and refusals.
#include "bench/learning/task.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "bench/learning/labelled_texts.hpp"
#include "support/scratch_folder.hpp"

namespace fovea_test::bench_learning_task {

using learning::Batch;
using learning::CopyTask;
using learning::Index;
using learning::kUnasked;
using learning::LabelledTexts;

TEST(CopyTask, ExpectsTheSymbolsAgain) {
  constexpr Index length = 37, sequences = 50;
  const CopyTask task(length);
  const Batch batch = task.draw(sequences, 4, 9);
  std::set<Index> sizes, symbols;
  for (Index b = 0; b < sequences; ++b) {
    const Index* const tokens = &batch.tokens[static_cast<std::size_t>(b * length)];
    const Index* const targets = &batch.targets[static_cast<std::size_t>(b * length)];
    Index n = 0;
    while (tokens[n] != 0) symbols.insert(tokens[n++]);
    sizes.insert(n);
    ASSERT_GE(n, length / 4);
    ASSERT_LT(n, (length - 1) / 2);
    for (Index i = 0; i < length; ++i) {
      if (i > n && i <= 2 * n) {
        EXPECT_EQ(tokens[i], tokens[i - n - 1]);
      }
      if (i == n || i > 2 * n) {
        EXPECT_EQ(tokens[i], 0);
      }
      EXPECT_EQ(targets[i], i >= n - 1 && i < 2 * n ? tokens[i + 1] : kUnasked) << i;
    }
  }
  EXPECT_EQ(symbols.size(), 10U);
  EXPECT_EQ(*symbols.begin(), 1);
  EXPECT_EQ(sizes.size(), 9U);  // 9 to 17
  EXPECT_NE(task.draw(1, 4, 9).tokens, task.draw(1, 4, 10).tokens);
  EXPECT_THROW(CopyTask(7), std::invalid_argument);
}

TEST(LabelledTexts, HoldsOutEveryTenthText) {
  const fovea_test::ScratchFolder folder;
  const auto write = [&](const char* name, char letter, int count) {
    const std::string path = folder / name;
    std::ofstream file(path);
    for (int i = 0; i < count; ++i) file << letter << i << "\n%\n";
    return path;
  };
  const std::string a = write("a", 'a', 20), b = write("b", 'b', 30);
  const LabelledTexts task({a, b}, 3);
  EXPECT_EQ(task.classes(), 2);
  EXPECT_EQ(task.held_out(), 5);
  const Batch held = task.draw(5, 1, 0);
  EXPECT_EQ(held.targets, (std::vector<Index>{0, 0, 1, 1, 1}));
  EXPECT_EQ(held.lengths, (std::vector<Index>{3, 3, 3, 3, 3}));
  const std::string first(held.tokens.begin(), held.tokens.begin() + 6);
  EXPECT_EQ(first, "a9\na19");
  EXPECT_EQ(task.draw(1, 1, 4).tokens, (std::vector<Index>{'b', '2', '9'}));
  const Batch learnt = task.draw(400, 2, 0);
  Index labels = 0;
  std::set<std::vector<Index>> seen;
  for (std::size_t i = 0; i < 400; ++i) {
    const std::vector<Index> text(learnt.tokens.begin() + 3 * static_cast<std::ptrdiff_t>(i),
                                  learnt.tokens.begin() + 3 * static_cast<std::ptrdiff_t>(i + 1));
    EXPECT_EQ(text[0], learnt.targets[i] == 0 ? 'a' : 'b');
    EXPECT_FALSE(text[1] == '9' && text[2] == '\n');
    labels += learnt.targets[i];
    seen.insert(text);
  }
  EXPECT_EQ(seen.size(), 45U);
  EXPECT_GT(labels, 150);
  EXPECT_LT(labels, 250);
  EXPECT_THROW(LabelledTexts({a}, 3), std::runtime_error);
  EXPECT_THROW(LabelledTexts({a, write("c", 'c', 9)}, 3), std::runtime_error);
  EXPECT_THROW(LabelledTexts({a, "nowhere"}, 3), std::runtime_error);
}

TEST(LabelledTexts, TextsAreSeparatedByPercentSigns) {
  const std::vector<std::string> texts = LabelledTexts::texts_of("%\none\nmore\n%\n%\ntwo %\n%");
  EXPECT_EQ(texts, (std::vector<std::string>{"one\nmore\n", "two %\n"}));
  EXPECT_TRUE(LabelledTexts::texts_of("").empty());
}

}  // namespace fovea_test::bench_learning_task
