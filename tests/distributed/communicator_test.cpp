// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// Communicators, different layouts, and failures on all ranks.
#include "fovea/distributed/communicator.hpp"

#include <gtest/gtest.h>

#include <new>
#include <stdexcept>
#include <utility>

#include "distributed/before_init.hpp"
#include "fovea/distributed/messages/collective_check.hpp"
#include "support/ranks.hpp"
#include "support/refusal.hpp"

namespace fovea_test::distributed_communicator {

using fovea::distributed::detail::together;

TEST(Communicator, HasItsRanks) {
  int rank = -1;
  int size = -1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  EXPECT_EQ(all_ranks().rank(), rank);
  EXPECT_EQ(all_ranks().size(), size);
  Communicator first(MPI_COMM_WORLD);
  EXPECT_NE(first.mpi(), MPI_COMM_WORLD);
  const Communicator second(std::move(first));
  EXPECT_EQ(second.rank(), rank);
}

TEST(Communicator, MayBePartOfTheWorld) {
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, all_ranks().rank() % 2, 0, &half);
  {
    const Communicator ranks(half);
    EXPECT_EQ(ranks.rank(), all_ranks().rank() / 2);
    together(ranks, "nothing", [] {});
  }
  MPI_Comm_free(&half);
}

TEST(Communicator, RefusesInvalidOnes) {
  EXPECT_EQ(refusal([] { Communicator ranks(MPI_COMM_NULL); }),
            "Communicator: the communicator is MPI_COMM_NULL");
  EXPECT_EQ(refusal_before_init(), "Communicator: MPI is not initialised; call MPI_Init first");
}

TEST(Communicator, ReportsWhichCallFailed) {
  try {
    all_ranks().check(MPI_ERR_COMM, "MPI_Something");
    ADD_FAILURE() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    const std::string text = error.what();
    const std::string begin =
        "MPI_Something failed on rank " + std::to_string(all_ranks().rank()) + ": ";
    EXPECT_EQ(text.substr(0, begin.size()), begin);
    EXPECT_GT(text.size(), begin.size());
  }
}

TEST(Agreement, PassesIfNoRankFails) {
  int calls = 0;
  together(all_ranks(), "a call", [&] { ++calls; });
  EXPECT_EQ(calls, 1);
}

/// Every rank in turn fails, and all throw its message.
TEST(Agreement, AllRanksThrowWhatOneThrows) {
  for (int culprit = 0; culprit < all_ranks().size(); ++culprit) {
    const bool fails = culprit == all_ranks().rank();
    const std::string begin = "rank " + std::to_string(culprit) + ": ";
    EXPECT_EQ(refusal([&] {
                together(all_ranks(), "a call", [&] {
                  if (fails) throw std::invalid_argument("Op: x is 3; expected 4");
                });
              }),
              begin + "Op: x is 3; expected 4");
    EXPECT_THROW(together(all_ranks(), "a call",
                          [&] {
                            if (fails) throw std::bad_alloc();
                          }),
                 std::bad_alloc);
    try {
      together(all_ranks(), "a call", [&] {
        if (fails) throw std::runtime_error("no paper");
      });
      ADD_FAILURE() << "nothing was thrown";
    } catch (const std::runtime_error& error) {
      EXPECT_EQ(error.what(), begin + "no paper");
    }
    try {
      together(all_ranks(), "a call", [&] {
        if (fails) throw 7;
      });
      ADD_FAILURE() << "nothing was thrown";
    } catch (const std::runtime_error& error) {
      EXPECT_EQ(error.what(), begin + "an exception of an unknown type");
    }
  }
}

TEST(Agreement, TheErrorOfTheLowestRankIsThrown) {
  EXPECT_EQ(refusal([] {
              together(all_ranks(), "a call", [] {
                throw std::invalid_argument("Op: " + std::to_string(all_ranks().rank()));
              });
            }),
            "rank 0: Op: 0");
}

TEST(Agreement, CallsThatDifferAreRefused) {
  if (all_ranks().size() == 1) GTEST_SKIP() << "one rank makes one call";
  const int last = all_ranks().size() - 1;
  EXPECT_EQ(refusal([&] {
              together(all_ranks(), all_ranks().rank() == last ? "a walk" : "a call", [] {});
            }),
            "rank " + std::to_string(last) + " calls a walk, where rank 0 calls a call");
}

TEST(Sharding, HaveTheSameLayoutOnAllRanks) {
  const int size = all_ranks().size();
  EXPECT_EQ(refusal([&] { Sharding rows(all_ranks(), RowLayout::contiguous(9, size + 1)); }),
            "rank 0: Sharding: the number of ranks of the layout is " + std::to_string(size + 1) +
                "; expected " + std::to_string(size) + ", the size of the communicator");
  if (size == 1) return;
  const Index own = all_ranks().rank() == 1 ? 1 : 0;
  const std::string text =
      refusal([&] { Sharding rows(all_ranks(), RowLayout::contiguous(9 + own, size)); });
  EXPECT_EQ(text.substr(0, 40), "rank 1 calls Sharding with 10 rows: [0, ");
  EXPECT_NE(text.find("where rank 0 calls Sharding with 9 rows: [0, "), std::string::npos) << text;
  const Sharding rows(all_ranks(), RowLayout::zigzag(9, size));
  EXPECT_EQ(rows.count(), 9);
  EXPECT_EQ(rows.own_count(), rows.layout().count(all_ranks().rank()));
}

}  // namespace fovea_test::distributed_communicator
