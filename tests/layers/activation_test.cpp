// SPDX-License-Identifier: MIT
#include "fovea/layers/activation.hpp"

#include <gtest/gtest.h>

#include <mutex>
#include <set>

#include "fovea/core/thread_pool.hpp"
#include "support/executors.hpp"
#include "support/index.hpp"
#include "support/refusal.hpp"
#include "support/tensor.hpp"

namespace fovea_test::layers_activation {

TEST(Buffer, KeepsItsMemory) {
  fovea::Buffer<double> buffer;
  EXPECT_EQ(buffer.view().size(), 0);
  const double* const first = buffer.resize(2, 10, 3).data();
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first) % 64, 0u);
  EXPECT_EQ(buffer.view().shape(), (Shape{2, 1, 10, 3}));
  EXPECT_EQ(buffer.resize(1, 4, 5).data(), first);
  EXPECT_EQ(buffer.resize({3, 2, 2, 5}).data(), first);
  EXPECT_EQ(buffer.view().shape(), (Shape{3, 2, 2, 5}));
  buffer.resize(2, 100, 3);
  EXPECT_EQ(buffer.view().size(), 600);
  EXPECT_EQ(buffer.resize(0, 4, 5).size(), 0);
}

TEST(Tokens, HaveLengths) {
  const Tensor<double> x({2, 1, 5, 3});
  const std::vector<Index> lengths = {4, 0};
  const fovea::Tokens<double> all(x.view());
  const fovea::Tokens<double> some(x.view(), lengths);
  EXPECT_EQ(all.length(1), 5);
  EXPECT_EQ(some.length(0), 4);
  EXPECT_EQ(some.with(x.view()).length(1), 0);
}

TEST(RowBlocks, CoverEachRowOnce) {
  fovea::ThreadPool pool(3);
  const AnyExecutor three = AnyExecutor::of(pool);
  for (const Index rows : {0, 1, 95, 96, 97, 400}) {
    std::mutex mutex;
    std::multiset<std::pair<Index, Index>> seen;
    fovea::detail::for_each_row_block(three, 2, rows, 1, [&](Index b, Index first, Index count) {
      const std::lock_guard lock(mutex);
      EXPECT_LE(count, fovea::detail::kRowsPerTask);
      for (Index n = first; n < first + count; ++n) seen.insert({b, n});
    });
    EXPECT_EQ(static_cast<Index>(seen.size()), 2 * rows);
    for (Index n = 0; n < rows; ++n) EXPECT_EQ(seen.count({1, n}), 1u);
  }
}

TEST(AsHeads, MustBeExistingColumns) {
  const Tensor<double> x({1, 1, 2, 10});
  const auto message = [](const View<double>& from, Index first, Index heads, Index width) {
    return refusal([&] { static_cast<void>(fovea::as_heads(from, first, heads, width)); });
  };
  EXPECT_EQ(message(x.view(), 4, 2, 3), "accepted");
  EXPECT_EQ(message(x.view(), 5, 2, 3),
            "as_heads: the columns of heads is 2 heads of 3 from column 5 on; expected columns of "
            "x, whose width is 10");
  EXPECT_NE(message(x.view(), -1, 2, 3), "accepted");
  EXPECT_NE(message(x.view(), 0, -2, -3), "accepted");
  EXPECT_NE(message(x.view(), 0, Index{1} << 40, Index{1} << 40), "accepted");
  EXPECT_EQ(message(View<double>(x.view().data(), {1, 2, 2, 5}), 0, 1, 5),
            "as_heads: x has 2 heads; expected 1: heads are columns of x");
  EXPECT_EQ(
      message(View<double>(x.view().data(), {1, 1, 2, 10}, {20, 20, 1, 2}), 0, 1, 5),
      "as_heads: stride of width of x is 2; expected 1: the channels of a head are contiguous");
}

TEST(AsHeads, AreContiguousColumns) {
  const Tensor<double> x({2, 1, 3, 10}, {.gap = 1});
  x.fill([](Index b, Index, Index n, Index d) { return 100 * b + 10 * n + d; });
  const View<double> heads = fovea::as_heads(x.view(), 4, 2, 3);
  EXPECT_EQ(heads.shape(), (Shape{2, 2, 3, 3}));
  for_each_index(heads.shape(), [&](Index b, Index h, Index n, Index d) {
    EXPECT_EQ(heads(b, h, n, d), x(b, 0, n, 4 + 3 * h + d));
  });
}

}  // namespace fovea_test::layers_activation
