// SPDX-License-Identifier: MIT
// fovea_test(ALONE)
/// \file
/// Tests of core/arena.hpp, and of the memory of executors (core/executor.hpp).
#define EIGEN_USE_THREADS
#include "fovea/core/arena.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <new>
#include <stdexcept>
#include <thread>
#include <type_traits>
#include <unsupported/Eigen/CXX11/Tensor>
#include <vector>

#include "core/executor_suite.hpp"
#include "fovea/core/thread_pool.hpp"
#include "support/executors.hpp"
#include "support/refusal.hpp"

namespace fovea_test::core_arena {

using fovea::Arena;
using fovea::ArenaExecutor;
using fovea::ArenaLease;
using fovea::EigenExecutor;
using fovea::for_call;
using fovea::memory_of;
using fovea::Serial;
using fovea::SystemMemory;
using fovea::ThreadPool;
using fovea::Workspace;

template <class X>
using OnArena = decltype(std::declval<Arena&>().on(std::declval<X>()));

static_assert(std::is_same_v<OnArena<ThreadPool&>, ArenaExecutor<ThreadPool&>>);
static_assert(std::is_same_v<OnArena<const ThreadPool&>, ArenaExecutor<const ThreadPool&>>);
static_assert(std::is_same_v<OnArena<Serial>, ArenaExecutor<Serial>>);
static_assert(std::is_same_v<OnArena<Eigen::ThreadPoolDevice&>, ArenaExecutor<EigenExecutor>>);
static_assert(std::is_same_v<OnArena<Eigen::ThreadPoolDevice>, ArenaExecutor<EigenExecutor>>);
static_assert(fovea::Executor<OnArena<ThreadPool&>> && fovea::Executor<const OnArena<Serial>>);
static_assert(std::is_copy_constructible_v<OnArena<ThreadPool&>>);
static_assert(!std::is_copy_constructible_v<Arena> && !std::is_copy_constructible_v<ArenaLease>);

static_assert(fovea::ScratchMemory<ArenaLease> && fovea::ScratchMemory<SystemMemory>);
static_assert(fovea::ScratchMemory<AnyLease> && !fovea::ScratchMemory<Workspace>);
static_assert(fovea::LeasesMemory<OnArena<ThreadPool&>> && !fovea::LeasesMemory<ThreadPool>);
static_assert(fovea::HasMemory<fovea::LeasedExecutor<OnArena<Serial>>>);
static_assert(!fovea::HasMemory<ThreadPool> && !fovea::HasMemory<OnArena<Serial>>);

// Executors without memory cost nothing: they stay what they are, and the system's memory is empty.
static_assert(std::is_same_v<decltype(for_call(std::declval<ThreadPool&>())), ThreadPool&>);
static_assert(std::is_same_v<decltype(for_call(std::declval<const Serial&>())), const Serial&>);
static_assert(
    std::is_same_v<decltype(for_call(std::declval<Eigen::ThreadPoolDevice&>())), EigenExecutor>);
static_assert(std::is_same_v<decltype(memory_of(std::declval<ThreadPool&>())), SystemMemory>);
static_assert(std::is_empty_v<SystemMemory>);

struct SerialHolder {
  Arena arena{64};
  ArenaExecutor<Serial> executor = arena.on();
};
struct PoolHolder {
  ThreadPool pool{3};
  Arena arena{64};
  ArenaExecutor<ThreadPool&> executor = arena.on(pool);
};
struct EigenHolder {
  Eigen::ThreadPool pool{3};
  Eigen::ThreadPoolDevice device{&pool, 3};
  Arena arena{64};
  ArenaExecutor<EigenExecutor> executor = arena.on(device);
};
using Holders = ::testing::Types<SerialHolder, PoolHolder, EigenHolder>;
INSTANTIATE_TYPED_TEST_SUITE_P(Arena, ExecutorSuite, Holders);

constexpr Index kLargest = std::numeric_limits<Index>::max();

TEST(Arena, PiecesAreAlignedAndDisjoint) {
  const std::vector<Index> sizes = {1, 63, 64, 65, 0, 1000, 7, 129};
  Index all = 0;
  for (const Index size : sizes) all += 3 * size;
  Arena arena(all);
  EXPECT_EQ(arena.size_bytes(), all);
  for (int call = 0; call < 3; ++call) {
    ArenaLease lease(arena);
    std::vector<Workspace> pieces;
    pieces.reserve(sizes.size());
    for (const Index size : sizes) pieces.push_back(lease.take(3, size));
    lease.require();
    for (std::size_t n = 0; n < sizes.size(); ++n) {
      EXPECT_EQ(pieces[n].size_bytes(), 3 * sizes[n]);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pieces[n].data<char>()) % 64, 0u);
      std::fill_n(pieces[n].data<char>(), 3 * sizes[n], static_cast<char>(n));
    }
    for (std::size_t n = 0; n < sizes.size(); ++n) {
      const char* const data = pieces[n].data<char>();
      EXPECT_EQ(std::count(data, data + 3 * sizes[n], static_cast<char>(n)), 3 * sizes[n]);
    }
  }
}

