// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// Which rows are packed, and what is refused. (drawn_redistribute_test.cpp moves rows from any
/// layout to any other, and back.)
#include "fovea/distributed/redistribute.hpp"

#include <gtest/gtest.h>

#include "support/ranks.hpp"
#include "support/refusal.hpp"

namespace fovea_test::distributed_redistribute {

using fovea::distributed::redistribute;

/// Which transfers are packed: those of many short pieces.
TEST(PackedExchange, TakesManyShortPieces) {
  std::vector<std::byte> window(1);
  const fovea::distributed::PackedExchange packed(all_ranks(), window.data(), {{0, 4, 2, 100'000}});
  const auto ranges = [](Index count, Index length) {
    std::vector<Range> made;
    for (Index n = 0; n < count; ++n) made.push_back({n * (length + 1), n * (length + 1) + length});
    return made;
  };
  EXPECT_FALSE(packed.takes(ranges(128, 1)));  // 256 pieces of two heads
  EXPECT_TRUE(packed.takes(ranges(129, 1)));
  EXPECT_TRUE(packed.takes(ranges(129, 16'383)));
  EXPECT_FALSE(packed.takes(ranges(129, 16'384)));  // of 64 KiB each
  EXPECT_FALSE(packed.takes({}));
}

TEST(Redistribute, RefusesMismatches) {
  const int size = all_ranks().size();
  const Sharding from(all_ranks(), RowLayout::contiguous(20, size));
  const Sharding longer(all_ranks(), RowLayout::contiguous(21, size));
  const Index own = from.own_count();
  const Tensor<float> x({1, 2, own, 3});
  const auto refused = [&](const Tensor<float>& a, const Tensor<float>& b, const Sharding& to) {
    return refusal([&] { redistribute(fovea::View<const float>(a.view()), from, b.view(), to); });
  };
  EXPECT_EQ(refused(x, x, longer),
            "rank 0: redistribute: the layouts have 20 and 21 rows; expected equal numbers");
  const Communicator alone(MPI_COMM_SELF);
  const Sharding of_one(alone, RowLayout::contiguous(20, 1));
  if (size > 1) {
    EXPECT_EQ(refused(x, x, of_one), "rank 0: redistribute: the layouts have " +
                                         std::to_string(size) +
                                         " and 1 ranks; expected equal numbers");
  }
  const Index first = from.layout().count(0);
  EXPECT_EQ(refused(Tensor<float>({1, 2, own + 1, 3}), x, from),
            "rank 0: redistribute: from has " + std::to_string(first + 1) + " rows; expected " +
                std::to_string(first) + ", the rows of rank 0");
  const std::string rows = std::to_string(first);
  EXPECT_EQ(refused(x, Tensor<float>({1, 2, own, 4}), from),
            "rank 0: redistribute: to has shape 1x2x" + rows + "x4; expected 1x2x" + rows +
                "x3, the shape of from with the rows of this rank");
  // Only one rank is wrong.
  const int last = size - 1;
  const bool is_wrong = all_ranks().rank() == last;
  const std::string of_last = std::to_string(from.layout().count(last));
  EXPECT_EQ(refused(x, Tensor<float>({1, is_wrong ? 5 : 2, own, 3}), from),
            "rank " + std::to_string(last) + ": redistribute: to has shape 1x5x" + of_last +
                "x3; expected 1x2x" + of_last + "x3, the shape of from with the rows of this rank");
}

}  // namespace fovea_test::distributed_redistribute
