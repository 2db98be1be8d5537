// SPDX-License-Identifier: MIT
/// \file
/// Tests of core/workspace.hpp.
#include "fovea/core/workspace.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

namespace fovea_test::core_workspace {

using fovea::Index;
using fovea::Workspace;

static_assert(std::is_nothrow_move_constructible_v<Workspace>);
static_assert(std::is_nothrow_move_assignable_v<Workspace>);
static_assert(!std::is_copy_constructible_v<Workspace> && !std::is_copy_assignable_v<Workspace>);
static_assert(!std::is_convertible_v<Index, Workspace>);

constexpr Index kLargest = std::numeric_limits<Index>::max();

TEST(Workspace, IsAlignedAndHoldsItsBytes) {
  for (const Index size : {1, 2, 63, 64, 65, 4095, 1 << 20}) {
    Workspace workspace(size);
    EXPECT_EQ(workspace.size_bytes(), size);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(workspace.data<char>()) % 64, 0u);
    for (Index i = 0; i < size; ++i) workspace.data<char>()[i] = static_cast<char>(i);
    EXPECT_EQ(workspace.data<char>()[size - 1], static_cast<char>(size - 1));
  }
}

TEST(Workspace, LargeOneBeginsAtALargePage) {
  constexpr auto large = static_cast<Index>(2 * fovea::kLargePage);
  Workspace workspace(large + 3);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(workspace.data<char>()) % fovea::kLargePage, 0u);
  for (const Index i : {Index{0}, large, large + 2}) workspace.data<char>()[i] = 'x';
  const Workspace other = std::move(workspace);
  EXPECT_EQ(other.data<char>()[large + 2], 'x');
  workspace = Workspace(8);
  EXPECT_EQ(workspace.size_bytes(), 8);
}

/// Large pages begin before the memory and end after it.
TEST(Workspace, MemoryKeepsItsBytesInLargePages) {
  constexpr std::size_t size = 3 * fovea::kLargePage / 2;
  std::vector<char> bytes(2 * fovea::kLargePage + 7);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i % 251);
  const std::vector<char> before = bytes;
  fovea::detail::collapse_to_large_pages(bytes.data() + 4001, size);
  EXPECT_EQ(bytes, before);
  fovea::detail::collapse_to_large_pages(nullptr, 0);
}

TEST(Workspace, CanHoldAnyTrivialType) {
  Workspace workspace(4, 3 * Index{sizeof(double)});
  EXPECT_EQ(workspace.size_bytes(), 96);
  workspace.data<double>()[11] = 2.5;
  const Workspace& constant = workspace;
  static_assert(std::is_same_v<decltype(constant.data<float>()), const float*>);
  EXPECT_EQ(constant.data<double>()[11], 2.5);
}

TEST(Workspace, EmptyOwnsNothing) {
  EXPECT_EQ(Workspace().size_bytes(), 0);
  EXPECT_EQ(Workspace().data<float>(), nullptr);
  EXPECT_EQ(Workspace(0).data<float>(), nullptr);
  EXPECT_EQ(Workspace(0, kLargest).data<float>(), nullptr);
  EXPECT_EQ(Workspace(kLargest, 0).data<float>(), nullptr);
}

TEST(Workspace, SizeThatDoesNotFitIsBadAlloc) {
  EXPECT_THROW(Workspace(-1), std::bad_alloc);
  EXPECT_THROW(Workspace(-1, 8), std::bad_alloc);
  EXPECT_THROW(Workspace(8, -1), std::bad_alloc);
  EXPECT_THROW(Workspace(-8, -8), std::bad_alloc);
  EXPECT_THROW((Workspace{kLargest}), std::bad_alloc);
  EXPECT_THROW(Workspace(kLargest - 63), std::bad_alloc);
  EXPECT_THROW(Workspace(kLargest / 8 + 1, 8), std::bad_alloc);
  EXPECT_THROW(Workspace(Index{1} << 32, Index{1} << 32), std::bad_alloc);  // 0 modulo 2^64
  EXPECT_THROW(Workspace(kLargest, kLargest), std::bad_alloc);
}

TEST(Workspace, MoveTransfersTheBytes) {
  Workspace first(128);
  int* const bytes = first.data<int>();
  bytes[3] = 42;
  Workspace second(std::move(first));
  EXPECT_EQ(second.data<int>(), bytes);
  EXPECT_EQ(second.size_bytes(), 128);
  EXPECT_EQ(first.size_bytes(), 0);  // NOLINT: a moved-from Workspace is empty
  EXPECT_EQ(first.data<int>(), nullptr);
  Workspace third(64);
  third = std::move(second);
  EXPECT_EQ(third.data<int>()[3], 42);
  EXPECT_EQ(third.size_bytes(), 128);
  EXPECT_EQ(second.size_bytes(), 0);  // NOLINT
  Workspace& self = third;
  third = std::move(self);
  EXPECT_EQ(third.data<int>(), bytes);
  EXPECT_EQ(third.size_bytes(), 128);
}

}  // namespace fovea_test::core_workspace
