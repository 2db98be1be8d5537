// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// Packed rows: every rank sends rows of its own to each other rank, in messages of any number of
/// rows.
#include "fovea/distributed/messages/packed_messages.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <vector>

#include "fovea/distributed/messages/exchange_plan.hpp"
#include "support/ranks.hpp"

namespace fovea_test::distributed_packed_messages {

using fovea::distributed::ExchangePlan;
using fovea::distributed::PackedMessages;
using fovea::distributed::Transfer;

/// The rows that a rank sends to another.
std::vector<Range> rows_sent(int from, int to) {
  return {{10 * from, 10 * from + 3}, {10 * from + 5, 10 * from + 6 + to}};
}

/// The numbers of some rows.
std::vector<Index> numbers_of(const std::vector<Range>& rows, Index width) {
  std::vector<Index> numbers;
  for (const Range& range : rows) {
    for (Index n = range.begin * width; n < range.end * width; ++n) numbers.push_back(n);
  }
  return numbers;
}

/// Exchanges rows in messages of at most `most` rows, and checks them.
void expect_rows(int most) {
  SCOPED_TRACE(most);
  const int self = all_ranks().rank();
  ExchangePlan plan;
  for (int other = 0; other < all_ranks().size(); ++other) {
    if (other == self) continue;
    plan.sends.push_back({other, rows_sent(self, other)});
    plan.receives.push_back({other, rows_sent(other, self)});
  }
  // Rows differ in size between pairs of ranks.
  const auto width = [&](const Transfer& t) { return Index{1} + self + t.rank; };
  const auto row_bytes = [&](const Transfer& t) { return width(t) * Index{sizeof(Index)}; };
  PackedMessages messages(all_ranks(), 7, most);
  messages.reserve(plan, row_bytes);
  int received = 0;
  messages.run(
      plan, row_bytes,
      [&](const Transfer& to, std::byte* message) {
        const std::vector<Index> numbers = numbers_of(to.rows, width(to));
        std::memcpy(message, numbers.data(), numbers.size() * sizeof(Index));
      },
      [&](const Transfer& from, const std::byte* message) {
        const std::vector<Index> expected = numbers_of(from.rows, width(from));
        std::vector<Index> numbers(expected.size());
        std::memcpy(numbers.data(), message, numbers.size() * sizeof(Index));
        EXPECT_EQ(numbers, expected) << "from rank " << from.rank;
        ++received;
      });
  EXPECT_EQ(received, all_ranks().size() - 1);
}

TEST(PackedMessages, ArriveInAnyNumberOfMessages) {
  for (const int most : {1, 2, 3, 7, (std::numeric_limits<int>::max)()}) expect_rows(most);
}

}  // namespace fovea_test::distributed_packed_messages
