// SPDX-License-Identifier: MIT
/// \file
/// The exchanged rows, compared with the patterns' definition: exactly the keys that a rank's rows
/// see and the rank does not have, once.
#include "fovea/distributed/messages/exchange_plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "fovea/attention/big_bird.hpp"
#include "fovea/attention/fixed.hpp"
#include "fovea/attention/full.hpp"
#include "fovea/attention/local.hpp"
#include "fovea/attention/strided.hpp"
#include "support/index.hpp"

namespace fovea_test::distributed_exchange_plan {

using fovea::AnyPattern;
using fovea::HeadPlans;
using fovea::Range;
using fovea::SequenceShape;
using fovea::distributed::ExchangePlan;
using fovea::distributed::keys_seen;
using fovea::distributed::RowLayout;
using fovea::distributed::rows_seeing;
using fovea::distributed::rows_seeing_only;
using fovea::distributed::Transfer;

constexpr Index kRows = 400;

std::vector<bool> flags_of(const std::vector<Range>& ranges) {
  std::vector<bool> flags(as_size(kRows));
  for (const Range& range : ranges) {
    for (Index n = range.begin; n < range.end; ++n) flags[as_size(n)] = true;
  }
  return flags;
}

/// Calls f(plans, seen), where seen(i, j) is whether a head's row i sees key j.
template <class F>
void for_each_operator(const F& f) {
  const auto call = [&](const auto& op) {
    const SequenceShape shape{kRows, kRows, 0};
    std::vector<bool> pairs(as_size(kRows * kRows));
    for (Index h = 0; h < op.pattern_period(4); ++h) {
      const AnyPattern pattern(op.pattern(h, shape));
      for (Index n = 0; n < kRows * kRows; ++n) {
        if (pattern.allows(n / kRows, n % kRows)) pairs[as_size(n)] = true;
      }
    }
    f(HeadPlans(op, 4, shape), [&](Index i, Index j) { return pairs[as_size(i * kRows + j)]; });
  };
  call(fovea::FullAttention{{.causal = true}});
  call(fovea::FullAttention{});
  call(fovea::LocalAttention{{.left = 9, .right = 4}});
  call(fovea::StridedAttention{{.stride = 16}});
  call(fovea::StridedAttention{{.stride = 16, .heads = fovea::HeadAssignment::merged}});
  call(fovea::FixedAttention{{.stride = 16, .summary = 2}});
  call(fovea::BigBirdAttention{{.block = 16, .global_blocks = 1, .random_blocks = 2}});
}

const std::vector<RowLayout>& layouts() {
  static const std::vector<RowLayout> all = {
      RowLayout::contiguous(kRows, 3), RowLayout::zigzag(kRows, 3),
      RowLayout::block_cyclic(kRows, 3, 16), RowLayout::block_cyclic(kRows, 3, 11)};
  return all;
}

TEST(ExchangePlan, RowsNeedExactlyTheVisibleKeys) {
  for_each_operator([](const HeadPlans& plans, const auto& seen) {
    for (const RowLayout& layout : layouts()) {
      for (int rank = 0; rank < 3; ++rank) {
        std::vector<bool> keys(as_size(kRows));
        std::vector<bool> rows(as_size(kRows));
        const std::vector<bool> own = flags_of(layout.of(rank));
        for (Index i = 0; i < kRows; ++i) {
          for (Index j = 0; j < kRows; ++j) {
            if (!seen(i, j)) continue;
            if (own[as_size(i)]) keys[as_size(j)] = true;
            if (own[as_size(j)]) rows[as_size(i)] = true;
          }
        }
        EXPECT_EQ(flags_of(keys_seen(plans, layout.of(rank), kRows)), keys);
        EXPECT_EQ(flags_of(rows_seeing(plans, layout.of(rank), kRows)), rows);
      }
    }
  });
}

TEST(ExchangePlan, RowsThatSeeOnlyTheirRange) {
  for_each_operator([](const HeadPlans& plans, const auto& seen) {
    for (const RowLayout& layout : layouts()) {
      for (const Range& range : layout.of(1)) {
        for (const Range& rows : rows_seeing_only(plans, range, kRows)) {
          EXPECT_EQ(rows.within(range), rows);
          for (Index i = rows.begin; i < rows.end; ++i) {
            for (Index j = 0; j < kRows; ++j) {
              EXPECT_FALSE(seen(i, j) && (j < range.begin || j >= range.end)) << i << " sees " << j;
            }
          }
        }
      }
    }
    const Range all = {0, kRows};
    EXPECT_EQ(rows_seeing_only(plans, all, kRows), std::vector<Range>{all});
  });
  // Of a window, all blocks of rows that are far enough from the ends.
  const fovea::LocalAttention op{{.left = 5, .right = 5}};
  const HeadPlans plans(op, 1, SequenceShape{kRows, kRows, 0});
  Index rows = 0;
  for (const Range& range : rows_seeing_only(plans, {100, 300}, kRows)) {
    rows += range.end - range.begin;
  }
  EXPECT_GE(rows, 200 - 2 * (5 + 64));
  EXPECT_LE(rows, 200 - 2 * 5);
}

TEST(ExchangePlan, ReceivedRowsAreSentOnce) {
  for_each_operator([](const HeadPlans& plans, const auto& /*seen*/) {
    for (const RowLayout& layout : layouts()) {
      const auto needs = [&](int rank) { return keys_seen(plans, layout.of(rank), kRows); };
      std::vector<ExchangePlan> of_ranks;
      for (int rank = 0; rank < 3; ++rank) {
        of_ranks.push_back(ExchangePlan::of(layout, rank, needs));
      }
      for (int to = 0; to < 3; ++to) {
        std::vector<bool> there = flags_of(layout.of(to));
        for (const Transfer& transfer : of_ranks[as_size(to)].receives) {
          const auto& sends = of_ranks[as_size(transfer.rank)].sends;
          const auto send = std::find_if(sends.begin(), sends.end(),
                                         [&](const Transfer& t) { return t.rank == to; });
          ASSERT_NE(send, sends.end());
          EXPECT_EQ(send->rows, transfer.rows);
          for (const Range& range : transfer.rows) {
            for (Index n = range.begin; n < range.end; ++n) {
              EXPECT_FALSE(there[as_size(n)]) << "twice, or held already";
              there[as_size(n)] = true;
            }
          }
        }
        const std::vector<bool> needed = flags_of(needs(to));
        for (std::size_t n = 0; n < there.size(); ++n) EXPECT_TRUE(there[n] || !needed[n]);
        // Cut in stages it is the same.
        Index rows = 0;
        for (Index first = 0; first < kRows; first += 64) {
          rows += of_ranks[as_size(to)].within({first, first + 64}).rows_sent();
        }
        EXPECT_EQ(rows, of_ranks[as_size(to)].rows_sent());
      }
    }
  });
}

}  // namespace fovea_test::distributed_exchange_plan
