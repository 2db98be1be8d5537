// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// Layers that read words, over ranks: the gradients of tables have the bits of one process.
#include <gtest/gtest.h>

#include "distributed/layer_call.hpp"
#include "fovea/distributed/sequence_parallel.hpp"
#include "fovea/layers.hpp"
#include "support/ranks.hpp"
#include "support/scalars.hpp"

namespace fovea_test::distributed_sequence_parallel_words {

using fovea::Initialiser;
using fovea::kReductionBlock;
using fovea::distributed::sequence_parallel;

constexpr Index kWidth = 48;

template <class T>
class DistributedWords : public testing::Test {};
TYPED_TEST_SUITE(DistributedWords, Scalars);

/// A model that reads words, gives one more word for each, and is judged.
template <class T>
struct Words {
  Words(Index rows, Initialiser& initialiser)
      : embedding(40, rows, kWidth, initialiser), norm(kWidth) {}

  /// \param words, targets [2 rows] those of each sequence \returns the loss
  template <class E>
  double run(const std::vector<Index>& words, const std::vector<Index>& targets, E&& executor) {
    const Shape shape = {2, 1, static_cast<Index>(words.size()) / 2, kWidth};
    const Tensor<T> x(shape), y(shape), d_x(shape);
    const Tensor<T> logits({2, 1, shape[2], 40}), d_logits(logits.shape());
    typename fovea::LayerNorm<T>::Saved saved;
    embedding.forward(words, x.view(), executor);
    norm.forward(x.view(), y.view(), saved, executor);
    embedding.logits(y.view(), logits.view(), executor);
    const double loss =
        fovea::softmax_cross_entropy<T>(logits.view(), targets, d_logits.view(), executor);
    embedding.logits_backward(y.view(), d_logits.view(), d_x.view(), executor);
    norm.backward(x.view(), saved, d_x.view(), d_x.view(), executor);
    embedding.backward(words, d_x.view(), executor);
    return loss;
  }

  fovea::Embedding<T> embedding;
  fovea::LayerNorm<T> norm;
};

/// The words of this rank of two sequences.
std::vector<Index> own_words(const std::vector<Index>& words, const Sharding& rows) {
  std::vector<Index> own;
  for (const Index b : {0, 1}) {
    for (const Range& range : rows.own()) {
      const auto first = words.begin() + b * rows.count();
      own.insert(own.end(), first + range.begin, first + range.end);
    }
  }
  return own;
}

TYPED_TEST(DistributedWords, AModelOfWordsEqualsOneProcess) {
  using T = TypeParam;
  constexpr Index rows = 5 * kReductionBlock + 3;
  std::vector<Index> words;
  std::vector<Index> targets;
  for (Index n = 0; n < 2 * rows; ++n) {
    words.push_back(n * n % 37);
    targets.push_back(n % 5 == 0 ? fovea::kNoTarget : (3 * n + 1) % 40);
  }
  Initialiser initialiser(6);
  const Words<T> drawn(rows, initialiser);
  Words<T> whole = drawn;
  const double loss = whole.run(words, targets, fovea::Serial{});
  EXPECT_GT(loss, 0);
  for (const RowLayout& layout : chain_layouts(rows)) {
    const Sharding over_rows(all_ranks(), layout);
    Words<T> own = drawn;
    sequence_parallel(over_rows, fovea::Serial{}, [&](auto& over) {
      EXPECT_EQ(own.run(own_words(words, over_rows), own_words(targets, over_rows), over), loss);
    });
    EXPECT_EQ(own.embedding.table.gradient, whole.embedding.table.gradient);
    EXPECT_EQ(own.embedding.position.gradient, whole.embedding.position.gradient);
    EXPECT_EQ(own.norm.scale.gradient, whole.norm.scale.gradient);
  }
}

/// Its gradient goes from rank to rank in parts.
TYPED_TEST(DistributedWords, ALargeTableEqualsOneProcess) {
  using T = TypeParam;
  constexpr Index rows = 5 * kReductionBlock + 3;
  std::vector<Index> words;
  for (Index n = 0; n < 2 * rows; ++n) words.push_back(n * n % 997);
  Initialiser initialiser(6);
  fovea::Embedding<T> whole(1000, 0, 5, initialiser);
  Tensor<T> d_y({2, 1, rows, 5});
  d_y.fill(gaussian(4));
  fovea::Embedding<T> own = whole;
  whole.backward(words, d_y.view());
  for (const RowLayout& layout : chain_layouts(rows)) {
    const Sharding over_rows(all_ranks(), layout);
    const Tensor<T> own_d_y = own_part(d_y, over_rows);
    own.table.gradient.setZero();
    sequence_parallel(over_rows, fovea::Serial{}, [&](auto& over) {
      own.backward(own_words(words, over_rows), own_d_y.view(), over);
    });
    EXPECT_EQ(own.table.gradient, whole.table.gradient) << layout.text();
  }
}

}  // namespace fovea_test::distributed_sequence_parallel_words
