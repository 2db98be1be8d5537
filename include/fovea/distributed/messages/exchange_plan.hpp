// SPDX-License-Identifier: MIT
/// \file
/// Which rows are sent between which ranks; every rank computes this locally from the layout and an
/// operator's plans.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "fovea/attention/softmax/head_plans.hpp"
#include "fovea/distributed/row_layout.hpp"
#include "fovea/distributed/rows/row_set.hpp"
#include "fovea/patterns/plan_part.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The rows sent to or from another rank in one message.
struct Transfer {
  int rank = 0;             ///< the other rank
  std::vector<Range> rows;  ///< ascending, disjoint
};

/// One rank's sends and receives.
struct ExchangePlan {
  std::vector<Transfer> sends;     ///< by ascending rank, not empty
  std::vector<Transfer> receives;  ///< likewise

  /// A rank's sends and receives if every rank gets the rows that it needs and does not hold.
  /// \param needs needs(r) gives the rows that rank r needs, as ascending disjoint ranges
  template <class Needs>
  static ExchangePlan of(const RowLayout& layout, int rank, const Needs& needs) {
    ExchangePlan plan;
    const std::vector<Range>& own_needs = needs(rank);
    for (int other = 0; other < layout.ranks(); ++other) {
      if (other == rank) continue;
      add(plan.receives, other, intersection(own_needs, layout.of(other)));
      add(plan.sends, other, intersection(needs(other), layout.of(rank)));
    }
    return plan;
  }

  /// The part of the plan for rows in a range.
  ExchangePlan within(const Range& rows) const {
    ExchangePlan part;
    const std::vector<Range> only = {rows};
    for (const Transfer& t : sends) add(part.sends, t.rank, intersection(t.rows, only));
    for (const Transfer& t : receives) add(part.receives, t.rank, intersection(t.rows, only));
    return part;
  }

  /// Some of this rank's rows, and all rows that it receives.
  /// \param own ascending, disjoint   \param rows of the sequence
  std::vector<Range> with_received(const std::vector<Range>& own, Index rows) const {
    RowSet there(rows);
    for (const Range& range : own) there.add(range);
    for (const Transfer& transfer : receives) {
      for (const Range& range : transfer.rows) there.add(range);
    }
    return there.ranges();
  }

  /// The number of rows sent.
  Index rows_sent() const {
    Index rows = 0;
    for (const Transfer& transfer : sends) rows += row_count(transfer.rows);
    return rows;
  }

 private:
  static void add(std::vector<Transfer>& to, int rank, std::vector<Range> rows) {
    if (!rows.empty()) to.push_back({rank, std::move(rows)});
  }
};

/// Calls f(plan) for the distinct plans of every pass of every head. Sequences are not packed.
template <class F>
void for_each_plan_of(const HeadPlans& plans, F&& f) {
  for (Index pass = 0; pass < plans.pass_count(); ++pass) {
    for (Index head = 0; head < plans.period(); ++head) f(plans.plan(pass, 0, head));
  }
}

/// A hash of a rank's list of ranges.
inline std::uint64_t number_of(int rank, const std::vector<Range>& ranges) {
  auto number = static_cast<std::uint64_t>(rank) + 1;
  for (const Range& range : ranges) {
    for (const Index end : {range.begin, range.end}) {
      number = (number ^ static_cast<std::uint64_t>(end)) * 0x100000001b3;
    }
  }
  return number;
}

/// Adds a block's visible keys to a hash.
inline std::uint64_t number_after(std::uint64_t number, const QueryBlock& block) {
  const auto add = [&](Index x) {
    number = (number ^ static_cast<std::uint64_t>(x)) * 0x100000001b3;
  };
  for (const Index x : {block.first, block.step, block.count}) add(x);
  for (Index n = 0; n < block.run_count; ++n) {
    const KeyRun& run = block.runs[n];
    for (const Index x : {run.first, run.step, run.count}) add(x);
    for (Index r = 0; run.lower != nullptr && r < block.count; ++r) {
      add(run.lower[r]);
      add(run.upper[r]);
    }
  }
  return number;
}

/// A hash of all heads' plans, independent of the rows that a rank holds.
inline std::uint64_t number_of(const HeadPlans& plans) {
  std::uint64_t number = 0;
  BlockStorage storage(plans.most_runs());
  for_each_plan_of(plans, [&](const AnyPlan& plan) {
    for (Index b = 0; b < plan.block_count(); ++b) {
      number = number_after(number, plan.block(b, storage));
    }
  });
  return number;
}

/// The keys that some query rows see under one of the plans.
/// \param rows ascending, disjoint   \param keys Nk
inline std::vector<Range> keys_seen(const HeadPlans& plans, const std::vector<Range>& rows,
                                    Index keys) {
  RowSet seen(keys);
  BlockStorage storage(plans.most_runs());
  for_each_plan_of(plans, [&](const AnyPlan& whole) {
    const PlanPart part(whole, rows);
    for (Index b = 0; b < part.block_count(); ++b) {
      const QueryBlock block = part.block(b, storage);
      for (Index n = 0; n < block.run_count; ++n) {
        const KeyRun& run = block.runs[n];
        seen.add(RowBlock{run.first, run.step, run.count});
      }
    }
  });
  return seen.ranges();
}

/// The rows of a range, in whole blocks, that see only keys of this range under all plans.
/// \param rows of the sequence, Nq
inline std::vector<Range> rows_seeing_only(const HeadPlans& plans, const Range& range, Index rows) {
  RowSet others(rows);
  BlockStorage storage(plans.most_runs());
  for_each_plan_of(plans, [&](const AnyPlan& whole) {
    const PlanPart part(whole, {&range, 1});
    for (Index b = 0; b < part.block_count(); ++b) {
      const QueryBlock block = part.block(b, storage);
      bool is_inside = true;
      for (Index n = 0; n < block.run_count; ++n) {
        const Range keys =
            RowBlock{block.runs[n].first, block.runs[n].step, block.runs[n].count}.span();
        is_inside = is_inside && range.begin <= keys.begin && keys.end <= range.end;
      }
      if (!is_inside) others.add(RowBlock{block.first, block.step, block.count});
    }
  });
  return without({range}, others.ranges());
}

/// The query rows that see one of some keys under one of the plans.
/// \param keys ascending, disjoint   \param rows Nq
inline std::vector<Range> rows_seeing(const HeadPlans& plans, const std::vector<Range>& keys,
                                      Index rows) {
  RowSet seeing(rows);
  BlockStorage storage(plans.most_runs());
  for_each_plan_of(plans, [&](const AnyPlan& whole) {
    for (const Range& some : keys) {
      const PlanPart part(whole, {&kEverywhere, 1}, some, PlanPart::EmptyPieces::left_out);
      for (Index b = 0; b < part.block_count(); ++b) {
        const QueryBlock block = part.block(b, storage);
        for (Index r = 0; r < block.count; ++r) {
          bool sees = false;
          for (Index n = 0; n < block.run_count; ++n) {
            sees = sees || !seen_by(block.runs[n], r).is_empty();
          }
          const Index row = block.first + block.step * r;
          if (sees) seeing.add(Range{row, row + 1});
        }
      }
    }
  });
  return seeing.ranges();
}

}  // namespace distributed

FOVEA_NAMESPACE_END
