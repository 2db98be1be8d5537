// SPDX-License-Identifier: MIT
/// \file
/// Remote rows that a layer reads in addition to its own: neighbours of tokens, or whole blocks.
#pragma once

#include <cstdint>
#include <exception>
#include <vector>

#include "fovea/distributed/messages/exchange.hpp"
#include "fovea/distributed/messages/exchange_plan.hpp"
#include "fovea/distributed/messages/pass.hpp"
#include "fovea/distributed/rows/row_set.hpp"
#include "fovea/distributed/rows/row_tensors.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The rows of a tensor that this rank holds or needs, at their positions in the sequence. Each row
/// is sent once to every rank that needs it. Memory: the pages of these rows.
template <class T>
class FetchedRows final : public RankPass {
 public:
  /// Allocates all memory, and plans the messages.
  /// \param layout of the rows of `own`; it must outlive this object, as must their memory
  /// \param needs called as needs(ranges that a rank holds), on every rank for all of them: the
  /// ranges of rows that this rank needs, which may overlap and go beyond the sequence
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  template <class Needs>
  FetchedRows(const Communicator& ranks, const RowLayout& layout, const View<const T>& own,
              const Needs& needs)
      : FetchedRows(ranks, layout, own, needed_by_all(layout, needs)) {}

  /// A hash of the message plan.
  std::uint64_t plan_number() const override { return number_; }

  /// Sends and receives. \returns null, since nothing is computed
  std::exception_ptr run(const ExecutorRef& /*executor*/) override {
    rows_.expect(plan_.with_received(held_, rows_.places().front().rows));
    rows_.put(0, own_, held_);
    exchange_.run();
    return nullptr;
  }

  /// [B, H, N, W], valid in the rows that this rank holds or needs.
  View<const T> rows() const { return rows_.tensor(0); }

 private:
  using Needed = std::vector<std::vector<Range>>;  // rows that each rank needs

  FetchedRows(const Communicator& ranks, const RowLayout& layout, const View<const T>& own,
              const Needed& needed)
      : own_(own),
        held_(layout.of(ranks.rank())),
        rows_(own.batch(), layout.rows(), {{own.heads(), own.width()}}),
        plan_(ExchangePlan::of(
            layout, ranks.rank(),
            [&](int rank) -> const auto& { return needed[static_cast<std::size_t>(rank)]; })),
        exchange_(ranks, rows_, {plan_}) {
    for (int rank = 0; rank < layout.ranks(); ++rank) {
      number_ = 3 * number_ + number_of(rank, needed[static_cast<std::size_t>(rank)]);
    }
  }

  template <class Needs>
  static Needed needed_by_all(const RowLayout& layout, const Needs& needs) {
    Needed needed;
    for (int rank = 0; rank < layout.ranks(); ++rank) {
      RowSet rows(layout.rows());
      for (const Range& range : needs(layout.of(rank))) rows.add(range.within({0, layout.rows()}));
      needed.push_back(rows.ranges());
    }
    return needed;
  }

  View<const T> own_;
  const std::vector<Range>& held_;  // rows of this rank
  RowTensors<T> rows_;
  ExchangePlan plan_;
  Exchange exchange_;
  std::uint64_t number_ = 0;
};

}  // namespace distributed

FOVEA_NAMESPACE_END
