// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// Packed rows: every rank sends rows of its own to each other rank, in messages of any number of
/// rows.
#include "fovea/distributed/messages/packed_messages.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <map>
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
  std::map<const Transfer*, std::vector<Index>> numbers;
  for (const Transfer& to : plan.sends) numbers[&to] = numbers_of(to.rows, width(to));
  for (const Transfer& from : plan.receives) {
    numbers[&from].resize(numbers_of(from.rows, width(from)).size(), -1);
  }
  messages.run(plan, row_bytes, [&](const Transfer& t, const auto& f) {
    std::vector<Index>& all = numbers.at(&t);
    f(all.data(), sizeof(Index));  // two pieces
    f(all.data() + 1, (all.size() - 1) * sizeof(Index));
  });
  for (const Transfer& from : plan.receives) {
    EXPECT_EQ(numbers[&from], numbers_of(from.rows, width(from))) << "from rank " << from.rank;
  }
}

TEST(PackedMessages, ArriveInAnyNumberOfMessages) {
  for (const int most : {1, 2, 3, 7, (std::numeric_limits<int>::max)()}) expect_rows(most);
}

}  // namespace fovea_test::distributed_packed_messages
