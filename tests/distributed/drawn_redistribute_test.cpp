// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// Rows are redistributed between any two random layouts, for any type and strides.
#include <gtest/gtest.h>

#include "distributed/drawn_ranks.hpp"
#include "fovea/distributed/redistribute.hpp"

namespace fovea_test::distributed_drawn_redistribute {

using fovea::distributed::redistribute;

/// A layout of any kind: also of blocks in turn, of single rows in turn, or with all rows on a
/// rank.
RowLayout drawn_any_layout(Bytes& bytes, Index rows) {
  const int ranks = all_ranks().size();
  switch (bytes(0, 5)) {
    case 0:
      return RowLayout::block_cyclic(rows, ranks, 1);
    case 1:
      return RowLayout::block_cyclic(rows, ranks, bytes(1, 90));
    case 2: {
      std::vector<std::vector<Range>> of_one(as_size(ranks));
      of_one[as_size(bytes(0, ranks - 1))].push_back({0, rows});
      return RowLayout(of_one);
    }
    default:
      return drawn_row_layout(bytes, rows, bytes(1, 3));
  }
}

template <class T>
void try_move(Bytes& bytes) {
  const Index rows = bytes.once_in(3) ? bytes(0, 9) : bytes(0, 3000);
  const Shape shape = {bytes(0, 3), bytes(0, 4), rows,
                       bytes.once_in(3) ? bytes(0, 300) : bytes(0, 9)};
  const auto seed = static_cast<std::uint64_t>(bytes(1, 65535));
  Tensor<T> whole(shape);
  whole.fill(integers(seed, 100));
  const Sharding from(all_ranks(), drawn_any_layout(bytes, rows));
  const Sharding to(all_ranks(), drawn_any_layout(bytes, rows));
  SCOPED_TRACE(std::to_string(shape[0]) + "x" + std::to_string(shape[1]) + "x" +
               std::to_string(rows) + "x" + std::to_string(shape[3]) + ", from " +
               from.layout().text() + ", to " + to.layout().text());
  const std::vector<std::uint8_t> of_rank = bytes_of_rank(seed);
  Bytes own(of_rank);
  const Tensor<T> x = own_part(whole, from, drawn_input_layout(own));
  const Tensor<T> y(own_part(whole, to).shape(), drawn_layout(own));
  y.fill(constant(77));
  const Index sent = redistribute(View<const T>(x.view()), from, y.view(), to).bytes_sent;
  expect_own_part(y, whole, to, "moved");
  EXPECT_EQ(y.changed_gaps(), 0);
  EXPECT_LE(sent, from.own_count() * shape[0] * shape[1] * shape[3] * Index{sizeof(T)});
  EXPECT_TRUE(sent == 0 || !(from.layout() == to.layout()));
  const Tensor<T> back(x.shape(), drawn_layout(own));
  redistribute(View<const T>(y.view()), to, back.view(), from);
  expect_own_part(back, whole, from, "back");
  EXPECT_EQ(back.changed_gaps(), 0);
  // In the memory that they come from.
  Shape of_both = shape;
  of_both[2] = std::max(from.own_count(), to.own_count());
  const Tensor<T> both(of_both, drawn_layout(own));
  const auto rows_of_both = [&](Index count) {
    return fovea::detail::part_of(both.view(), 2, 0, count);
  };
  const Tensor<T> dense = own_part(whole, from);
  for_each_index(dense.shape(),
                 [&](Index b, Index h, Index n, Index d) { both(b, h, n, d) = dense(b, h, n, d); });
  redistribute(View<const T>(rows_of_both(from.own_count())), from, rows_of_both(to.own_count()),
               to);
  const Tensor<T> moved = own_part(whole, to);
  Index wrong = 0;
  for_each_index(moved.shape(), [&](Index b, Index h, Index n, Index d) {
    wrong += both(b, h, n, d) == moved(b, h, n, d) ? 0 : 1;
  });
  EXPECT_EQ(wrong, 0) << "in the same memory";
}

TEST(DistributedDrawnRedistribute, MovesAllRows) {
  each_drawn_over_ranks(200, 1, [](std::span<const std::uint8_t> data) {
    Bytes bytes(data);
    with_any_drawn_scalar(bytes, [&]<class T>(T) { try_move<T>(bytes); });
  });
}

}  // namespace fovea_test::distributed_drawn_redistribute
