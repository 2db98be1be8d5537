// SPDX-License-Identifier: MIT
/// \file
/// Random distributed trials, derived from bytes: the layout of rows, and each rank's level and
/// threads. Every rank draws the same, except for its own settings.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include "fovea/core/arena.hpp"
#include "fovea/core/scalar.hpp"
#include "fovea/core/thread_pool.hpp"
#include "fuzz/drawn_problem.hpp"
#include "support/ranks.hpp"
#include "support/scalars.hpp"

namespace fovea_test {

/// Rows in pieces that belong to any rank.
/// \param multiple where pieces may begin and end
inline RowLayout drawn_row_layout(Bytes& bytes, Index rows, Index multiple = 1) {
  const int ranks = all_ranks().size();
  switch (bytes(0, 3)) {
    case 0:
      return RowLayout::contiguous(rows, ranks, multiple);
    case 1:
      return RowLayout::zigzag(rows, ranks, multiple);
    default:
      break;
  }
  const Index longest = bytes.once_in(2) ? 8 : std::max<Index>(1, rows / multiple);
  std::vector<std::vector<Range>> of_ranks(as_size(ranks));
  for (Index first = 0; first < rows;) {
    const Index end = std::min(rows, first + multiple * bytes(1, longest));
    of_ranks[as_size(bytes(0, ranks - 1))].push_back({first, end});
    first = end;
  }
  return RowLayout(of_ranks);
}

/// Choices that are this rank's own.
inline std::vector<std::uint8_t> bytes_of_rank(std::uint64_t seed) {
  std::vector<std::uint8_t> bytes(256);
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    bytes[n] =
        static_cast<std::uint8_t>(hash(seed, all_ranks().rank(), static_cast<Index>(n), 0, 0));
  }
  return bytes;
}

/// Threads of this rank, and its memory: the system's or that of an arena.
inline AnyExecutor drawn_executor_of_rank(Bytes& own) {
  static fovea::ThreadPool pool(3);
  static fovea::Arena arena(Index{1} << 27);
  return own.once_in(4) ? AnyExecutor::of(pool, &arena) : drawn_executor(own);
}

/// A level of this rank that promises the bits of another one.
inline IsaLevel drawn_level_like(IsaLevel level, Bytes& own) {
  if (level == IsaLevel::baseline) return level;
  const IsaLevel other = own.once_in(2) ? IsaLevel::v3 : IsaLevel::v4;
  return has_level(other) ? other : level;
}

/// The message that all ranks throw, which must be the same on all of them, or "accepted".
template <class F>
std::string said_together(const F& f) {
  std::string said = "accepted";
  try {
    f();
  } catch (const std::exception& error) {
    said = error.what();
  }
  const std::string first = fovea::distributed::detail::text_of_rank(all_ranks(), 0, said);
  EXPECT_EQ(said, first);
  return first;
}

/// Calls f(number) with one of the types of numbers that are computed with.
template <class F>
void with_drawn_scalar(Bytes& bytes, const F& f) {
  bytes.once_in(2) ? f(OtherScalar{}) : f(float{});
}
/// The same with those of 16 bits, too.
template <class F>
void with_any_drawn_scalar(Bytes& bytes, const F& f) {
  switch (bytes(0, 5)) {
    case 0:
      return f(Eigen::bfloat16{});
    case 1:
      return f(OtherShort{});
    default:
      return with_drawn_scalar(bytes, f);
  }
}

/// Calls trial(bytes) as each_drawn does, until it fails on one of the ranks.
template <class Trial>
void each_drawn_over_ranks(long count, std::uint64_t seed, Trial&& trial) {
  int failed = 0;
  each_drawn(count, seed, [&](std::span<const std::uint8_t> data) {
    if (failed != 0) return;
    trial(data);
    failed = testing::Test::HasFailure() ? 1 : 0;
    MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, all_ranks().mpi());
  });
}

}  // namespace fovea_test
