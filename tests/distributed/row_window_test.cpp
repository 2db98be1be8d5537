// SPDX-License-Identifier: MIT
/// \file
/// Windows take memory for the rows that are written, and give it back.
#include "fovea/distributed/rows/row_window.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <new>
#include <utility>

#include "fovea/distributed/rows/row_tensors.hpp"
#include "support/index.hpp"

namespace fovea_test::distributed_row_window {

using fovea::Index;
using fovea::Range;
using fovea::View;
using fovea::distributed::LargePages;
using fovea::distributed::RowTensors;
using fovea::distributed::RowWindow;

/// Bytes of memory of this process.
Index resident() {
  std::ifstream file("/proc/self/statm");
  Index size = 0;
  Index pages = 0;
  file >> size >> pages;
  return pages * static_cast<Index>(sysconf(_SC_PAGESIZE));
}

TEST(RowWindow, AllocatesMemoryForWrittenRows) {
  const Index before = resident();
  const RowWindow window(Index{1} << 38);  // 256 GiB of addresses
  EXPECT_LT(resident() - before, Index{1} << 20);
  constexpr Index first = Index{40'000'000} * 4096;
  constexpr Index size = Index{32} << 20;
  std::memset(window.data() + first, 1, static_cast<std::size_t>(size));
  EXPECT_GT(resident() - before, Index{31} << 20);
  window.forget({first, first + size});
  EXPECT_LT(resident() - before, Index{1} << 20);
  EXPECT_EQ(window.data()[first + 5], std::byte{0});
}

TEST(RowWindow, KeepsNeighboursOfDroppedRows) {
  constexpr Index size = 100'000;
  const RowWindow window(size);
  const auto value = [](Index n) { return static_cast<std::byte>(n % 7 + 1); };
  for (Index n = 0; n < size; ++n) window.data()[n] = value(n);
  window.forget({10'000, 90'000});
  Index changed = 0;
  for (Index n = 0; n < size; ++n) {
    if (n < 10'000 || n >= 90'000) changed += window.data()[n] == value(n) ? 0 : 1;
  }
  EXPECT_EQ(changed, 0);
  EXPECT_EQ(window.data()[50'000], std::byte{0});
  window.forget({90'000, size});
  EXPECT_EQ(window.data()[size - 1], std::byte{0});
  EXPECT_EQ(window.data()[9'999], value(9'999));
}

TEST(RowWindow, MovesAndMayBeEmpty) {
  RowWindow a(80);
  a.data()[31] = std::byte{5};
  RowWindow b(std::move(a));
  EXPECT_EQ(b.data()[31], std::byte{5});
  RowWindow c;
  c = std::move(b);
  EXPECT_EQ(c.data()[31], std::byte{5});
  const RowWindow none(0);
  none.forget({0, 0});
  EXPECT_TRUE(LargePages(none).found().empty());
  EXPECT_EQ(none.data(), nullptr);
}

TEST(RowWindow, ReusesItsMemoryForTheSameSize) {
  RowWindow home;
  const std::byte* first = nullptr;
  {
    const RowWindow window(100'000, home);
    window.data()[70'000] = std::byte{7};
    first = window.data();
    // Another one constructed meanwhile has separate memory.
    EXPECT_NE(RowWindow(100'000, home).data(), first);
  }
  EXPECT_EQ(home.size_bytes(), 100'000);
  {
    const RowWindow window(100'000, home);
    EXPECT_EQ(window.data(), first);
    EXPECT_EQ(window.data()[70'000], std::byte{7});
    EXPECT_EQ(home.size_bytes(), 0);
  }
  {
    const RowWindow larger(100'001, home);
    EXPECT_EQ(home.size_bytes(), 0);  // it is not used
    EXPECT_EQ(larger.data()[70'000], std::byte{0});
  }
  EXPECT_EQ(home.size_bytes(), 100'001);
}

TEST(LargePages, AreUsedWhereMostIsWritten) {
  constexpr Index page{fovea::kLargePage};
  const RowWindow window(10 * page);
  const Index first = page - static_cast<Index>(reinterpret_cast<std::uintptr_t>(window.data()) %
                                                fovea::kLargePage);
  const auto bytes = [&](Index begin, Index end) {
    return Range{first + begin * page / 8, first + end * page / 8};
  };
  LargePages pages(window);
  pages.add(bytes(2, 8));   // page 0: six eighths
  pages.add(bytes(8, 11));  // page 1: seven, in pieces
  pages.add(bytes(12, 15));
  pages.add(bytes(15, 16));
  pages.add(bytes(17, 22));  // page 2: five
  pages.add(bytes(24, 50));  // pages 3 to 5, and two of page 6
  pages.add(bytes(52, 56));  // four more of page 6
  ASSERT_EQ(pages.found().size(), 2U);
  EXPECT_EQ(pages.found()[0], bytes(0, 16));
  EXPECT_EQ(pages.found()[1], bytes(24, 56));
  // What was written before they were requested is kept.
  window.data()[first + 5] = std::byte{3};
  for (const Range& some : pages.found()) window.take_large_pages(some);
  EXPECT_EQ(window.data()[first + 5], std::byte{3});
  EXPECT_EQ(window.data()[first + page], std::byte{0});
}

TEST(LargePages, AreInsideTheWindow) {
  constexpr Index page{fovea::kLargePage};
  const RowWindow window(page);
  LargePages pages(window);
  pages.add({0, page});
  const bool is_aligned = reinterpret_cast<std::uintptr_t>(window.data()) % fovea::kLargePage == 0;
  EXPECT_EQ(pages.found().size(), is_aligned ? 1U : 0U);
}

TEST(RowWindow, RefusesImpossibleSizes) {
  EXPECT_THROW(RowWindow(Index{1} << 62), std::bad_alloc);
  EXPECT_THROW(RowTensors<float>(1 << 20, Index{1} << 40, {{8, 64}}), std::bad_alloc);
}

TEST(RowTensors, PutAndGetRowsOfARank) {
  const RowTensors<float> rows(2, 50, {{3, 4}, {1, 5}});
  const std::vector<Range> own = {{2, 5}, {40, 41}};
  std::vector<float> a(2 * 3 * 4 * 4), b(2 * 4 * 5), back(a.size());
  for (std::size_t n = 0; n < a.size(); ++n) a[n] = static_cast<float>(n + 1);
  for (std::size_t n = 0; n < b.size(); ++n) b[n] = static_cast<float>(1000 + n);
  const View<const float> first(a.data(), {2, 3, 4, 4});
  const View<const float> second(b.data(), {2, 1, 4, 5});
  rows.put(0, first, own);
  rows.put(1, second, own);
  EXPECT_EQ(rows.tensor(0)(1, 2, 3, 1), first(1, 2, 1, 1));
  EXPECT_EQ(rows.tensor(0)(0, 1, 40, 3), first(0, 1, 3, 3));
  EXPECT_EQ(rows.tensor(1)(1, 0, 4, 4), second(1, 0, 2, 4));
  EXPECT_EQ(rows.tensor(1)(1, 0, 6, 4), 0);
  rows.get(0, View<float>(back.data(), {2, 3, 4, 4}), own);
  EXPECT_EQ(back, a);
}

TEST(RowTensors, DropAllButSomeRows) {
  RowWindow home;
  const std::vector<Range> own = {{20, 3000}, {5000, 5001}};
  const Index rows = 8192;
  std::vector<float> ones(static_cast<std::size_t>(2 * rows * 16), 1);
  const View<const float> all(ones.data(), {1, 2, rows, 16});
  {
    const RowTensors<float> before(1, rows, {{2, 16}}, &home);
    before.put(0, all, {{0, rows}});
  }
  const Index filled = resident();
  const RowTensors<float> after(1, rows, {{2, 16}}, &home);
  after.forget_all_but(own);
  EXPECT_LT(resident() - filled, -2 * (rows - 3001) * 64 + (Index{1} << 17));
  for (Index h = 0; h < 2; ++h) {
    for (const Range& range : own) {
      for (Index n = range.begin; n < range.end; ++n) EXPECT_EQ(after.tensor(0)(0, h, n, 15), 1);
    }
    EXPECT_EQ(after.tensor(0)(0, h, 4000, 0), 0);
    EXPECT_EQ(after.tensor(0)(0, h, 8000, 0), 0);
  }
}

TEST(RowTensors, RowsMove) {
  std::vector<float> x(2 * 3 * 5);
  for (std::size_t n = 0; n < x.size(); ++n) x[n] = static_cast<float>(n);
  const View<float> local(x.data(), {1, 2, 3, 5});
  const View<float> moved = fovea::distributed::moved_rows(local, 1, 90, 100);
  EXPECT_EQ(moved.rows(), 100);
  EXPECT_EQ(&moved(0, 1, 91, 2), &local(0, 1, 2, 2));
  // The stride of a single row is not used.
  const View<float> one(x.data(), {1, 2, 1, 5}, {0, 15, 7777, 1});
  EXPECT_EQ(&fovea::distributed::moved_rows(one, 0, 40, 100)(0, 1, 40, 2), &one(0, 1, 0, 2));
}

}  // namespace fovea_test::distributed_row_window
