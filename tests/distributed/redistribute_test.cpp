// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// Rows move from every layout to every other, and back.
#include "fovea/distributed/redistribute.hpp"

#include <gtest/gtest.h>

#include "support/ranks.hpp"
#include "support/refusal.hpp"
#include "support/scalars.hpp"

namespace fovea_test::distributed_redistribute {

using fovea::distributed::redistribute;

const Layout kSpread = {.order = {2, 0, 3, 1}, .offset = 3, .innermost = 2, .gap = 5};

template <class T>
void moves(const Shape& shape) {
  Tensor<T> whole(shape);
  whole.fill(integers(3, 1000));
  for (const RowLayout& a : layouts_of(shape[2], all_ranks().size())) {
    for (const RowLayout& b : layouts_of(shape[2], all_ranks().size())) {
      const Sharding from(all_ranks(), a);
      const Sharding to(all_ranks(), b);
      const Tensor<T> x = own_part(whole, from, kSpread);
      const Tensor<T> y(own_part(whole, to).shape(), kSpread);
      const Index sent =
          redistribute(fovea::View<const T>(x.view()), from, y.view(), to).bytes_sent;
      expect_own_part(y, whole, to, "moved");
      EXPECT_EQ(y.changed_gaps(), 0);
      const Index most = from.own_count() * shape[0] * shape[1] * shape[3] * Index{sizeof(T)};
      EXPECT_LE(sent, most);
      EXPECT_TRUE(sent == 0 || !(a == b));
    }
  }
}

TEST(Redistribute, MovesRowsOfAnyType) {
  moves<float>({2, 3, 500, 5});
  moves<OtherScalar>({1, 1, 7, 1});
  moves<float>({1, 1, 0, 4});
}

/// Every other row of a rank goes to another one: more pieces than there are messages for, so that
/// they are packed; some ranks have few, which are not.
TEST(Redistribute, PacksShortPieces) {
  constexpr Index rows = 3000;
  const int size = all_ranks().size();
  Tensor<float> whole({2, 3, rows, 5});
  whole.fill(gaussian(9));
  std::vector<std::vector<Range>> uneven(as_size(size));
  uneven[0].push_back({0, rows - 5 * (size - 1)});
  for (Index n = 1; n < size; ++n) {
    const Index end = uneven[as_size(n - 1)].back().end;
    uneven[as_size(n)].push_back({end, end + 5});
  }
  const Sharding dealt(all_ranks(), RowLayout::block_cyclic(rows, size, 1));
  for (const RowLayout& layout : {RowLayout::contiguous(rows, size), RowLayout(uneven)}) {
    const Sharding near(all_ranks(), layout);
    const Tensor<float> x = own_part(whole, near);
    const Tensor<float> y(own_part(whole, dealt).shape());
    redistribute(fovea::View<const float>(x.view()), near, y.view(), dealt);
    expect_own_part(y, whole, dealt, "dealt");
    const Tensor<float> back(x.shape());
    redistribute(fovea::View<const float>(y.view()), dealt, back.view(), near);
    expect_own_part(back, whole, near, "back");
  }
}

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

TEST(Redistribute, GathersToOneRankAndScatters) {
  constexpr Index rows = 300;
  const int size = all_ranks().size();
  std::vector<std::vector<Range>> one(as_size(size));
  one.back().push_back({0, rows});
  const Sharding gathered(all_ranks(), RowLayout(one));
  const Sharding sharded(all_ranks(), RowLayout::zigzag(rows, size));
  Tensor<float> whole({1, 2, rows, 4});
  whole.fill(gaussian(8));
  const Tensor<float> x = own_part(whole, sharded);
  const Tensor<float> all(own_part(whole, gathered).shape());
  redistribute(fovea::View<const float>(x.view()), sharded, all.view(), gathered);
  expect_own_part(all, whole, gathered, "gathered");
  const Tensor<float> back(x.shape());
  redistribute(fovea::View<const float>(all.view()), gathered, back.view(), sharded);
  expect_own_part(back, whole, sharded, "scattered");
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