TEST(Arena, ReportsTheSizeThatACallNeeds) {
  const auto take = [](Arena& arena, const std::vector<Index>& sizes) {
    return refusal([&] {
      ArenaLease lease(arena);
      for (const Index size : sizes) lease.take(1, size);
      lease.require();
    });
  };
  Arena arena(100);
  EXPECT_EQ(take(arena, {100}), "accepted");
  EXPECT_EQ(take(arena, {1, 98, 1}), "accepted");
  EXPECT_EQ(take(arena, {101}),
            "Arena: size_bytes is 100; expected at least 101, which the call needs");
  EXPECT_EQ(take(arena, {60, 60, 60}),
            "Arena: size_bytes is 100; expected at least 180, which the call needs");
  // More pieces than can be aligned: the size in the message is sufficient.
  const std::vector<Index> many(100, 1);
  EXPECT_EQ(take(arena, many),
            "Arena: size_bytes is 100; expected at least 4352, which the call needs");
  Arena enough(4352);
  EXPECT_EQ(take(enough, many), "accepted");
}

TEST(Arena, InvalidSizes) {
  EXPECT_EQ(refusal([] { Arena arena(-1); }), "Arena: size_bytes is -1; expected at least 0");
  EXPECT_THROW(Arena{kLargest}, std::bad_alloc);
  Arena arena(0);
  ArenaLease lease(arena);
  EXPECT_THROW(lease.take(kLargest, 2), std::bad_alloc);
  EXPECT_THROW(lease.take(-1, 2), std::bad_alloc);
  constexpr Index half = kLargest / 2;
  lease.take(half, 1);
  EXPECT_THROW(lease.take(half, 1), std::bad_alloc);
}

TEST(Arena, ServesOneCallAtATime) {
  Arena arena(64);
  const ThreadPool pool(2);
  const auto first = arena.on(pool);
  const auto copy = first;  // NOLINT(performance-unnecessary-copy-initialization)
  const auto use = [](const auto& executor) {
    return refusal([&] {
      auto&& call = for_call(executor);
      EXPECT_EQ(call.concurrency(), executor.concurrency());
    });
  };
  const std::string in_use =
      "Arena: the memory is in use by another call; use one arena for each concurrent call";
  {
    auto&& call = for_call(first);
    EXPECT_EQ(use(first), in_use);
    EXPECT_EQ(use(copy), in_use);
    EXPECT_EQ(use(arena.on()), in_use);
    std::thread([&] { EXPECT_EQ(use(copy), in_use); }).join();
    // Nested calls share the memory.
    auto&& inner = for_call(call);
    EXPECT_EQ(&memory_of(inner), &memory_of(call));
  }
  EXPECT_EQ(use(copy), "accepted");
  EXPECT_THROW(
      {
        auto&& call = for_call(first);
        static_cast<void>(call);
        throw std::runtime_error("a call fails");
      },
      std::runtime_error);
  EXPECT_EQ(use(first), "accepted");
}

TEST(Arena, NoTaskRunsWithoutMemory) {
  Arena arena(100);
  const ThreadPool pool(3);
  const auto executor = arena.on(pool);
  for (const double products : {0.0, 1e9}) {  // on the calling thread, and on all
    auto&& call = for_call(executor);
    auto&& threads = fovea::for_work(call, [&] { return products; });
    Index tasks = 0;
    memory_of(threads).take(1, 100);
    fovea::for_each_task(threads, 1, [&](Index, Index) { ++tasks; });
    EXPECT_EQ(tasks, 1);
    memory_of(call).take(1, 1);  // the same memory
    EXPECT_EQ(refusal([&] { fovea::for_each_task(threads, 5, [&](Index, Index) { ++tasks; }); }),
              "Arena: size_bytes is 100; expected at least 101, which the call needs");
    EXPECT_EQ(tasks, 1);
  }
}

TEST(SystemMemory, AllocatesEachPieceFromTheSystem) {
  const ThreadPool pool(2);
  auto&& threads = fovea::for_work(pool, [] { return 0.0; });
  auto&& memory = memory_of(threads);
  Workspace piece = memory.take(3, 5);
  EXPECT_EQ(piece.size_bytes(), 15);
  piece.data<char>()[14] = 'x';
  EXPECT_FALSE(memory.is_by_shape());
  EXPECT_THROW(SystemMemory::take(-1, 1), std::bad_alloc);
}

}  // namespace fovea_test::core_arena
